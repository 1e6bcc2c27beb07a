//! The agents of HMCP: one writes clinical data into a record system, one knows which identifier a patient has.
//!
//! Both answer like a model (`sampling/createMessage` from client to server, in the words of HMCP 0.1.0), by a tool of
//! their own, and in this process. Every message passes the [guard](crate::guardrail::Guard) before the agent sees it and
//! every reply before it goes: the guard is part of the agent, so that none can be served without it.

mod audit;
mod config;
mod emr;
mod emr_store;
mod error;
mod grammar;
mod guarded;
mod patients;
#[cfg(test)]
mod tests;

pub use config::{EmrConfig, PatientDataConfig, PatientEntry};
pub use emr::{Emr, EmrWriteback, WriteClinicalData, Written};
pub use emr_store::{EMR_FILE_BYTES_MAX_DEFAULT, EMR_RECORDS_MAX_DEFAULT, EmrRecord, EmrStore};
pub use error::HmcpError;
pub use grammar::{CLINICAL_DATA_BYTES_MAX, PATIENT_ID_DIGITS_MAX, is_patient_id};
pub use guarded::{Guarded, HMCP_CALLS_MAX};
pub use patients::{FindPatient, PATIENT_NAME_BYTES_MAX, PATIENTS_MAX, PatientData, PatientFound, Patients};
