use std::collections::BTreeSet;
use std::sync::Arc;

use callboard_message::{Failure, Principal, PrincipalKind};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};

use super::config::{ClinicConfig, ClinicError};
use super::messages::{
    CheckMedications, DataClass, Field, GetPatient, ListPatients, MATCHES_MAX, Matches,
    Medications, PATIENTS_LISTED_MAX, PatientFile, PatientRow, PatientView, Patients,
    QUERY_BYTES_MAX, Query, Record, check_patient_id, notes_identify,
};
use super::store::{Store, expression};

/// Most messages of one type that a clinic reads for at the same time; further ones wait in its mailbox.
pub const READS_IN_FLIGHT_MAX: u32 = 16;

/// A clinic as an agent: a private database behind [`ListPatients`](super::ListPatients),
/// [`GetPatient`](super::GetPatient), [`CheckMedications`](super::CheckMedications) and [`Query`](super::Query).
/// Cheap to clone; clones share the database.
#[derive(derive_more::Debug, Clone)]
#[debug("Clinic({})", silo.id)]
pub struct Clinic {
    silo: Arc<Silo>,
}

impl Clinic {
    /// Opens the clinic's database; at first start creates it and fills it from the seed.
    ///
    /// # Errors
    /// A start that fails leaves no patient behind and may be tried again. See [`ClinicError`] for what to do.
    pub async fn open(config: ClinicConfig) -> Result<Self, ClinicError> {
        Ok(Self {
            silo: Arc::new(Silo::open(config).await?),
        })
    }
}

impl Agent for Clinic {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<ListPatients>(READS_IN_FLIGHT_MAX)
            .concurrent::<GetPatient>(READS_IN_FLIGHT_MAX)
            .concurrent::<CheckMedications>(READS_IN_FLIGHT_MAX)
            .concurrent::<Query>(READS_IN_FLIGHT_MAX);
    }

    /// A read that is dropped leaves nothing half done.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "clinic": self.silo.id, "specialty": self.silo.specialty })
    }
}

impl ConcurrentHandler<ListPatients> for Clinic {
    fn handle(
        &mut self,
        _message: ListPatients,
        _cx: Cx,
    ) -> impl Future<Output = Result<Patients, Failure>> + Send + 'static {
        let silo = self.silo.clone();
        async move { silo.list_patients().await }
    }
}

impl ConcurrentHandler<GetPatient> for Clinic {
    fn handle(
        &mut self,
        message: GetPatient,
        cx: Cx,
    ) -> impl Future<Output = Result<PatientFile, Failure>> + Send + 'static {
        let silo = self.silo.clone();
        async move { silo.get_patient(message, cx.principal()).await }
    }
}

impl ConcurrentHandler<CheckMedications> for Clinic {
    fn handle(
        &mut self,
        message: CheckMedications,
        cx: Cx,
    ) -> impl Future<Output = Result<Medications, Failure>> + Send + 'static {
        let silo = self.silo.clone();
        async move { silo.check_medications(message, cx.principal()).await }
    }
}

impl ConcurrentHandler<Query> for Clinic {
    fn handle(
        &mut self,
        message: Query,
        _cx: Cx,
    ) -> impl Future<Output = Result<Matches, Failure>> + Send + 'static {
        let silo = self.silo.clone();
        async move { silo.query(message).await }
    }
}

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
        Ok(Self {
            id: config.id,
            specialty: config.specialty,
            access,
            store,
        })
    }

    pub async fn list_patients(&self) -> Result<Patients, Failure> {
        let found = self
            .store
            .patients(PATIENTS_LISTED_MAX + 1)
            .await
            .map_err(|e| self.unread(e))?;
        let (patients, truncated) = first(found, PATIENTS_LISTED_MAX);
        Ok(Patients {
            patients,
            truncated,
        })
    }

    pub async fn get_patient(
        &self,
        message: GetPatient,
        principal: &Principal,
    ) -> Result<PatientFile, Failure> {
        check_patient_id(&message.patient_id)?;
        let record = self
            .store
            .record(&message.patient_id)
            .await
            .map_err(|e| self.unread(e))?;
        let patient = self
            .access
            .view(record.ok_or_else(no_such_patient)?, principal);
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
        let found = self
            .store
            .medications(&message.patient_id)
            .await
            .map_err(|e| self.unread(e))?;
        let (patient_id, medications) = found.ok_or_else(no_such_patient)?;
        Ok(Medications {
            patient_id,
            medications,
        })
    }

    pub async fn query(&self, message: Query) -> Result<Matches, Failure> {
        if message.query.len() > QUERY_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "query is longer than {QUERY_BYTES_MAX} bytes"
            )));
        }
        // The same for everyone, so that a search is never a way to an identity.
        let columns = [Field::Condition, Field::Medications, Field::Notes]
            .iter()
            .filter(|field| !self.access.identifying.contains(field));
        let columns: Vec<String> = columns.map(Field::to_string).collect();
        let expression = expression(&message.query, &self.store.synonyms, &columns)?;
        let found = self
            .store
            .search(&expression, MATCHES_MAX + 1)
            .await
            .map_err(|e| self.unread(e))?;
        let (matches, truncated) = first(found, MATCHES_MAX);
        Ok(Matches {
            specialty: self.specialty.clone(),
            query: message.query,
            matches,
            truncated,
        })
    }

    /// What the sender may know of a failed read: the cause is for the operator.
    fn unread(&self, error: sqlx::Error) -> Failure {
        if matches!(error, sqlx::Error::PoolTimedOut) {
            return Failure::overloaded("the clinic has too many reads under way: try again later");
        }
        let code = error
            .as_database_error()
            .and_then(|e| e.code())
            .map(|code| code.into_owned());
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

/// The scope that lets a principal other than the local operator ask for identities.
pub const IDENTITY_SCOPE: &str = "patient.identity";
/// Field-level policy: who may see which field, and for what.
#[derive(Debug)]
struct Access {
    identifying: BTreeSet<Field>,
    purposes_allowed: Vec<String>,
}

impl Access {
    fn new(config: &ClinicConfig) -> Result<Self, ClinicError> {
        let class = |field: Field| {
            config
                .classes
                .get(&field)
                .copied()
                .unwrap_or_else(|| field.class_default())
        };
        let identifying: BTreeSet<_> = Field::ALL
            .into_iter()
            .filter(|f| class(*f) == DataClass::Identifying)
            .collect();
        match [Field::PatientId, Field::Condition]
            .into_iter()
            .find(|field| identifying.contains(field))
        {
            Some(field) => Err(ClinicError::FieldIsListed { field }),
            None => Ok(Self {
                identifying,
                purposes_allowed: config.purposes_allowed.clone(),
            }),
        }
    }

    /// Whether the principal may see the field.
    fn may_see(&self, field: Field, principal: &Principal) -> bool {
        !self.identifying.contains(&field) || may_identify(principal, &self.purposes_allowed)
    }

    /// The record without what the principal may not see.
    fn view(&self, record: Record, principal: &Principal) -> PatientView {
        let mut redacted: Vec<Field> = Field::ALL
            .into_iter()
            .filter(|f| !self.may_see(*f, principal))
            .collect();
        if !redacted.is_empty() && !redacted.contains(&Field::Notes) && notes_identify(&record) {
            redacted.push(Field::Notes);
        }
        let seen = |field: Field, value: String| (!redacted.contains(&field)).then_some(value);
        PatientView {
            name: seen(Field::Name, record.name),
            birth_date: seen(Field::BirthDate, record.birth_date),
            government_id_scheme: seen(Field::GovernmentIdScheme, record.government_id_scheme),
            government_id: seen(Field::GovernmentId, record.government_id),
            address: seen(Field::Address, record.address),
            phone: seen(Field::Phone, record.phone),
            notes: seen(Field::Notes, record.notes),
            medications: (!redacted.contains(&Field::Medications)).then_some(record.medications),
            patient_id: record.patient_id,
            condition: record.condition,
            redacted,
        }
    }
}

/// Whether the principal may be told who a patient is: it must be the local operator or hold [`IDENTITY_SCOPE`], and it
/// must ask for one of the purposes that are allowed. Neither is enough alone.
pub(crate) fn may_identify(principal: &Principal, purposes_allowed: &[String]) -> bool {
    let trusted = principal.kind == PrincipalKind::LocalOperator
        || principal.scopes.iter().any(|s| s == IDENTITY_SCOPE);
    let purpose_fits = principal
        .purpose
        .as_ref()
        .is_some_and(|p| purposes_allowed.contains(p));
    trusted && purpose_fits
}
