use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::messages::{FieldClass, PatientField};

/// Default of `purposes_allowed` of a clinic and of an orchestrator: the purpose for which
/// identifying fields may be shown.
pub const PURPOSE_DEFAULT: &str = "treatment";

/// Configuration of a clinic agent in the topology. The reader of the topology must have resolved
/// relative paths already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClinicConfig {
    /// Agent id, for example `clinic_a`. It is stored in the database and must not change
    /// afterwards.
    pub id: String,
    /// Medical specialty, for example `cardiology`; part of every query result. Queries ignore its
    /// words.
    pub specialty: String,
    /// Path of the clinic's SQLite file. Created, with its folder, at the first start.
    pub database: PathBuf,
    /// Path of the seed file (`.json` or `.toml`), whose records fill the database at the first
    /// start. It isn't read again later.
    pub seed: PathBuf,
    /// Purposes for which identifying fields are returned to the local operator, or a principal
    /// with the scope [`IDENTITY_SCOPE`](super::IDENTITY_SCOPE) whose credential may claim the purpose.
    /// Default: `["treatment"]`.
    #[serde(default = "purposes_default")]
    pub purposes_allowed: Vec<String>,
    /// Sensitivity class of each field. A field without an entry has
    /// [`PatientField::class_default`]. Patient id and condition can't be `identifying`.
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "enum": PatientField::ALL }))]
    pub classes: BTreeMap<PatientField, FieldClass>,
    /// Tenant whose principals are served, besides the local operator; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

fn purposes_default() -> Vec<String> {
    vec![PURPOSE_DEFAULT.to_owned()]
}

/// Error of opening a clinic's database. Each message tells the operator the cause or what to do
/// next; none holds patient data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClinicError {
    /// The configuration makes a field of patient lists (id or condition) `identifying`, but lists
    /// return these fields to everyone.
    #[error(
        "failed to open the clinic: `{field}` is in every list of patients, so its class can't be `identifying`: change it in `classes`"
    )]
    FieldIsListed {
        /// Field that needs another class.
        field: PatientField,
    },
    /// The database is new, and the seed file that should fill it can't be read.
    #[error("failed to read the seed {path}, which the first start needs: {source}")]
    SeedUnreadable {
        /// Path of the seed file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The seed file isn't JSON or TOML of the documented structure.
    #[error(
        "failed to read the seed {path}: invalid text, or a missing or unknown key, at line {line}, column {column}"
    )]
    SeedMalformed {
        /// Path of the seed file.
        path: PathBuf,
        /// Line of the error in the seed file, from 1.
        line: usize,
        /// Column of the error in the seed file, from 1; 0 before the first character of a line.
        column: usize,
    },
    /// A record of the seed file breaks a validation rule.
    #[error("failed to accept the seed {path}: {what} {index} (counted from 0) {rule}")]
    SeedRefused {
        /// Path of the seed file.
        path: PathBuf,
        /// Kind of the invalid record: `patient` or `synonym`.
        what: &'static str,
        /// Index of the invalid record among those of its kind, from 0.
        index: usize,
        /// Validation rule that the record breaks, worded as the end of a sentence about the
        /// record.
        rule: String,
    },
    /// The seed file exceeds a limit.
    #[error("failed to accept the seed {path}: more than {max} {unit}")]
    SeedTooLarge {
        /// Path of the seed file.
        path: PathBuf,
        /// Value of the exceeded limit.
        max: usize,
        /// Unit of the exceeded limit: `bytes`, `patients` or `synonym phrases`.
        unit: &'static str,
    },
    /// The database's folder or file can't be created.
    #[error("failed to create the database {path}: {source}")]
    NotCreated {
        /// Path of the database.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The database file isn't an intact SQLite database. Restore a backup, or move the file away
    /// to start again from the seed.
    #[error(
        "failed to open the database {path}: it is damaged; restore a backup, or move it away to begin anew"
    )]
    Damaged {
        /// Path of the database.
        path: PathBuf,
    },
    /// The database file belongs to another program.
    #[error(
        "failed to open the database {path}: it isn't a clinic's; give the clinic another `database`"
    )]
    NotAClinic {
        /// Path of the database.
        path: PathBuf,
    },
    /// The database file belongs to a clinic with another id.
    #[error(
        "failed to open the database {path}: it belongs to the clinic `{found}`, not to `{expected}`; correct `id` or `database`"
    )]
    OtherClinic {
        /// Path of the database.
        path: PathBuf,
        /// Clinic id stored in the file.
        found: String,
        /// Clinic id of the configuration.
        expected: String,
    },
    /// The database file was written by a newer version of this program.
    #[error(
        "failed to open the database {path}: its schema is version {found}, this program knows up to {known}; update callboard"
    )]
    NewerSchema {
        /// Path of the database.
        path: PathBuf,
        /// Schema version of the file.
        found: i64,
        /// Newest schema version that this program knows.
        known: i64,
    },
    /// SQLite failed while the database was opened, migrated or filled. Its message tells the
    /// cause.
    #[error("failed to use the database {path}: {source}")]
    Database {
        /// Path of the database.
        path: PathBuf,
        /// Error of the database driver.
        source: sqlx::Error,
    },
}
