use std::collections::HashSet;

use callboard_message::text::{fold, plain};
use serde::Deserialize;

/// Maximum clinics of a registry. A file with more is refused. Fixed.
pub const CLINICS_MAX: usize = 64;
/// Maximum synonyms and conditions of one clinic, together. A file with more is refused. Fixed.
pub const WORDS_PER_CLINIC_MAX: usize = 1_024;
/// Maximum characters of an id, specialty, synonym or condition. A file with a longer one is refused. Fixed.
pub const NAME_CHARS_MAX: usize = 80;

/// A clinic, as the host's file declares it (`[[clinic]]`). Adding a specialty is adding one of these.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClinicEntry {
    /// Its name in plans and in the directory: letters, digits, `_`, `-`, `.`.
    pub id: String,
    /// What it treats, in one or two words, for example `cardiology`.
    pub specialty: String,
    /// Where it listens. Whoever starts the host reads it; plans never hold it.
    #[serde(default)]
    pub url: String,
    /// Conditions that people come to this clinic with, in any language.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Other words for the specialty, in any language.
    #[serde(default)]
    pub synonyms: Vec<String>,
    /// What its patients' ids begin with, for example `CARD-`: letters, then at most a hyphen. Empty if ids don't tell.
    #[serde(default)]
    pub id_prefix: String,
}

/// The clinics that may be asked. What isn't in it is refused before anything is sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<ClinicEntry>")]
pub struct Registry {
    clinics: Vec<ClinicEntry>,
}

/// Why a registry can't be used. Each variant names the entry to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Split the host, or raise the limit.
    #[error("the registry has {clinics} clinics, more than {CLINICS_MAX}")]
    TooManyClinics {
        /// How many it has.
        clinics: usize,
    },
    /// Choose another id.
    #[error(
        "clinic {position} needs an id of 1 to {NAME_CHARS_MAX} letters, digits, '_', '-' or '.'"
    )]
    BadId {
        /// Which entry, from 1.
        position: usize,
    },
    /// Rename one of the two.
    #[error("two clinics are called {id}")]
    SameId {
        /// The id that both have.
        id: String,
    },
    /// Give it a specialty.
    #[error("clinic {id} needs a specialty")]
    NoSpecialty {
        /// Whose.
        id: String,
    },
    /// Change the prefix.
    #[error(
        "clinic {id} needs an id_prefix of letters (then at most a hyphen) that no other clinic has"
    )]
    BadPrefix {
        /// Whose.
        id: String,
    },
    /// Shorten or drop words.
    #[error(
        "clinic {id} has more than {WORDS_PER_CLINIC_MAX} words, or one that is empty or longer \
         than {NAME_CHARS_MAX} characters"
    )]
    BadWords {
        /// Whose.
        id: String,
    },
}

impl TryFrom<Vec<ClinicEntry>> for Registry {
    type Error = RegistryError;

    fn try_from(mut clinics: Vec<ClinicEntry>) -> Result<Self, RegistryError> {
        if clinics.len() > CLINICS_MAX {
            return Err(RegistryError::TooManyClinics {
                clinics: clinics.len(),
            });
        }
        let (mut ids, mut prefixes) = (HashSet::new(), HashSet::new());
        for (at, clinic) in clinics.iter_mut().enumerate() {
            if !is_name(&clinic.id, NAME_CHARS_MAX) {
                return Err(RegistryError::BadId { position: at + 1 });
            }
            let id = clinic.id.clone();
            if !ids.insert(fold(&id)) {
                return Err(RegistryError::SameId { id });
            }
            if clinic.specialty.trim().is_empty() {
                return Err(RegistryError::NoSpecialty { id });
            }
            clinic.id_prefix = clinic
                .id_prefix
                .strip_suffix('-')
                .unwrap_or(&clinic.id_prefix)
                .to_ascii_uppercase();
            let prefix = &clinic.id_prefix;
            let fits =
                prefix.len() <= NAME_CHARS_MAX && prefix.bytes().all(|b| b.is_ascii_alphabetic());
            if !fits || (!prefix.is_empty() && !prefixes.insert(prefix.clone())) {
                return Err(RegistryError::BadPrefix { id });
            }
            let words = || {
                clinic
                    .synonyms
                    .iter()
                    .chain(&clinic.conditions)
                    .chain([&clinic.specialty])
            };
            let word_fits =
                |w: &String| !w.trim().is_empty() && w.chars().count() <= NAME_CHARS_MAX;
            if words().count() > WORDS_PER_CLINIC_MAX + 1 || !words().all(word_fits) {
                return Err(RegistryError::BadWords { id });
            }
        }
        Ok(Self { clinics })
    }
}

impl Registry {
    /// The clinics in the file's order.
    pub fn clinics(&self) -> &[ClinicEntry] {
        &self.clinics
    }

    /// The clinic of that id.
    pub fn clinic(&self, id: &str) -> Option<&ClinicEntry> {
        self.clinics.iter().find(|c| c.id == id)
    }

    /// The specialties, for people: `cardiology, dermatology`.
    pub(crate) fn specialties(&self) -> String {
        self.clinics
            .iter()
            .map(|c| c.specialty.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// If a word is a patient's id by some clinic's prefix: that clinic's place and the id as the clinic writes it.
    pub(crate) fn patient_id(&self, word: &str) -> Option<(usize, String)> {
        let word = word.to_ascii_uppercase();
        self.clinics.iter().enumerate().find_map(|(at, clinic)| {
            let rest = word
                .strip_prefix(&clinic.id_prefix)
                .filter(|_| !clinic.id_prefix.is_empty())?;
            let digits = rest.strip_prefix('-').unwrap_or(rest);
            let fits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            fits.then(|| (at, format!("{}-{digits}", clinic.id_prefix)))
        })
    }

    /// A clinic other than `own` that a text names: by its id, or by an id of one of its patients.
    pub(crate) fn other_clinic_in(&self, own: &str, text: &str) -> Option<&ClinicEntry> {
        let text = plain(text).to_ascii_uppercase();
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let number = |rest: &str| {
            rest.trim_start_matches(['-', '_', ' ', '.', '/', '#', ':'])
                .starts_with(|c: char| c.is_ascii_digit())
        };
        self.clinics.iter().filter(|c| c.id != own).find(|clinic| {
            mentions(&text, &clinic.id.to_ascii_uppercase(), ends)
                || (!clinic.id_prefix.is_empty() && mentions(&text, &clinic.id_prefix, number))
        })
    }
}

/// Whether `text` has `name` at the beginning of a word and what follows it fits.
fn mentions(text: &str, name: &str, follows: impl Fn(&str) -> bool) -> bool {
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(|c: char| c.is_alphanumeric()) && follows(&text[at + name.len()..])
    })
}

/// Whether a text is 1 to `chars_max` letters, digits, `_`, `-` or `.`.
pub(crate) fn is_name(text: &str, chars_max: usize) -> bool {
    (1..=chars_max).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::plan::samples::{entry, two_clinics};

    /// Goal: an entry that can't work is refused with its name. Method: one row a mistake.
    #[test]
    fn mistakes_are_named() {
        let refused =
            |clinics: Vec<ClinicEntry>| Registry::try_from(clinics).err().map(|e| e.to_string());
        let (a, b) = (entry("a", "x", "A-"), entry("b", "y", "B"));
        assert_eq!(refused(vec![a.clone(), b.clone()]), None);
        assert_eq!(
            refused(vec![a.clone(), a.clone()]),
            Some("two clinics are called a".into())
        );
        assert!(
            refused(vec![entry("a b", "x", "")])
                .is_some_and(|e| e.starts_with("clinic 1 needs an id"))
        );
        assert!(
            refused(vec![entry("a", " ", "")]).is_some_and(|e| e.contains("needs a specialty"))
        );
        for prefix in ["A", "a-", "X1", "X--"] {
            assert!(
                refused(vec![a.clone(), entry("c", "z", prefix)])
                    .is_some_and(|e| e.contains("id_prefix")),
                "{prefix}"
            );
        }
        let long = ClinicEntry {
            synonyms: vec!["é".repeat(NAME_CHARS_MAX)],
            ..a.clone()
        };
        assert_eq!(refused(vec![long]), None);
        let longer = ClinicEntry {
            synonyms: vec!["é".repeat(NAME_CHARS_MAX + 1)],
            ..a.clone()
        };
        assert!(refused(vec![longer]).is_some_and(|e| e.contains("words")));
        let full = |n| ClinicEntry {
            conditions: vec!["w".to_owned(); n],
            ..a.clone()
        };
        assert_eq!(refused(vec![full(WORDS_PER_CLINIC_MAX)]), None);
        assert!(refused(vec![full(WORDS_PER_CLINIC_MAX + 1)]).is_some_and(|e| e.contains("words")));
        let many = |n: usize| {
            (0..n)
                .map(|i| entry(&format!("c{i}"), "x", ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(refused(many(CLINICS_MAX)), None);
        assert!(refused(many(CLINICS_MAX + 1)).is_some_and(|e| e.contains("65 clinics")));
    }

    /// Goal: an id is known by its prefix however it is written. Method: rows.
    #[test]
    fn ids_tell_the_clinic() {
        let registry = two_clinics();
        let expect = |place, id: &str| Some((place, id.to_owned()));
        assert_eq!(registry.patient_id("CARD-001"), expect(0, "CARD-001"));
        assert_eq!(registry.patient_id("derm-12"), expect(1, "DERM-12"));
        assert_eq!(registry.patient_id("card007"), expect(0, "CARD-007"));
        for none in ["NEUR-001", "CARD", "CARD-", "CARD-1x", "XCARD-1", "001", ""] {
            assert_eq!(registry.patient_id(none), None, "{none}");
        }
    }

    /// Goal: a text for one clinic that names another is found out. Method: rows of spellings.
    #[test]
    fn another_clinic_is_noticed_in_a_text() {
        let registry = two_clinics();
        let other = |text| {
            registry
                .other_clinic_in("clinic_a", text)
                .map(|c| c.id.as_str())
        };
        for text in [
            "DERM-001",
            "as in derm 1",
            "x,DERM#7",
            "ＤＥＲＭ-001",
            "DE\u{200B}RM-001",
            "ask clinic_b",
            "DERM\u{2011}2",
        ] {
            assert_eq!(other(text), Some("clinic_b"), "{text}");
        }
        for text in [
            "CARD-001",
            "dermatitis 2",
            "epiderm-2",
            "clinic_bb",
            "derm",
            "psoriasis",
        ] {
            assert_eq!(other(text), None, "{text}");
        }
    }
}
