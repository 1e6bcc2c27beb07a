use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;

use super::error::ClinicError;
use super::messages::PATIENT_ID_BYTES_MAX;
use super::record::{Field, Medication, Record};
use super::search::{Phrase, words};

/// Largest seed file, in bytes.
pub const SEED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most patients in a seed.
pub const SEED_PATIENTS_MAX: usize = 10_000;
/// Longest text of one field of a seed, in bytes.
pub const FIELD_BYTES_MAX: usize = 4_096;
/// Most medicines of one patient.
pub const MEDICATIONS_PER_PATIENT_MAX: usize = 64;
/// Most phrases in all synonyms of a seed.
pub const SYNONYM_PHRASES_MAX: usize = 2_000;

/// Most phrases in one group of synonyms.
pub const SYNONYM_GROUP_PHRASES_MAX: usize = 64;

/// The records that fill a clinic at first start.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seed {
    #[serde(default)]
    pub synonyms: Vec<Synonym>,
    pub patients: Vec<Record>,
}

/// Phrases that mean the same, and narrower ones that they include. A phrase of `words` finds all of both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Synonym {
    pub words: Vec<String>,
    #[serde(default)]
    pub includes: Vec<String>,
}

impl Synonym {
    /// The group as it is stored: folded.
    pub fn phrases(&self, group: i64) -> impl Iterator<Item = Phrase> {
        let phrase = move |text: &String, finds_group| Phrase { group, words: words(text).join(" "), finds_group };
        let asked = self.words.iter().map(move |text| phrase(text, true));
        asked.chain(self.includes.iter().map(move |text| phrase(text, false)))
    }
}

impl Seed {
    /// Reads and checks the seed; by its ending it is TOML, else JSON. Blocks.
    pub fn read(path: &Path) -> Result<Self, ClinicError> {
        let text = read_bounded(path)?;
        let seed = parse(path, &text)?;
        seed.check(path)?;
        Ok(seed)
    }

    fn check(&self, path: &Path) -> Result<(), ClinicError> {
        let too_large = |max, unit| Err(ClinicError::SeedTooLarge { path: path.to_owned(), max, unit });
        if self.patients.len() > SEED_PATIENTS_MAX {
            return too_large(SEED_PATIENTS_MAX, "patients");
        }
        if self.synonyms.iter().map(|s| s.words.len() + s.includes.len()).sum::<usize>() > SYNONYM_PHRASES_MAX {
            return too_large(SYNONYM_PHRASES_MAX, "synonym phrases");
        }
        let refused = |what, index, rule| ClinicError::SeedRefused { path: path.to_owned(), what, index, rule };
        for (index, synonym) in self.synonyms.iter().enumerate() {
            check_synonym(synonym).map_err(|rule| refused("synonym", index, rule))?;
        }
        let mut ids = HashSet::new();
        for (index, patient) in self.patients.iter().enumerate() {
            check_patient(patient).map_err(|rule| refused("patient", index, rule))?;
            if !ids.insert(patient.patient_id.to_ascii_lowercase()) {
                return Err(refused("patient", index, "has the id of an earlier one".to_owned()));
            }
        }
        Ok(())
    }
}

fn read_bounded(path: &Path) -> Result<String, ClinicError> {
    let unreadable = |source: io::Error| ClinicError::SeedUnreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(SEED_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() > SEED_BYTES_MAX {
        return Err(ClinicError::SeedTooLarge { path: path.to_owned(), max: SEED_BYTES_MAX, unit: "bytes" });
    }
    Ok(text)
}

/// The parsers' own messages quote what they stumble over, which may be patient text: only the place is told.
fn parse(path: &Path, text: &str) -> Result<Seed, ClinicError> {
    let malformed = |line, column| ClinicError::SeedMalformed { path: path.to_owned(), line, column };
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")) {
        return toml::from_str(text).map_err(|e| {
            let before = text.get(..e.span().map_or(0, |span| span.start)).unwrap_or_default();
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            malformed(before.matches('\n').count() + 1, column)
        });
    }
    serde_json::from_str(text).map_err(|e| malformed(e.line(), e.column()))
}

fn check_synonym(synonym: &Synonym) -> Result<(), String> {
    if synonym.words.len() + synonym.includes.len() > SYNONYM_GROUP_PHRASES_MAX {
        return Err(format!("has more than {SYNONYM_GROUP_PHRASES_MAX} phrases"));
    }
    for phrase in synonym.words.iter().chain(&synonym.includes) {
        if phrase.len() > FIELD_BYTES_MAX {
            return Err(format!("has a phrase longer than {FIELD_BYTES_MAX} bytes"));
        }
        if words(phrase).is_empty() {
            return Err("has a phrase without a word".to_owned());
        }
    }
    Ok(())
}

fn check_patient(patient: &Record) -> Result<(), String> {
    let id = &patient.patient_id;
    if id.is_empty() || id.len() > PATIENT_ID_BYTES_MAX || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(format!("needs a patient_id of 1 to {PATIENT_ID_BYTES_MAX} letters, digits and hyphens"));
    }
    if patient.condition.trim().is_empty() {
        return Err("needs a condition".to_owned());
    }
    for field in Field::ALL {
        if patient.text(field).is_some_and(|text| text.len() > FIELD_BYTES_MAX) {
            return Err(format!("has a {field} longer than {FIELD_BYTES_MAX} bytes"));
        }
    }
    if patient.medications.len() > MEDICATIONS_PER_PATIENT_MAX {
        return Err(format!("has more than {MEDICATIONS_PER_PATIENT_MAX} medications"));
    }
    patient.medications.iter().try_for_each(check_medication)
}

fn check_medication(medication: &Medication) -> Result<(), String> {
    let Medication { name, dose, unit, frequency, route } = medication;
    if [name, unit, frequency, route].into_iter().any(|text| text.trim().is_empty() || text.len() > FIELD_BYTES_MAX) {
        return Err(format!("has a medication whose texts aren't 1 to {FIELD_BYTES_MAX} bytes"));
    }
    if !dose.as_f64().is_some_and(|dose| dose.is_finite() && dose > 0.0) {
        return Err("has a medication whose dose isn't more than zero".to_owned());
    }
    Ok(())
}
