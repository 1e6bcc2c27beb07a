//! Diagnoses: conditions that the text asserts of a person, or concludes from findings.

use callboard_message::is_one_of;

use super::hit::{Address, Hit};
use super::lexicon::*;
use super::reading::SentenceReading;
use super::record::RangeHashes;

/// Kind of advice of a diagnosis, as a note names it.
pub(super) const KIND: &str = "diagnosing";

/// Maximum distance, in words, from the words that diagnose to the condition.
const CONDITION_WORDS: usize = 8;

/// Appends the diagnoses in a sentence to `hits`.
pub(super) fn find(r: &SentenceReading<'_, '_>, hits: &mut Vec<Hit>) {
    if r.is_question {
        return;
    }
    for n in 0..r.tokens.len() {
        if !r.covered[n] {
            hits.extend(
                asserted(r, n)
                    .or_else(|| concluded(r, n))
                    .or_else(|| stated(r, n)),
            );
        }
    }
}

/// Returns whether the sentence asserts a condition of a patient or the reader that no record asserts, such as
/// "CARD-001 has pneumonia", or supposes one ("may have asthma"), and isn't a record's own.
pub(super) fn asserts_unrecorded(r: &SentenceReading<'_, '_>) -> bool {
    let is_unrecorded = |hit: Hit| match hit.address {
        Address::Reader => true,
        Address::Nobody => !r
            .records
            .quotes(r.tokens, &RangeHashes::new(r.tokens), &hit),
        Address::RecordToReader => false,
    };
    !r.is_question
        && (0..r.tokens.len()).any(|n| {
            r.is(n, HAVE | IS) && !r.covered[n] && asserted(r, n).is_some_and(is_unrecorded)
        })
}

fn hit(at: usize, end: usize, address: Address) -> Option<Hit> {
    Some(Hit {
        at,
        end,
        kind: KIND,
        address,
    })
}

/// Returns the first condition after `n`, of those that no record asserts if `unrecorded`.
fn condition_after(
    reading: &SentenceReading<'_, '_>,
    n: usize,
    within: usize,
    unrecorded: bool,
) -> Option<usize> {
    (n + 1..reading.tokens.len().min(n + 1 + within))
        .take_while(|at| !reading.is(*at, STOP) || matches!(reading.word(*at), "that" | "que"))
        .find(|at| {
            reading.is(*at, CONDITION)
                && !(unrecorded && reading.records.has_condition(reading.word(*at)))
        })
}

/// Returns whether the sentence counts patients before `n`: "5 of 8 patients have …".
fn is_count(reading: &SentenceReading<'_, '_>, n: usize) -> bool {
    (1..n).any(|at| {
        reading.is(at, PATIENT)
            && !reading.is(at, NUMBER)
            && reading.word(at).ends_with('s')
            && reading.any(at.saturating_sub(3), at, NUMBER | DENIAL)
    })
}

/// Returns whether a word of a condition or denial before `n` keeps it from being a statement:
/// "if you have asthma", "no evidence of".
fn is_supposed(reading: &SentenceReading<'_, '_>, n: usize) -> bool {
    reading.any(n.saturating_sub(5), n, IF)
}

/// Finds a condition that the text asserts of a person: "you have pneumonia", "CARD-001 probably
/// has asthma", "o paciente tem pneumonia".
fn asserted(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let meets = is_one_of!(
        r.word(n),
        "shows meets fulfils fulfills mostra preenche cumpre",
    );
    if !r.is(n, HAVE | IS) && !meets || is_supposed(r, n) {
        return None;
    }
    let from = n.saturating_sub(5);
    let you = r.any(from, n, YOU) || r.word(n) == "tens" || r.names_reader;
    let patient = r.any(from, n, PATIENT) && !r.any(from, n, FAMILY) && !is_count(r, n);
    if !you && !patient {
        return None;
    }
    let denied = r.any(from, (n + 3).min(r.tokens.len()), NEG)
        || r.word(n + 1) == "no"
        || r.word(n + 1) == "sem";
    if denied && !you {
        return None;
    }
    let past = r.any(from, n + 1, WAS) && !you;
    if past || r.word(n + 1) == "to" || r.any(n + 1, n + 3, FAMILY) {
        return None;
    }
    let may = r.any(from, n, ABLE | HEDGE | OBLIGE) || r.any(n + 1, n + 3, HEDGE);
    let found = condition_after(r, n, CONDITION_WORDS, !may);
    // The reader is told of a condition that the records assert, which the record may do itself.
    let of_reader = || condition_after(r, n, CONDITION_WORDS, false).filter(|_| you);
    let end = found.or_else(of_reader)?;
    let address = match found {
        Some(_) => Address::reader_if(you),
        None => Address::RecordToReader,
    };
    // "cataract surgery", "cancer screening".
    let is_of_noun = r.is(end + 1, TREATMENT | VISIT)
        || r.any(end + 1, end + 6, RECORDED)
        || is_one_of!(
            r.word(end + 1),
            "repair screening prevention risk protection",
        );
    // A recorded history isn't a new diagnosis.
    const HISTORY: &str =
        "history historico historia antecedentes risk risco status post pos repair";
    const FIELD_NAMES: &str = "condition condicao diagnosis diagnostico";
    let is_history = r.any(n, end, RECORDED)
        || (from..n).any(|at| is_one_of!(r.word(at), FIELD_NAMES))
        || r.any(n, end, DENIAL) && !you
        || (n..end).any(|at| is_one_of!(r.word(at), HISTORY));
    (!is_of_noun && !is_history)
        .then(|| hit(from.max(n.saturating_sub(3)), end, address))
        .flatten()
}

/// Finds a conclusion from findings: "the rash suggests psoriasis", "this looks like eczema",
/// "sintomas compatíveis com asma", "I suspect pneumonia".
fn concluded(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    // "Trata-se de pneumonia".
    let equates = r.word(n) == "trata" && r.word(n + 1) == "se";
    // "Nothing in the file suggests a stroke."
    let holds_nothing = r.any(n.saturating_sub(4), n, DOCUMENT | SYSTEM)
        && (n.saturating_sub(6)..n).any(|at| is_one_of!(r.word(at), "nothing nada none nenhum"));
    let excused = holds_nothing || r.any(n.saturating_sub(3), n, NEG | WAS | IF) && !equates;
    if !r.is(n, CONCLUDE | HEDGE) || excused {
        return None;
    }
    let word = r.word(n);
    let end = condition_after(r, n, CONDITION_WORDS, false)?;
    if r.any(n + 1, end, DENIAL | NEG) || r.any(n.saturating_sub(3), n, DENIAL) {
        return None;
    }
    let finding = r.any(n.saturating_sub(7), n, FINDING);
    let names_finding =
        equates || r.is(n, CONCLUDE) && (finding || r.is(n + 1, PARTICLE) && end <= n + 4);
    let hedged = r.is(n, HEDGE)
        && (word.starts_with("suspe")
            || end <= n + 4 && !r.any(n + 1, end, ACT | HELP)
            || r.any(n.saturating_sub(4), n, IS | PATIENT | YOU));
    (names_finding || hedged)
        .then(|| hit(n.saturating_sub(3), end, Address::reader_if(r.has_you)))
        .flatten()
}

/// Words that point at what the reader shows: "that cough", "essa tosse".
const POINTING: &str = "this that these your seus suas essa esta esse este sua teu tua aquela";

/// Finds a stated diagnosis: "the diagnosis is …", "this is psoriasis", "I diagnose …", "in my
/// opinion …".
fn stated(r: &SentenceReading<'_, '_>, n: usize) -> Option<Hit> {
    let word = r.word(n);
    let next = r.tokens.get(n + 1)?;
    if word.starts_with("diagnos") || matches!(word, "impression" | "hipotese" | "impressao") {
        let own = r.any(n.saturating_sub(2), n, FIRST);
        let says = own
            || next.has(super::sentence::LABELLED)
            || (n + 1..n + 4).any(|at| {
                r.is(at, IS | HEDGE) || matches!(r.word(at), "of" | "e" | "with" | "com" | "de")
            });
        let end = condition_after(r, n, CONDITION_WORDS, !own)?;
        let past = r.any(n.saturating_sub(4), n + 3, WAS | DENIAL | FAMILY)
            || r.any(n, n + 4, DOCUMENT | RECORDED) && !own
            || is_count(r, n);
        return (says && !past)
            .then(|| hit(n.saturating_sub(1), end, Address::reader_if(r.has_you)))
            .flatten();
    }
    let believes = matches!(
        word,
        "think"
            | "believe"
            | "conclude"
            | "opinion"
            | "acho"
            | "acredito"
            | "penso"
            | "concluo"
            | "opiniao"
            | "diria"
    ) && (r.any(n.saturating_sub(2), n, FIRST)
        || matches!(word, "acho" | "acredito" | "penso" | "concluo" | "diria"));
    if believes {
        let end = condition_after(r, n, CONDITION_WORDS, false)?;
        return hit(n.saturating_sub(1), end, Address::Reader);
    }
    // "this is psoriasis", "your rash is psoriasis", "isso é psoríase".
    let is = r.is(n, IS)
        || is_one_of!(word, "turned become gone") && n > 1 && r.is(n - 1, HAVE)
        || word == "e"
            && n > 0
            && matches!(r.word(n - 1), "isso" | "isto" | "esta" | "mancha" | "lesao");
    if is
        && n > 0
        && (r.is(n - 1, FINDING | COMPLAINT)
            || r.is(n - 1, BODY) && !r.is(n - 1, FIELD)
            || r.is(n - 1, HAVE) && n > 1 && r.is(n - 2, FINDING | COMPLAINT)
            || n > 1 && is_one_of!(r.word(n - 2), POINTING))
        && !is_supposed(r, n)
        && !(n + 1..n + 3).any(|at| r.is(at, DENIAL) && !r.is(at, NEG))
    {
        let end = condition_after(r, n, 4, false)?;
        let last = end + 1 >= r.tokens.len() || r.tokens[end + 1].before != 0 || r.has_you;
        return last
            .then(|| hit(n - 1, end, Address::reader_if(r.has_you)))
            .flatten();
    }
    None
}
