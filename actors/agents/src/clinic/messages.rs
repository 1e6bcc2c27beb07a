use callboard_macros::Message;
use callboard_message::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::{Medication, PatientView};

/// Longest patient id, in bytes.
pub const PATIENT_ID_BYTES_MAX: usize = 64;
/// Longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 512;
/// Most rows in an answer to [`Query`]; more are announced by `truncated`.
pub const MATCHES_MAX: usize = 100;
/// Most rows in an answer to [`ListPatients`]; more are announced by `truncated`.
pub const PATIENTS_LISTED_MAX: usize = 1_000;

/// Lists the clinic's patients: id and condition of each, no names.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[message(name = "list_patients", reply = Patients, fallible)]
pub struct ListPatients {}

/// Gets one patient's file by id. Fields that say who the patient is are withheld unless principal and purpose allow
/// them; the withheld fields are named in `redacted`.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[message(name = "get_patient", reply = PatientFile, fallible)]
pub struct GetPatient {
    /// The clinic's number for the patient, for example `CARD-001`.
    #[schemars(length(min = 1, max = 64))]
    pub patient_id: String,
}

/// Lists the medicines that one patient takes, with dose, frequency and route.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[message(name = "check_medications", reply = Medications, fallible)]
pub struct CheckMedications {
    /// The clinic's number for the patient, for example `CARD-001`.
    #[schemars(length(min = 1, max = 64))]
    pub patient_id: String,
}

/// Finds patients by the words of condition, medications and notes, in English or Portuguese: id and condition of
/// each, no names. All words must match; `or` separates alternatives.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
// A query may name a person: it is never printed. An answer's rows neither.
#[debug("Query({} bytes)", query.len())]
#[serde(deny_unknown_fields)]
#[message(name = "query", reply = Matches, fallible)]
pub struct Query {
    /// The words to find, for example `psoriasis`.
    #[schemars(length(min = 1, max = 512))]
    pub query: String,
}

/// What may be said of a patient in a list.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("PatientRow(..)")]
pub struct PatientRow {
    /// The clinic's number for the patient.
    pub patient_id: String,
    /// What the patient is treated for.
    pub condition: String,
}

/// Answers [`ListPatients`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Patients {
    /// By id, at most [`PATIENTS_LISTED_MAX`].
    pub patients: Vec<PatientRow>,
    /// There are more than these; absent when there aren't.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// Answers [`GetPatient`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PatientFile {
    /// What the asking principal may see.
    pub patient: PatientView,
}

/// Answers [`CheckMedications`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Medications {
    /// The clinic's number for the patient.
    pub patient_id: String,
    /// In the order of the file; empty when the patient takes none.
    pub medications: Vec<Medication>,
}

/// Answers [`Query`].
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("Matches({} rows, truncated: {})", matches.len(), truncated)]
pub struct Matches {
    /// The clinic's specialty.
    pub specialty: String,
    /// The query as it was asked.
    pub query: String,
    /// By id, at most [`MATCHES_MAX`].
    pub matches: Vec<PatientRow>,
    /// There are more than these; absent when there aren't.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
}

pub(super) fn check_patient_id(patient_id: &str) -> Result<(), Failure> {
    match patient_id.len() {
        0 => Err(Failure::invalid("patient_id is empty")),
        1..=PATIENT_ID_BYTES_MAX => Ok(()),
        _ => Err(Failure::invalid(format!("patient_id is longer than {PATIENT_ID_BYTES_MAX} bytes"))),
    }
}

pub(super) fn check_query(query: &str) -> Result<(), Failure> {
    if query.len() > QUERY_BYTES_MAX {
        return Err(Failure::invalid(format!("query is longer than {QUERY_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn is_false(value: &bool) -> bool {
    !value
}
