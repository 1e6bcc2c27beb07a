use std::sync::Arc;

use callboard_message::Failure;
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};

use super::config::ClinicConfig;
use super::error::ClinicError;
use super::messages::{CheckMedications, GetPatient, ListPatients, Matches, Medications, PatientFile, Patients, Query};
use super::silo::Silo;

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
        Ok(Self { silo: Arc::new(Silo::open(config).await?) })
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
    fn handle(&mut self, message: Query, _cx: Cx) -> impl Future<Output = Result<Matches, Failure>> + Send + 'static {
        let silo = self.silo.clone();
        async move { silo.query(message).await }
    }
}
