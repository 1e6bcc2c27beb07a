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
use super::messages::{Field, Medication, PATIENT_ID_BYTES_MAX, Record, notes_identify};

/// Largest seed file, in bytes.
pub const SEED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most patients in a seed.
pub const SEED_PATIENTS_MAX: usize = 10_000;
/// Longest text of one field of a seed, in bytes.
pub const FIELD_BYTES_MAX: usize = 4_096;
/// Most medicines of one patient.
pub const MEDICATIONS_PER_PATIENT_MAX: usize = 64;
/// Most phrases in all synonyms of a seed.
pub const SYNONYM_PHRASES_MAX: usize = 2_000;

/// Most phrases in one group of synonyms.
pub const SYNONYM_GROUP_PHRASES_MAX: usize = 64;

/// The records that fill a clinic at first start.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seed {
    #[serde(default)]
    pub synonyms: Vec<Synonym>,
    pub patients: Vec<Record>,
}

/// Phrases that mean the same, and narrower ones that they include. A phrase of `words` finds all of both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Synonym {
    pub words: Vec<String>,
    #[serde(default)]
    pub includes: Vec<String>,
}

/// One phrase of a group of synonyms: the group's number, its folded words with a space between, and whether it finds its
/// whole group where it is in a query; otherwise it is only found.
pub(super) type Phrase = (i64, String, bool);

impl Synonym {
    /// The group as it is stored: folded.
    fn phrases(&self, group: i64) -> impl Iterator<Item = Phrase> {
        let phrase =
            move |text: &String, finds_group| (group, folded_words(text).join(" "), finds_group);
        let asked = self.words.iter().map(move |text| phrase(text, true));
        asked.chain(self.includes.iter().map(move |text| phrase(text, false)))
    }
}

impl Seed {
    /// Reads and checks the seed; by its ending it is TOML, else JSON. Blocks.
    pub fn read(path: &Path) -> Result<Self, ClinicError> {
        let text = read_bounded(path)?;
        let seed = parse(path, &text)?;
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

/// The parsers' own messages quote what they stumble over, which may be patient text: only the place is told.
fn parse(path: &Path, text: &str) -> Result<Seed, ClinicError> {
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

fn check_synonym(synonym: &Synonym) -> Result<(), String> {
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

fn check_patient(patient: &Record) -> Result<(), String> {
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
    for field in Field::ALL {
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

/// Forward migrations. The one at index `n` takes the schema from version `n` to `n + 1` and writes that number into
/// `user_version`; what was released is never edited.
const MIGRATIONS: &[&str] = &[include_str!("schema/0001.sql")];
/// `application_id` of a clinic's file, as the first migration writes it.
const APPLICATION_ID: i64 = 0x636c_6e63;

/// Longest wait of a first start for another process that fills the same file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before asking again for a lock that SQLite doesn't wait for.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// SQLite's primary result codes: another connection is at it; the file can't be trusted.
const SQLITE_BUSY: i64 = 5;
const SQLITE_CORRUPT: i64 = 11;
const SQLITE_NOTADB: i64 = 26;

/// Checks, migrates and fills the file over the one connection that ever writes, and closes it.
pub(super) async fn prepare(
    config: &ClinicConfig,
    options: &SqliteConnectOptions,
) -> Result<(), ClinicError> {
    let path = &config.database;
    create_private(path).map_err(|source| ClinicError::NotCreated {
        path: path.clone(),
        source,
    })?;
    let told = |source| told(path, source);
    let mut writer = options.clone().connect().await.map_err(told)?;
    check_intact(&mut writer, path).await?;
    // In one transaction: else another process that fills the file may commit between two of the questions.
    let mut look = writer.begin().await.map_err(told)?;
    schema_version(&mut look, path).await?;
    look.rollback().await.map_err(told)?;

    // Only now is the file known to be ours: changing the journal mode writes to it.
    write_ahead(&mut writer).await.map_err(told)?;
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(told)?;
    migrate_and_fill(config, &mut transaction).await?;
    transaction.commit().await.map_err(told)?;
    writer.close().await.map_err(told)
}

/// Sets WAL. SQLite doesn't wait by itself when two processes do so at once, for each holds what the other needs.
async fn write_ahead(db: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match sqlx::query("PRAGMA journal_mode = WAL")
            .execute(&mut *db)
            .await
        {
            Err(e) if primary_code(&e) == Some(SQLITE_BUSY) && Instant::now() < until => {
                sleep(BUSY_PAUSE).await
            }
            other => return other.map(drop),
        }
    }
}

/// Everything in one transaction, so that a start that fails leaves nothing behind and may be tried again.
async fn migrate_and_fill(
    config: &ClinicConfig,
    db: &mut SqliteConnection,
) -> Result<(), ClinicError> {
    let path = &config.database;
    let told = |source| told(path, source);
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
            fill(db, config, &seed).await.map_err(told)
        }
    }
}

async fn read_seed(config: &ClinicConfig) -> Result<Seed, ClinicError> {
    let path = config.seed.clone();
    let read = tokio::task::spawn_blocking(move || Seed::read(&path)).await;
    read.unwrap_or_else(|e| {
        Err(ClinicError::SeedUnreadable {
            path: config.seed.clone(),
            source: io::Error::other(e),
        })
    })
}

async fn fill(
    db: &mut SqliteConnection,
    config: &ClinicConfig,
    seed: &Seed,
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
    for patient in &seed.patients {
        insert_patient(db, patient).await?;
        index_patient(db, patient).await?;
    }
    sqlx::query("INSERT INTO clinic (id, specialty) VALUES (?1, ?2)")
        .bind(&config.id)
        .bind(&config.specialty)
        .execute(&mut *db)
        .await?;
    Ok(())
}

async fn insert_patient(db: &mut SqliteConnection, patient: &Record) -> Result<(), sqlx::Error> {
    // In the order of [`Field::ALL`].
    let insert = sqlx::query(
        "INSERT INTO patient (patient_id, condition, name, birth_date, government_id_scheme, government_id, address, \
         phone, notes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    );
    let texts = Field::ALL
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

async fn index_patient(db: &mut SqliteConnection, patient: &Record) -> Result<(), sqlx::Error> {
    let medications: Vec<String> = patient
        .medications
        .iter()
        .map(|m| {
            folded_words(&format!(
                "{} {} {} {} {}",
                m.name, m.dose, m.unit, m.frequency, m.route
            ))
            .join(" ")
        })
        .collect();
    let notes = if notes_identify(patient) {
        String::new()
    } else {
        folded_words(&patient.notes).join(" ")
    };
    sqlx::query(
        "INSERT INTO search (patient_id, condition, medications, notes) VALUES (?1, ?2, ?3, ?4)",
    )
    .bind(&patient.patient_id)
    .bind(folded_words(&patient.condition).join(" "))
    .bind(medications.join(" "))
    .bind(notes)
    .execute(db)
    .await?;
    Ok(())
}

async fn check_intact(db: &mut SqliteConnection, path: &Path) -> Result<(), ClinicError> {
    let (verdict,): (String,) = sqlx::query_as("PRAGMA quick_check(1)")
        .fetch_one(db)
        .await
        .map_err(|source| told(path, source))?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(ClinicError::Damaged {
            path: path.to_owned(),
        })
    }
}

/// The schema's version: 0 in a new file. A file that isn't ours or is from the future is refused untouched.
async fn schema_version(db: &mut SqliteConnection, path: &Path) -> Result<usize, ClinicError> {
    const QUERY: &str = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) \
                         FROM pragma_application_id, pragma_user_version";
    let read: (i64, i64, i64) = sqlx::query_as(QUERY)
        .fetch_one(db)
        .await
        .map_err(|source| told(path, source))?;
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

/// Tells a damaged file from everything else that SQLite may say.
pub(super) fn told(path: &Path, source: sqlx::Error) -> ClinicError {
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

/// Makes folder and file where they are missing, readable for their owner only; SQLite gives its side files the same
/// rights. What is there keeps its rights.
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
