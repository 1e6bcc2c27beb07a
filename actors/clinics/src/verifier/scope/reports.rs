//! Reported speech: which words of a sentence a report, a quotation or somebody's belief covers.

use callboard_message::is_one_of;

use super::lexicon::*;
use super::sentence::{CLOSES, LINE, OPENS, QUOTE, Token};

/// Maximum distance, in words, from a quotation to the words that say whose it is.
const ATTRIBUTION_WORDS: usize = 8;

/// Returns for each token of a sentence whether a report covers it: "was told to …", "Dr. Lima
/// advised …", "foi orientada a …", "according to the record, …". A report ends at a word such as
/// `so`, at a word that addresses the reader, and at a line break after a complete phrase. Speech in
/// quotation marks is covered as a whole if words before or after it say whose it is.
pub(super) fn reported(tokens: &[Token<'_>]) -> Vec<bool> {
    let mut covered = Vec::with_capacity(tokens.len());
    let (mut is_covered, mut concedes, mut quoted_until) = (false, false, 0);
    for (n, token) in tokens.iter().enumerate() {
        if token.has(QUOTE) && n >= quoted_until {
            let closes = |at: &usize| tokens[*at].has(QUOTE | CLOSES);
            let end = (n + 1..tokens.len()).find(closes).unwrap_or(tokens.len());
            if is_attributed(tokens, n, end) {
                quoted_until = end;
            }
        }
        let wraps = n > 0 && tokens[n - 1].word.len() <= 4;
        if token.is(BREAK) || token.has(LINE) && !wraps {
            is_covered = false;
        }
        // "If the cardiologist agreed, stop …": a condition isn't what the rest reports.
        concedes |= is_one_of!(token.word, CONCESSIONS) || n == 0 && token.is(IF);
        // "Although Dr. Lima advised rest, start …": the report ends with its clause.
        let is_titled = n > 0 && is_one_of!(tokens[n - 1].word, "dr dra mr mrs ms prof sr sra");
        if concedes && n > 0 && token.has(OPENS) && !is_titled {
            (is_covered, concedes) = (false, false);
        }
        covered.push(is_covered || n < quoted_until);
        is_covered = is_covered || is_report(tokens, n);
    }
    covered
}

/// Returns whether words near the quotation from `from` up to before `to` say whose it is: "she asked
/// …", "the form has the sentence …", "…, perguntou o doente".
fn is_attributed(tokens: &[Token<'_>], from: usize, to: usize) -> bool {
    let speaks = |token: &Token<'_>| is_one_of!(token.word, SPEAKING) || token.is(SAID | TOLD);
    let until = tokens.len().min(to + ATTRIBUTION_WORDS);
    tokens[from.saturating_sub(ATTRIBUTION_WORDS)..from]
        .iter()
        .chain(&tokens[to.min(until)..until])
        .any(speaks)
}

/// Words that say whose a quotation is, beside past forms of saying.
const SPEAKING: &str = "says say quote quotes quoted form leaflet states reports question sentence headline answered \
    called call entered diz refere relata bula folheto termo consent pergunta frase perguntou escreveu escrito titulo";

/// Conjunctions whose clause may report something that the rest of the sentence goes against.
const CONCESSIONS: &str = "although though despite while embora apesar mesmo";

/// Verbs of what somebody believes, asks or promises, in the past or of a third person.
const BELIEVED: &str = "thought believed felt feared hoped assumed imagined wondered worried doubted claimed insisted \
    swore promised assured guaranteed confessed complained answered replied showed believes thinks fears \
    wonders claims insists hopes achava pensava acreditava julgava temia esperava supunha queria dizia contava contou \
    confessou garantiu prometeu jurou respondeu perguntou escreveu queixou ensinou ensinara mostrou falou \
    acha acredita teme receia";

/// Verbs before an indirect question with `se`.
const DOUBTED: &str = "pergunta perguntou perguntava perguntaram saber sei sabe sabemos sabia diz dizer avaliar decidir decide \
    ver determinar confirmar";

/// Nouns of what somebody remarks, before `that`.
const REMARKS: &str = "remark comment statement sentence mention observation report impression fear hope belief wish idea \
    observacao comentario mencao frase relato receio medo ideia impressao queixa";

/// Returns whether a report begins with the token at `n`.
pub(super) fn is_report(tokens: &[Token<'_>], n: usize) -> bool {
    let token = &tokens[n];
    let before = |distance: usize| n.checked_sub(distance).map(|at| &tokens[at]);
    let near = |class: Class| (1..=2).any(|d| before(d).is_some_and(|t| t.is(class)));
    let is_present = near(IS) && !near(WAS);
    if token.is(TOLD) {
        // "All told, …", "isso quer dizer …".
        let means = token.word == "quer" && tokens.get(n + 1).is_some_and(|t| t.word == "dizer");
        if means || before(1).is_some_and(|t| t.word == "all") {
            return false;
        }
        return !is_present || before(1).is_some_and(|t| t.word == "been");
    }
    if token.is(RECOMMENDED) {
        let has_subject = before(1)
            .is_some_and(|t| !t.is(IS) && !t.is(LEAD) && !matches!(t.word, "mais" | "most"));
        return !is_present && has_subject || near(WAS);
    }
    if token.is(RECORDED) {
        // "The recorded dose should be doubled."
        return !before(1).is_some_and(|t| t.is(DETERMINER));
    }
    if token.is(SAID) {
        return n > 0;
    }
    if is_one_of!(token.word, BELIEVED) {
        let ponders = token.word == "thought"
            && tokens
                .get(n + 1)
                .is_some_and(|next| matches!(next.word, "about" | "of"));
        return !ponders && !near(FIRST | YOU | IS);
    }
    if token.word == "called" {
        return near(PATIENT | ROLE) && !near(IS);
    }
    if is_one_of!(token.word, REMARKS) {
        let links = |t: &Token<'_>| is_one_of!(t.word, "that que");
        return before(1).is_some_and(|t| t.is(DETERMINER)) && tokens.get(n + 1).is_some_and(links);
    }
    if token.is(DOCUMENT_VERB) {
        return (1..=3).any(|d| before(d).is_some_and(|t| t.is(DOCUMENT)))
            || matches!(token.word, "says" | "reports" | "diz" | "refere")
                && n < 4
                && near(PATIENT)
            || (1..=4).any(|d| before(d).is_some_and(|t| t.is(ROLE)) && names_one(tokens, n - d));
    }
    let next = tokens.get(n + 1);
    match token.word {
        "according" => next.is_some_and(|t| t.word == "to"),
        "per" | "segundo" | "conforme" => {
            let source = |t: &Token<'_>| t.is(DOCUMENT | ROLE);
            next.is_some_and(|t| source(t) || t.is(DETERMINER))
                && tokens[n + 1..].iter().take(3).any(source)
        }
        // "She asks whether …", "não sei se …".
        "whether" => true,
        "se" => before(1).is_some_and(|t| is_one_of!(t.word, DOUBTED)),
        "acordo" => next.is_some_and(|t| t.word == "com"),
        _ => false,
    }
}

/// Returns whether the role at `n` is one person's: "Dr. Lima", "her cardiologist", "o medico", but
/// not "doctors" or "a doctor".
fn names_one(tokens: &[Token<'_>], n: usize) -> bool {
    let titled = matches!(tokens[n].word, "dr" | "dra");
    let one = n.checked_sub(1).is_some_and(|at| {
        matches!(
            tokens[at].word,
            "the"
                | "her"
                | "his"
                | "their"
                | "o"
                | "pelo"
                | "pela"
                | "treating"
                | "attending"
                | "referring"
        ) && !tokens[at].is(YOU)
    });
    titled || one && !tokens[n].word.ends_with('s')
}

#[cfg(test)]
mod tests {
    use super::super::sentence::{ClassMemo, split};
    use super::*;

    /// Goal: a report covers what it reports and nothing else. Method: whether the last word is
    /// covered.
    #[test]
    fn reports_cover() {
        for (text, expect) in [
            ("patient was told to stop warfarin", true),
            ("dr. lima advised stopping warfarin", true),
            ("advised to stop warfarin", true),
            ("orientada a suspender varfarina", true),
            ("foi prescrito iniciar varfarina", true),
            ("according to the record, stop warfarin", true),
            ("the note says to stop warfarin", true),
            ("her cardiologist recommends stopping warfarin", true),
            ("it is advised to stop warfarin", false),
            ("recommended to stop warfarin", false),
            ("doctors recommend to stop warfarin", false),
            ("dr. lima advised rest, so stop warfarin", false),
            ("she was advised that you stop warfarin", false),
            ("stop warfarin", false),
            ("she thought that warfarin should stop", true),
            ("i thought that warfarin should stop", false),
            ("there is a remark that she needs warfarin", true),
            ("o filho achava que era preciso suspender", true),
            ("if dr. lima advised it, stop warfarin", false),
            ("\"stop warfarin\" matters", false),
        ] {
            let text_ = split(text, &mut ClassMemo::default());
            assert_eq!(reported(&text_.tokens).last(), Some(&expect), "{text}");
        }
    }
}
