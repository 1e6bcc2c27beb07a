use callboard_message::{Failure, Principal};

use super::access::Access;
use super::config::ClinicConfig;
use super::error::ClinicError;
use super::messages::{
    CheckMedications, GetPatient, MATCHES_MAX, Matches, Medications, PATIENTS_LISTED_MAX, PatientFile, PatientRow,
    Patients, Query, check_patient_id, check_query,
};
use super::record::Field;
use super::search::expression;
use super::store::Store;

/// What the agent answers from: one clinic's database behind its field-level policy.
pub(super) struct Silo {
    pub id: String,
    pub specialty: String,
    access: Access,
    store: Store,
}

impl Silo {
    pub async fn open(config: ClinicConfig) -> Result<Self, ClinicError> {
        let access = Access::new(&config)?;
        let store = Store::open(&config).await?;
        Ok(Self { id: config.id, specialty: config.specialty, access, store })
    }

    pub async fn list_patients(&self) -> Result<Patients, Failure> {
        let found = self.store.patients(PATIENTS_LISTED_MAX + 1).await.map_err(|e| self.unread(e))?;
        let (patients, truncated) = first(found, PATIENTS_LISTED_MAX);
        Ok(Patients { patients, truncated })
    }

    pub async fn get_patient(&self, message: GetPatient, principal: &Principal) -> Result<PatientFile, Failure> {
        check_patient_id(&message.patient_id)?;
        let record = self.store.record(&message.patient_id).await.map_err(|e| self.unread(e))?;
        let patient = self.access.view(record.ok_or_else(no_such_patient)?, principal);
        Ok(PatientFile { patient })
    }

    pub async fn check_medications(
        &self,
        message: CheckMedications,
        principal: &Principal,
    ) -> Result<Medications, Failure> {
        check_patient_id(&message.patient_id)?;
        if !self.access.may_see(Field::Medications, principal) {
            let why = "this clinic answers medications only to a trusted principal with an allowed purpose";
            return Err(Failure::denied(why));
        }
        let found = self.store.medications(&message.patient_id).await.map_err(|e| self.unread(e))?;
        let (patient_id, medications) = found.ok_or_else(no_such_patient)?;
        Ok(Medications { patient_id, medications })
    }

    pub async fn query(&self, message: Query) -> Result<Matches, Failure> {
        check_query(&message.query)?;
        let searched = [(Field::Condition, "condition"), (Field::Medications, "medications"), (Field::Notes, "notes")];
        let columns: Vec<&str> =
            searched.into_iter().filter(|(field, _)| self.access.is_searchable(*field)).map(|(_, name)| name).collect();
        let expression = expression(&message.query, self.store.synonyms(), &columns)?;
        let found = self.store.search(&expression, MATCHES_MAX + 1).await.map_err(|e| self.unread(e))?;
        let (matches, truncated) = first(found, MATCHES_MAX);
        Ok(Matches { specialty: self.specialty.clone(), query: message.query, matches, truncated })
    }

    /// What the sender may know of a failed read: the cause is for the operator.
    fn unread(&self, error: sqlx::Error) -> Failure {
        if matches!(error, sqlx::Error::PoolTimedOut) {
            return Failure::overloaded("the clinic has too many reads under way: try again later");
        }
        let code = error.as_database_error().and_then(|e| e.code()).map(|code| code.into_owned());
        callboard_message::log::error!(by: &self.id, clinic = %self.id, sqlite_code = code.as_deref(), "the clinic's database can't be read");
        Failure::unavailable("the clinic's database can't be read")
    }
}

fn first(mut rows: Vec<PatientRow>, rows_max: usize) -> (Vec<PatientRow>, bool) {
    let truncated = rows.len() > rows_max;
    rows.truncate(rows_max);
    (rows, truncated)
}

fn no_such_patient() -> Failure {
    Failure::not_found("this clinic has no patient with that patient_id")
}
