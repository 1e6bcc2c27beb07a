use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use callboard_message::{Failure, IDENTITY_SCOPE, Message, Principal, PrincipalKind};
use callboard_runtime::{Agent, AgentProfile, ConcurrentHandler, Context, Handlers};

use super::config::{ClinicConfig, ClinicError};
use super::messages::{
    CheckMedications, FieldClass, GetPatient, ListPatients, MATCHES_MAX, Medications,
    PATIENTS_LISTED_MAX, PatientField, PatientFile, PatientList, PatientRecord, PatientRow,
    PatientView, QUERY_BYTES_MAX, QueryMatches, QueryPatients, check_patient_id,
};
use super::privacy::PatientIdentities;
use super::store::{ClinicStore, fts_expression};
use crate::access::{NamedPatients, admit_to_clinic, claimed_purpose};

/// Maximum number of messages of one type that a clinic agent handles at the same time. Further
/// ones wait in its mailbox.
pub const PENDING_READS_MAX: u32 = 16;

/// Clinic agent: answers [`ListPatients`](super::ListPatients), [`GetPatient`](super::GetPatient),
/// [`CheckMedications`](super::CheckMedications) and [`QueryPatients`](super::QueryPatients) from a
/// private database. Cheap to clone; clones share the database.
#[derive(derive_more::Debug, Clone)]
#[debug("Clinic({})", backend.id)]
pub struct Clinic {
    backend: Arc<ClinicBackend>,
}

impl Clinic {
    /// Opens the clinic's database. At the first start, creates it and fills it from the seed file.
    ///
    /// # Errors
    /// [`ClinicError`], whose message tells what to do. A failed start leaves no patient data
    /// behind and can be repeated.
    pub async fn open(config: ClinicConfig) -> Result<Self, ClinicError> {
        Ok(Self {
            backend: Arc::new(ClinicBackend::open(config).await?),
        })
    }
}

impl Agent for Clinic {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<ListPatients>(PENDING_READS_MAX)
            .concurrent::<GetPatient>(PENDING_READS_MAX)
            .concurrent::<CheckMedications>(PENDING_READS_MAX)
            .concurrent::<QueryPatients>(PENDING_READS_MAX);
    }

    /// Returns the agent's profile: requests may be cancelled at any time, because its handlers
    /// only read.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe()
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "clinic": self.backend.id, "specialty": self.backend.specialty })
    }
}

impl ConcurrentHandler<ListPatients> for Clinic {
    fn handle(
        &mut self,
        _message: ListPatients,
        cx: Context,
    ) -> impl Future<Output = Result<PatientList, Failure>> + Send + 'static {
        let silo = self.backend.clone();
        async move {
            silo.admit::<ListPatients>(&cx, NamedPatients::None).await?;
            silo.list_patients().await
        }
    }
}

impl ConcurrentHandler<GetPatient> for Clinic {
    fn handle(
        &mut self,
        message: GetPatient,
        cx: Context,
    ) -> impl Future<Output = Result<PatientFile, Failure>> + Send + 'static {
        let silo = self.backend.clone();
        async move {
            let named = NamedPatients::One(message.patient_id.clone());
            silo.admit::<GetPatient>(&cx, named).await?;
            silo.get_patient(message, cx.principal()).await
        }
    }
}

impl ConcurrentHandler<CheckMedications> for Clinic {
    fn handle(
        &mut self,
        message: CheckMedications,
        cx: Context,
    ) -> impl Future<Output = Result<Medications, Failure>> + Send + 'static {
        let silo = self.backend.clone();
        async move {
            let named = NamedPatients::One(message.patient_id.clone());
            silo.admit::<CheckMedications>(&cx, named).await?;
            silo.check_medications(message, cx.principal()).await
        }
    }
}

impl ConcurrentHandler<QueryPatients> for Clinic {
    fn handle(
        &mut self,
        message: QueryPatients,
        cx: Context,
    ) -> impl Future<Output = Result<QueryMatches, Failure>> + Send + 'static {
        let silo = self.backend.clone();
        async move {
            silo.admit::<QueryPatients>(&cx, NamedPatients::None)
                .await?;
            silo.query(message).await
        }
    }
}

/// Shared state of a clinic agent: its database and its field-level policy.
pub(super) struct ClinicBackend {
    pub id: String,
    pub specialty: String,
    /// Tenant whose principals are served; `None` for all.
    tenant: Option<String>,
    access: FieldPolicy,
    store: ClinicStore,
}

impl ClinicBackend {
    pub async fn open(config: ClinicConfig) -> Result<Self, ClinicError> {
        let access = FieldPolicy::new(&config)?;
        let store = ClinicStore::open(&config).await?;
        Ok(Self {
            id: config.id,
            specialty: config.specialty,
            tenant: config.tenant,
            access,
            store,
        })
    }

    /// Checks that the caller's credential is of the clinic's tenant, and for the patients that the
    /// message `M` names.
    async fn admit<M: Message>(&self, cx: &Context, named: NamedPatients) -> Result<(), Failure> {
        admit_to_clinic(cx, M::NAME, self.tenant.as_deref(), named).await
    }

    pub async fn list_patients(&self) -> Result<PatientList, Failure> {
        let found = self
            .store
            .patients(PATIENTS_LISTED_MAX + 1)
            .await
            .map_err(|e| self.read_failure(e))?;
        let (mut patients, truncated) = truncate_rows(found, PATIENTS_LISTED_MAX);
        self.redact_rows(&mut patients);
        Ok(PatientList {
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
            .map_err(|e| self.read_failure(e))?;
        let record = record.ok_or_else(patient_not_found)?;
        let patient = self
            .access
            .visible_record(record, principal, &self.store.identities);
        Ok(PatientFile { patient })
    }

    pub async fn check_medications(
        &self,
        message: CheckMedications,
        principal: &Principal,
    ) -> Result<Medications, Failure> {
        check_patient_id(&message.patient_id)?;
        let identifies = self.access.may_identify(principal);
        if !self.access.may_see(PatientField::Medications, identifies) {
            let why = "this clinic answers medications only to a trusted principal with an allowed purpose";
            return Err(Failure::denied(why));
        }
        let found = self
            .store
            .medications(&message.patient_id)
            .await
            .map_err(|e| self.read_failure(e))?;
        let (patient_id, mut medications) = found.ok_or_else(patient_not_found)?;
        self.store.identities.redact_medications(&mut medications);
        Ok(Medications {
            patient_id,
            medications,
        })
    }

    /// Cuts names and numbers of patients out of the conditions of rows, which every client sees.
    fn redact_rows(&self, rows: &mut [PatientRow]) {
        for row in rows {
            if let Cow::Owned(redacted) = self.store.identities.redact(&row.condition) {
                row.condition = redacted;
            }
        }
    }

    pub async fn query(&self, message: QueryPatients) -> Result<QueryMatches, Failure> {
        if message.query.len() > QUERY_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "query is longer than {QUERY_BYTES_MAX} bytes"
            )));
        }
        // The same columns for every principal, so that a search can't reveal an identity.
        let columns = [
            PatientField::Condition,
            PatientField::Medications,
            PatientField::Notes,
        ]
        .iter()
        .filter(|field| !self.access.identifying.contains(field));
        let columns: Vec<String> = columns.map(PatientField::to_string).collect();
        let expression = fts_expression(&message.query, &self.store.synonyms, &columns)?;
        let found = self
            .store
            .search(&expression, MATCHES_MAX + 1)
            .await
            .map_err(|e| self.read_failure(e))?;
        let (mut matches, truncated) = truncate_rows(found, MATCHES_MAX);
        self.redact_rows(&mut matches);
        Ok(QueryMatches {
            specialty: self.specialty.clone(),
            query: message.query,
            matches,
            truncated,
        })
    }

    /// Logs the cause of a failed read for the operator. Returns a failure for the caller that
    /// doesn't reveal the cause: `Overloaded` if no database connection was free in time, which
    /// isn't logged, else `Unavailable`.
    fn read_failure(&self, error: sqlx::Error) -> Failure {
        if matches!(error, sqlx::Error::PoolTimedOut) {
            return Failure::overloaded("the clinic has too many reads under way: try again later");
        }
        let code = error
            .as_database_error()
            .and_then(|e| e.code())
            .map(|code| code.into_owned());
        callboard_message::log::error!(by: &self.id, clinic = %self.id, sqlite_code = code.as_deref(), "the clinic's database can't be read");
        Failure::unavailable(
            "the clinic's database can't be read: its operator finds the reason in the log",
        )
    }
}

fn truncate_rows(mut rows: Vec<PatientRow>, rows_max: usize) -> (Vec<PatientRow>, bool) {
    let truncated = rows.len() > rows_max;
    rows.truncate(rows_max);
    (rows, truncated)
}

fn patient_not_found() -> Failure {
    Failure::not_found("this clinic has no patient with that patient_id")
}

/// Field-level access policy: which principal sees which field, for which purpose.
#[derive(Debug)]
struct FieldPolicy {
    identifying: BTreeSet<PatientField>,
    purposes_allowed: Vec<String>,
}

impl FieldPolicy {
    fn new(config: &ClinicConfig) -> Result<Self, ClinicError> {
        let class = |field: PatientField| {
            config
                .classes
                .get(&field)
                .copied()
                .unwrap_or_else(|| field.class_default())
        };
        let identifying: BTreeSet<_> = PatientField::ALL
            .into_iter()
            .filter(|f| class(*f) == FieldClass::Identifying)
            .collect();
        match [PatientField::PatientId, PatientField::Condition]
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

    fn may_identify(&self, principal: &Principal) -> bool {
        may_identify(principal, &self.purposes_allowed)
    }

    /// Returns whether a principal may see the field of a patient's record. `identifies` is whether it
    /// may see identities.
    fn may_see(&self, field: PatientField, identifies: bool) -> bool {
        identifies || !self.identifying.contains(&field)
    }

    /// Returns the patient's record without the fields that the principal may not see. If any is
    /// withheld, what identifies a patient of the clinic is cut out of the free texts.
    fn visible_record(
        &self,
        mut record: PatientRecord,
        principal: &Principal,
        patients: &PatientIdentities,
    ) -> PatientView {
        let identifies = self.may_identify(principal);
        let redacted: Vec<PatientField> = PatientField::ALL
            .into_iter()
            .filter(|f| !self.may_see(*f, identifies))
            .collect();
        if !redacted.is_empty() {
            patients.redact_record(&mut record, &redacted);
        }
        let seen =
            |field: PatientField, value: String| (!redacted.contains(&field)).then_some(value);
        PatientView {
            name: seen(PatientField::Name, record.name),
            birth_date: seen(PatientField::BirthDate, record.birth_date),
            government_id_scheme: seen(
                PatientField::GovernmentIdScheme,
                record.government_id_scheme,
            ),
            government_id: seen(PatientField::GovernmentId, record.government_id),
            address: seen(PatientField::Address, record.address),
            phone: seen(PatientField::Phone, record.phone),
            notes: seen(PatientField::Notes, record.notes),
            medications: (!redacted.contains(&PatientField::Medications))
                .then_some(record.medications),
            patient_id: record.patient_id,
            condition: record.condition,
            redacted,
        }
    }
}

/// Returns whether the principal may see patients' identities. It must be the local operator or
/// hold [`IDENTITY_SCOPE`], and its purpose must be allowed, and one that its credential may claim;
/// all are required. A purpose that it may not claim counts as none.
pub(crate) fn may_identify(principal: &Principal, purposes_allowed: &[String]) -> bool {
    let trusted =
        principal.kind == PrincipalKind::LocalOperator || principal.has_scope(IDENTITY_SCOPE);
    let purpose_fits = claimed_purpose(principal)
        .is_some_and(|claimed| purposes_allowed.iter().any(|allowed| allowed == claimed));
    trusted && purpose_fits
}
