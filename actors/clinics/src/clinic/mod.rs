//! A clinic: a data silo behind four messages.
//!
//! One clinic is one process with a SQLite file of its own. It knows of no other clinic and has no message that
//! answers with everything it holds. [`ListPatients`] and [`Query`] answer ids and conditions; a patient's file comes
//! only by id, and without the fields that say who the patient is unless principal and purpose allow them.

mod agent;
mod config;
mod messages;
mod seed;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use agent::may_identify;
pub use agent::{Clinic, IDENTITY_SCOPE, READS_IN_FLIGHT_MAX};
pub use config::{ClinicConfig, ClinicError, PURPOSE_DEFAULT};
pub use messages::{
    CheckMedications, DataClass, Field, GetPatient, ListPatients, MATCHES_MAX, Matches, Medication,
    Medications, PATIENT_ID_BYTES_MAX, PATIENTS_LISTED_MAX, PatientFile, PatientRow, PatientView,
    Patients, QUERY_BYTES_MAX, Query,
};
pub use seed::{
    FIELD_BYTES_MAX, MEDICATIONS_PER_PATIENT_MAX, SEED_BYTES_MAX, SEED_PATIENTS_MAX,
    SYNONYM_GROUP_PHRASES_MAX, SYNONYM_PHRASES_MAX,
};
pub use store::{QUERY_WORDS_MAX, READERS_MAX};
