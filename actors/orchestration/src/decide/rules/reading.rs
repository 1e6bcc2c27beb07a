//! A request, read: what is asked for, in words whose kinds are known, and the text that it is asked of.

use std::ops::Range;

use callboard_message::text::is_one_of;

use super::lexicon::{OfSubject, Set, Term, lexicon};
use super::matcher::Hit;
use super::refusal;
use super::words::{Kind, Token, plain_text, tokenize};

/// A request, read once.
#[derive(Debug)]
pub(super) struct Reading {
    /// The request in one spelling.
    pub(super) text: String,
    /// What is asked for: quoted and pasted text isn't among them.
    pub(super) tokens: Vec<Token>,
    /// Kinds of words, where they stand in `tokens`.
    pub(super) hits: Vec<Hit<Set>>,
    /// Words of subjects, where they stand in `tokens`.
    pub(super) subjects: Vec<Hit<OfSubject>>,
    /// The bits of all sets a token is of, by token.
    bits: Vec<u64>,
    /// Text to be worked on: quoted, after a colon, or pasted below.
    pub(super) content: String,
    /// Whether there is a piece of a program, in what is asked or in the text.
    pub(super) has_code: bool,
    /// Whether there is one in the text.
    has_program: bool,
    /// The addresses in it.
    addresses: Vec<String>,
    /// Whether it is Portuguese.
    pub(super) portuguese: bool,
    /// Whether it is surely English.
    pub(super) english: bool,
    /// Where something is wanted: the rest of `tokens` only tells what led to it.
    pub(super) wish: Range<usize>,
}

/// From so many words on, a text that nothing else is wanted of is to be shortened.
const LONG_TEXT_WORDS_MIN: usize = 12;
/// A sentence of fewer words is of the one before.
const SENTENCE_WORDS_MIN: usize = 3;
/// A part of so many tokens says little beside what it begins with.
const FEW_TOKENS_MAX: usize = 5;

impl Reading {
    /// Reads a request.
    pub(super) fn new(request: &str) -> Self {
        let lexicon = lexicon();
        let text = plain_text(request.trim());
        let mut tokens = tokenize(&text, |c| lexicon.emoji(c));
        mean(&mut tokens, None);
        let (portuguese, english) = language(&tokens);
        if portuguese || english {
            mean(&mut tokens, Some(portuguese));
        }
        let mut content: Vec<Range<usize>> = quotes(&text);
        if let Some(pasted) = pasted(&text, &tokens, &content, english) {
            content.retain(|range| range.start < pasted.start);
            content.push(pasted);
        }
        let of_kind = |kind: Kind| tokens.iter().filter(move |token| token.kind == kind);
        let has_code = of_kind(Kind::Code).next().is_some();
        let mut addresses: Vec<String> = of_kind(Kind::Address)
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
        let has_program = of_kind(Kind::Code).any(in_content);
        tokens.retain(|token| !in_content(token));
        spell(&mut tokens, english);
        let hits = lexicon.sets.find(&tokens, english);
        let mut bits = vec![0; tokens.len()];
        for hit in &hits {
            for bit in bits.iter_mut().skip(hit.at).take(hit.len) {
                *bit |= hit.value.bit();
            }
        }
        let mut subjects = lexicon.words.find(&tokens, english);
        // "sobre" has the stem of "sobras", and means nothing.
        subjects.retain(|hit| hit.len > 1 || bits[hit.at] & Set::Stop.bit() == 0);
        let content = shown;
        let wish = 0..tokens.len();
        let read = Self {
            text,
            tokens,
            hits,
            subjects,
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
            wish: read.wanted(),
            ..read
        }
    }

    /// From the first sentence that wants something to the last; all where none does.
    fn wanted(&self) -> Range<usize> {
        let mut sentences: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        let ends = |at: &usize| {
            [".", "?", "!", "\n", "…"]
                .iter()
                .any(|sign| self.tokens[*at].is_sign(sign))
        };
        for at in self
            .all()
            .filter(|at| ends(at) || at + 1 == self.tokens.len())
        {
            // `p.m.`, `Dr.`, `Ok.` are of the sentence before.
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
            (*span).clone().any(asks) || self.has(Set::Wish, span) || self.orders(span)
        };
        let mut wanting = sentences.iter().filter(wants);
        let Some(first) = wanting.next() else {
            return self.all();
        };
        let last = wanting.next_back().unwrap_or(first);
        first.start..last.end
    }

    /// Whether a part begins with a verb that orders, or with a word of a subject: `Hotel in Graz.`
    fn orders(&self, span: &Range<usize>) -> bool {
        const ORDERS: [Set; 13] = [
            Set::VagueVerb,
            Set::TranslateVerb,
            Set::SummarizeVerb,
            Set::EchoVerb,
            Set::SayVerb,
            Set::RunVerb,
            Set::KillVerb,
            Set::NoteVerb,
            Set::PlanVerb,
            Set::ReviewVerb,
            Set::Compose,
            Set::Governs,
            Set::TalkVerb,
        ];
        let is_order = |at: usize| ORDERS.iter().any(|set| self.is(at, *set));
        let empty = |at: usize| self.is(at, Set::Filler) || self.is(at, Set::Stop) && !is_order(at);
        let first = span
            .clone()
            .find(|at| self.tokens[*at].is_word() && !empty(*at));
        let tells = self.has(Set::Context, span);
        first.is_some_and(|at| {
            is_order(at) || !tells && self.subjects.iter().any(|hit| hit.at == at)
        })
    }

    /// Evidence of a part for patterns: its words' sets, its signs, and the sets of the first word that isn't empty.
    pub(super) fn signs(&self, span: &Range<usize>) -> Vec<Hit<Term>> {
        let inside = self.hits.iter().filter(|hit| span.contains(&hit.at));
        let mut signs: Vec<Hit<Term>> = inside
            .map(|hit| Hit {
                at: hit.at,
                len: hit.len,
                value: (hit.value, false),
            })
            .collect();
        let is_code = |at: &usize| self.tokens[*at].kind == Kind::Code;
        let has_program = self.has_program && span.len() * 2 >= self.tokens.len()
            || span.clone().any(|at| is_code(&at));
        let is_long = self
            .content
            .split_whitespace()
            .nth(LONG_TEXT_WORDS_MIN - 1)
            .is_some()
            && !self.has_code;
        let wide = [
            (Set::AText, self.has_content()),
            (Set::ALongText, is_long),
            (Set::FewWords, span.len() <= FEW_TOKENS_MAX),
            (Set::AProgram, has_program),
        ];
        for at in span.clone() {
            let Some(token) = self.tokens.get(at) else {
                break;
            };
            let mut add = |set: Set, len: usize| {
                signs.push(Hit {
                    at,
                    len,
                    value: (set, false),
                })
            };
            match token.kind {
                Kind::Address => add(Set::AnAddress, 1),
                Kind::Code => add(Set::CodeWord, 1),
                Kind::Number => add(Set::ANumber, 1),
                Kind::Word if token.capital && at != span.start && self.is_name(at) => {
                    add(Set::AName, 1)
                }
                Kind::Word | Kind::Sign => {}
            }
            if self.is_hour(at) {
                add(Set::AnHour, 1);
            }
            // What is said of the whole part is near each of its words, and takes the place of none.
            wide.iter()
                .filter(|(_, is_so)| *is_so)
                .for_each(|(set, _)| add(*set, 0));
        }
        let light = Set::Stop.bit() | Set::Filler.bit() | Set::Greeting.bit();
        let first = span
            .clone()
            .find(|at| self.tokens[*at].kind != Kind::Sign && self.bits[*at] & light == 0);
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

    /// `9am`, `15h30`, `9 pm`.
    fn is_hour(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        let unit = token
            .folded
            .trim_start_matches(|c: char| c.is_ascii_digit());
        let next = self.tokens.get(at + 1).map_or("", |token| &*token.folded);
        token.kind == Kind::Number
            && (matches!(unit, "am" | "pm")
                || unit
                    .strip_prefix('h')
                    .is_some_and(|m| m.bytes().all(|b| b.is_ascii_digit()))
                || matches!(next, "am" | "pm" | "oclock" | "h" | "horas"))
    }

    /// Whether a word with a capital names somebody or a place.
    pub(super) fn is_name(&self, at: usize) -> bool {
        let empty =
            Set::Stop.bit() | Set::TimeWord.bit() | Set::Languages.bit() | Set::Pronoun.bit();
        self.tokens[at].capital && self.tokens[at].is_word() && self.bits[at] & empty == 0
    }

    /// Whether the word is of any set.
    pub(super) fn is_known(&self, at: usize) -> bool {
        self.bits[at] != 0
    }

    /// All of it.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.tokens.len()
    }

    /// Whether a token is a word of the set, also within a phrase.
    pub(super) fn is(&self, at: usize, set: Set) -> bool {
        self.bits.get(at).is_some_and(|bits| bits & set.bit() != 0)
    }

    /// Where words and phrases of the set begin within the span.
    pub(super) fn of(&self, set: Set, span: &Range<usize>) -> impl Iterator<Item = Hit<Set>> {
        let span = span.clone();
        self.hits
            .iter()
            .copied()
            .filter(move |hit| hit.value == set && span.contains(&hit.at))
    }

    /// Whether one of the set is within the span.
    pub(super) fn has(&self, set: Set, span: &Range<usize>) -> bool {
        self.of(set, span).next().is_some()
    }

    /// Whether the words that carry the span's first meaning are of the set: nothing but stop words and courtesies before.
    pub(super) fn begins_with(&self, set: Set, span: &Range<usize>) -> bool {
        let light = Set::Stop.bit() | Set::Filler.bit();
        let begins = |at: usize| self.hits.iter().any(|hit| hit.value == set && hit.at == at);
        let is_light = |at: usize| self.bits[at] & light != 0 || self.tokens[at].kind == Kind::Sign;
        span.clone()
            .find(|at| begins(*at) || !is_light(*at))
            .is_some_and(begins)
    }

    /// The address in it; `None` where there are several, since which is meant isn't known.
    pub(super) fn only_address(&self) -> Option<&str> {
        let [only] = &*self.addresses else {
            return None;
        };
        Some(only)
    }

    /// Whether there is a text to work on.
    pub(super) fn has_content(&self) -> bool {
        !self.content.trim().is_empty()
    }

    /// What the tokens of a span are in the request's own words.
    pub(super) fn shown(&self, span: &Range<usize>) -> &str {
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

/// Puts the words that are meant in the place of those written in a hurry: in either language, or those of one of them.
fn mean(tokens: &mut [Token], portuguese: Option<bool>) {
    for token in tokens
        .iter_mut()
        .filter(|token| token.is_word() && !token.capital)
    {
        if let Some(word) = lexicon().meant(&token.folded, portuguese) {
            token.mean(word);
        }
    }
}

/// Words of one request that may be misspelt: it takes a while each.
const SPELLED_WORDS_MAX: usize = 48;

/// Puts known words in the place of misspelt ones. A name is written with a capital and isn't a slip of another word.
fn spell(tokens: &mut [Token], is_english: bool) {
    let lexicon = lexicon();
    let is_known = |token: &Token| {
        let one = std::slice::from_ref(token);
        refusal::knows(token)
            || !lexicon.sets.find(one, is_english).is_empty()
            || lexicon.words.has(token)
    };
    let unknown = tokens
        .iter_mut()
        .filter(|token| token.is_word() && !token.capital && !is_known(token));
    for token in unknown.take(SPELLED_WORDS_MAX) {
        if let Some(word) = lexicon.spelled(&token.folded) {
            token.mean(word);
        }
    }
}

/// Quoted passages, without their quotation marks. An apostrophe isn't one.
fn quotes(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some((open, mark)) = text[from..]
        .char_indices()
        .find(|(at, c)| opens(text, from + at, *c))
    {
        let start = from + open + mark.len_utf8();
        match closing(text, start, mark) {
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

fn opens(text: &str, at: usize, c: char) -> bool {
    let before = text[..at].chars().next_back();
    let after = text[at + c.len_utf8()..].chars().next();
    let outside = before.is_none_or(|c| !c.is_alphanumeric());
    match c {
        '"' | '\'' => outside && after.is_some_and(|c| !c.is_whitespace()),
        '“' | '„' | '«' => true,
        _ => false,
    }
}

/// The mark that closes a passage.
pub(super) fn closing_mark(mark: char) -> char {
    match mark {
        '“' | '„' => '”',
        '«' => '»',
        same => same,
    }
}

/// Where the passage ends: at the mark that a word doesn't go on after.
fn closing(text: &str, start: usize, mark: char) -> Option<usize> {
    let close = closing_mark(mark);
    let is_end = |at: usize| !text[at + close.len_utf8()..].starts_with(char::is_alphanumeric);
    text[start..]
        .char_indices()
        .filter(|(_, c)| *c == close)
        .map(|(at, _)| start + at)
        .find(|at| is_end(*at))
}

/// How long a quotation mark is at most.
const QUOTATION_MARK_BYTES_MAX: usize = 3;

/// A text below or behind a colon that the words before it want something done with; after `echo`, all the rest.
fn pasted(
    text: &str,
    tokens: &[Token],
    quotes: &[Range<usize>],
    is_english: bool,
) -> Option<Range<usize>> {
    const WORKS_ON: [Set; 4] = [
        Set::SummarizeVerb,
        Set::EchoVerb,
        Set::TranslateVerb,
        Set::Languages,
    ];
    let first = tokens.first()?;
    if matches!(
        first.folded.as_str(),
        "echo" | "ecoa" | "repeat" | "repita" | "repete"
    ) && tokens
        .get(1)
        .is_some_and(|token| !token.is_sign(":") && token.kind != Kind::Sign)
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
    // A text that is quoted ends with its quotation mark: what comes after is asked again.
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
    // `say: …` and nothing else before the colon.
    let says = head.len() <= 2 && works(&head, &[Set::SayVerb], is_english);
    let works = says || works(&head, &WORKS_ON, is_english);
    let coded = tokens[at..].iter().any(|token| token.kind == Kind::Code);
    const PASTED_BYTES_MIN: usize = 200;
    let long = sign.is_sign("\n") && tail.trim().len() > PASTED_BYTES_MIN;
    ((works || long || coded) && !tail.trim().is_empty()).then_some(sign.range.end..text.len())
}

fn works(head: &[Token], works_on: &[Set], is_english: bool) -> bool {
    const HEAD_WORDS_MAX: usize = 16;
    let mut head: Vec<Token> = head.iter().take(HEAD_WORDS_MAX).cloned().collect();
    spell(&mut head, is_english);
    lexicon()
        .sets
        .find(&head, is_english)
        .iter()
        .any(|hit| works_on.contains(&hit.value))
}

/// Whether it is Portuguese, and whether it is surely English, by words that only one of the two has.
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

    /// Goal: words written in a hurry are read as they are meant, in their language alone. Method: rows.
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
            let read: Vec<String> = Reading::new(request)
                .tokens
                .into_iter()
                .map(|token| token.folded)
                .collect();
            assert_eq!(read.join(" "), expect, "{request}");
        }
    }

    /// Goal: no word by which something is refused or let through is taken for a misspelt other one. Method: each of them alone.
    #[test]
    fn words_of_refusals_are_left() {
        let changed: Vec<String> = refusal::every_word()
            .into_iter()
            .filter(|word| {
                [true, false].into_iter().any(|is_english| {
                    let mut tokens = tokenize(word, |_| None);
                    let before: Vec<String> =
                        tokens.iter().map(|token| token.folded.clone()).collect();
                    spell(&mut tokens, is_english);
                    tokens.iter().map(|token| &token.folded).ne(&before)
                })
            })
            .collect();
        assert!(changed.is_empty(), "{changed:?}");
    }
}
