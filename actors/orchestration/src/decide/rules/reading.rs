//! Linguistic analysis of a request: its classified words, and the text to work on.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::lexicon::{SubjectWord, Term, WordSet, lexicon};
use super::matcher::Hit;
use super::refusal;
use super::tokens::{Token, TokenKind, plain_text, tokenize};

/// Request, split into tokens and analyzed for the rules.
#[derive(Debug)]
pub(super) struct RequestReading {
    /// Normalized text of the request.
    pub(super) text: String,
    /// Tokens of the instruction, without quoted and pasted text.
    pub(super) tokens: Vec<Token>,
    /// Matches of word sets in `tokens`.
    pub(super) hits: Vec<Hit<WordSet>>,
    /// Matches of subject words in `tokens`.
    pub(super) subjects: Vec<Hit<SubjectWord>>,
    /// Matches of concept words in `tokens`.
    pub(super) concepts: Vec<Hit<usize>>,
    /// Word sets of each token, as a bit mask ([`WordSet::bit`]).
    bits: Vec<u64>,
    /// Text that the request asks to work on: quoted, after a colon, or pasted below the
    /// instruction.
    pub(super) content: String,
    /// Whether the instruction or the text contains program code.
    pub(super) has_code: bool,
    /// Whether the text to work on contains program code.
    has_program: bool,
    /// URLs and host addresses in the request.
    addresses: Vec<String>,
    /// Whether the request is in Portuguese.
    pub(super) portuguese: bool,
    /// Whether the request is certainly in English.
    pub(super) english: bool,
    /// Range of the tokens that state the wish. The tokens outside of it give background.
    pub(super) wish: Range<usize>,
}

/// Minimum words of a text without an instruction that is taken as a text to summarize.
const LONG_TEXT_WORDS_MIN: usize = 12;
/// Minimum words of a sentence. A shorter one belongs to the previous sentence.
const SENTENCE_WORDS_MIN: usize = 3;
/// Maximum tokens of a request part that counts as short ([`WordSet::FewWords`]). Some patterns of
/// the lexicon match only short parts, which say little beyond their first word.
const FEW_TOKENS_MAX: usize = 5;

impl RequestReading {
    /// Analyzes a request.
    pub(super) fn new(request: &str) -> Self {
        let lexicon = lexicon();
        let text = plain_text(request.trim());
        let mut tokens = tokenize(&text, |c| lexicon.emoji(c));
        expand_abbreviations(&mut tokens, None);
        let (portuguese, english) = language(&tokens);
        if portuguese || english {
            expand_abbreviations(&mut tokens, Some(portuguese));
        }
        let mut content: Vec<Range<usize>> = quotes(&text);
        if let Some(pasted) = find_pasted_text(&text, &tokens, &content, english) {
            content.retain(|range| range.start < pasted.start);
            content.push(pasted);
        }
        let of_kind = |kind: TokenKind| tokens.iter().filter(move |token| token.kind == kind);
        let has_code = of_kind(TokenKind::Code).next().is_some();
        let mut addresses: Vec<String> = of_kind(TokenKind::Address)
            .map(|token| token.folded.clone())
            .collect();
        addresses.dedup();
        let shown = content
            .iter()
            .map(|range| text[range.clone()].trim())
            .collect::<Vec<_>>()
            .join("\n");
        let in_content = |token: &Token| {
            content
                .iter()
                .any(|range| range.contains(&token.range.start))
        };
        let has_program = of_kind(TokenKind::Code).any(in_content);
        tokens.retain(|token| !in_content(token));
        correct_misspellings(&mut tokens, english);
        let hits = lexicon.sets.find(&tokens, english);
        let mut bits = vec![0; tokens.len()];
        for hit in &hits {
            for bit in bits.iter_mut().skip(hit.at).take(hit.len) {
                *bit |= hit.value.bit();
            }
        }
        let mut subjects = lexicon.words.find(&tokens, english);
        // "sobre" shares its stem with "sobras" but has no content.
        subjects.retain(|hit| hit.len > 1 || bits[hit.at] & WordSet::Stop.bit() == 0);
        let concepts = lexicon.concepts.find(&tokens, english);
        let content = shown;
        let wish = 0..tokens.len();
        let read = Self {
            text,
            tokens,
            hits,
            subjects,
            concepts,
            bits,
            content,
            has_code,
            has_program,
            addresses,
            portuguese,
            english,
            wish,
        };
        Self {
            wish: read.wanted_span(),
            ..read
        }
    }

    /// Returns the tokens from the first to the last sentence with a wish, or all tokens if there
    /// is none.
    fn wanted_span(&self) -> Range<usize> {
        let mut sentences: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        let ends = |at: &usize| {
            [".", "?", "!", "\n", "…"]
                .iter()
                .any(|sign| self.tokens[*at].is_sign(sign))
        };
        for at in self
            .full_span()
            .filter(|at| ends(at) || at + 1 == self.tokens.len())
        {
            // Abbreviations such as `p.m.` or `Dr.` don't end a sentence.
            let words = (start..at + 1)
                .filter(|at| self.tokens[*at].is_word())
                .count();
            match sentences.last_mut() {
                Some(last) if words < SENTENCE_WORDS_MIN => last.end = at + 1,
                _ => sentences.push(start..at + 1),
            }
            start = at + 1;
        }
        let wants = |span: &&Range<usize>| {
            let asks = |at: usize| self.tokens[at].is_sign("?") || self.tokens[at].is_sign(":");
            (*span).clone().any(asks) || self.has(WordSet::Wish, span) || self.is_order(span)
        };
        let mut wanting = sentences.iter().filter(wants);
        let Some(first) = wanting.next() else {
            return self.full_span();
        };
        let last = wanting.next_back().unwrap_or(first);
        first.start..last.end
    }

    /// Whether a request part begins with an imperative, or with a subject word as in `Hotel in
    /// Graz.`
    fn is_order(&self, span: &Range<usize>) -> bool {
        const ORDERS: [WordSet; 13] = [
            WordSet::VagueVerb,
            WordSet::TranslateVerb,
            WordSet::SummarizeVerb,
            WordSet::EchoVerb,
            WordSet::SayVerb,
            WordSet::RunVerb,
            WordSet::KillVerb,
            WordSet::NoteVerb,
            WordSet::PlanVerb,
            WordSet::ReviewVerb,
            WordSet::Compose,
            WordSet::Governs,
            WordSet::TalkVerb,
        ];
        let is_order = |at: usize| ORDERS.iter().any(|set| self.is_in_set(at, *set));
        let empty = |at: usize| {
            self.is_in_set(at, WordSet::Filler)
                || self.is_in_set(at, WordSet::Stop) && !is_order(at)
        };
        let first = span
            .clone()
            .find(|at| self.tokens[*at].is_word() && !empty(*at));
        let tells = self.has(WordSet::Context, span);
        first.is_some_and(|at| {
            is_order(at) || !tells && self.subjects.iter().any(|hit| hit.at == at)
        })
    }

    /// Returns the hits of a request part for pattern matching: the sets of its words, its signs,
    /// and the sets of its first content word.
    pub(super) fn signs(&self, span: &Range<usize>) -> Vec<Hit<Term>> {
        let inside = self.hits.iter().filter(|hit| span.contains(&hit.at));
        let mut signs: Vec<Hit<Term>> = inside
            .map(|hit| Hit {
                at: hit.at,
                len: hit.len,
                value: (hit.value, false),
            })
            .collect();
        let is_code = |at: &usize| self.tokens[*at].kind == TokenKind::Code;
        let has_program = self.has_program && span.len() * 2 >= self.tokens.len()
            || span.clone().any(|at| is_code(&at));
        let is_long = self
            .content
            .split_whitespace()
            .nth(LONG_TEXT_WORDS_MIN - 1)
            .is_some()
            && !self.has_code;
        let asks = span
            .clone()
            .any(|at| self.tokens[at].is_sign("?") || self.is_in_set(at, WordSet::Question));
        let wide = [
            (WordSet::AText, self.has_content()),
            (WordSet::ALongText, is_long),
            (WordSet::FewWords, span.len() <= FEW_TOKENS_MAX),
            (WordSet::AProgram, has_program),
            (WordSet::Asks, asks),
        ];
        for at in span.clone() {
            let Some(token) = self.tokens.get(at) else {
                break;
            };
            let mut add = |set: WordSet, len: usize| {
                signs.push(Hit {
                    at,
                    len,
                    value: (set, false),
                })
            };
            match token.kind {
                TokenKind::Address => add(WordSet::AnAddress, 1),
                TokenKind::Code => add(WordSet::CodeWord, 1),
                TokenKind::Number => add(WordSet::ANumber, 1),
                TokenKind::Word if token.capital && at != span.start && self.is_name(at) => {
                    add(WordSet::AName, 1)
                }
                TokenKind::Word | TokenKind::Sign => {}
            }
            if self.is_hour(at) {
                add(WordSet::AnHour, 1);
            }
            // Properties of the whole part are near each of its words and occupy no token.
            wide.iter()
                .filter(|(_, is_so)| *is_so)
                .for_each(|(set, _)| add(*set, 0));
        }
        let light = WordSet::Stop.bit() | WordSet::Filler.bit() | WordSet::Greeting.bit();
        let first = span
            .clone()
            .find(|at| self.tokens[*at].kind != TokenKind::Sign && self.bits[*at] & light == 0);
        let leads: Vec<Hit<Term>> = signs
            .iter()
            .filter(|hit| Some(hit.at) == first && hit.len > 0)
            .copied()
            .collect();
        signs.extend(leads.into_iter().map(|hit| Hit {
            value: (hit.value.0, true),
            ..hit
        }));
        signs
    }

    /// Whether the token at `at` is a time of day, such as `9am`, `15h30` or `9 pm`.
    fn is_hour(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        let unit = token
            .folded
            .trim_start_matches(|c: char| c.is_ascii_digit());
        let next = self.tokens.get(at + 1).map_or("", |token| &*token.folded);
        token.kind == TokenKind::Number
            && (matches!(unit, "am" | "pm")
                || unit
                    .strip_prefix('h')
                    .is_some_and(|m| m.bytes().all(|b| b.is_ascii_digit()))
                || matches!(next, "am" | "pm" | "oclock" | "h" | "horas"))
    }

    /// Whether the token at `at` is a capitalized word that names a person or place.
    pub(super) fn is_name(&self, at: usize) -> bool {
        let empty = WordSet::Stop.bit()
            | WordSet::TimeWord.bit()
            | WordSet::Languages.bit()
            | WordSet::Pronoun.bit();
        self.tokens[at].capital && self.tokens[at].is_word() && self.bits[at] & empty == 0
    }

    /// Whether the token at `at` belongs to any word set.
    pub(super) fn is_known(&self, at: usize) -> bool {
        self.bits[at] != 0
    }

    /// Returns the range of all tokens.
    pub(super) fn full_span(&self) -> Range<usize> {
        0..self.tokens.len()
    }

    /// Whether the token at `at` belongs to the set, alone or within a phrase.
    pub(super) fn is_in_set(&self, at: usize, set: WordSet) -> bool {
        self.bits.get(at).is_some_and(|bits| bits & set.bit() != 0)
    }

    /// Returns the matches of the set that begin within the span.
    pub(super) fn hits_in(
        &self,
        set: WordSet,
        span: &Range<usize>,
    ) -> impl Iterator<Item = Hit<WordSet>> {
        let span = span.clone();
        self.hits
            .iter()
            .copied()
            .filter(move |hit| hit.value == set && span.contains(&hit.at))
    }

    /// Whether a match of the set begins within the span.
    pub(super) fn has(&self, set: WordSet, span: &Range<usize>) -> bool {
        self.hits_in(set, span).next().is_some()
    }

    /// Whether the first content word of the span belongs to the set. Stop words and courtesies
    /// before it are skipped.
    pub(super) fn begins_with(&self, set: WordSet, span: &Range<usize>) -> bool {
        let light = WordSet::Stop.bit() | WordSet::Filler.bit();
        let begins = |at: usize| self.hits.iter().any(|hit| hit.value == set && hit.at == at);
        let is_light =
            |at: usize| self.bits[at] & light != 0 || self.tokens[at].kind == TokenKind::Sign;
        span.clone()
            .find(|at| begins(*at) || !is_light(*at))
            .is_some_and(begins)
    }

    /// Returns the URL or host address in the request. `None` if there is none, or if there are
    /// several and it is unclear which one is meant.
    pub(super) fn only_address(&self) -> Option<&str> {
        let [only] = &*self.addresses else {
            return None;
        };
        Some(only)
    }

    /// Whether the request contains a text to work on.
    pub(super) fn has_content(&self) -> bool {
        !self.content.trim().is_empty()
    }

    /// Returns the source text of a span of tokens.
    pub(super) fn source_text(&self, span: &Range<usize>) -> &str {
        let start = self
            .tokens
            .get(span.start)
            .map_or(self.text.len(), |token| token.range.start);
        let end = span
            .end
            .checked_sub(1)
            .and_then(|at| self.tokens.get(at))
            .map_or(start, |token| token.range.end);
        self.text
            .get(start..end.max(start))
            .unwrap_or_default()
            .trim()
    }
}

/// Expands abbreviations in place. `None` expands those common to both languages, `Some(true)` the
/// Portuguese and `Some(false)` the English ones.
fn expand_abbreviations(tokens: &mut [Token], portuguese: Option<bool>) {
    for token in tokens
        .iter_mut()
        .filter(|token| token.is_word() && !token.capital)
    {
        if let Some(word) = lexicon().expand_abbreviation(&token.folded, portuguese) {
            token.replace_word(word);
        }
    }
}

/// Maximum words checked for misspelling, because each check is slow.
const SPELLED_WORDS_MAX: usize = 48;

/// Corrects misspelt words. Capitalized words are names and stay unchanged.
fn correct_misspellings(tokens: &mut [Token], is_english: bool) {
    let lexicon = lexicon();
    let is_known = |token: &Token| {
        let one = std::slice::from_ref(token);
        refusal::is_refusal_word(token)
            || !lexicon.sets.find(one, is_english).is_empty()
            || lexicon.words.begins_with(token)
            || lexicon.concepts.begins_with(token)
    };
    let unknown = tokens
        .iter_mut()
        .filter(|token| token.is_word() && !token.capital && !is_known(token));
    for token in unknown.take(SPELLED_WORDS_MAX) {
        if let Some(word) = lexicon.correct_spelling(&token.folded) {
            token.replace_word(word);
        }
    }
}

/// Returns the byte ranges of quoted passages, without their quotation marks. Apostrophes don't
/// count as quotation marks.
fn quotes(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some((open, mark)) = text[from..]
        .char_indices()
        .find(|(at, c)| opens_quote(text, from + at, *c))
    {
        let start = from + open + mark.len_utf8();
        match find_closing_mark(text, start, mark) {
            Some(end) => {
                if !text[start..end].trim().is_empty() {
                    found.push(start..end);
                }
                from = end + text[end..].chars().next().map_or(0, char::len_utf8);
            }
            None => from = start,
        }
    }
    found
}

fn opens_quote(text: &str, at: usize, c: char) -> bool {
    let before = text[..at].chars().next_back();
    let after = text[at + c.len_utf8()..].chars().next();
    let outside = before.is_none_or(|c| !c.is_alphanumeric());
    match c {
        '"' | '\'' => outside && after.is_some_and(|c| !c.is_whitespace()),
        '“' | '„' | '«' => true,
        _ => false,
    }
}

/// Returns the closing mark for an opening quotation mark.
pub(super) fn closing_mark(mark: char) -> char {
    match mark {
        '“' | '„' => '”',
        '«' => '»',
        same => same,
    }
}

/// Returns the offset of the closing mark: the first one not followed by a letter or digit.
fn find_closing_mark(text: &str, start: usize, mark: char) -> Option<usize> {
    let close = closing_mark(mark);
    let is_end = |at: usize| !text[at + close.len_utf8()..].starts_with(char::is_alphanumeric);
    text[start..]
        .char_indices()
        .filter(|(_, c)| *c == close)
        .map(|(at, _)| start + at)
        .find(|at| is_end(*at))
}

/// Maximum bytes of a quotation mark.
const QUOTATION_MARK_BYTES_MAX: usize = 3;

/// Returns the byte range of pasted text after a colon or line break, if the words before it ask to
/// work on it. After `echo`, the range is the whole remaining text.
fn find_pasted_text(
    text: &str,
    tokens: &[Token],
    quotes: &[Range<usize>],
    is_english: bool,
) -> Option<Range<usize>> {
    const WORKS_ON: [WordSet; 4] = [
        WordSet::SummarizeVerb,
        WordSet::EchoVerb,
        WordSet::TranslateVerb,
        WordSet::Languages,
    ];
    let first = tokens.first()?;
    if matches!(
        first.folded.as_str(),
        "echo" | "ecoa" | "repeat" | "repita" | "repete"
    ) && tokens
        .get(1)
        .is_some_and(|token| !token.is_sign(":") && token.kind != TokenKind::Sign)
        && !quotes
            .iter()
            .any(|range| range.start <= first.range.end + 2)
    {
        return Some(first.range.end..text.len());
    }
    let quoted = |at: usize| quotes.iter().any(|range| range.contains(&at));
    let cut = tokens.iter().enumerate().find(|(_, token)| {
        (token.is_sign(":") || token.is_sign("\n")) && !quoted(token.range.start)
    })?;
    let (at, sign) = cut;
    // Quoted text ends at its closing mark, and the instruction continues after it.
    let begins = sign.range.end + text.get(sign.range.end..)?.len()
        - text.get(sign.range.end..)?.trim_start().len();
    if quotes
        .iter()
        .any(|range| range.start > begins && range.start <= begins + QUOTATION_MARK_BYTES_MAX)
    {
        return None;
    }
    let head: Vec<Token> = tokens[..at].to_vec();
    let tail = text.get(sign.range.end..)?;
    // For example `say: …`, with nothing else before the colon.
    let says = head.len() <= 2 && has_work_verb(&head, &[WordSet::SayVerb], is_english);
    let works = says || has_work_verb(&head, &WORKS_ON, is_english);
    let coded = tokens[at..]
        .iter()
        .any(|token| token.kind == TokenKind::Code);
    const PASTED_BYTES_MIN: usize = 200;
    let long = sign.is_sign("\n") && tail.trim().len() > PASTED_BYTES_MIN;
    ((works || long || coded) && !tail.trim().is_empty()).then_some(sign.range.end..text.len())
}

fn has_work_verb(head: &[Token], works_on: &[WordSet], is_english: bool) -> bool {
    const HEAD_WORDS_MAX: usize = 16;
    let mut head: Vec<Token> = head.iter().take(HEAD_WORDS_MAX).cloned().collect();
    correct_misspellings(&mut head, is_english);
    lexicon()
        .sets
        .find(&head, is_english)
        .iter()
        .any(|hit| works_on.contains(&hit.value))
}

/// Detects the language by words that only one language has. Returns whether the text is
/// Portuguese, and whether it is certainly English.
fn language(tokens: &[Token]) -> (bool, bool) {
    const PORTUGUESE: &str = "o os um uma e de do da dos das em no na nos nas para pra pro por pelo com sem que eu voce vc meu minha me quero preciso tem qual quais quem \
        nao sim ja isso este esta esse essa aquele ele ela onde como quanto mais ai la favor gente pode tudo depois hoje amanha faz agora vai ta ou eh sao numa num ao oi ola \
        obrigado resume resuma traduz traduza repete repita reserva roda procura pesquisa";
    const ENGLISH: &str = "the an of in on at to for and or but is are was be i you he she it we they my your his her our their this that what which who how why where when do does did can could would \
        please with from by about not have has will me new need want it's im";
    let among = |list: &str| {
        tokens
            .iter()
            .filter(|t| t.is_word() && is_one_of(&t.folded, list))
            .count()
    };
    let (portuguese, english) = (among(PORTUGUESE), among(ENGLISH));
    (portuguese > english, english > portuguese)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: abbreviations are expanded in their own language only. Method: rows.
    #[test]
    fn words_in_a_hurry() {
        for (request, expect) in [
            (
                "pls tell ppl abt it tmrw",
                "please tell people about it tomorrow",
            ),
            (
                "what do u want from him n why",
                "what do you want from him and why",
            ),
            (
                "pq o cão late qnd eu saio d casa",
                "porque o cao late quando eu saio de casa",
            ),
            ("o livro d Ana e n o meu", "o livro de ana e nao o meu"),
            ("PQ 7 and U 2", "pq 7 and u 2"),
        ] {
            let read: Vec<String> = RequestReading::new(request)
                .tokens
                .into_iter()
                .map(|token| token.folded)
                .collect();
            assert_eq!(read.join(" "), expect, "{request}");
        }
    }

    /// Goal: no word of the refusal rules is taken for a misspelling. Method: each of them alone.
    #[test]
    fn words_of_refusals_are_left() {
        let changed: Vec<String> = refusal::every_word()
            .into_iter()
            .filter(|word| {
                [true, false].into_iter().any(|is_english| {
                    let mut tokens = tokenize(word, |_| None);
                    let before: Vec<String> =
                        tokens.iter().map(|token| token.folded.clone()).collect();
                    correct_misspellings(&mut tokens, is_english);
                    tokens.iter().map(|token| &token.folded).ne(&before)
                })
            })
            .collect();
        assert!(changed.is_empty(), "{changed:?}");
    }
}
