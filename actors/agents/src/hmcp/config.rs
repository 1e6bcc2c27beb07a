use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the topology says about an EMR write-back agent (`kind = "emr_writeback"`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmrConfig {
    /// The agent's id.
    pub id: String,
    /// What it calls itself in the answers of `sampling/createMessage`.
    #[serde(default = "emr_model")]
    pub model: String,
    /// Where what is written goes, a JSON object a line; created with its folder. As the process sees it: whoever reads
    /// the topology resolves it against the state directory. Without it, memory.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

/// What the topology says about a patient-data agent (`kind = "patient_data"`).
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
// Names of patients are never printed.
#[debug("PatientDataConfig({}, {} patients)", id, patients.len())]
#[serde(deny_unknown_fields)]
pub struct PatientDataConfig {
    /// The agent's id.
    pub id: String,
    /// What it calls itself in the answers of `sampling/createMessage`.
    #[serde(default = "patient_model")]
    pub model: String,
    /// Whom it knows; at most [`PATIENTS_MAX`](super::PATIENTS_MAX).
    pub patients: Vec<PatientEntry>,
}

/// A patient, as far as the patient-data agent tells.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[debug("PatientEntry(..)")]
#[serde(deny_unknown_fields)]
pub struct PatientEntry {
    /// The full name.
    pub name: String,
    /// The identifier, for example `PT12345`.
    pub id: String,
}

fn emr_model() -> String {
    "emr-writeback-agent".to_owned()
}

fn patient_model() -> String {
    "patient-data-agent".to_owned()
}
