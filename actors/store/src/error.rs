//! Why a store isn't opened, and what a database's error means for a write.

use std::io;
use std::path::PathBuf;

use callboard_runtime::JournalError;

/// Why a store wasn't opened, copied or cleaned. Each variant tells the operator what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process writes there under this name. Nothing was changed.
    #[error(
        "{what} is in use by another process{}: look into it with `callboard tasks`, or stop that process first",
        .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The file, or `writer NAME` of a Postgres store.
        what: String,
        /// The process that has the file, where it is known.
        pid: Option<u32>,
    },
    /// It is something else, and was not changed: name another path.
    #[error("{} is not a callboard store; it was left as it is: name another file", .path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// There is no store to look into or to copy.
    #[error("there is no store at {place}: start the node first, or name another place")]
    Missing {
        /// The file, or the database.
        place: String,
    },
    /// Written by a newer callboard. Nothing was changed: run that version, or restore a backup.
    #[error(
        "{place} has schema {found}; this callboard knows {known}: run the newer version, or restore a backup"
    )]
    NewerSchema {
        /// The file, or the database.
        place: String,
        /// The version that was found.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// Written by an older callboard: who only looks doesn't migrate.
    #[error("{place} has schema {found}, this callboard {known}: start the node once, it migrates")]
    OlderSchema {
        /// The file, or the database.
        place: String,
        /// The version that was found.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// The file isn't whole. It was not changed: restore a backup.
    #[error("{} is damaged: restore a backup, and keep the file for a look", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file can't be written: change its rights.
    #[error("{} can't be written by this user: change the rights of file and folder", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// What is acknowledged would not survive a power cut.
    #[error("the database would not keep what it acknowledges: {0}")]
    NotDurable(String),
    /// File, lock or folder could not be made.
    #[error("{} could not be created", .path.display())]
    NotCreated {
        /// What was to be made.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The URL is none of a store.
    #[error("store URL: {0}")]
    Url(String),
    /// The audit key is missing or can't be read though the chain was signed with it.
    #[error("audit key {}: {why}", .path.display())]
    Key {
        /// The key's file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A backup never writes over a file: name another.
    #[error("{} is there already: name another file", .path.display())]
    BackupExists {
        /// The file.
        path: PathBuf,
    },
    /// What this kind of store doesn't do; the text says what does.
    #[error("{0}")]
    NotSupported(&'static str),
    /// The database's own error.
    #[error("{place}")]
    Database {
        /// The file, or the database; never a password.
        place: String,
        /// The database's words.
        #[source]
        source: sqlx::Error,
    },
    /// What the open store answered.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl StoreError {
    /// Whether it is an error of SQLite.
    pub(crate) fn is_of_sqlite(&self) -> bool {
        matches!(self, Self::Database { source, .. } if sqlite_code(source).is_some())
    }
}

/// [`Where::located`](crate::options::Where::located) says where.
impl From<sqlx::Error> for StoreError {
    fn from(source: sqlx::Error) -> Self {
        Self::Database {
            place: String::new(),
            source,
        }
    }
}

/// SQLite's result codes: the primary ones, and two extended ones of I/O.
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

/// What a database's error means for the transaction it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The statement's own: another write may still go through.
    Own,
    /// SQLite's file is at its limit, or the disk is full: which, the page count tells.
    Full,
    /// The disk is full.
    NoSpace,
    /// Nobody knows what was written: the connection is done with.
    Io,
    /// The connection is gone, or the server says it is going.
    Away,
    /// A conflict with another transaction: the same again may go through.
    Again,
    /// Another process holds the file for longer than is waited for.
    Busy,
    /// Nothing may be written there any more.
    ReadOnly,
    /// The file isn't whole.
    Damaged,
}

pub(crate) fn trouble(error: &sqlx::Error) -> Trouble {
    match error {
        sqlx::Error::Database(_) => match sqlite_code(error) {
            Some(code) => sqlite_trouble(code),
            None => postgres_trouble(error),
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => Trouble::Away,
        _ => Trouble::Own,
    }
}

fn sqlite_trouble(code: i64) -> Trouble {
    match (code, code & 0xff) {
        (SQLITE_IOERR_WRITE | SQLITE_IOERR_SHMSIZE, _) => Trouble::NoSpace,
        (_, SQLITE_FULL) => Trouble::Full,
        (_, SQLITE_IOERR | SQLITE_NOMEM | SQLITE_CANTOPEN) => Trouble::Io,
        (_, SQLITE_CORRUPT | SQLITE_NOTADB) => Trouble::Damaged,
        (_, SQLITE_READONLY | SQLITE_PERM) => Trouble::ReadOnly,
        (_, SQLITE_BUSY | SQLITE_LOCKED) => Trouble::Busy,
        _ => Trouble::Own,
    }
}

fn postgres_trouble(error: &sqlx::Error) -> Trouble {
    let code = error.as_database_error().and_then(|e| e.code());
    match code.as_deref() {
        Some("53100") => Trouble::NoSpace,
        Some("40001" | "40P01" | "55P03") => Trouble::Again,
        Some("25006") => Trouble::ReadOnly,
        Some("XX001" | "XX002") => Trouble::Damaged,
        Some("58030") => Trouble::Io,
        Some(code)
            if code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") =>
        {
            Trouble::Away
        }
        _ => Trouble::Own,
    }
}

/// SQLite's extended result code. Postgres' codes have five characters, SQLite's are plain numbers below that.
pub(crate) fn sqlite_code(error: &sqlx::Error) -> Option<i64> {
    let error = error.as_database_error()?;
    error.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    error.code()?.parse().ok()
}

/// A database's error as a reader or a single write gets it. Its text holds no bound values.
pub(crate) fn journal_error(error: sqlx::Error) -> JournalError {
    match trouble(&error) {
        Trouble::NoSpace | Trouble::Full => JournalError::NoSpace,
        Trouble::Away | Trouble::Busy | Trouble::Again | Trouble::Io => {
            JournalError::Unavailable(words(&error))
        }
        Trouble::ReadOnly => JournalError::Unavailable("the store is read-only".to_owned()),
        Trouble::Damaged => JournalError::Damaged(words(&error)),
        Trouble::Own => match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                JournalError::Damaged(words(&error))
            }
            _ => JournalError::Store(words(&error)),
        },
    }
}

/// The same error; where something is damaged, with the place of the store.
pub(crate) fn located(error: JournalError, place: &str) -> JournalError {
    match error {
        JournalError::Damaged(why) => JournalError::Damaged(format!("{place}: {why}")),
        other => other,
    }
}

/// The database's message without Postgres' detail, which quotes values (`Key (owner)=(…) already exists`).
pub(crate) fn words(error: &sqlx::Error) -> String {
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

    /// Goal: what SQLite says is taken for what it is. Method: a row a code.
    #[test]
    fn codes() {
        for (code, expected) in [
            (13, Trouble::Full),
            (778, Trouble::NoSpace),
            (4874, Trouble::NoSpace),
            (1034, Trouble::Io),
            (10, Trouble::Io),
            (14, Trouble::Io),
            (11, Trouble::Damaged),
            (267, Trouble::Damaged),
            (26, Trouble::Damaged),
            (8, Trouble::ReadOnly),
            (1032, Trouble::ReadOnly),
            (5, Trouble::Busy),
            (517, Trouble::Busy),
            (19, Trouble::Own),
            (2067, Trouble::Own),
            (1811, Trouble::Own),
            (1, Trouble::Own),
        ] {
            assert_eq!(sqlite_trouble(code), expected, "{code}");
        }
    }
}
