//! Where a store is and how it behaves.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::error::{
    SQLITE_CANTOPEN, SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_PERM, SQLITE_READONLY, StoreError,
    sqlite_code,
};

/// Size of a store, by default, in bytes.
/// At the limit: `SizeLimit`; deletions pass. Changed by `[store] size_max_mib`, `StoreOptions::size_max`.
const STORE_SIZE_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;
/// Connections that read at the same time on SQLite, by default.
/// At the limit: they wait 5 s, then `Unavailable`. Changed by `StoreOptions::readers`.
const READERS_DEFAULT: u32 = 4;
/// Connections that read at the same time on Postgres, by default.
/// At the limit: they wait 5 s, then `Unavailable`. Changed by `StoreOptions::readers`.
const POSTGRES_READERS_DEFAULT: u32 = 8;
/// Interval at which audit entries without a checkpoint are signed, by default.
const SIGN_INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
/// Longest name of a writer, in bytes.
/// At the limit: it is refused.
pub const WRITER_NAME_BYTES_MAX: usize = 128;

/// Writes that wait, by default; further callers wait for a place.
/// At the limit: `Overloaded`: nothing is queued. Changed by `StoreOptions::queue`.
const WRITES_QUEUED_MAX_DEFAULT: usize = 4096;
/// Bytes of writes that wait, by default.
/// At the limit: `Overloaded`: nothing is queued. Changed by `StoreOptions::queue`.
const WRITES_QUEUED_BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

/// Where a store is.
#[derive(Clone)]
pub(crate) enum Where {
    Sqlite(PathBuf),
    Postgres {
        url: Url,
        password: Option<SecretString>,
    },
}

impl fmt::Debug for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

impl Where {
    /// The file, or the database without user and password.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres { url, .. } => {
                format!(
                    "postgres://{}{}",
                    url.host_str().unwrap_or("(socket)"),
                    url.path()
                )
            }
        }
    }

    /// The error with the place where it happened. A damaged or read-only file of SQLite is told from all else.
    pub(crate) fn located(&self, error: StoreError) -> StoreError {
        match (error, self) {
            (StoreError::Database { source, .. }, Self::Sqlite(path)) => {
                let path = path.clone();
                match sqlite_code(&source).map(|code| code & 0xff) {
                    Some(SQLITE_CORRUPT) => StoreError::Damaged { path },
                    Some(SQLITE_NOTADB) => StoreError::NotAStore { path },
                    Some(SQLITE_READONLY | SQLITE_CANTOPEN | SQLITE_PERM) => {
                        StoreError::ReadOnly { path }
                    }
                    _ => StoreError::Database {
                        place: self.place(),
                        source,
                    },
                }
            }
            (StoreError::Database { source, .. }, Self::Postgres { .. }) => StoreError::Database {
                place: self.place(),
                source,
            },
            (error, _) => error,
        }
    }
}

/// Capacity of the queue of writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    /// Maximum queued writes. One more waits for [`WRITE_WAIT_MAX`], then it is refused as overloaded.
    pub(crate) writes_max: usize,
    /// Maximum bytes of queued writes together. One more waits for [`WRITE_WAIT_MAX`], then it is refused as overloaded.
    pub(crate) bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            writes_max: WRITES_QUEUED_MAX_DEFAULT,
            bytes_max: WRITES_QUEUED_BYTES_MAX_DEFAULT,
        }
    }
}

/// For how long what has ended is kept. `None` keeps it until the store is at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Tasks, from their end. Their own expiry removes them earlier.
    pub tasks: Option<Duration>,
    /// The bodies of letters, from their reading by the last recipient or their expiry; the rows without bodies stay as long as
    /// the audit.
    pub inbox: Option<Duration>,
    /// Audit entries, up to a checkpoint.
    pub audit: Option<Duration>,
    /// Records of streams, from their writing.
    pub streams: Option<Duration>,
}

/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Retention {
    /// Tasks 7 days, bodies of letters and streams 30, audit 365.
    fn default() -> Self {
        let days = |days| Some(DAY * days);
        Self {
            tasks: days(7),
            inbox: days(30),
            audit: days(365),
            streams: days(30),
        }
    }
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub(crate) at: Where,
    pub(crate) writer: String,
    pub(crate) size_max: u64,
    pub(crate) readers: u32,
    pub(crate) queue: QueueLimits,
    pub(crate) retention: Retention,
    pub(crate) clean_every: Option<Duration>,
    pub(crate) sign_every: Option<Duration>,
    pub(crate) audit_key: Option<PathBuf>,
    pub(crate) audit_key_new: bool,
}

impl StoreOptions {
    fn new(at: Where, readers: u32) -> Self {
        Self {
            at,
            writer: "node".to_owned(),
            size_max: STORE_SIZE_MAX_DEFAULT,
            readers,
            queue: QueueLimits::default(),
            retention: Retention::default(),
            clean_every: Some(Duration::from_secs(60 * 60)),
            sign_every: Some(SIGN_INTERVAL_DEFAULT),
            audit_key: None,
            audit_key_new: false,
        }
    }

    /// A file, made where it is missing.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::new(Where::Sqlite(path.into()), READERS_DEFAULT)
    }

    /// A Postgres database: `postgres://user@host/db?sslmode=verify-full`. Tables are in the first schema of its
    /// `search_path`.
    ///
    /// # Errors
    /// [`StoreError::Url`] where the URL is none, holds a password, or names another host without `sslmode=verify-full`
    /// or a written `sslmode=disable`.
    pub fn postgres(url: &str, password: Option<SecretString>) -> Result<Self, StoreError> {
        let url = Url::parse(url).map_err(|e| StoreError::Url(e.to_string()))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(StoreError::Url(format!(
                "{}: is no scheme of Postgres",
                url.scheme()
            )));
        }
        if url.password().is_some() || url.query_pairs().any(|(name, _)| name == "password") {
            return Err(StoreError::Url(
                "a password doesn't belong into a URL: name a variable that holds it".to_owned(),
            ));
        }
        let mode = url
            .query_pairs()
            .find(|(name, _)| name == "sslmode" || name == "ssl-mode")
            .map(|(_, mode)| mode);
        if !matches!(mode.as_deref(), Some("verify-full" | "disable")) && !is_here(&url) {
            return Err(StoreError::Url(
                "another host needs `sslmode=verify-full` (or, where the network is yours, `sslmode=disable`)"
                    .to_owned(),
            ));
        }
        Ok(Self::new(
            Where::Postgres { url, password },
            POSTGRES_READERS_DEFAULT,
        ))
    }

    /// `sqlite:FILE` (relative to `folder`) or `postgres://…`.
    ///
    /// # Errors
    /// [`StoreError::Url`], as [`Self::postgres`].
    pub fn parse(
        url: &str,
        folder: &Path,
        password: Option<SecretString>,
    ) -> Result<Self, StoreError> {
        match url.split_once(':') {
            Some(("sqlite", file)) => match file.strip_prefix("//").unwrap_or(file) {
                "" => Err(StoreError::Url("sqlite: needs a file".to_owned())),
                file if file.contains(['?', '\0']) => Err(StoreError::Url(
                    "a sqlite: URL has no parameters".to_owned(),
                )),
                file => Ok(Self::sqlite(folder.join(file))),
            },
            Some(("postgres" | "postgresql", _)) => Self::postgres(url, password),
            _ => Err(StoreError::Url(
                "it begins with `sqlite:` or `postgres://`".to_owned(),
            )),
        }
    }

    /// The name of the audit chain and of this process in leases; two processes on one Postgres need two. At most
    /// [`WRITER_NAME_BYTES_MAX`] bytes, without `#`.
    pub fn writer(mut self, name: impl Into<String>) -> Self {
        self.writer = name.into();
        self
    }

    /// At how many bytes the store refuses what isn't a deletion.
    pub fn size_max(mut self, bytes: u64) -> Self {
        self.size_max = bytes;
        self
    }

    /// How many connections read at the same time, at least one.
    pub fn readers(mut self, readers: u32) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// How many writes, and how many bytes of them, may wait; by default
    /// `WRITES_QUEUED_MAX_DEFAULT` and
    /// `WRITES_QUEUED_BYTES_MAX_DEFAULT`.
    pub fn queue(mut self, writes_max: usize, bytes_max: usize) -> Self {
        self.queue = QueueLimits {
            writes_max,
            bytes_max,
        };
        self
    }

    /// For how long what has ended is kept.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// How often what is past its retention is removed, and once at the start; `None`: only when asked.
    pub fn clean_every(mut self, every: Option<Duration>) -> Self {
        self.clean_every = every;
        self
    }

    /// Interval at which audit entries without a checkpoint are signed, 60 s by default. `None`: they are signed
    /// by their number alone, and at the end.
    pub fn sign_every(mut self, every: Option<Duration>) -> Self {
        self.sign_every = every;
        self
    }

    /// The audit's key file; by default `audit.key` in the store's folder.
    pub fn audit_key(mut self, path: impl Into<PathBuf>) -> Self {
        self.audit_key = Some(path.into());
        self
    }

    /// Makes a new audit key where the old one is lost.
    pub fn audit_key_new(mut self, new: bool) -> Self {
        self.audit_key_new = new;
        self
    }

    /// The file, or the database without user and password.
    pub fn place(&self) -> String {
        self.at.place()
    }

    pub(crate) fn checked(&self) -> Result<(), StoreError> {
        let name = &self.writer;
        let is_plain = !name.is_empty()
            && name.len() <= WRITER_NAME_BYTES_MAX
            && !name.contains(['#', '\0', '\n']);
        if is_plain {
            Ok(())
        } else {
            Err(StoreError::Url(format!("`{name}` is no name of a writer")))
        }
    }
}

fn is_here(url: &Url) -> bool {
    // A host of such a URL is never read as an address.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let elsewhere = url
        .query_pairs()
        .any(|(name, value)| name == "host" && !value.starts_with('/'));
    let is_loopback = host
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    !elsewhere && (host.is_empty() || host == "localhost" || is_loopback)
}
