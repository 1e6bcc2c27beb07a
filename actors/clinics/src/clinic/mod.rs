//! Clinic agent: one clinic's patient data behind four messages.
//!
//! Each clinic has a SQLite file of its own. It doesn't know other clinics, and no message returns
//! its whole data. [`ListPatients`] and [`QueryPatients`] return ids and conditions. A patient's
//! record is returned by id only, and without identifying fields unless both principal and purpose
//! allow them. Then names and numbers of patients are cut out of notes and other free texts too.

mod agent;
mod config;
mod messages;
mod privacy;
mod seed;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use agent::may_identify;
pub use agent::{Clinic, PENDING_READS_MAX};
pub use callboard_message::IDENTITY_SCOPE;
pub use config::{ClinicConfig, ClinicError, PURPOSE_DEFAULT};
pub use messages::{
    CheckMedications, FieldClass, GetPatient, ListPatients, MATCHES_MAX, Medication, Medications,
    PATIENT_ID_BYTES_MAX, PATIENTS_LISTED_MAX, PatientField, PatientFile, PatientList, PatientRow,
    PatientView, QUERY_BYTES_MAX, QueryMatches, QueryPatients,
};
pub use seed::{
    FIELD_BYTES_MAX, MEDICATIONS_PER_PATIENT_MAX, SEED_BYTES_MAX, SEED_PATIENTS_MAX,
    SYNONYM_GROUP_PHRASES_MAX, SYNONYM_PHRASES_MAX,
};
pub use store::{QUERY_WORDS_MAX, READERS_MAX};
