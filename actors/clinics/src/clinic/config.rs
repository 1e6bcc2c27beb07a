use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::messages::{DataClass, Field};

/// The purpose for which identities are answered where the topology names none.
pub const PURPOSE_DEFAULT: &str = "treatment";

/// A clinic as the topology declares it. Paths are as the process sees them: the reader of the topology resolves them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClinicConfig {
    /// The agent's id, for example `clinic_a`. It is written into the database and must stay the same.
    pub id: String,
    /// For example `cardiology`; answered with every query.
    pub specialty: String,
    /// The clinic's own SQLite file. Created, with its folder, at first start.
    pub database: PathBuf,
    /// Records (`.json` or `.toml`) that fill the database at first start; not read again.
    pub seed: PathBuf,
    /// The purposes for which a patient's identity may be answered. `["treatment"]` when left out.
    #[serde(default = "purposes_default")]
    pub purposes_allowed: Vec<String>,
    /// The class of each field. A field that is left out has [`Field::class_default`].
    #[serde(default)]
    pub classes: BTreeMap<Field, DataClass>,
}

fn purposes_default() -> Vec<String> {
    vec![PURPOSE_DEFAULT.to_owned()]
}

/// Error that keeps a clinic from opening. Each variant tells the operator what to do next; none holds patient text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClinicError {
    /// Every list shows ids and conditions: they can't be withheld.
    #[error(
        "failed to open the clinic: `{field}` is in every list of patients, so its class can't be `identifying`"
    )]
    FieldIsListed {
        /// The field to give another class.
        field: Field,
    },
    /// The database is new and there is nothing to fill it with: put the seed there and start again.
    #[error("failed to read the seed {path}, which the first start needs: {source}")]
    SeedUnreadable {
        /// Where it should be.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The seed isn't `.json` or `.toml` of the documented shape: correct it there.
    #[error(
        "failed to understand the seed {path}: its shape is wrong at line {line}, column {column}"
    )]
    SeedMalformed {
        /// The seed.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1; 0 where it isn't known.
        column: usize,
    },
    /// A record of the seed breaks a rule: correct it.
    #[error("failed to accept the seed {path}: {what} {index} (counted from 0) {rule}")]
    SeedRefused {
        /// The seed.
        path: PathBuf,
        /// `patient` or `synonym`.
        what: &'static str,
        /// Its place in the list.
        index: usize,
        /// The rule that it breaks.
        rule: String,
    },
    /// The seed is over a limit: split it or shorten it.
    #[error("failed to accept the seed {path}: more than {max} {unit}")]
    SeedTooLarge {
        /// The seed.
        path: PathBuf,
        /// The limit.
        max: usize,
        /// The limit's unit.
        unit: &'static str,
    },
    /// The database's folder or file can't be made: check path and rights.
    #[error("failed to create the database {path}: {source}")]
    NotCreated {
        /// The database.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The file isn't an intact SQLite database: restore it from a backup, or move it away to begin from the seed.
    #[error(
        "failed to open the database {path}: it is damaged; restore a backup, or move it away to begin anew"
    )]
    Damaged {
        /// The database.
        path: PathBuf,
    },
    /// The file is a database of some other program: name another file.
    #[error("failed to open the database {path}: it isn't a clinic's")]
    NotAClinic {
        /// The database.
        path: PathBuf,
    },
    /// The file belongs to another clinic, and silos don't mix: name another file.
    #[error(
        "failed to open the database {path}: it belongs to the clinic `{found}`, not to `{expected}`"
    )]
    OtherClinic {
        /// The database.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who asked.
        expected: String,
    },
    /// A newer version of this program wrote the file: start that one.
    #[error(
        "failed to open the database {path}: its schema is version {found}, this program knows up to {known}"
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// The file's version.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// SQLite said no: its message tells whether to wait, make room or change rights.
    #[error("failed to use the database {path}: {source}")]
    Database {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: sqlx::Error,
    },
}
