//! Detection of people's names, by lists of given and family names and by context.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use crate::verifier::fold;
use crate::verifier::medicine::is_medicine;
use callboard_message::text::is_one_of;

use super::super::IdentityKind;
use super::IdentityMatch;

/// Maximum number of words in a person's name. Further words are examined as if a new name began.
const NAME_WORDS_MAX: usize = 6;

/// Certainty that a word on a list of names is used as a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameListing {
    /// Word that is used only as a name.
    Plain,
    /// Name that is also an everyday word: "Grace", "Long".
    Everyday,
}

type NameList = HashMap<&'static str, NameListing>;

static GIVEN: LazyLock<NameList> =
    LazyLock::new(|| read_list(include_str!("../../../data/names_given.txt")));
static FAMILY: LazyLock<NameList> =
    LazyLock::new(|| read_list(include_str!("../../../data/names_family.txt")));

static EVERYDAY: LazyLock<HashSet<&str>> =
    LazyLock::new(|| words_of(include_str!("../../../data/words_everyday.txt")).collect());

fn words_of(data: &str) -> impl Iterator<Item = &str> {
    data.lines()
        .filter(|l| !l.starts_with('#'))
        .flat_map(str::split_whitespace)
}

fn read_list(data: &'static str) -> NameList {
    words_of(data)
        .map(|w| {
            w.strip_prefix('~')
                .map_or((w, NameListing::Plain), |w| (w, NameListing::Everyday))
        })
        .collect()
}

/// Word of a text with its context.
struct NameWord<'a> {
    text: &'a str,
    folded: String,
    /// Whether only white space without a blank line, a lone hyphen or apostrophe, or the full stop
    /// of an initial or a two-letter abbreviation, separates the word from the previous one.
    joined: bool,
    /// Whether the previous word and this one have only a comma between them, with or without white
    /// space.
    after_comma: bool,
    /// Whether the word is the first of the text, a sentence or a line, or after a double quotation
    /// mark or colon.
    opens: bool,
}

impl NameWord<'_> {
    fn is_capital(&self) -> bool {
        let contracted = "'m 've 'll 'd 're 't"
            .split(' ')
            .any(|end| self.text.ends_with(end));
        self.text.chars().next().is_some_and(char::is_uppercase) && !contracted
    }

    fn is_initial(&self) -> bool {
        self.text.chars().count() == 1 && self.is_capital()
    }

    fn is_particle(&self) -> bool {
        is_one_of(
            self.text,
            "da de do dos das e van von der del di bin al la le du ter den",
        )
    }

    fn given(&self) -> Option<NameListing> {
        find_listing(&GIVEN, &self.folded)
    }

    fn family(&self) -> Option<NameListing> {
        find_listing(&FAMILY, &self.folded)
    }
}

/// Returns the certainty of a name in a list; `None` if it isn't listed. A double name
/// ("Silva-Costa", "O'Neil") is listed if any part of three or more letters is.
fn find_listing(list: &NameList, folded: &str) -> Option<NameListing> {
    let whole: String = folded.chars().filter(|c| c.is_alphabetic()).collect();
    list.get(whole.as_str())
        .or_else(|| {
            folded
                .split(['-', '\''])
                .find_map(|p| list.get(p).filter(|_| p.len() > 2))
        })
        .copied()
}

/// Returns the names of people in `text`: full names, and single ones as [`is_known_alone`] states.
/// Names in lower case aren't found. Disguises such as look-alike letters must have been removed
/// from the text.
pub(super) fn find_names(text: &str) -> Vec<IdentityMatch> {
    let words = split_words(text);
    let mut hits = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let (taken, is_name) = name_at(&words, at);
        if is_name {
            let full: Vec<&str> = words[at..at + taken].iter().map(|w| w.text).collect();
            hits.push(IdentityMatch {
                kind: IdentityKind::Name,
                text: full.join(" "),
            });
        }
        at += taken.max(1);
    }
    hits
}

fn split_words(text: &str) -> Vec<NameWord<'_>> {
    let mut words: Vec<NameWord<'_>> = Vec::new();
    let is_letter = |c: char| c.is_alphanumeric() || c == '\'' || c == '-';
    let mut end = 0;
    for piece in text
        .split(|c: char| !is_letter(c))
        .filter(|p| !p.is_empty())
    {
        let start = piece.as_ptr() as usize - text.as_ptr() as usize;
        let gap = &text[end..start];
        end = start + piece.len();
        let possessive = ["'s", "'S"].iter().find_map(|s| piece.strip_suffix(s));
        let word = possessive.unwrap_or(piece).trim_matches(['\'', '-']);
        if word.is_empty() {
            continue;
        }
        let dotted = gap.trim() == "." && words.last().is_some_and(|w| w.text.len() <= 2);
        words.push(NameWord {
            text: word,
            folded: fold(word),
            joined: !words.is_empty()
                && (gap.trim().is_empty() && gap.matches('\n').count() < 2 || dotted),
            after_comma: gap.trim() == ",",
            opens: words.is_empty() || gap.contains(['.', '!', '?', '\n', '"', ':']) && !dotted,
        });
    }
    words
}

/// Examines the words from index `at`. Returns how many of them belong together, and whether they
/// are a person's name. The number is 0 if they are no known unit; the caller then skips one word.
fn name_at(words: &[NameWord<'_>], at: usize) -> (usize, bool) {
    let run = name_run_len(words, at);
    let labelled = is_labelled(words, at);
    if let Some(taken) = family_first_len(words, at) {
        return (taken, true);
    }
    if is_eponym(words, at, run) {
        return (run, false);
    }
    let run = &words[at..at + run];
    let content: Vec<&NameWord<'_>> = run.iter().filter(|w| !w.is_particle()).collect();
    let (Some(first), Some(last)) = (content.first(), content.last()) else {
        return (0, false);
    };
    if content.len() == 1 {
        return (1, is_known_alone(words, at));
    }
    if last.is_initial() || run.iter().any(|w| is_medicine(&w.folded)) {
        return (0, false);
    }
    let initials = content.iter().any(|w| w.is_initial());
    let foreign = |w: &NameWord<'_>| !is_everyday(w) && w.folded.len() > 2;
    let evidence = match (first.given(), last.family()) {
        (Some(NameListing::Plain), Some(_)) => true,
        (Some(NameListing::Everyday), Some(NameListing::Plain)) => true,
        // A listed name beside an unlisted word: foreign names are too many to list.
        (Some(NameListing::Plain), None) => foreign(last) || labelled || initials,
        (Some(NameListing::Everyday), _) => labelled,
        (None, Some(_)) if first.is_initial() => {
            last.family() == Some(NameListing::Plain) && last.folded.len() > 3
        }
        (None, Some(NameListing::Plain)) => {
            foreign(first) && (!first.opens || labelled || initials || content[1].given().is_some())
        }
        (None, _) => (labelled || initials && !first.opens) && foreign(first) && foreign(last),
    };
    (if evidence { run.len() } else { 0 }, evidence)
}

/// Returns whether the capitalised word at index `at` alone is a person's name: after Mr, Mrs, Ms,
/// Miss, Sra or Dona, any word but an everyday one that isn't a family name; else a given name of
/// four or more letters without another meaning, except after a doctor's or professor's title.
/// Medicines never are.
fn is_known_alone(words: &[NameWord<'_>], at: usize) -> bool {
    let word = &words[at];
    let title = at.checked_sub(1).map_or("", |i| words[i].folded.as_str());
    let ordinary = EVERYDAY.contains(word.folded.as_str());
    let titled =
        is_one_of(title, "mr mrs ms miss sra dona") && !(ordinary && word.family().is_none());
    let doctor = is_one_of(title, "dr dra doctor prof professor");
    let given = word.text.len() > 3
        && GIVEN.get(word.folded.as_str()) == Some(&NameListing::Plain)
        && !ordinary;
    (titled || given && !doctor) && !is_medicine(&word.folded)
}

/// Returns how many words from index `at`, up to [`NAME_WORDS_MAX`], could be one name: joined
/// words that are capitalised and have no digits, initials, and particles such as "de", each
/// directly before a capitalised word. 0 if the first word isn't capitalised.
fn name_run_len(words: &[NameWord<'_>], at: usize) -> usize {
    if !words[at].is_capital() {
        return 0;
    }
    let mut end = at + 1;
    while end < words.len() && end - at < NAME_WORDS_MAX && words[end].joined {
        let capital =
            words[end].is_capital() && !words[end].text.chars().any(|c| c.is_ascii_digit());
        let leads_on = words[end].is_particle()
            && words
                .get(end + 1)
                .is_some_and(|w| w.joined && w.is_capital());
        if !(capital || leads_on) {
            break;
        }
        end += 1;
    }
    end - at
}

/// Returns 2, the number of words of a name with the family name first, such as "Barker, Margaret",
/// at index `at`; `None` if there is none. Both names must be listed, and the first must open a
/// sentence or line or have a label.
fn family_first_len(words: &[NameWord<'_>], at: usize) -> Option<usize> {
    let (family, given) = (&words[at], words.get(at + 1)?);
    let listed = family.family().is_some() && given.given().is_some();
    let sure =
        family.family() == Some(NameListing::Plain) || given.given() == Some(NameListing::Plain);
    let capital = family.is_capital() && given.is_capital() && !given.is_initial();
    let lonely = words.get(at + 2).is_none_or(|w| !w.after_comma);
    (given.after_comma
        && listed
        && sure
        && capital
        && lonely
        && (family.opens || is_labelled(words, at)))
    .then_some(2)
}

/// Returns whether a title, a role such as `nurse`, or an introducing phrase such as "named"
/// precedes the word at index `at`.
fn is_labelled(words: &[NameWord<'_>], at: usize) -> bool {
    let back = |n: usize| at.checked_sub(n).map_or("", |i| words[i].folded.as_str());
    let joined = words[at].joined;
    let title = is_one_of(
        back(1),
        "mr mrs ms miss dr dra prof professor sr sra dona name nome named called senhor senhora sir contact i'm",
    );
    let role = is_one_of(
        back(1),
        "doctor nurse patient paciente enfermeira enfermeiro",
    );
    let phrase = matches!(
        (back(2), back(1)),
        ("name" | "nome" | "contact" | "patient", "is" | "e")
            | ("i", "am" | "m")
            | ("this" | "my", "is" | "name")
    );
    title || role && joined || phrase
}

fn is_everyday(word: &NameWord<'_>) -> bool {
    word.given() == Some(NameListing::Everyday)
        || word.family() == Some(NameListing::Everyday)
        || EVERYDAY.contains(word.folded.as_str())
}

/// Returns whether the name of `len` words at index `at` counts as that of a thing, such as a
/// disease, score or hospital, and not of a person: a word for a thing is in it or one of the two
/// words after it, even in the next sentence, or a word of [`PLACES`] stands before it, directly or
/// before a particle.
fn is_eponym(words: &[NameWord<'_>], at: usize, len: usize) -> bool {
    let inside = words[at..at + len]
        .iter()
        .any(|w| is_one_of(&w.folded, THINGS));
    let after = words[at + len..]
        .iter()
        .take(2)
        .any(|w| is_one_of(&w.folded, THINGS));
    let before = at
        .checked_sub(1)
        .is_some_and(|i| is_one_of(&words[i].folded, PLACES))
        || at
            .checked_sub(2)
            .is_some_and(|i| is_one_of(&words[i].folded, PLACES) && words[i + 1].is_particle());
    inside || after || before
}

const THINGS: &str = "disease syndrome sign test score scale criteria classification palsy lymphoma sarcoma tumor \
    tumour phenomenon reflex maneuver manoeuvre procedure hospital clinic center centre institute university \
    foundation murmur disorder dementia ulcer fracture contracture thyroiditis anemia anaemia index equation formula \
    catheter stain agar body bodies cell cells node nodes operation law method technique ataxia chorea arteritis \
    encephalopathy esophagus oesophagus hernia triad school college street avenue road county city district day \
    study trial group award prize pressure rate blood care health medical medicine department ward unit laboratory \
    company inc ltd manor memorial lodge home house residence llc corporation pharma pharmaceuticals doenca sindrome \
    sinal teste escala instituto clinica universidade fundacao tooth stage type grade airport park river island bay \
    church museum";

const PLACES: &str = "hospital clinica clinic instituto institute fundacao foundation universidade university escola \
    rua avenida santa saint st sao doenca sindrome sinal escala centro center laboratorio maternidade";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: people are found, eponyms, drugs and hospitals aren't. Method: a table.
    #[test]
    fn names() {
        for (text, expect) in [
            ("Maria Silva reports chest pain", true),
            ("the patient Kimberly Santiago was seen", true),
            ("Name: Barker, Margaret", true),
            ("MARIA SILVA", true),
            ("Maria Alice H. Jesus", true),
            ("João\nSilva", true),
            ("J. Nakamura signed", true),
            ("Parkinson's Disease since 1995", false),
            ("Charcot-Marie-Tooth disease", false),
            ("Guillain-Barre Syndrome", false),
            ("Austin Flint murmur", false),
            ("Referred by Dr Morgan; no new symptoms", false),
            ("seen at Albert Einstein Hospital", false),
            ("Hospital Santa Maria Silva", false),
            ("Heart Rate and Blood Pressure", false),
            ("List of Cardiology Patients", false),
            ("Amiodarone Hydrochloride", false),
        ] {
            assert_eq!(!find_names(text).is_empty(), expect, "{text}");
        }
    }
}
