//! Registries and a plan for tests.

use super::{ClinicEntry, Registry};

pub(crate) fn entry(id: &str, specialty: &str, prefix: &str) -> ClinicEntry {
    ClinicEntry {
        id: id.into(),
        specialty: specialty.into(),
        url: String::new(),
        conditions: Vec::new(),
        synonyms: Vec::new(),
        id_prefix: prefix.into(),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// The document's plan for its two clinics, as it is written.
pub(crate) const THE_PLAN: &str = concat!(
    r#"[{"step_id":1,"clinic":"clinic_a","action":"list_patients","parameters":{}},"#,
    r#"{"step_id":2,"clinic":"clinic_b","action":"query","parameters":{"query":"psoriasis"}}]"#,
);

/// The two clinics of the document.
pub(crate) fn two_clinics() -> Registry {
    let cardiology = ClinicEntry {
        conditions: words(&[
            "Hypertension",
            "Atrial fibrillation",
            "Heart failure",
            "hipertensão",
            "arritmia",
        ]),
        synonyms: words(&["heart", "cardiac", "coração", "cardíaco"]),
        ..entry("clinic_a", "cardiology", "CARD-")
    };
    let dermatology = ClinicEntry {
        conditions: words(&["Psoriasis", "Eczema", "Skin cancer", "psoríase", "Acne"]),
        synonyms: words(&["skin", "pele"]),
        ..entry("clinic_b", "dermatology", "DERM-")
    };
    registry(vec![cardiology, dermatology])
}

/// The two, and a third that knows eczema too.
pub(crate) fn three_clinics() -> Registry {
    let mut clinics = two_clinics().clinics().to_vec();
    clinics.push(ClinicEntry {
        conditions: words(&["Migraine", "Eczema"]),
        synonyms: words(&["brain", "cérebro"]),
        ..entry("clinic_c", "neurology", "NEUR-")
    });
    registry(clinics)
}

fn registry(clinics: Vec<ClinicEntry>) -> Registry {
    Registry::try_from(clinics).unwrap_or_else(|e| panic!("{e}"))
}
