//! What planner, router and orchestrator share: plans, the registry of clinics, the catalogue of tools.

mod catalogue;
mod check;
mod parse;
mod registry;
#[cfg(test)]
pub(crate) mod samples;
mod step;

pub use catalogue::{Catalogue, PATIENT_ID_CHARS_MAX, Parameter, QUERY_TEXT_CHARS_MAX, Tool};
pub(crate) use check::in_order;
pub use check::{CheckedPlan, PlanError};
pub use parse::{PLAN_BYTES_MAX, PlanParseError, UNREADABLE_PLAN};
pub use registry::{CLINICS_MAX, ClinicEntry, NAME_CHARS_MAX, Registry, RegistryError, WORDS_PER_CLINIC_MAX};
pub use step::{Plan, RAW_RESPONSE, RAW_TEXT_CHARS_MAX, STEPS_MAX, Step};
