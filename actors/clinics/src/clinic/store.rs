use std::collections::BTreeMap;
use std::time::Duration;

use callboard_message::Failure;
use callboard_message::text::{folded_words, is_one_of};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::config::{ClinicConfig, ClinicError};
use super::messages::{Medication, PatientRecord, PatientRow};
use super::privacy::PatientIdentities;
use super::seed::{BUSY_TIMEOUT, SynonymPhrase, open_error, prepare_database};

/// Maximum number of database connections that read at the same time. Further reads wait up to five
/// seconds for a free one, then fail with `Overloaded`. Fixed.
pub const READERS_MAX: u32 = 4;

/// Maximum wait of a read for a free database connection. After it, the read fails with
/// `Overloaded`.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Database of a clinic. It is filled at the first start, then only read.
#[derive(derive_more::Debug)]
pub(super) struct ClinicStore {
    readers: SqlitePool,
    pub synonyms: Synonyms,
    /// Names and numbers of all patients. Never printed.
    #[debug(skip)]
    pub identities: PatientIdentities,
}

impl ClinicStore {
    /// Opens the clinic's database. Creates it and fills it from the seed file if it is new.
    pub async fn open(config: &ClinicConfig) -> Result<Self, ClinicError> {
        let path = &config.database;
        // Statements aren't logged, because they may hold patient data.
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .disable_statement_logging();
        prepare_database(config, &options).await?;

        let told = |source| open_error(path, source);
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS_MAX)
            .acquire_timeout(READER_WAIT_MAX)
            .connect_with(options.read_only(true))
            .await
            .map_err(told)?;
        let mut synonyms = read_synonyms(&readers).await.map_err(told)?;
        // Words of the specialty match all patients of the clinic, so they don't narrow a query.
        synonyms.ignored = folded_words(&config.specialty);
        let identities = read_identities(&readers).await.map_err(told)?;
        Ok(Self {
            readers,
            synonyms,
            identities,
        })
    }

    /// Returns up to `rows_max` patients, sorted by id.
    pub async fn patients(&self, rows_max: usize) -> Result<Vec<PatientRow>, sqlx::Error> {
        let rows = sqlx::query_as(
            "SELECT patient_id, condition FROM patient ORDER BY patient_id LIMIT ?1",
        )
        .bind(rows_max as i64)
        .fetch_all(&self.readers)
        .await?;
        Ok(rows.into_iter().map(patient_row).collect())
    }

    /// Returns up to `rows_max` patients that match an FTS5 expression of [`fts_expression`],
    /// sorted by id.
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
        Ok(rows.into_iter().map(patient_row).collect())
    }

    /// Returns the complete record of a patient; `None` if there is none with this id, apart from
    /// case.
    pub async fn record(&self, patient_id: &str) -> Result<Option<PatientRecord>, sqlx::Error> {
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
        Ok(Some(PatientRecord {
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

    /// Returns a patient's id as it is stored, and the medications in the order of the record;
    /// `None` if there is no patient with this id, apart from case.
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

fn patient_row((patient_id, condition): (String, String)) -> PatientRow {
    PatientRow {
        patient_id,
        condition,
    }
}

async fn read_identities(readers: &SqlitePool) -> Result<PatientIdentities, sqlx::Error> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("SELECT name, government_id, phone FROM patient ORDER BY rowid")
            .fetch_all(readers)
            .await?;
    let mut identities = PatientIdentities::default();
    for (name, government_id, phone) in rows {
        identities.insert(&name, &government_id, &phone);
    }
    Ok(identities)
}

async fn read_synonyms(readers: &SqlitePool) -> Result<Synonyms, sqlx::Error> {
    let phrases: Vec<SynonymPhrase> =
        sqlx::query_as("SELECT group_number, phrase, finds_group FROM synonym ORDER BY rowid")
            .fetch_all(readers)
            .await?;
    Ok(Synonyms::new(phrases))
}

/// Maximum number of words in a query. A query with more fails with `InvalidInput`. Fixed.
pub const QUERY_WORDS_MAX: usize = 32;

/// Minimum length, in characters and without a plural `s`, of a query word that also matches longer
/// words by prefix: "hypertens" finds "hypertension". Phrases with synonyms match whole words only.
const PREFIX_CHARS_MIN: usize = 4;

/// Query words that are ignored because they carry no search term: verbs of searching, pronouns,
/// words for patients. In folded form, English, then Portuguese.
const STOPWORDS: &str = "\
    a all an and any are as by cases check clinic currently diagnosed do does find for from get has have having \
    how in is list many me my of on patient patients people person please search show suffer suffering take \
    takes taking that the their there to use uses using what which who whose with ao aos busque buscar casos \
    clinica com da das de diagnosticadas diagnosticados dos e em existem ha liste listar mostrar mostre na nas \
    no nos o os paciente pacientes para pessoa pessoas por procurar procure quais quantas quantos que quem tem \
    toma tomam tomando todas todos um uma usa usam usando verificar verifique";
/// Query words that separate alternatives, in English and Portuguese.
const ALTERNATIVES: &str = "or ou";
/// Query words that negate. A query with one is rejected: if the word were ignored, the result
/// would be the opposite.
const NEGATIONS: &str = "except exceto excluding exclude nao not sem without";

/// Synonyms of the clinic, loaded from its database, and query words to ignore because they apply
/// to all its patients.
#[derive(Debug, Default)]
pub(super) struct Synonyms {
    ignored: Vec<String>,
    groups: BTreeMap<i64, Vec<String>>,
    groups_by_phrase: BTreeMap<Vec<String>, Vec<i64>>,
    phrase_words_max: usize,
}

impl Synonyms {
    pub fn new(phrases: impl IntoIterator<Item = SynonymPhrase>) -> Self {
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

    fn is_ignored(&self, word: &String) -> bool {
        is_one_of(word, STOPWORDS) || self.ignored.contains(word)
    }

    /// Returns the longest phrase with synonyms at the start of `words`: its length in words, and
    /// all phrases of its groups, which include itself and narrower terms. `None` if there is no
    /// such phrase.
    fn longest_phrase(&self, words: &[String]) -> Option<(usize, Vec<&str>)> {
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

/// Translates a query to an FTS5 expression over `columns`. All words must match, or all words of
/// one alternative.
///
/// Every word is quoted and holds only letters and digits, so no part of the query is parsed as
/// syntax.
///
/// # Errors
/// `InvalidInput` if the query has no word to search for, has too many words, or contains a
/// negation.
pub(super) fn fts_expression(
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
            "query excludes something (`without`, `except`), which this search can't: ask for what to find",
        ));
    }
    let alternatives: Vec<String> = words
        .split(|word| is_one_of(word, ALTERNATIVES))
        .map(|words| fts_terms(words, synonyms))
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

fn fts_terms(mut words: &[String], synonyms: &Synonyms) -> Vec<String> {
    let mut terms = Vec::new();
    while let [word, rest @ ..] = words {
        if let Some((len, finds)) = synonyms.longest_phrase(words) {
            terms.push(any_of(&finds));
            words = &words[len..];
            continue;
        }
        if !synonyms.is_ignored(word) {
            terms.push(fts_term(word));
        }
        words = rest;
    }
    terms
}

/// Returns an FTS5 expression that matches any of the phrases. Quoting is safe: phrases are stored
/// folded, with letters, digits and spaces only.
fn any_of(phrases: &[&str]) -> String {
    let quoted: Vec<String> = phrases
        .iter()
        .map(|phrase| format!("\"{phrase}\""))
        .collect();
    format!("({})", quoted.join(" OR "))
}

fn fts_term(word: &str) -> String {
    let stem = singular(word);
    if stem.chars().count() >= PREFIX_CHARS_MIN {
        format!("\"{stem}\" *")
    } else {
        format!("\"{word}\"")
    }
}

/// Removes a plural `s`: "migraines" becomes "migraine"; "psoriasis", "illness" and "lupus" stay.
fn singular(word: &str) -> &str {
    match word.strip_suffix('s') {
        Some(stem) if !stem.ends_with(['s', 'i', 'u']) => stem,
        _ => word,
    }
}
