use std::fmt;
use std::sync::Arc;

use super::config::ClinicConfig;
use super::error::ClinicError;
use super::silo::Silo;

/// Most messages of one kind that a clinic reads for at the same time.
pub const READS_IN_FLIGHT_MAX: usize = 16;

/// A clinic as an agent: a private database behind [`ListPatients`](super::ListPatients),
/// [`GetPatient`](super::GetPatient), [`CheckMedications`](super::CheckMedications) and [`Query`](super::Query).
/// Cheap to clone; clones share the database.
#[derive(Clone)]
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

impl fmt::Debug for Clinic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clinic({})", self.silo.id)
    }
}
