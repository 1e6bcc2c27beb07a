use std::fmt;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_message::text::folded_words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

/// Longest patient id, in bytes.
pub const PATIENT_ID_BYTES_MAX: usize = 64;
/// Longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 512;
/// Most rows in an answer to [`Query`]; more are announced by `truncated`.
pub const MATCHES_MAX: usize = 100;
/// Most rows in an answer to [`ListPatients`]; more are announced by `truncated`.
pub const PATIENTS_LISTED_MAX: usize = 1_000;

/// A word of a name this long, in characters, gives its bearer away in a note; shorter ones are "de", "van", initials.
const NAME_WORD_CHARS_MIN: usize = 3;

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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
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

/// A field of a patient's file, by its name in JSON.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// The clinic's own number for the patient, for example `CARD-001`.
    PatientId,
    /// What the patient is treated for.
    Condition,
    /// Full name.
    Name,
    /// Birth date.
    BirthDate,
    /// Which government's number it is, for example `CPF`.
    GovernmentIdScheme,
    /// The government's number for the person.
    GovernmentId,
    /// Postal address.
    Address,
    /// Telephone.
    Phone,
    /// What the patient takes.
    Medications,
    /// What was noted at visits.
    Notes,
}

impl Field {
    /// Every field, in the order of the file.
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

    /// The class that a field has where the topology says nothing.
    pub fn class_default(self) -> DataClass {
        match self {
            Self::PatientId => DataClass::Public,
            Self::Condition | Self::Medications | Self::Notes => DataClass::Clinical,
            Self::Name
            | Self::BirthDate
            | Self::GovernmentIdScheme
            | Self::GovernmentId
            | Self::Address
            | Self::Phone => DataClass::Identifying,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its name in JSON.
        self.serialize(f)
    }
}

/// How carefully a field is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataClass {
    /// Says nothing about a person by itself; may stand in a log.
    Public,
    /// About a patient's health. Answered to whoever may ask the clinic, never logged.
    Clinical,
    /// Says who the patient is. Answered only where principal and purpose allow it, never logged, never searched.
    Identifying,
}

/// A medicine that a patient takes.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// Patient text is never printed; the same holds below.
#[debug("Medication(..)")]
#[serde(deny_unknown_fields)]
pub struct Medication {
    /// Generic name.
    pub name: String,
    /// How much at a time, in `unit`; more than zero.
    pub dose: Number,
    /// Unit of `dose`: `mg`, `mg/mL`, `%`.
    pub unit: String,
    /// How often, for example `once daily`.
    pub frequency: String,
    /// By which way, for example `oral`.
    pub route: String,
}

/// One patient's whole file, as seed and database hold it. It never leaves this module: see [`PatientView`].
#[derive(derive_more::Debug, Clone, PartialEq, Deserialize)]
#[debug("Record(..)")]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
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

impl Record {
    /// The text of a field; `None` for the medications, which are a list.
    pub fn text(&self, field: Field) -> Option<&str> {
        Some(match field {
            Field::PatientId => &self.patient_id,
            Field::Condition => &self.condition,
            Field::Name => &self.name,
            Field::BirthDate => &self.birth_date,
            Field::GovernmentIdScheme => &self.government_id_scheme,
            Field::GovernmentId => &self.government_id,
            Field::Address => &self.address,
            Field::Phone => &self.phone,
            Field::Notes => &self.notes,
            Field::Medications => return None,
        })
    }
}

/// Whether the free text says who the patient is: a word of the name, or a number, date or address as in the file.
/// Such notes are withheld with the identity and not searched.
pub(super) fn notes_identify(record: &Record) -> bool {
    let notes = folded_words(&record.notes);
    let names_patient = folded_words(&record.name)
        .iter()
        .any(|part| part.chars().count() >= NAME_WORD_CHARS_MIN && notes.contains(part));
    let joined = notes.concat();
    let quotes_field = [
        Field::BirthDate,
        Field::GovernmentId,
        Field::Address,
        Field::Phone,
    ]
    .into_iter()
    .filter_map(|field| record.text(field))
    .map(|text| folded_words(text).concat())
    .any(|text| !text.is_empty() && joined.contains(&text));
    names_patient || quotes_field
}

/// A patient's file as one principal may see it.
///
/// A withheld field is absent, and its name stands in `redacted`: a value that is there is always a real one.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("PatientView {{ redacted: {redacted:?}, .. }}")]
pub struct PatientView {
    /// The clinic's own number for the patient.
    pub patient_id: String,
    /// What the patient is treated for.
    pub condition: String,
    /// Full name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Birth date, `YYYY-MM-DD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub birth_date: Option<String>,
    /// `CPF`, `SSN` or `NHS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub government_id_scheme: Option<String>,
    /// The number in that scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub government_id: Option<String>,
    /// Postal address, one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// International format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// What the patient takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medications: Option<Vec<Medication>>,
    /// What was noted at visits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The fields that were withheld.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<Field>,
}
