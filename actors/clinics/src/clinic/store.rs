use std::collections::BTreeMap;
use std::time::Duration;

use callboard_message::Failure;
use callboard_message::text::{folded_words, is_one_of};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::config::{ClinicConfig, ClinicError};
use super::messages::{Medication, PatientRow, Record};
use super::seed::{BUSY_TIMEOUT, Phrase, prepare, told};

/// Most connections that read at the same time.
pub const READERS_MAX: u32 = 4;

/// How long a read waits for a connection.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);

/// A clinic's database: filled when it is opened, then only read.
#[derive(Debug)]
pub(super) struct Store {
    readers: SqlitePool,
    pub synonyms: Synonyms,
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
        let mut synonyms = synonyms(&readers).await.map_err(told)?;
        // All its patients are "cardiology patients".
        synonyms.ignored = folded_words(&config.specialty);
        Ok(Self { readers, synonyms })
    }

    /// At most `rows_max` patients, by id.
    pub async fn patients(&self, rows_max: usize) -> Result<Vec<PatientRow>, sqlx::Error> {
        let rows = sqlx::query_as(
            "SELECT patient_id, condition FROM patient ORDER BY patient_id LIMIT ?1",
        )
        .bind(rows_max as i64)
        .fetch_all(&self.readers)
        .await?;
        Ok(rows.into_iter().map(row).collect())
    }

    /// At most `rows_max` patients that an expression of [`expression`] finds, by id.
    pub async fn search(
        &self,
        expression: &str,
        rows_max: usize,
    ) -> Result<Vec<PatientRow>, sqlx::Error> {
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
        let Some((
            patient_id,
            condition,
            name,
            birth_date,
            government_id_scheme,
            government_id,
            address,
            phone,
            notes,
        )) = row
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
    pub async fn medications(
        &self,
        patient_id: &str,
    ) -> Result<Option<(String, Vec<Medication>)>, sqlx::Error> {
        let found: Option<(String,)> =
            sqlx::query_as("SELECT patient_id FROM patient WHERE patient_id = ?1")
                .bind(patient_id)
                .fetch_optional(&self.readers)
                .await?;
        let Some((patient_id,)) = found else {
            return Ok(None);
        };
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
                Ok(Medication {
                    name,
                    dose,
                    unit,
                    frequency,
                    route,
                })
            })
            .collect()
    }
}

type PatientColumns = (
    String,
    String,
    String,
    String,
    String,
    String,
    String,
    String,
    String,
);

fn row((patient_id, condition): (String, String)) -> PatientRow {
    PatientRow {
        patient_id,
        condition,
    }
}

async fn synonyms(readers: &SqlitePool) -> Result<Synonyms, sqlx::Error> {
    let phrases: Vec<Phrase> =
        sqlx::query_as("SELECT group_number, phrase, finds_group FROM synonym ORDER BY rowid")
            .fetch_all(readers)
            .await?;
    Ok(Synonyms::new(phrases))
}

/// Most words in a query.
pub const QUERY_WORDS_MAX: usize = 32;

/// A word this long, in characters, also finds longer words that begin with it: "hypertens" finds "hypertension".
const PREFIX_CHARS_MIN: usize = 4;

/// Words that say how to search or of whom, not what for; folded. English, then Portuguese.
const STOPWORDS: &str = "\
    a all an and any are as by cases check clinic currently diagnosed do does find for from get has have having \
    how in is list many me my of on patient patients people person please search show suffer suffering take \
    takes taking that the their there to use uses using what which who whose with ao aos busque buscar casos \
    clinica com da das de diagnosticadas diagnosticados dos e em existem ha liste listar mostrar mostre na nas \
    no nos o os paciente pacientes para pessoa pessoas por procurar procure quais quantas quantos que quem tem \
    toma tomam tomando todas todos um uma usa usam usando verificar verifique";
/// Words between alternatives.
const ALTERNATIVES: &str = "or ou";
/// Words that would turn the answer into its opposite if they were ignored.
const NEGATIONS: &str = "except exceto excluding exclude nao not sem without";

/// What a phrase of a query finds besides itself, and which words are the same for all patients of the clinic.
#[derive(Debug, Default)]
pub(super) struct Synonyms {
    ignored: Vec<String>,
    groups: BTreeMap<i64, Vec<String>>,
    groups_by_phrase: BTreeMap<Vec<String>, Vec<i64>>,
    phrase_words_max: usize,
}

impl Synonyms {
    pub fn new(phrases: impl IntoIterator<Item = Phrase>) -> Self {
        let mut synonyms = Self::default();
        for (group, phrase, finds_group) in phrases {
            if finds_group {
                let words = folded_words(&phrase);
                synonyms.phrase_words_max = synonyms.phrase_words_max.max(words.len());
                synonyms
                    .groups_by_phrase
                    .entry(words)
                    .or_default()
                    .push(group);
            }
            synonyms.groups.entry(group).or_default().push(phrase);
        }
        synonyms
    }

    fn ignores(&self, word: &String) -> bool {
        is_one_of(word, STOPWORDS) || self.ignored.contains(word)
    }

    /// The longest known phrase at the beginning of `words`: its length in words and what it finds.
    fn longest(&self, words: &[String]) -> Option<(usize, Vec<&str>)> {
        let (len, groups) = (1..=self.phrase_words_max.min(words.len()))
            .rev()
            .find_map(|len| {
                self.groups_by_phrase
                    .get(&words[..len])
                    .map(|groups| (len, groups))
            })?;
        let finds = groups
            .iter()
            .filter_map(|group| self.groups.get(group))
            .flatten()
            .map(String::as_str);
        Some((len, finds.collect()))
    }
}

/// The query as an FTS5 expression over `columns`.
///
/// Every word is quoted and holds letters and digits only, so nothing that a caller writes is read as syntax.
///
/// # Errors
/// `InvalidInput` when the query has no word to search for, has too many, or excludes something.
pub(super) fn expression(
    query: &str,
    synonyms: &Synonyms,
    columns: &[String],
) -> Result<String, Failure> {
    let words = folded_words(query);
    if words.len() > QUERY_WORDS_MAX {
        return Err(Failure::invalid(format!(
            "query has more than {QUERY_WORDS_MAX} words"
        )));
    }
    if words.iter().any(|word| is_one_of(word, NEGATIONS)) {
        return Err(Failure::invalid(
            "query excludes something, which this search can't: ask for what to find",
        ));
    }
    let alternatives: Vec<String> = words
        .split(|word| is_one_of(word, ALTERNATIVES))
        .map(|words| terms(words, synonyms))
        .filter(|terms| !terms.is_empty())
        .map(|terms| format!("({})", terms.join(" AND ")))
        .collect();
    if alternatives.is_empty() {
        return Err(Failure::invalid("query has no word to search for"));
    }
    Ok(format!(
        "{{{}}} : ({})",
        columns.join(" "),
        alternatives.join(" OR ")
    ))
}

fn terms(mut words: &[String], synonyms: &Synonyms) -> Vec<String> {
    let mut terms = Vec::new();
    while let [word, rest @ ..] = words {
        if let Some((len, finds)) = synonyms.longest(words) {
            terms.push(any_of(&finds));
            words = &words[len..];
            continue;
        }
        if !synonyms.ignores(word) {
            terms.push(term(word));
        }
        words = rest;
    }
    terms
}

/// Phrases come from the seed; they are folded to letters, digits and spaces before they are stored.
fn any_of(phrases: &[&str]) -> String {
    let quoted: Vec<String> = phrases
        .iter()
        .map(|phrase| format!("\"{phrase}\""))
        .collect();
    format!("({})", quoted.join(" OR "))
}

fn term(word: &str) -> String {
    let stem = singular(word);
    if stem.chars().count() >= PREFIX_CHARS_MIN {
        format!("\"{stem}\" *")
    } else {
        format!("\"{word}\"")
    }
}

/// "migraines" finds "migraine"; "psoriasis", "illness" and "lupus" stay as they are.
fn singular(word: &str) -> &str {
    match word.strip_suffix('s') {
        Some(stem) if !stem.ends_with(['s', 'i', 'u']) => stem,
        _ => word,
    }
}
