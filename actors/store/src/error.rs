//! Errors of opening a store, and the classification of database errors.

use std::io;
use std::path::PathBuf;

use callboard_runtime::JournalError;

/// Error of opening, copying or exporting a store. Each message tells the operator what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the store open under the same writer name. Nothing was changed.
    #[error(
        "{what} is in use by another process{}: look into it with `callboard tasks`, or stop that process first",
        .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse {
        /// File path, or `writer NAME` of a Postgres database.
        what: String,
        /// Process id of the other process, if known.
        pid: Option<u32>,
    },
    /// The file holds something other than a callboard store. It was not changed; name another
    /// path.
    #[error("{} is not a callboard store; it was left as it is: name another file", .path.display())]
    NotAStore {
        /// File path.
        path: PathBuf,
    },
    /// No store exists at the location to be read or copied.
    #[error("there is no store at {place}: start the node first, or name another place")]
    Missing {
        /// File path, or database URL without user and password.
        place: String,
    },
    /// The store was written by a newer version of callboard. Nothing was changed; run that
    /// version, or restore a backup.
    #[error(
        "{place} has schema {found}; this callboard knows {known}: run the newer version, or restore a backup"
    )]
    NewerSchema {
        /// File path, or database URL without user and password.
        place: String,
        /// Schema version of the store.
        found: i64,
        /// Newest schema version that this program knows.
        known: i64,
    },
    /// The store has an older schema and was opened read-only, which never migrates. Open it for
    /// writing once.
    #[error(
        "{place} has schema {found}; this callboard needs {known}: start the node once, which migrates the store"
    )]
    OlderSchema {
        /// File path, or database URL without user and password.
        place: String,
        /// Schema version of the store.
        found: i64,
        /// Schema version of this program.
        known: i64,
    },
    /// The file is corrupt. It was not changed; restore a backup.
    #[error("{} is damaged: restore a backup, and keep the file for analysis", .path.display())]
    Damaged {
        /// File path.
        path: PathBuf,
    },
    /// The file is empty, although the audit's anchor has signed entries of this writer.
    /// Nothing was created.
    #[error(
        "{} is empty, though {} names its audit entries: restore a backup, or move the anchor away to begin a new store",
        .path.display(), .anchor.display()
    )]
    Lost {
        /// File path of the store.
        path: PathBuf,
        /// File path of the anchor.
        anchor: PathBuf,
    },
    /// The file can't be written by this user; change the permissions.
    #[error("{} can't be written by this user: change the permissions of the file and its folder", .path.display())]
    ReadOnly {
        /// File path.
        path: PathBuf,
    },
    /// The database doesn't sync commits to disk, so committed writes could be lost at a power
    /// failure. Holds the reason.
    #[error("the store's database may lose commits at a power failure: {0}")]
    NotDurable(String),
    /// A file, lock or folder could not be created or read.
    #[error("failed to create or read {}", .path.display())]
    NotCreated {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
    /// The URL isn't a valid store URL, or the writer name is invalid. Holds the reason.
    #[error("store: {0}")]
    Url(String),
    /// The URL names a Postgres store, but this program was built without Postgres.
    #[error(
        "this program was built without Postgres: build it with the feature `store-postgres` of callboard (`postgres` of \
         callboard-store), or name a `sqlite:` store"
    )]
    NoPostgres,
    /// The audit key or another file of the audit is missing or unusable.
    #[error("audit file {}: {why}", .path.display())]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The target of a backup exists already; a backup never overwrites a file.
    #[error("{} is there already: name another file", .path.display())]
    BackupExists {
        /// File path.
        path: PathBuf,
    },
    /// This kind of store doesn't support the operation. The text names an alternative.
    #[error("{0}")]
    NotSupported(&'static str),
    /// Error of the database.
    #[error("failed to use the store {place}")]
    Database {
        /// File path, or database URL without user and password.
        place: String,
        /// Error of the database driver.
        #[source]
        source: sqlx::Error,
    },
    /// Error of an open store.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl StoreError {
    /// Returns whether the cause is an error of SQLite.
    pub(crate) fn is_sqlite_error(&self) -> bool {
        matches!(self, Self::Database { source, .. } if sqlite_code(source).is_some())
    }
}

/// Converts a driver error to [`StoreError::Database`] with an empty `place`, which
/// [`StoreLocation::with_place`](crate::options::StoreLocation::with_place) fills in.
impl From<sqlx::Error> for StoreError {
    fn from(source: sqlx::Error) -> Self {
        Self::Database {
            place: String::new(),
            source,
        }
    }
}

/// Result codes of SQLite: primary codes, and two extended I/O codes.
pub(crate) const SQLITE_BUSY: i64 = 5;
pub(crate) const SQLITE_PERM: i64 = 3;
const SQLITE_LOCKED: i64 = 6;
const SQLITE_NOMEM: i64 = 7;
pub(crate) const SQLITE_READONLY: i64 = 8;
const SQLITE_IOERR: i64 = 10;
pub(crate) const SQLITE_CORRUPT: i64 = 11;
const SQLITE_FULL: i64 = 13;
pub(crate) const SQLITE_CANTOPEN: i64 = 14;
pub(crate) const SQLITE_NOTADB: i64 = 26;
const SQLITE_IOERR_WRITE: i64 = 778;
const SQLITE_IOERR_SHMSIZE: i64 = 4874;

/// Meaning of a database error for the transaction in which it occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DbErrorClass {
    /// The statement itself failed; other writes may succeed.
    Statement,
    /// The SQLite file is at its size limit, or the disk is full. The caller compares the page
    /// count with the limit to tell which.
    Full,
    /// The disk is full.
    NoSpace,
    /// I/O error: it is unknown what was written, and the connection must be dropped.
    Io,
    /// The connection was lost, or the server is shutting down.
    ConnectionLost,
    /// Conflict with another transaction; a retry may succeed.
    Conflict,
    /// Another process has locked the SQLite file for longer than the busy timeout.
    Busy,
    /// The database is read-only.
    ReadOnly,
    /// The database is corrupt.
    Damaged,
}

pub(crate) fn classify_error(error: &sqlx::Error) -> DbErrorClass {
    match error {
        sqlx::Error::Database(_) => match sqlite_code(error) {
            Some(code) => classify_sqlite_error(code),
            None => classify_postgres_error(error),
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => DbErrorClass::ConnectionLost,
        _ => DbErrorClass::Statement,
    }
}

fn classify_sqlite_error(code: i64) -> DbErrorClass {
    match (code, code & 0xff) {
        (SQLITE_IOERR_WRITE | SQLITE_IOERR_SHMSIZE, _) => DbErrorClass::NoSpace,
        (_, SQLITE_FULL) => DbErrorClass::Full,
        (_, SQLITE_IOERR | SQLITE_NOMEM | SQLITE_CANTOPEN) => DbErrorClass::Io,
        (_, SQLITE_CORRUPT | SQLITE_NOTADB) => DbErrorClass::Damaged,
        (_, SQLITE_READONLY | SQLITE_PERM) => DbErrorClass::ReadOnly,
        (_, SQLITE_BUSY | SQLITE_LOCKED) => DbErrorClass::Busy,
        _ => DbErrorClass::Statement,
    }
}

fn classify_postgres_error(error: &sqlx::Error) -> DbErrorClass {
    let code = error.as_database_error().and_then(|e| e.code());
    match code.as_deref() {
        Some("53100") => DbErrorClass::NoSpace,
        Some("40001" | "40P01" | "55P03") => DbErrorClass::Conflict,
        Some("25006") => DbErrorClass::ReadOnly,
        Some("XX001" | "XX002") => DbErrorClass::Damaged,
        Some("58030") => DbErrorClass::Io,
        Some(code)
            if code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") =>
        {
            DbErrorClass::ConnectionLost
        }
        _ => DbErrorClass::Statement,
    }
}

/// Returns SQLite's extended result code; `None` for another database's error.
pub(crate) fn sqlite_code(error: &sqlx::Error) -> Option<i64> {
    let error = error.as_database_error()?;
    error.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    error.code()?.parse().ok()
}

/// Converts a database error to the error that callers of the store get. Its message holds no bound
/// values, which may be confidential.
pub(crate) fn journal_error(error: sqlx::Error) -> JournalError {
    match classify_error(&error) {
        DbErrorClass::NoSpace | DbErrorClass::Full => JournalError::NoSpace,
        DbErrorClass::ConnectionLost
        | DbErrorClass::Busy
        | DbErrorClass::Conflict
        | DbErrorClass::Io => JournalError::Unavailable(error_message(&error)),
        DbErrorClass::ReadOnly => JournalError::Unavailable("the database is read-only".to_owned()),
        DbErrorClass::Damaged => JournalError::Damaged(error_message(&error)),
        DbErrorClass::Statement => match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                JournalError::Damaged(error_message(&error))
            }
            _ => JournalError::Store(error_message(&error)),
        },
    }
}

/// Sets the location of the store in a `Damaged` error; other errors are returned unchanged.
pub(crate) fn with_place(error: JournalError, place: &str) -> JournalError {
    match error {
        JournalError::Damaged(why) => JournalError::Damaged(format!("{place}: {why}")),
        other => other,
    }
}

/// Returns the database's message without Postgres' detail, which quotes values (`Key (owner)=(…)
/// already exists`).
pub(crate) fn error_message(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(database) => match database.code() {
            Some(code) => format!("{} (code {code})", database.message()),
            None => database.message().to_owned(),
        },
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: SQLite's result codes are classified. Method: one row a code.
    #[test]
    fn codes() {
        for (code, expected) in [
            (13, DbErrorClass::Full),
            (778, DbErrorClass::NoSpace),
            (4874, DbErrorClass::NoSpace),
            (1034, DbErrorClass::Io),
            (10, DbErrorClass::Io),
            (14, DbErrorClass::Io),
            (11, DbErrorClass::Damaged),
            (267, DbErrorClass::Damaged),
            (26, DbErrorClass::Damaged),
            (8, DbErrorClass::ReadOnly),
            (1032, DbErrorClass::ReadOnly),
            (5, DbErrorClass::Busy),
            (517, DbErrorClass::Busy),
            (19, DbErrorClass::Statement),
            (2067, DbErrorClass::Statement),
            (1811, DbErrorClass::Statement),
            (1, DbErrorClass::Statement),
        ] {
            assert_eq!(classify_sqlite_error(code), expected, "{code}");
        }
    }
}
