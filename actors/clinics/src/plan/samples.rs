//! Registries and a plan for tests.

use super::{ClinicEntry, ClinicRegistry};

pub(crate) fn clinic_entry(id: &str, specialty: &str, prefix: &str) -> ClinicEntry {
    ClinicEntry {
        id: id.into(),
        specialty: specialty.into(),
        url: String::new(),
        bearer_env: None,
        ca: None,
        conditions: Vec::new(),
        synonyms: Vec::new(),
        id_prefix: prefix.into(),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// Sample plan of the technical blueprint for its two clinics, with the blueprint's exact bytes.
pub(crate) const SAMPLE_PLAN: &str = concat!(
    r#"[{"step_id":1,"clinic":"clinic_a","action":"list_patients","parameters":{}},"#,
    r#"{"step_id":2,"clinic":"clinic_b","action":"query","parameters":{"query":"psoriasis"}}]"#,
);

/// Returns a registry with the two clinics of the technical blueprint.
pub(crate) fn two_clinics() -> ClinicRegistry {
    let cardiology = ClinicEntry {
        conditions: words(&[
            "Hypertension",
            "Atrial fibrillation",
            "Heart failure",
            "hipertensão",
            "arritmia",
        ]),
        synonyms: words(&["heart", "cardiac", "coração", "cardíaco"]),
        ..clinic_entry("clinic_a", "cardiology", "CARD-")
    };
    let dermatology = ClinicEntry {
        conditions: words(&["Psoriasis", "Eczema", "Skin cancer", "psoríase", "Acne"]),
        synonyms: words(&["skin", "pele"]),
        ..clinic_entry("clinic_b", "dermatology", "DERM-")
    };
    registry(vec![cardiology, dermatology])
}

/// Returns a registry with the two clinics of the technical blueprint, and a third one that also
/// treats eczema.
pub(crate) fn three_clinics() -> ClinicRegistry {
    let mut clinics = two_clinics().clinics().to_vec();
    clinics.push(ClinicEntry {
        conditions: words(&["Migraine", "Eczema"]),
        synonyms: words(&["brain", "cérebro"]),
        ..clinic_entry("clinic_c", "neurology", "NEUR-")
    });
    registry(clinics)
}

fn registry(clinics: Vec<ClinicEntry>) -> ClinicRegistry {
    ClinicRegistry::try_from(clinics).unwrap_or_else(|e| panic!("{e}"))
}
