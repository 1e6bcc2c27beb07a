use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use callboard_message::text::folded_words;
use serde::Deserialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::{Instant, sleep};

use super::config::{ClinicConfig, ClinicError};
use super::messages::{Medication, PATIENT_ID_BYTES_MAX, PatientField, PatientRecord};
use super::privacy::{PatientIdentities, without_marks};

/// Maximum size of a seed file, in bytes. A larger file is rejected, and the clinic can't be
/// opened. Fixed.
pub const SEED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of patients in a seed file. A file with more is rejected. Fixed.
pub const SEED_PATIENTS_MAX: usize = 10_000;
/// Maximum length of one text field in a seed file, in bytes. A file with a longer one is rejected.
/// Fixed.
pub const FIELD_BYTES_MAX: usize = 4_096;
/// Maximum number of medications of one patient. A seed file with more is rejected. Fixed.
pub const MEDICATIONS_PER_PATIENT_MAX: usize = 64;
/// Maximum number of phrases in all synonym groups of a seed file. A file with more is rejected.
/// Fixed.
pub const SYNONYM_PHRASES_MAX: usize = 2_000;

/// Maximum number of phrases in one synonym group of a seed file. A file with more is rejected.
/// Fixed.
pub const SYNONYM_GROUP_PHRASES_MAX: usize = 64;

/// Seed file: the records that fill a clinic's database at the first start.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClinicSeed {
    #[serde(default)]
    pub synonyms: Vec<SynonymGroup>,
    pub patients: Vec<PatientRecord>,
}

/// Group of synonyms, with narrower terms. A query that contains a phrase of `words` finds all
/// phrases of `words` and `includes`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SynonymGroup {
    pub words: Vec<String>,
    #[serde(default)]
    pub includes: Vec<String>,
}

/// Phrase of a synonym group: the number of the group, the phrase in folded form (lower case,
/// without accents), and whether a query that contains it finds the whole group.
pub(super) type SynonymPhrase = (i64, String, bool);

impl SynonymGroup {
    /// Returns the phrases of the group in folded form, as they are stored. `group` is the number
    /// of the group.
    fn phrases(&self, group: i64) -> impl Iterator<Item = SynonymPhrase> {
        let phrase =
            move |text: &String, finds_group| (group, folded_words(text).join(" "), finds_group);
        let asked = self.words.iter().map(move |text| phrase(text, true));
        asked.chain(self.includes.iter().map(move |text| phrase(text, false)))
    }
}

impl ClinicSeed {
    /// Reads and validates a seed file: TOML by its extension, else JSON. Blocks the thread.
    ///
    /// # Errors
    /// [`ClinicError::SeedUnreadable`], [`ClinicError::SeedMalformed`],
    /// [`ClinicError::SeedRefused`] or [`ClinicError::SeedTooLarge`].
    pub fn read(path: &Path) -> Result<Self, ClinicError> {
        let text = read_bounded(path)?;
        let seed = parse_seed(path, &text)?;
        seed.check(path)?;
        Ok(seed)
    }

    fn check(&self, path: &Path) -> Result<(), ClinicError> {
        let too_large = |max, unit| {
            Err(ClinicError::SeedTooLarge {
                path: path.to_owned(),
                max,
                unit,
            })
        };
        if self.patients.len() > SEED_PATIENTS_MAX {
            return too_large(SEED_PATIENTS_MAX, "patients");
        }
        if self
            .synonyms
            .iter()
            .map(|s| s.words.len() + s.includes.len())
            .sum::<usize>()
            > SYNONYM_PHRASES_MAX
        {
            return too_large(SYNONYM_PHRASES_MAX, "synonym phrases");
        }
        let refused = |what, index, rule| ClinicError::SeedRefused {
            path: path.to_owned(),
            what,
            index,
            rule,
        };
        for (index, synonym) in self.synonyms.iter().enumerate() {
            check_synonym(synonym).map_err(|rule| refused("synonym", index, rule))?;
        }
        let mut ids = HashSet::new();
        for (index, patient) in self.patients.iter().enumerate() {
            check_patient(patient).map_err(|rule| refused("patient", index, rule))?;
            if !ids.insert(patient.patient_id.to_ascii_lowercase()) {
                return Err(refused(
                    "patient",
                    index,
                    "has the id of an earlier one".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

fn read_bounded(path: &Path) -> Result<String, ClinicError> {
    let unreadable = |source: io::Error| ClinicError::SeedUnreadable {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(SEED_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() > SEED_BYTES_MAX {
        return Err(ClinicError::SeedTooLarge {
            path: path.to_owned(),
            max: SEED_BYTES_MAX,
            unit: "bytes",
        });
    }
    Ok(text)
}

/// Parses the text of a seed file. Errors hold only the position, because the parsers' messages
/// quote the text, which may be patient data.
fn parse_seed(path: &Path, text: &str) -> Result<ClinicSeed, ClinicError> {
    let malformed = |line, column| ClinicError::SeedMalformed {
        path: path.to_owned(),
        line,
        column,
    };
    if path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("toml"))
    {
        return toml::from_str(text).map_err(|e| {
            let before = text
                .get(..e.span().map_or(0, |span| span.start))
                .unwrap_or_default();
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            malformed(before.matches('\n').count() + 1, column)
        });
    }
    serde_json::from_str(text).map_err(|e| malformed(e.line(), e.column()))
}

fn check_synonym(synonym: &SynonymGroup) -> Result<(), String> {
    if synonym.words.len() + synonym.includes.len() > SYNONYM_GROUP_PHRASES_MAX {
        return Err(format!("has more than {SYNONYM_GROUP_PHRASES_MAX} phrases"));
    }
    for phrase in synonym.words.iter().chain(&synonym.includes) {
        if phrase.len() > FIELD_BYTES_MAX {
            return Err(format!("has a phrase longer than {FIELD_BYTES_MAX} bytes"));
        }
        if folded_words(phrase).is_empty() {
            return Err("has a phrase without a word".to_owned());
        }
    }
    Ok(())
}

fn check_patient(patient: &PatientRecord) -> Result<(), String> {
    let id = &patient.patient_id;
    if id.is_empty()
        || id.len() > PATIENT_ID_BYTES_MAX
        || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    {
        return Err(format!(
            "needs a patient_id of 1 to {PATIENT_ID_BYTES_MAX} letters, digits and hyphens"
        ));
    }
    if patient.condition.trim().is_empty() {
        return Err("needs a condition".to_owned());
    }
    for field in PatientField::ALL {
        if patient
            .text(field)
            .is_some_and(|text| text.len() > FIELD_BYTES_MAX)
        {
            return Err(format!("has a {field} longer than {FIELD_BYTES_MAX} bytes"));
        }
    }
    if patient.medications.len() > MEDICATIONS_PER_PATIENT_MAX {
        return Err(format!(
            "has more than {MEDICATIONS_PER_PATIENT_MAX} medications"
        ));
    }
    patient.medications.iter().try_for_each(check_medication)
}

fn check_medication(medication: &Medication) -> Result<(), String> {
    let Medication {
        name,
        dose,
        unit,
        frequency,
        route,
    } = medication;
    if [name, unit, frequency, route]
        .into_iter()
        .any(|text| text.trim().is_empty() || text.len() > FIELD_BYTES_MAX)
    {
        return Err(format!(
            "has a medication whose texts aren't 1 to {FIELD_BYTES_MAX} bytes"
        ));
    }
    if !dose
        .as_f64()
        .is_some_and(|dose| dose.is_finite() && dose > 0.0)
    {
        return Err("has a medication whose dose isn't more than zero".to_owned());
    }
    Ok(())
}

/// Forward migrations. The one at index `n` takes the schema from version `n` to `n + 1` and stores
/// that number in `user_version`. Released migrations are never edited.
const MIGRATIONS: &[&str] = &[include_str!("schema/0001.sql")];
/// SQLite `application_id` of a clinic's database.
const APPLICATION_ID: i64 = 0x636c_6e63;

/// Maximum wait for each lock that another process holds on the database, for example while it
/// fills it. After it, the operation fails.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to switch to WAL mode, since SQLite doesn't wait for that lock by
/// itself.
const BUSY_RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Primary result code of SQLite for a database that another connection has locked.
const SQLITE_BUSY: i64 = 5;
/// Primary result code of SQLite for a corrupt database.
const SQLITE_CORRUPT: i64 = 11;
/// Primary result code of SQLite for a file that isn't a database.
const SQLITE_NOTADB: i64 = 26;

/// Creates the database if it is missing, then checks, migrates and fills it over a connection of
/// its own, which is closed afterwards. All later connections are read-only.
pub(super) async fn prepare_database(
    config: &ClinicConfig,
    options: &SqliteConnectOptions,
) -> Result<(), ClinicError> {
    let path = &config.database;
    create_private(path).map_err(|source| ClinicError::NotCreated {
        path: path.clone(),
        source,
    })?;
    let told = |source| open_error(path, source);
    let mut writer = options.clone().connect().await.map_err(told)?;
    check_intact(&mut writer, path).await?;
    // In one transaction, so that no other process commits between the queries.
    let mut look = writer.begin().await.map_err(told)?;
    schema_version(&mut look, path).await?;
    look.rollback().await.map_err(told)?;

    // The file is known to be a clinic's only now; changing the journal mode writes to it.
    enable_wal(&mut writer).await.map_err(told)?;
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(told)?;
    migrate_and_fill(config, &mut transaction).await?;
    transaction.commit().await.map_err(told)?;
    writer.close().await.map_err(told)
}

/// Switches to WAL mode. Retries while another process holds the lock, since SQLite doesn't wait
/// for it by itself.
async fn enable_wal(db: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match sqlx::query("PRAGMA journal_mode = WAL")
            .execute(&mut *db)
            .await
        {
            Err(e) if primary_code(&e) == Some(SQLITE_BUSY) && Instant::now() < until => {
                sleep(BUSY_RETRY_PAUSE).await
            }
            other => return other.map(drop),
        }
    }
}

/// Migrates the database, checks that it is this clinic's, and fills a new one. All this is in the
/// caller's transaction, so a failed start leaves nothing behind and can be repeated.
async fn migrate_and_fill(
    config: &ClinicConfig,
    db: &mut SqliteConnection,
) -> Result<(), ClinicError> {
    let path = &config.database;
    let told = |source| open_error(path, source);
    let version = schema_version(db, path).await?;
    for migration in MIGRATIONS.iter().skip(version) {
        sqlx::raw_sql(*migration)
            .execute(&mut *db)
            .await
            .map_err(told)?;
    }
    let owner: Option<(String,)> = sqlx::query_as("SELECT id FROM clinic")
        .fetch_optional(&mut *db)
        .await
        .map_err(told)?;
    match owner {
        Some((found,)) if found != config.id => Err(ClinicError::OtherClinic {
            path: path.clone(),
            found,
            expected: config.id.clone(),
        }),
        Some(_) => Ok(()),
        None => {
            let seed = read_seed(config).await?;
            insert_seed(db, config, &seed).await.map_err(told)
        }
    }
}

async fn read_seed(config: &ClinicConfig) -> Result<ClinicSeed, ClinicError> {
    let path = config.seed.clone();
    let read = tokio::task::spawn_blocking(move || ClinicSeed::read(&path)).await;
    read.unwrap_or_else(|e| {
        Err(ClinicError::SeedUnreadable {
            path: config.seed.clone(),
            source: io::Error::other(e),
        })
    })
}

async fn insert_seed(
    db: &mut SqliteConnection,
    config: &ClinicConfig,
    seed: &ClinicSeed,
) -> Result<(), sqlx::Error> {
    for (group, synonym) in (0..).zip(&seed.synonyms) {
        for (group, words, finds_group) in synonym.phrases(group) {
            sqlx::query(
                "INSERT INTO synonym (group_number, phrase, finds_group) VALUES (?1, ?2, ?3)",
            )
            .bind(group)
            .bind(words)
            .bind(finds_group)
            .execute(&mut *db)
            .await?;
        }
    }
    let mut identities = PatientIdentities::default();
    for patient in &seed.patients {
        identities.insert(&patient.name, &patient.government_id, &patient.phone);
    }
    for patient in &seed.patients {
        insert_patient(db, patient).await?;
        let mut searched = patient.clone();
        identities.redact_record(&mut searched, &PatientField::ALL);
        index_patient(db, &searched).await?;
    }
    sqlx::query("INSERT INTO clinic (id, specialty) VALUES (?1, ?2)")
        .bind(&config.id)
        .bind(&config.specialty)
        .execute(&mut *db)
        .await?;
    Ok(())
}

async fn insert_patient(
    db: &mut SqliteConnection,
    patient: &PatientRecord,
) -> Result<(), sqlx::Error> {
    // In the order of [`PatientField::ALL`].
    let insert = sqlx::query(
        "INSERT INTO patient (patient_id, condition, name, birth_date, government_id_scheme, government_id, address, \
         phone, notes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    );
    let texts = PatientField::ALL
        .into_iter()
        .filter_map(|field| patient.text(field));
    texts
        .fold(insert, |insert, text| insert.bind(text))
        .execute(&mut *db)
        .await?;
    for (position, medication) in (0_i64..).zip(&patient.medications) {
        sqlx::query(
            "INSERT INTO medication (patient_id, position, name, dose, unit, frequency, route) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .bind(&patient.patient_id)
        .bind(position)
        .bind(&medication.name)
        .bind(medication.dose.to_string())
        .bind(&medication.unit)
        .bind(&medication.frequency)
        .bind(&medication.route)
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

/// Adds a patient to the search index. Identifying data must have been cut out of the texts.
async fn index_patient(
    db: &mut SqliteConnection,
    patient: &PatientRecord,
) -> Result<(), sqlx::Error> {
    let medications: Vec<String> = patient
        .medications
        .iter()
        .map(|m| {
            folded_words(&without_marks(&format!(
                "{} {} {} {} {}",
                m.name, m.dose, m.unit, m.frequency, m.route
            )))
            .join(" ")
        })
        .collect();
    sqlx::query(
        "INSERT INTO search (patient_id, condition, medications, notes) VALUES (?1, ?2, ?3, ?4)",
    )
    .bind(&patient.patient_id)
    .bind(folded_words(&without_marks(&patient.condition)).join(" "))
    .bind(medications.join(" "))
    .bind(folded_words(&without_marks(&patient.notes)).join(" "))
    .execute(db)
    .await?;
    Ok(())
}

async fn check_intact(db: &mut SqliteConnection, path: &Path) -> Result<(), ClinicError> {
    let (verdict,): (String,) = sqlx::query_as("PRAGMA quick_check(1)")
        .fetch_one(db)
        .await
        .map_err(|source| open_error(path, source))?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(ClinicError::Damaged {
            path: path.to_owned(),
        })
    }
}

/// Returns the schema version; 0 for a new file. Fails without changing the file if it isn't a
/// clinic's or has a newer schema.
async fn schema_version(db: &mut SqliteConnection, path: &Path) -> Result<usize, ClinicError> {
    const QUERY: &str = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) \
                         FROM pragma_application_id, pragma_user_version";
    let read: (i64, i64, i64) = sqlx::query_as(QUERY)
        .fetch_one(db)
        .await
        .map_err(|source| open_error(path, source))?;
    let (application, found, tables) = read;
    let is_new = application == 0 && found == 0 && tables == 0;
    if !is_new && application != APPLICATION_ID {
        return Err(ClinicError::NotAClinic {
            path: path.to_owned(),
        });
    }
    match usize::try_from(found) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        _ => Err(ClinicError::NewerSchema {
            path: path.to_owned(),
            found,
            known: MIGRATIONS.len() as i64,
        }),
    }
}

/// Converts a database error at opening: [`ClinicError::Damaged`] for a file that is corrupt or no
/// database, else [`ClinicError::Database`].
pub(super) fn open_error(path: &Path, source: sqlx::Error) -> ClinicError {
    match primary_code(&source) {
        Some(SQLITE_CORRUPT | SQLITE_NOTADB) => ClinicError::Damaged {
            path: path.to_owned(),
        },
        _ => ClinicError::Database {
            path: path.to_owned(),
            source,
        },
    }
}

fn primary_code(error: &sqlx::Error) -> Option<i64> {
    let code = error.as_database_error()?.code()?.parse::<i64>().ok()?;
    // The low byte is the primary code of an extended one.
    Some(code & 0xff)
}

/// Creates the folder and the file if they are missing, accessible by their owner only; SQLite
/// gives its side files the same permissions. Existing ones keep their permissions.
fn create_private(path: &Path) -> io::Result<()> {
    let mut folder = DirBuilder::new();
    folder.recursive(true);
    let mut file = OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        folder.mode(0o700);
        file.mode(0o600);
    }
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        folder.create(parent)?;
    }
    match file.open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}
