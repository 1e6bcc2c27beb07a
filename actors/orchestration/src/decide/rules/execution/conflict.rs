//! Detection of contradictions between results: sentences with the same content words but different
//! numbers, dates or negation.

use std::collections::BTreeSet;

use callboard_message::text::{cut_bytes, fold, is_one_of, normalize};

use crate::decide::StepReport;
use crate::decide::rules::tokens::stems;

/// Maximum sentences compared per result.
const SENTENCES_MAX: usize = 40;
/// Maximum bytes examined per result.
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Maximum conflicts reported.
const CONFLICTS_MAX: usize = 3;
/// Maximum characters quoted of a sentence.
const QUOTED_CHARS_MAX: usize = 200;
/// Minimum content words that two sentences must share to be compared.
const SHARED_MIN: usize = 2;
/// Minimum share of common content words for a comparison if one sentence has no content word that
/// the other lacks.
const SHARE_MIN: f32 = 0.5;
/// Minimum share of common content words for a comparison if each sentence has content words that
/// the other lacks: they may be about different things, such as the train and the hotel.
const SHARE_MIN_APART: f32 = 0.6;

/// Words without content, in English and Portuguese.
const EMPTY_WORDS: &str = "a an the of in on at to for from by with and or is are was were be been has have had it its this that these \
    those there here as will would can could should may about around approximately currently now today only also just very we \
    you they he she i according says said o os as um uma de do da dos das no na nos nas em para por com e ou que se sao foi era \
    ser esta estao ha ao aos pelo pela mais cerca agora hoje tambem isso isto este esse essa";
const NEGATIONS: &str = "not no never none without cannot isnt arent wasnt doesnt dont didnt wont cant nao nunca nenhum nenhuma sem \
    jamais";
const DAYS: &str = "monday tuesday wednesday thursday friday saturday sunday january february march april june july august \
    september october november december segunda terca quarta quinta sexta sabado domingo janeiro fevereiro marco abril maio \
    junho julho agosto setembro outubro novembro dezembro";

/// Contradiction between the results of two steps of a plan.
pub(super) struct Conflict {
    one: ConflictSide,
    other: ConflictSide,
}

struct ConflictSide {
    id: String,
    by: String,
    sentence: String,
}

impl Conflict {
    /// Describes the conflict for the user, with quotations.
    pub(super) fn describe(&self) -> String {
        // Two steps may have the same performer, so the step ids tell them apart.
        let name = |side: &ConflictSide| {
            if self.one.by == self.other.by {
                side.id.clone()
            } else {
                side.by.clone()
            }
        };
        let says = |side: &ConflictSide| format!("{} says “{}”", name(side), side.sentence);
        format!(
            "The results conflict: {}; {}.",
            says(&self.one),
            says(&self.other)
        )
    }

    /// Describes the conflict for diagnostic notes, without quotations.
    pub(super) fn describe_redacted(&self) -> String {
        format!("conflict between {} and {}", self.one.id, self.other.id)
    }
}

/// Sentence with its content words and the facts in it that a sentence of another result may
/// contradict.
struct Claim<'a> {
    sentence: &'a str,
    about: BTreeSet<String>,
    /// Numbers with their units.
    numbers: BTreeSet<String>,
    days: BTreeSet<String>,
    is_denied: bool,
}

/// Finds contradictions between the results of completed steps, at most one per pair of results.
pub(super) fn find_conflicts(done: &[&StepReport]) -> Vec<Conflict> {
    let texts: Vec<String> = done
        .iter()
        .map(|report| normalize(cut_bytes(&report.text, TEXT_BYTES_MAX)))
        .collect();
    let claims: Vec<Vec<Claim<'_>>> = texts
        .iter()
        .map(|text| sentences(text).map(Claim::parse).collect())
        .collect();
    let mut found = Vec::new();
    for (at, (report, ours)) in done.iter().zip(&claims).enumerate() {
        for (other, theirs) in done.iter().zip(&claims).skip(at + 1) {
            let pairs = ours
                .iter()
                .flat_map(|one| theirs.iter().map(move |other| (one, other)));
            if let Some((one, another)) = pairs
                .into_iter()
                .find(|(one, other)| one.contradicts(other))
            {
                found.push(Conflict {
                    one: ConflictSide::new(report, one),
                    other: ConflictSide::new(other, another),
                });
                if found.len() == CONFLICTS_MAX {
                    return found;
                }
            }
        }
    }
    found
}

impl ConflictSide {
    fn new(report: &StepReport, claim: &Claim<'_>) -> Self {
        let sentence = claim
            .sentence
            .trim_end_matches(['.', '!', ';', ':'])
            .chars()
            .take(QUOTED_CHARS_MAX)
            .collect();
        Self {
            id: report.id.clone(),
            by: report.by.clone(),
            sentence,
        }
    }
}

/// Splits a text into sentences. A point within a number or an address doesn't end one.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let next = move || {
        let ends = |(at, c): &(usize, char)| {
            let behind = rest.get(at + c.len_utf8()..).unwrap_or_default();
            *c == '\n'
                || (matches!(c, '.' | '!' | '?' | ';')
                    && behind.chars().next().is_none_or(char::is_whitespace))
        };
        let end = rest
            .char_indices()
            .find(ends)
            .map_or(rest.len(), |(at, c)| at + c.len_utf8());
        let (sentence, behind) = rest.split_at_checked(end)?;
        rest = behind;
        (end > 0).then_some(sentence)
    };
    std::iter::from_fn(next)
        .map(|sentence| {
            sentence.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '*' | '•' | '#'))
        })
        .filter(|sentence| !sentence.is_empty())
        .take(SENTENCES_MAX)
}

impl<'a> Claim<'a> {
    fn parse(sentence: &'a str) -> Self {
        let mut claim = Self {
            sentence,
            about: BTreeSet::new(),
            numbers: BTreeSet::new(),
            days: BTreeSet::new(),
            is_denied: false,
        };
        let folded = fold(sentence).replace('\'', "");
        let mut tokens = tokens(&folded).peekable();
        while let Some(token) = tokens.next() {
            if token.starts_with(|c: char| c.is_ascii_digit()) {
                let (number, glued) = parse_number(token);
                let unit = match glued {
                    "" => tokens.next_if(|next| is_unit(next)).unwrap_or_default(),
                    glued => glued,
                };
                claim.numbers.insert(format!("{number}{unit}"));
            } else if is_one_of(token, NEGATIONS) {
                claim.is_denied = !claim.is_denied;
            } else if is_one_of(token, DAYS) {
                claim.days.insert(token.to_owned());
            } else if token.len() > 1 && !is_one_of(token, EMPTY_WORDS) {
                // Both stemmers in sequence map equal words to equal stems in either language.
                claim.about.insert(stems(&stems(token).0).1);
            }
        }
        claim
    }

    fn contradicts(&self, other: &Self) -> bool {
        let shared = self.about.intersection(&other.about).count();
        let all = self.about.union(&other.about).count();
        let is_apart = shared < self.about.len() && shared < other.about.len();
        let share_min = if is_apart { SHARE_MIN_APART } else { SHARE_MIN };
        shared >= SHARED_MIN
            && shared as f32 >= all as f32 * share_min
            && (is_contradiction(&self.numbers, &other.numbers)
                || is_contradiction(&self.days, &other.days)
                || self.is_denied != other.is_denied)
    }
}

/// Whether two sets of facts contradict: both are non-empty and neither contains the other.
/// Additional facts are no contradiction.
fn is_contradiction(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> bool {
    !ours.is_empty() && !theirs.is_empty() && !ours.is_subset(theirs) && !theirs.is_subset(ours)
}

/// Splits a text into words and numbers. A number keeps its points, commas, colons and attached
/// unit.
fn tokens(folded: &str) -> impl Iterator<Item = &str> {
    let in_token = |c: char| {
        c.is_alphanumeric() || matches!(c, '.' | ',' | ':' | '°' | '%' | '$' | '€' | '£' | '/')
    };
    let pieces = folded.split(move |c: char| !in_token(c));
    let bare = |piece: &str| piece.starts_with(|c: char| c.is_ascii_digit());
    pieces.flat_map(move |piece| {
        let piece = piece.trim_matches(['.', ',', ':', '/', '$', '€', '£']);
        // Only numbers contain signs; `and/or` is two words.
        let signs: &[char] = if bare(piece) {
            &[]
        } else {
            &['.', ',', ':', '/', '°', '%', '$', '€', '£']
        };
        piece.split(signs).filter(|part| !part.is_empty())
    })
}

/// Normalizes a number and separates its attached unit: `22,0°c` becomes 22 and `c`.
fn parse_number(token: &str) -> (String, &str) {
    let end = token
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',' | ':' | '/'))
        .unwrap_or(token.len());
    let (digits, unit) = token.split_at_checked(end).unwrap_or((token, ""));
    let digits = digits.trim_end_matches(['.', ',', ':', '/']);
    let is_time = digits.contains(':') || digits.contains('/');
    // Thousands separators are dropped (1,000 and 1.000), decimal commas become points (2,5 and
    // 2.5).
    let parts: Vec<&str> = digits.split(['.', ',']).collect();
    let written = match &*parts {
        _ if is_time => digits.to_owned(),
        [whole, rest @ ..] if !rest.is_empty() && rest.iter().all(|part| part.len() == 3) => {
            format!("{whole}{}", rest.concat())
        }
        [whole, fraction] => match fraction.trim_end_matches('0') {
            "" => (*whole).to_owned(),
            fraction => format!("{whole}.{fraction}"),
        },
        _ => digits.to_owned(),
    };
    (written, unit.trim_start_matches('°'))
}

/// Whether a word is a unit of measurement.
fn is_unit(token: &str) -> bool {
    is_one_of(
        token,
        "c f k celsius fahrenheit km m cm mm mi miles kg g mg lb l ml percent euro euros eur usd dollars reais brl gbp pounds h \
         hours min minutes s seconds days weeks months years horas minutos dias semanas meses anos am pm million billion \
         milhoes bilhoes",
    ) || matches!(token, "°c" | "°f" | "%")
}
