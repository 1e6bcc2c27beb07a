//! A clinic: a data silo behind four messages.
//!
//! One clinic is one process with a SQLite file of its own. It knows of no other clinic and has no message that
//! answers with everything it holds. [`ListPatients`] and [`Query`] answer ids and conditions; a patient's file comes
//! only by id, and without the fields that say who the patient is unless principal and purpose allow them.

mod access;
mod agent;
mod config;
mod error;
mod messages;
mod record;
mod search;
mod seed;
mod silo;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use access::may_identify;
pub use access::{IDENTITY_SCOPE, PURPOSE_DEFAULT};
pub use agent::{Clinic, READS_IN_FLIGHT_MAX};
pub use config::ClinicConfig;
pub use error::ClinicError;
pub use messages::{
    CheckMedications, GetPatient, ListPatients, MATCHES_MAX, Matches, Medications, PATIENT_ID_BYTES_MAX,
    PATIENTS_LISTED_MAX, PatientFile, PatientRow, Patients, QUERY_BYTES_MAX, Query,
};
pub use record::{DataClass, Field, Medication, PatientView};
pub use search::QUERY_WORDS_MAX;
pub use seed::{
    FIELD_BYTES_MAX, MEDICATIONS_PER_PATIENT_MAX, SEED_BYTES_MAX, SEED_PATIENTS_MAX, SYNONYM_GROUP_PHRASES_MAX,
    SYNONYM_PHRASES_MAX,
};
pub use store::READERS_MAX;
