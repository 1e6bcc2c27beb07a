//! Recognition of medicines: by two embedded lists, and by typical word endings.

use std::sync::{LazyLock, OnceLock};

use callboard_message::word_set;

use crate::verifier::fold;
use crate::verifier::word_lists::MEDICINE_STEMS;
use crate::verifier::word_table::WordTable;

use super::model::Substance;
use super::token::{Text, Token};
use super::treatment::{Treatments, treatments_of};

/// Maximum number of words in a medicine's name.
const NAME_WORDS_MAX: usize = 4;
/// Minimum letters of a word to which spelling rules, such as Portuguese endings, are applied.
/// Shorter words must match exactly.
const STEM_LETTERS_MIN: usize = 6;
/// Minimum letters of an unlisted word that is recognised as a medicine by its ending.
const ENDING_LETTERS_MIN: usize = 7;
/// Maximum number of active substances in one medicine; further ones are medicines of their own.
pub(super) const SUBSTANCES_MAX: usize = 4;

/// Name of a medicine at the start of a text.
pub(super) struct FoundMedicine {
    /// Active substances: several for a combination, in the order of their names.
    pub substances: Vec<Substance>,
    /// Whether the name also has an everyday meaning: it then counts only beside a dose.
    pub is_weak: bool,
    /// Number of tokens of the name.
    pub taken: usize,
}

struct Generic {
    name: String,
    /// Indexes of the substances of a combination; empty for a single substance.
    parts: Vec<u16>,
    /// Index of the general name that begins this one: `insulin` of `insulin glargine`.
    parent: Option<u16>,
    /// Classes of treatments to which it belongs, from their first use.
    treatments: OnceLock<Treatments>,
}

/// Entry of the list for the stems of a name, or of the first words of names.
#[derive(Default)]
struct NameEntry {
    /// Index of the generic name, and whether the name is weak.
    name: Option<(u16, bool)>,
    is_start_of_longer: bool,
}

/// Lists of medicines, embedded in the program.
pub(super) struct Lexicon {
    generics: Vec<Generic>,
    names: WordTable<NameEntry>,
}

/// Lists of `data/medicines.txt` and `data/medicine_stems.txt`.
pub(super) static LEXICON: LazyLock<Lexicon> =
    LazyLock::new(|| Lexicon::read(include_str!("../../../data/medicines.txt")));

impl Lexicon {
    fn read(data: &str) -> Self {
        let mut lexicon = Self {
            generics: Vec::new(),
            names: WordTable::with_capacity(4096),
        };
        let lines = || {
            data.lines()
                .map(str::trim)
                .filter(|l| !l.is_empty() && !l.starts_with('#'))
        };
        for line in lines() {
            let (line, is_weak) = match line.strip_prefix('~') {
                Some(rest) => (rest, true),
                None => (line, false),
            };
            let (generic, others) = line.split_once(':').unwrap_or((line, ""));
            let index = u16::try_from(lexicon.generics.len()).unwrap_or(u16::MAX);
            lexicon.generics.push(Generic {
                name: generic.trim().to_owned(),
                parts: Vec::new(),
                parent: None,
                treatments: OnceLock::new(),
            });
            for name in std::iter::once(generic).chain(others.split(',')) {
                // A name of several words has one meaning, even if one of them has two.
                lexicon.add_name(name, index, is_weak && !name.trim().contains(' '));
            }
        }
        lexicon.link();
        lexicon
    }

    fn add_name(&mut self, name: &str, index: u16, is_weak: bool) {
        let mut key = String::new();
        let words = letters_and_digits(name);
        for (n, word) in words.iter().enumerate() {
            append_to_key(&mut key, word);
            let entry = self.names.or_default(&key);
            if n + 1 == words.len() {
                entry.name.get_or_insert((index, is_weak));
            } else {
                entry.is_start_of_longer = true;
            }
        }
    }

    /// Sets the parts of combinations, and the general names that begin other ones.
    fn link(&mut self) {
        let find = |name: &str| {
            let mut key = String::new();
            name.split_whitespace()
                .for_each(|word| append_to_key(&mut key, word));
            Some(self.names.get(&key)?.name?.0)
        };
        let links: Vec<(Vec<u16>, Option<u16>)> = self
            .generics
            .iter()
            .map(|generic| match generic.name.contains('/') {
                true => (generic.name.split('/').filter_map(find).collect(), None),
                false => {
                    let first = generic
                        .name
                        .split_once(' ')
                        .and_then(|(first, _)| find(first));
                    (Vec::new(), first)
                }
            })
            .collect();
        for (generic, (parts, parent)) in self.generics.iter_mut().zip(links) {
            generic.parts = parts;
            generic.parent = parent;
        }
    }

    /// Returns the medicine with the longest name at the start of `tokens`. Without a listed name,
    /// a first word on the list of stems counts, or one of [`ENDING_LETTERS_MIN`] letters or more
    /// with an ending of [`ENDINGS`]. `None` if there is none of these.
    pub fn find(&self, tokens: &[Token<'_>]) -> Option<FoundMedicine> {
        let first = tokens.first()?.word()?;
        let mut key = stem(first);
        let first_len = key.len();
        let mut entry = self.names.get(&key);
        let mut best = None;
        let mut words = 1;
        let mut at = 0;
        while let Some(found) = entry {
            if let Some((index, is_weak)) = found.name {
                best = Some((index, is_weak, at + 1));
            }
            if !found.is_start_of_longer || words == NAME_WORDS_MAX {
                break;
            }
            at += 1;
            let joins = |t: &Token<'_>| matches!(t.sign(), Some('-' | '/' | '+' | '\''));
            at += usize::from(tokens.get(at).is_some_and(joins));
            let Some(next) = tokens.get(at).filter(|t| t.sign().is_none()) else {
                break;
            };
            append_to_key(&mut key, next.text);
            words += 1;
            entry = self.names.get(&key);
        }
        if let Some((index, is_weak, taken)) = best {
            return Some(FoundMedicine {
                substances: self.substances(index),
                is_weak,
                taken,
            });
        }
        key.truncate(first_len);
        is_unlisted_medicine(first, &key).map(|is_shown| FoundMedicine {
            substances: vec![Substance::Other(key, is_shown)],
            is_weak: false,
            taken: 1,
        })
    }

    /// Returns whether a medicine's name may begin with a word.
    pub fn has_beginning(&self, word: &str) -> bool {
        let stem = stem(word);
        self.names.contains(&stem) || is_unlisted_medicine(word, &stem).is_some()
    }

    fn substances(&self, index: u16) -> Vec<Substance> {
        match self.generics.get(usize::from(index)) {
            Some(generic) if !generic.parts.is_empty() => generic
                .parts
                .iter()
                .map(|n| Substance::Listed(*n))
                .collect(),
            _ => vec![Substance::Listed(index)],
        }
    }

    /// Returns the general name that begins the name of a substance, such as `insulin` for
    /// `insulin glargine`; `None` if there is none.
    pub fn parent(&self, substance: &Substance) -> Option<Substance> {
        let Substance::Listed(index) = substance else {
            return None;
        };
        let generic = self.generics.get(usize::from(*index))?;
        generic.parent.map(Substance::Listed)
    }

    /// Returns the generic name of a listed substance in lower case; `None` for others.
    pub fn generic_name(&self, substance: &Substance) -> Option<&str> {
        match substance {
            Substance::Listed(index) => Some(self.generics.get(usize::from(*index))?.name.as_str()),
            Substance::Other(..) => None,
        }
    }

    /// Returns the classes of treatments to which a listed substance belongs; none for others.
    pub fn treatments(&self, substance: &Substance) -> Treatments {
        let Substance::Listed(index) = substance else {
            return 0;
        };
        self.generics.get(usize::from(*index)).map_or(0, |generic| {
            *generic
                .treatments
                .get_or_init(|| treatments_of(&generic.name))
        })
    }

    /// Returns a medicine's generic name, also for a brand, as it may be shown to a person: the
    /// substances of a combination are separated by `/`. `None` if one of them isn't on a list,
    /// because an unlisted word might be personal data.
    pub fn display(&self, substances: &[Substance]) -> Option<String> {
        let mut shown = String::new();
        for substance in substances {
            let name = match substance {
                Substance::Other(stem, true) => stem.as_str(),
                other => self.generic_name(other)?,
            };
            if !shown.is_empty() {
                shown.push('/');
            }
            shown.push_str(name);
        }
        let mut letters = shown.chars();
        let first = letters.next()?;
        Some(first.to_uppercase().chain(letters).collect())
    }
}

/// Returns whether an unlisted word is a medicine: `Some(true)` if it is on the list of stems,
/// `Some(false)` if it has the ending of one, `None` if neither.
fn is_unlisted_medicine(word: &str, stem: &str) -> Option<bool> {
    if word.len() >= STEM_LETTERS_MIN && MEDICINE_STEMS.contains(stem) {
        return Some(true);
    }
    (word.len() >= ENDING_LETTERS_MIN && has_medicine_ending(word)).then_some(false)
}

/// Endings that INNs share by class of medicine (WHO stem book), in English and Portuguese.
const ENDINGS: &str = "mab mabe tinib tinibe pril sartan sartana olol vastatin vastatina conazol conazole cillin cilina thromycin tromicina floxacin floxacino cycline ciclina prazol prazole gliptin gliptina gliflozin gliflozina glutide glutida triptan triptano setron setrona azepam zolam dipine dipino parin parina xaban xabana agrel grelor oxetine oxetina lukast thiazide tiazida semide semida platin platina rubicin rubicina taxel trexate trexato fenac fenaco profen profeno oxicam coxib coxibe fibrate fibrato glitazone glitazona tropium tropio dronate dronato ciclovir cyclovir ciclib ciclibe parib paribe citabine citabina terol asone asona solone solona barbital caine caina";

/// Words that end like a medicine and aren't one.
const NOT_MEDICINES: &[&str] = &["cholesterol", "colesterol"];

fn has_medicine_ending(word: &str) -> bool {
    word_set!(ENDINGS).ends(word, 0) && !NOT_MEDICINES.contains(&word)
}

/// Splits a name into runs of letters and runs of digits, as the tokens of a text are.
fn letters_and_digits(name: &str) -> Vec<&str> {
    let mut runs = Vec::new();
    let mut rest = name;
    while let Some(start) = rest.find(char::is_alphanumeric) {
        rest = &rest[start..];
        let digits = rest.starts_with(|c: char| c.is_ascii_digit());
        let end = rest
            .find(|c: char| !c.is_alphanumeric() || c.is_ascii_digit() != digits)
            .unwrap_or(rest.len());
        runs.push(&rest[..end]);
        rest = &rest[end..];
    }
    runs
}

/// Appends the stem of a word, or a number in digits, to a lookup key of the list.
fn append_to_key(key: &mut String, word: &str) {
    if !key.is_empty() {
        key.push(' ');
    }
    key.push_str(&stem(word));
}

/// Returns whether a word in folded form names a medicine, by a list or by its ending. Names that
/// are also everyday words count.
pub(in crate::verifier) fn is_medicine(folded: &str) -> bool {
    if folded.chars().all(char::is_alphabetic) {
        return LEXICON.find(&[Token::of_word(folded)]).is_some();
    }
    let text = Text::read(folded);
    LEXICON.find(&text.tokens).is_some()
}

/// Returns the stem of a folded word, which the English, Portuguese and Spanish form of a
/// medicine's name share: amiodarone and amiodarona, warfarin and varfarina, hydrochlorothiazide
/// and hidroclorotiazida, amlodipine and anlodipino, tacrolimus and tacrolimo. Words that are shorter
/// than [`STEM_LETTERS_MIN`] or not ASCII are returned unchanged.
pub(in crate::verifier) fn stem(word: &str) -> String {
    if word.len() < STEM_LETTERS_MIN || !word.is_ascii() {
        return word.to_owned();
    }
    let mut out = String::with_capacity(word.len());
    // "espironolactona" is "spironolactone".
    let bytes = word.as_bytes();
    let is_prothetic = bytes.starts_with(b"es")
        && matches!(
            bytes[2],
            b'p' | b't' | b'c' | b'q' | b'm' | b'f' | b'l' | b'n'
        );
    let mut at = usize::from(is_prothetic);
    while at < bytes.len() {
        let (c, next) = (bytes[at], bytes.get(at + 1).copied());
        let is_pair = matches!(c, b'p' | b't' | b'c' | b'r') && next == Some(b'h');
        at += if is_pair { 2 } else { 1 };
        let c = match (c, next) {
            (b'p', Some(b'h')) => b'f',
            (b'm', Some(next)) if !b"aeiouympb".contains(&next) => b'n',
            (b'y', _) => b'i',
            (b'w', _) => b'v',
            (b'k', _) => b'c',
            _ => c,
        };
        if out.as_bytes().last() != Some(&c) {
            out.push(char::from(c));
        }
    }
    let ended = out.strip_suffix("us").or_else(|| out.strip_suffix("um"));
    let kept = ended
        .unwrap_or(&out)
        .trim_end_matches(['a', 'e', 'o'])
        .len();
    out.truncate(kept.max(STEM_LETTERS_MIN - 2).min(out.len()));
    out
}

/// Returns the medicine that a whole text names, without a dose or other words; `None` if it names
/// none.
pub(super) fn whole_medicine(name: &str) -> Option<FoundMedicine> {
    let folded = fold(name);
    let text = Text::read(&folded);
    let found = LEXICON.find(&text.tokens)?;
    (found.taken == text.tokens.len()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Option<String> {
        let folded = fold(text);
        let found = LEXICON.find(&Text::read(&folded).tokens)?;
        let shown = LEXICON.display(&found.substances);
        Some(shown.unwrap_or_else(|| "unlisted".to_owned()))
    }

    /// Goal: brand, generic and Portuguese names are the same medicine. Method: a table.
    #[test]
    fn names_meet() {
        for (text, expect) in [
            ("amiodarone", Some("Amiodarone")),
            ("Amiodarona", Some("Amiodarone")),
            ("Cordarone", Some("Amiodarone")),
            ("varfarina", Some("Warfarin")),
            ("espironolactona", Some("Spironolactone")),
            ("hidroclorotiazida", Some("Hydrochlorothiazide")),
            ("levotiroxina", Some("Levothyroxine")),
            ("metotrexato", Some("Methotrexate")),
            ("AAS", Some("Aspirin")),
            ("ácido acetilsalicílico", Some("Aspirin")),
            ("amoxicillin-clavulanate", Some("Amoxicillin/clavulanate")),
            ("Hyzaar", Some("Losartan/hydrochlorothiazide")),
            ("insulin glargine", Some("Insulin glargine")),
            ("vitamin B12", Some("Cyanocobalamin")),
            ("zorbafloxacin", Some("unlisted")),
            ("hydralazine", Some("Hydralazine")),
            ("hydroxyzine", Some("Hydroxyzine")),
            ("isosorbide mononitrate", Some("Isosorbide mononitrate")),
            ("isosorbide 20", Some("Isosorbide")),
            ("darolutamide", Some("Darolutamid")),
            ("patient", None),
            ("medication", None),
            ("cholesterol", None),
        ] {
            assert_eq!(find(text).as_deref(), expect, "{text}");
        }
    }

    /// Goal: no name stands for two medicines, and every combination has all its parts. Method: every generic name
    /// finds its own line.
    #[test]
    fn no_name_is_two_medicines() {
        for (index, generic) in LEXICON.generics.iter().enumerate() {
            let text = Text::read(&generic.name);
            let found = LEXICON.find(&text.tokens).map(|found| found.substances);
            let parts = generic.name.split('/').count();
            let index = u16::try_from(index).unwrap();
            assert_eq!(found, Some(LEXICON.substances(index)), "{}", generic.name);
            assert_eq!(LEXICON.substances(index).len(), parts, "{}", generic.name);
            assert!(parts <= SUBSTANCES_MAX);
        }
    }
}
