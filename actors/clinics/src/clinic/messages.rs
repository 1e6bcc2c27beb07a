use std::fmt;

use callboard_macros::Message;
use callboard_message::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

/// Maximum length of a patient id, in bytes. A request with a longer one fails with `InvalidInput`;
/// a seed file with one is rejected. Fixed.
pub const PATIENT_ID_BYTES_MAX: usize = 64;
/// Maximum length of the text of [`QueryPatients`], in bytes. A longer one fails with
/// `InvalidInput`. Fixed.
pub const QUERY_BYTES_MAX: usize = 512;
/// Maximum rows in the reply to [`QueryPatients`]; `truncated` is set if there are more.
pub const MATCHES_MAX: usize = 100;
/// Maximum rows in the reply to [`ListPatients`]; `truncated` is set if there are more.
pub const PATIENTS_LISTED_MAX: usize = 1_000;

/// Lists the clinic's patients: id and condition of each, no names.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[message(name = "list_patients", reply = PatientList, fallible)]
pub struct ListPatients {}

/// Gets one patient's file by id. Fields that identify the patient are withheld unless principal
/// and purpose allow them; the withheld fields are named in `redacted`.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[message(name = "get_patient", reply = PatientFile, fallible)]
pub struct GetPatient {
    /// Id of the patient in the clinic, for example `CARD-001`.
    #[schemars(length(min = 1, max = 64))]
    pub patient_id: String,
}

/// Lists the medicines that one patient takes, with dose, frequency and route.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[message(name = "check_medications", reply = Medications, fallible)]
pub struct CheckMedications {
    /// Id of the patient in the clinic, for example `CARD-001`.
    #[schemars(length(min = 1, max = 64))]
    pub patient_id: String,
}

/// Finds patients by the words of condition, medications and notes, in English or Portuguese: id and condition of
/// each, no names. All words must match; `or` separates alternatives.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
// A query may name a person: it is never printed. An answer's rows neither.
#[debug("Query({} bytes)", query.len())]
#[serde(deny_unknown_fields)]
#[message(name = "query", reply = QueryMatches, fallible)]
#[schemars(rename = "Query")]
pub struct QueryPatients {
    /// The words to find, for example `psoriasis`.
    #[schemars(length(min = 1, max = 512))]
    pub query: String,
}

/// Row of a patient list: id and condition, without identifying fields.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("PatientRow(..)")]
pub struct PatientRow {
    /// Id of the patient in the clinic, for example `CARD-001`.
    pub patient_id: String,
    /// Condition that the patient is treated for.
    pub condition: String,
}

/// Reply to [`ListPatients`]: patients with id and condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Patients")]
pub struct PatientList {
    /// Patients sorted by id, at most [`PATIENTS_LISTED_MAX`].
    pub patients: Vec<PatientRow>,
    /// Whether there are more patients than listed; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Reply to [`GetPatient`]: one patient's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PatientFile {
    /// Record without the fields that the principal may not see.
    pub patient: PatientView,
}

/// Reply to [`CheckMedications`]: one patient's medications.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Medications {
    /// Id of the patient in the clinic, for example `CARD-001`.
    pub patient_id: String,
    /// Medications in the order of the record; empty if the patient takes none.
    pub medications: Vec<Medication>,
}

/// Reply to [`QueryPatients`]: the matching patients with id and condition.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("Matches({} rows, truncated: {})", matches.len(), truncated)]
#[schemars(rename = "Matches")]
pub struct QueryMatches {
    /// Medical specialty of the clinic.
    pub specialty: String,
    /// Query as it was received.
    pub query: String,
    /// Matching patients sorted by id, at most [`MATCHES_MAX`].
    pub matches: Vec<PatientRow>,
    /// Whether there are more matches than listed; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

pub(super) fn check_patient_id(patient_id: &str) -> Result<(), Failure> {
    match patient_id.len() {
        0 => Err(Failure::invalid("patient_id is empty")),
        1..=PATIENT_ID_BYTES_MAX => Ok(()),
        _ => Err(Failure::invalid(format!(
            "patient_id is longer than {PATIENT_ID_BYTES_MAX} bytes"
        ))),
    }
}

/// Field of a patient's record; serialized as its name in JSON.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Field")]
pub enum PatientField {
    /// Id of the patient in the clinic, for example `CARD-001`.
    PatientId,
    /// Condition that the patient is treated for.
    Condition,
    /// Full name.
    Name,
    /// Birth date.
    BirthDate,
    /// Scheme of the government id: `CPF`, `SSN` or `NHS`.
    GovernmentIdScheme,
    /// Number of the government id.
    GovernmentId,
    /// Postal address.
    Address,
    /// Telephone number.
    Phone,
    /// Medications that the patient takes.
    Medications,
    /// Free text noted at visits.
    Notes,
}

impl PatientField {
    /// All fields, in the order of the record.
    pub const ALL: [Self; 10] = [
        Self::PatientId,
        Self::Condition,
        Self::Name,
        Self::BirthDate,
        Self::GovernmentIdScheme,
        Self::GovernmentId,
        Self::Address,
        Self::Phone,
        Self::Medications,
        Self::Notes,
    ];

    /// Returns the default class of a field, used unless the topology sets another.
    pub fn class_default(self) -> FieldClass {
        match self {
            Self::PatientId => FieldClass::Public,
            Self::Condition | Self::Medications | Self::Notes => FieldClass::Clinical,
            Self::Name
            | Self::BirthDate
            | Self::GovernmentIdScheme
            | Self::GovernmentId
            | Self::Address
            | Self::Phone => FieldClass::Identifying,
        }
    }
}

impl fmt::Display for PatientField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name in JSON.
        self.serialize(f)
    }
}

/// Sensitivity class of a patient field: who may see it, and whether it may be logged or searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DataClass")]
pub enum FieldClass {
    /// Reveals nothing about a person by itself; may be logged.
    Public,
    /// Health data. Returned to every client of the clinic, never logged.
    Clinical,
    /// Identifies the patient. Returned only if principal and purpose allow it; never logged, never
    /// searched.
    Identifying,
}

/// Medication that a patient takes, with its dose and schedule.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// Patient data is never printed; the same holds below.
#[debug("Medication(..)")]
#[serde(deny_unknown_fields)]
pub struct Medication {
    /// Generic name of the medicine.
    pub name: String,
    /// Amount of a single dose, in `unit`; more than zero.
    pub dose: Number,
    /// Unit of `dose`, any text of at most 4,096 bytes, for example `mg`, `mg/mL` or `%`.
    pub unit: String,
    /// Frequency, for example `once daily`.
    pub frequency: String,
    /// Route of administration, for example `oral`.
    pub route: String,
}

/// Complete record of a patient, as in the seed file and the database. It never leaves the module
/// [`clinic`](super); clients receive a [`PatientView`].
#[derive(derive_more::Debug, Clone, PartialEq, Deserialize)]
#[debug("Record(..)")]
#[serde(deny_unknown_fields)]
pub(super) struct PatientRecord {
    pub patient_id: String,
    pub condition: String,
    pub name: String,
    pub birth_date: String,
    pub government_id_scheme: String,
    pub government_id: String,
    pub address: String,
    pub phone: String,
    pub medications: Vec<Medication>,
    pub notes: String,
}

impl PatientRecord {
    /// Returns the text of a field; `None` for the medications, which are a list.
    pub fn text(&self, field: PatientField) -> Option<&str> {
        Some(match field {
            PatientField::PatientId => &self.patient_id,
            PatientField::Condition => &self.condition,
            PatientField::Name => &self.name,
            PatientField::BirthDate => &self.birth_date,
            PatientField::GovernmentIdScheme => &self.government_id_scheme,
            PatientField::GovernmentId => &self.government_id,
            PatientField::Address => &self.address,
            PatientField::Phone => &self.phone,
            PatientField::Notes => &self.notes,
            PatientField::Medications => return None,
        })
    }
}

/// Record of a patient as visible to one principal.
///
/// A withheld field is absent and listed in `redacted`. If any is withheld, identifying data in the
/// free texts is replaced by its class in brackets, for example `[name]`.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("PatientView {{ redacted: {redacted:?}, .. }}")]
pub struct PatientView {
    /// Id of the patient in the clinic, for example `CARD-001`.
    pub patient_id: String,
    /// Condition that the patient is treated for.
    pub condition: String,
    /// Full name; absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Birth date, `YYYY-MM-DD`; absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub birth_date: Option<String>,
    /// Scheme of the government id: `CPF`, `SSN` or `NHS`; absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub government_id_scheme: Option<String>,
    /// Number of the government id in its scheme; absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub government_id: Option<String>,
    /// Postal address, one line; absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Telephone number in international format; absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// Medications that the patient takes, empty if there are none. Absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medications: Option<Vec<Medication>>,
    /// Free text noted at visits, empty if there is none. Absent if withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Names of the withheld fields; empty if nothing is withheld.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<PatientField>,
}
