use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::config::ClinicConfig;
use super::error::ClinicError;
use super::messages::PatientRow;
use super::record::{Medication, Record};
use super::search::{Phrase, Synonyms};

mod prepare;

use prepare::{prepare, told};

/// Most connections that read at the same time.
pub const READERS_MAX: u32 = 4;

/// How long a first start waits for another process that fills the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a read waits for a connection.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);

/// A clinic's database: filled when it is opened, then only read.
#[derive(Debug)]
pub(super) struct Store {
    readers: SqlitePool,
    synonyms: Synonyms,
}

impl Store {
    /// Opens the database; creates and fills it when it is new. What is in it already stays.
    pub async fn open(config: &ClinicConfig) -> Result<Self, ClinicError> {
        let path = &config.database;
        // Statements aren't logged: what can't be said needn't be kept out of a log.
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .disable_statement_logging();
        prepare(config, &options).await?;

        let told = |source| told(path, source);
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS_MAX)
            .acquire_timeout(READER_WAIT_MAX)
            .connect_with(options.read_only(true))
            .await
            .map_err(told)?;
        let synonyms = synonyms(&readers).await.map_err(told)?.ignoring(&config.specialty);
        Ok(Self { readers, synonyms })
    }

    pub fn synonyms(&self) -> &Synonyms {
        &self.synonyms
    }

    /// At most `rows_max` patients, by id.
    pub async fn patients(&self, rows_max: usize) -> Result<Vec<PatientRow>, sqlx::Error> {
        let rows = sqlx::query_as("SELECT patient_id, condition FROM patient ORDER BY patient_id LIMIT ?1")
            .bind(rows_max as i64)
            .fetch_all(&self.readers)
            .await?;
        Ok(rows.into_iter().map(row).collect())
    }

    /// At most `rows_max` patients that an expression of [`super::search::expression`] finds, by id.
    pub async fn search(&self, expression: &str, rows_max: usize) -> Result<Vec<PatientRow>, sqlx::Error> {
        let rows = sqlx::query_as(
            "SELECT patient.patient_id, patient.condition FROM search \
             JOIN patient ON patient.patient_id = search.patient_id \
             WHERE search MATCH ?1 ORDER BY patient.patient_id LIMIT ?2",
        )
        .bind(expression)
        .bind(rows_max as i64)
        .fetch_all(&self.readers)
        .await?;
        Ok(rows.into_iter().map(row).collect())
    }

    /// One patient's whole record.
    pub async fn record(&self, patient_id: &str) -> Result<Option<Record>, sqlx::Error> {
        let row: Option<PatientColumns> = sqlx::query_as(
            "SELECT patient_id, condition, name, birth_date, government_id_scheme, government_id, address, phone, notes \
             FROM patient WHERE patient_id = ?1",
        )
        .bind(patient_id)
        .fetch_optional(&self.readers)
        .await?;
        let Some((patient_id, condition, name, birth_date, government_id_scheme, government_id, address, phone, notes)) =
            row
        else {
            return Ok(None);
        };
        let medications = self.medications_of(&patient_id).await?;
        Ok(Some(Record {
            patient_id,
            condition,
            name,
            birth_date,
            government_id_scheme,
            government_id,
            address,
            phone,
            medications,
            notes,
        }))
    }

    /// A patient's id as the file has it, and medicines; `None` when there is no such patient.
    pub async fn medications(&self, patient_id: &str) -> Result<Option<(String, Vec<Medication>)>, sqlx::Error> {
        let found: Option<(String,)> = sqlx::query_as("SELECT patient_id FROM patient WHERE patient_id = ?1")
            .bind(patient_id)
            .fetch_optional(&self.readers)
            .await?;
        let Some((patient_id,)) = found else { return Ok(None) };
        let medications = self.medications_of(&patient_id).await?;
        Ok(Some((patient_id, medications)))
    }

    async fn medications_of(&self, patient_id: &str) -> Result<Vec<Medication>, sqlx::Error> {
        let rows: Vec<(String, String, String, String, String)> = sqlx::query_as(
            "SELECT name, dose, unit, frequency, route FROM medication WHERE patient_id = ?1 ORDER BY position",
        )
        .bind(patient_id)
        .fetch_all(&self.readers)
        .await?;
        rows.into_iter()
            .map(|(name, dose, unit, frequency, route)| {
                let dose = dose.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
                Ok(Medication { name, dose, unit, frequency, route })
            })
            .collect()
    }
}

type PatientColumns = (String, String, String, String, String, String, String, String, String);

fn row((patient_id, condition): (String, String)) -> PatientRow {
    PatientRow { patient_id, condition }
}

async fn synonyms(readers: &SqlitePool) -> Result<Synonyms, sqlx::Error> {
    let rows: Vec<(i64, String, bool)> =
        sqlx::query_as("SELECT group_number, phrase, finds_group FROM synonym ORDER BY rowid")
            .fetch_all(readers)
            .await?;
    Ok(Synonyms::new(rows.into_iter().map(|(group, words, finds_group)| Phrase { group, words, finds_group })))
}
