use std::collections::HashSet;
use std::path::PathBuf;

use callboard_message::text::{fold, normalize};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum number of clinics in a registry. A host file with more is rejected. Fixed.
pub const CLINICS_MAX: usize = 64;
/// Maximum number of synonyms and conditions of one clinic together. A host file with more is
/// rejected. Fixed.
pub const WORDS_PER_CLINIC_MAX: usize = 1_024;
/// Maximum characters of a clinic's id, patient id prefix or specialty, or of one synonym or
/// condition. A host file with a longer one is rejected. Fixed.
pub const NAME_CHARS_MAX: usize = 80;

/// Clinic in the registry, as the host file declares it (`[[clinic]]`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClinicEntry {
    /// Id of the clinic in plans and in the agent directory: letters, digits, `_`, `-`, `.`.
    pub id: String,
    /// Medical specialty in one or two words, for example `cardiology`.
    pub specialty: String,
    /// URL of the clinic. Its form is checked at the start of the host, which connects at the first
    /// call. Plans never contain it.
    #[serde(default)]
    pub url: String,
    /// Environment variable with a bearer token for the clinic's URL; the token is sent nowhere
    /// else.
    #[serde(default)]
    pub bearer_env: Option<String>,
    /// PEM file with the authorities of the clinic's certificate, in place of the public ones.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Conditions that the clinic treats, in any language.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Synonyms of the specialty, in any language.
    #[serde(default)]
    pub synonyms: Vec<String>,
    /// Prefix of the clinic's patient ids, for example `CARD-`: letters with an optional hyphen.
    /// Empty if its ids have no prefix of their own; the [`Planner`](crate::planner::Planner) then
    /// doesn't recognise them. A registry holds it in upper case and without the hyphen.
    #[serde(default)]
    pub id_prefix: String,
}

/// Registry of the clinics that may be called. A plan with any other clinic is rejected before
/// anything is sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<ClinicEntry>")]
pub struct ClinicRegistry {
    clinics: Vec<ClinicEntry>,
}

/// Defect of a clinic registry. Each message tells what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClinicRegistryError {
    /// The registry has more than [`CLINICS_MAX`] clinics.
    #[error("the registry has {clinics} clinics, more than {CLINICS_MAX}")]
    TooManyClinics {
        /// Number of clinics in the registry.
        clinics: usize,
    },
    /// A clinic has an invalid id.
    #[error(
        "clinic {position} needs an id of 1 to {NAME_CHARS_MAX} letters, digits, '_', '-' or '.'"
    )]
    BadId {
        /// Position of the clinic in the registry, from 1.
        position: usize,
    },
    /// Two clinics have the same id, apart from case.
    #[error("two clinics are called {id}")]
    SameId {
        /// Id as the later clinic has it.
        id: String,
    },
    /// A clinic has no specialty.
    #[error("clinic {id} needs a specialty")]
    NoSpecialty {
        /// Id of the clinic.
        id: String,
    },
    /// A clinic's patient id prefix is invalid, or another clinic has the same.
    #[error(
        "clinic {id} has an id_prefix that isn't 1 to {NAME_CHARS_MAX} letters (then at most a hyphen) or that \
         another clinic has: change it, or leave it out"
    )]
    BadPrefix {
        /// Id of the clinic.
        id: String,
    },
    /// A clinic has too many synonyms and conditions together, or one that is empty or too long, or
    /// its specialty is too long.
    #[error(
        "clinic {id} has more than {WORDS_PER_CLINIC_MAX} `synonyms` and `conditions` together, or one \
         that is empty or longer than {NAME_CHARS_MAX} characters, or a longer `specialty`"
    )]
    BadWords {
        /// Id of the clinic.
        id: String,
    },
}

impl TryFrom<Vec<ClinicEntry>> for ClinicRegistry {
    type Error = ClinicRegistryError;

    fn try_from(mut clinics: Vec<ClinicEntry>) -> Result<Self, ClinicRegistryError> {
        if clinics.len() > CLINICS_MAX {
            return Err(ClinicRegistryError::TooManyClinics {
                clinics: clinics.len(),
            });
        }
        let (mut ids, mut prefixes) = (HashSet::new(), HashSet::new());
        for (at, clinic) in clinics.iter_mut().enumerate() {
            if !is_name(&clinic.id, NAME_CHARS_MAX) {
                return Err(ClinicRegistryError::BadId { position: at + 1 });
            }
            let id = clinic.id.clone();
            if !ids.insert(fold(&id)) {
                return Err(ClinicRegistryError::SameId { id });
            }
            if clinic.specialty.trim().is_empty() {
                return Err(ClinicRegistryError::NoSpecialty { id });
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
                return Err(ClinicRegistryError::BadPrefix { id });
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
                return Err(ClinicRegistryError::BadWords { id });
            }
        }
        Ok(Self { clinics })
    }
}

impl ClinicRegistry {
    /// Returns the clinics in the order of the host file.
    pub fn clinics(&self) -> &[ClinicEntry] {
        &self.clinics
    }

    /// Returns the clinic with this id; `None` if it isn't registered.
    pub fn clinic(&self, id: &str) -> Option<&ClinicEntry> {
        self.clinics.iter().find(|c| c.id == id)
    }

    /// Returns the clinics' specialties as a comma-separated list: `cardiology, dermatology`.
    pub(crate) fn specialties(&self) -> String {
        self.clinics
            .iter()
            .map(|c| c.specialty.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Parses a patient id by the prefixes of the clinics. Returns the clinic's index in the
    /// registry and the id in its canonical form, such as `CARD-001` for `card001`; `None` if it
    /// isn't the prefix of a clinic and digits.
    pub(crate) fn parse_patient_id(&self, word: &str) -> Option<(usize, String)> {
        let word = word.to_ascii_uppercase();
        self.clinics.iter().enumerate().find_map(|(at, clinic)| {
            let rest = word
                .strip_prefix(&clinic.id_prefix)
                .filter(|_| !clinic.id_prefix.is_empty())?;
            let digits = rest.strip_prefix(['-', '_']).unwrap_or(rest);
            let fits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            fits.then(|| (at, format!("{}-{digits}", clinic.id_prefix)))
        })
    }

    /// Returns a clinic other than `own` that a text mentions, by its id or by one of its patient
    /// ids; `None` if there is none.
    pub(crate) fn find_other_clinic(&self, own: &str, text: &str) -> Option<&ClinicEntry> {
        let text = normalize(text).to_ascii_uppercase();
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

/// Returns whether `text` has `name` at the start of a word and `follows` accepts the text after
/// it.
fn mentions(text: &str, name: &str, follows: impl Fn(&str) -> bool) -> bool {
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(|c: char| c.is_alphanumeric()) && follows(&text[at + name.len()..])
    })
}

/// Returns whether a text is 1 to `chars_max` ASCII letters, digits, `_`, `-` or `.`.
pub(crate) fn is_name(text: &str, chars_max: usize) -> bool {
    (1..=chars_max).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::plan::samples::{clinic_entry, two_clinics};

    /// Goal: an entry that can't work is refused with its name. Method: one row a mistake.
    #[test]
    fn mistakes_are_named() {
        let refused = |clinics: Vec<ClinicEntry>| {
            ClinicRegistry::try_from(clinics)
                .err()
                .map(|e| e.to_string())
        };
        let (a, b) = (clinic_entry("a", "x", "A-"), clinic_entry("b", "y", "B"));
        assert_eq!(refused(vec![a.clone(), b.clone()]), None);
        assert_eq!(
            refused(vec![a.clone(), a.clone()]),
            Some("two clinics are called a".into())
        );
        assert!(
            refused(vec![clinic_entry("a b", "x", "")])
                .is_some_and(|e| e.starts_with("clinic 1 needs an id"))
        );
        assert!(
            refused(vec![clinic_entry("a", " ", "")])
                .is_some_and(|e| e.contains("needs a specialty"))
        );
        for prefix in ["A", "a-", "X1", "X--"] {
            assert!(
                refused(vec![a.clone(), clinic_entry("c", "z", prefix)])
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
        assert!(refused(vec![longer]).is_some_and(|e| e.contains("conditions")));
        let full = |n| ClinicEntry {
            conditions: vec!["w".to_owned(); n],
            ..a.clone()
        };
        assert_eq!(refused(vec![full(WORDS_PER_CLINIC_MAX)]), None);
        assert!(
            refused(vec![full(WORDS_PER_CLINIC_MAX + 1)]).is_some_and(|e| e.contains("conditions"))
        );
        let many = |n: usize| {
            (0..n)
                .map(|i| clinic_entry(&format!("c{i}"), "x", ""))
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
        assert_eq!(registry.parse_patient_id("CARD-001"), expect(0, "CARD-001"));
        assert_eq!(registry.parse_patient_id("derm-12"), expect(1, "DERM-12"));
        assert_eq!(registry.parse_patient_id("card007"), expect(0, "CARD-007"));
        assert_eq!(registry.parse_patient_id("card_007"), expect(0, "CARD-007"));
        for none in ["NEUR-001", "CARD", "CARD-", "CARD-1x", "XCARD-1", "001", ""] {
            assert_eq!(registry.parse_patient_id(none), None, "{none}");
        }
    }

    /// Goal: a text for one clinic that names another is found out. Method: rows of spellings.
    /// Rows: C-32.
    #[test]
    fn another_clinic_is_noticed_in_a_text() {
        let registry = two_clinics();
        let other = |text| {
            registry
                .find_other_clinic("clinic_a", text)
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
