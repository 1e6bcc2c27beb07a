//! Options of a store: location, limits, retention and audit key.

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

/// Default size limit of a store, in bytes. At the limit, writes fail with `SizeLimit`, except
/// those that free space, or that end and record running work. Changed by `[store] size_max_mib`
/// and [`StoreOptions::size_max`].
const STORE_SIZE_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;
/// Divisor of a store's size limit for the default size of the audit's lines about calls.
const CALLS_SHARE_DIVISOR: u64 = 8;
/// Default size of the SQLite read pool, in connections. Further reads wait 5 s, then fail with
/// `Unavailable`. Changed by [`StoreOptions::readers`].
const READERS_DEFAULT: u32 = 4;
/// Default size of the Postgres read pool, in connections. Further reads wait 5 s, then fail with
/// `Unavailable`. Changed by [`StoreOptions::readers`].
const POSTGRES_READERS_DEFAULT: u32 = 8;
/// Default interval at which unsigned audit entries get a signed checkpoint.
const SIGN_INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
/// Maximum length of a writer name, in bytes. A longer one fails with [`StoreError::Url`].
pub const WRITER_NAME_BYTES_MAX: usize = 128;

/// Default maximum of queued writes. One more waits for a slot up to
/// [`WRITE_WAIT_MAX`](crate::WRITE_WAIT_MAX), then fails with `Overloaded`. Changed by
/// [`StoreOptions::queue`].
const WRITES_QUEUED_MAX_DEFAULT: usize = 4096;
/// Default maximum of queued bytes. Further writes wait up to
/// [`WRITE_WAIT_MAX`](crate::WRITE_WAIT_MAX), then fail with `Overloaded`. Changed by
/// [`StoreOptions::queue`].
const WRITES_QUEUED_BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

#[derive(Clone)]
pub(crate) enum StoreLocation {
    Sqlite(PathBuf),
    Postgres {
        url: Url,
        password: Option<SecretString>,
    },
}

impl fmt::Debug for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

impl StoreLocation {
    /// Returns the file path, or the database URL without user, password and options.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres { url, .. } => {
                let host = url.host_str().unwrap_or("(socket)");
                let port = url.port().map(|port| format!(":{port}"));
                format!(
                    "postgres://{host}{}{}",
                    port.unwrap_or_default(),
                    url.path()
                )
            }
        }
    }

    /// Sets the location in a database error. SQLite's codes for a corrupt, foreign or unwritable
    /// file become `Damaged`, `NotAStore` or `ReadOnly`.
    pub(crate) fn with_place(&self, error: StoreError) -> StoreError {
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

/// Capacity of the write queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    /// Maximum number of queued writes. One more waits for
    /// [`WRITE_WAIT_MAX`](crate::WRITE_WAIT_MAX), then fails with `Overloaded`.
    pub(crate) writes_max: usize,
    /// Maximum total size of queued writes, in bytes. One more waits for
    /// [`WRITE_WAIT_MAX`](crate::WRITE_WAIT_MAX), then fails with `Overloaded`.
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

/// Retention time of each kind of stored data. `None` keeps the data without a time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Retention of tasks after their end. A task with an earlier expiry time is removed at that
    /// time.
    pub tasks: Option<Duration>,
    /// Retention of mail message bodies after the last recipient read them. A body is also removed
    /// when its message expires. The rows without bodies are kept as long as [`Self::audit`].
    pub mail_bodies: Option<Duration>,
    /// Retention of audit entries. Entries are removed up to the latest signed checkpoint that is
    /// older than this.
    pub audit: Option<Duration>,
    /// Retention of journal records after they were written.
    pub streams: Option<Duration>,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Retention {
    /// Returns 7 days for tasks, 30 days for mail bodies and streams, 365 days for the audit.
    fn default() -> Self {
        let days = |days| Some(DAY * days);
        Self {
            tasks: days(7),
            mail_bodies: days(30),
            audit: days(365),
            streams: days(30),
        }
    }
}

/// Default maximum distance of the system clock from the last trusted time. Beyond it, the cleanup
/// doesn't use the clock. Changed by `[store] clock_jump_max_days` and
/// [`StoreOptions::clock_jump_max`].
const CLOCK_JUMP_MAX_DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Options for opening a store, as a builder: location, writer name, limits, retention and audit
/// key.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub(crate) location: StoreLocation,
    pub(crate) writer: String,
    pub(crate) size_max: u64,
    pub(crate) owner_bytes_max: Option<u64>,
    pub(crate) audit_calls_bytes_max: Option<u64>,
    pub(crate) readers: u32,
    pub(crate) queue: QueueLimits,
    pub(crate) retention: Retention,
    pub(crate) cleanup_interval: Option<Duration>,
    pub(crate) clock_jump_max: Duration,
    pub(crate) sign_interval: Option<Duration>,
    pub(crate) audit_key: Option<PathBuf>,
    pub(crate) audit_key_new: bool,
}

impl StoreOptions {
    fn new(location: StoreLocation, readers: u32) -> Self {
        Self {
            location,
            writer: "node".to_owned(),
            size_max: STORE_SIZE_MAX_DEFAULT,
            owner_bytes_max: None,
            audit_calls_bytes_max: None,
            readers,
            queue: QueueLimits::default(),
            retention: Retention::default(),
            cleanup_interval: Some(Duration::from_secs(60 * 60)),
            clock_jump_max: CLOCK_JUMP_MAX_DEFAULT,
            sign_interval: Some(SIGN_INTERVAL_DEFAULT),
            audit_key: None,
            audit_key_new: false,
        }
    }

    /// Returns options for a SQLite file, which is created if it is missing.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::new(StoreLocation::Sqlite(path.into()), READERS_DEFAULT)
    }

    /// Returns options for a Postgres database: `postgres://user@host/db?sslmode=verify-full`.
    /// Tables are in the first schema of its `search_path`.
    ///
    /// # Errors
    /// [`StoreError::Url`], if the URL is invalid, holds a password, or names another host without
    /// `sslmode=verify-full` or an explicit `sslmode=disable`; [`StoreError::NoPostgres`] in a
    /// build without the feature `postgres`.
    pub fn postgres(url: &str, password: Option<SecretString>) -> Result<Self, StoreError> {
        let url =
            Url::parse(url).map_err(|e| StoreError::Url(format!("the URL is invalid: {e}")))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(StoreError::Url(format!(
                "`{}:` is no scheme of Postgres: write `postgres://`",
                url.scheme()
            )));
        }
        if url.password().is_some() || url.query_pairs().any(|(name, _)| name == "password") {
            return Err(StoreError::Url(
                "the URL must not hold a password: name an environment variable that does, as `password_env`".to_owned(),
            ));
        }
        let mode = url
            .query_pairs()
            .find(|(name, _)| name == "sslmode" || name == "ssl-mode")
            .map(|(_, mode)| mode);
        if !matches!(mode.as_deref(), Some("verify-full" | "disable")) && !is_local(&url) {
            return Err(StoreError::Url(
                "the URL of another host needs `sslmode=verify-full`, or in a trusted network `sslmode=disable`"
                    .to_owned(),
            ));
        }
        if cfg!(not(feature = "postgres")) {
            return Err(StoreError::NoPostgres);
        }
        Ok(Self::new(
            StoreLocation::Postgres { url, password },
            POSTGRES_READERS_DEFAULT,
        ))
    }

    /// Parses a store URL: `sqlite:FILE`, relative to `folder`, or `postgres://…`.
    ///
    /// # Errors
    /// [`StoreError::Url`] and [`StoreError::NoPostgres`], as [`Self::postgres`].
    pub fn parse(
        url: &str,
        folder: &Path,
        password: Option<SecretString>,
    ) -> Result<Self, StoreError> {
        match url.split_once(':') {
            Some(("sqlite", file)) => match file.strip_prefix("//").unwrap_or(file) {
                "" => Err(StoreError::Url("the URL names no file: write `sqlite:FILE`".to_owned())),
                file if file.contains(['?', '\0']) => Err(StoreError::Url(
                    "the file of a `sqlite:` URL must not have `?` or NUL characters: it takes no parameters".to_owned(),
                )),
                file => Ok(Self::sqlite(folder.join(file))),
            },
            Some(("postgres" | "postgresql", _)) => Self::postgres(url, password),
            _ => Err(StoreError::Url(
                "the URL must begin with `sqlite:` or `postgres://`".to_owned(),
            )),
        }
    }

    /// Sets the writer name, `node` by default. It names the audit chain, and this process in task
    /// leases. Two processes on one Postgres database need different names. It has at most
    /// [`WRITER_NAME_BYTES_MAX`] bytes, without `#`, NUL and line breaks, and is checked when the
    /// store is opened.
    pub fn writer(mut self, name: impl Into<String>) -> Self {
        self.writer = name.into();
        self
    }

    /// Sets the size limit in bytes, 1 GiB by default. At the limit, writes fail with `SizeLimit`,
    /// except those that free space, or that end and record running work. The latter may exceed the
    /// limit by one sixteenth of it, at least by 1 MiB; the former by twice that on SQLite, and
    /// without a limit on Postgres.
    pub fn size_max(mut self, bytes: u64) -> Self {
        self.size_max = bytes;
        self
    }

    /// Sets the maximum bytes of one owner's tasks, and of one sender's mail, once the store is
    /// half full. Default: a quarter of the size limit.
    pub fn owner_bytes_max(mut self, bytes: u64) -> Self {
        self.owner_bytes_max = Some(bytes);
        self
    }

    /// Sets the maximum bytes of the audit's lines about calls. The oldest are removed then. Default: an eighth of
    /// the size limit.
    pub fn audit_calls_bytes_max(mut self, bytes: u64) -> Self {
        self.audit_calls_bytes_max = Some(bytes);
        self
    }

    /// Returns the maximum bytes of the audit's lines about calls.
    pub(crate) fn calls_bytes_max(&self) -> u64 {
        self.audit_calls_bytes_max
            .unwrap_or(self.size_max / CALLS_SHARE_DIVISOR)
    }

    /// Sets the size of the read pool, in connections; at least 1. Default: 4 on SQLite, 8 on
    /// Postgres.
    pub fn readers(mut self, readers: u32) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Sets the maximum number of queued writes and their maximum total bytes. Default: 4,096
    /// writes and 64 MiB.
    pub fn queue(mut self, writes_max: usize, bytes_max: usize) -> Self {
        self.queue = QueueLimits {
            writes_max,
            bytes_max,
        };
        self
    }

    /// Sets the retention times of tasks, mail, audit entries and journal records.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the interval of the cleanup that removes data past its retention, 1 h by default, at
    /// least 1 s. The first one runs when the store is opened. `None`: only
    /// [`SqlStore::clean`](crate::SqlStore::clean) removes data.
    pub fn cleanup_interval(mut self, every: Option<Duration>) -> Self {
        self.cleanup_interval = every;
        self
    }

    /// Sets how far the system clock may be ahead of the last trusted time, 7 days by default.
    /// Beyond it the clock counts as wrong: the cleanup goes on from the last trusted time, and
    /// removes nothing that only the jump made old. Raise it for one start after a longer rest.
    pub fn clock_jump_max(mut self, ahead: Duration) -> Self {
        self.clock_jump_max = ahead;
        self
    }

    /// Sets the interval at which unsigned audit entries get a signed checkpoint, 60 s by default.
    /// `None`: only after [`CHECKPOINT_ENTRIES`](crate::CHECKPOINT_ENTRIES) entries, and when the
    /// store is closed.
    pub fn sign_interval(mut self, every: Option<Duration>) -> Self {
        self.sign_interval = every;
        self
    }

    /// Sets the path of the audit key file. By default it is `audit.key` in the folder of a SQLite
    /// store. A Postgres store has no default, so the path must be set.
    pub fn audit_key(mut self, path: impl Into<PathBuf>) -> Self {
        self.audit_key = Some(path.into());
        self
    }

    /// Sets whether a new audit key may replace a lost or different one. Default: `false`, which
    /// makes opening fail with [`StoreError::Key`].
    pub fn audit_key_new(mut self, new: bool) -> Self {
        self.audit_key_new = new;
        self
    }

    /// Returns the file path, or the database URL without user, password and options.
    pub fn place(&self) -> String {
        self.location.place()
    }

    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        let name = &self.writer;
        let is_plain = !name.is_empty()
            && name.len() <= WRITER_NAME_BYTES_MAX
            && !name.contains(['#', '\0', '\n']);
        if is_plain {
            Ok(())
        } else {
            Err(StoreError::Url(format!(
                "the writer name `{name}` must have 1 to {WRITER_NAME_BYTES_MAX} bytes, without `#`, NUL and line breaks"
            )))
        }
    }
}

fn is_local(url: &Url) -> bool {
    // URLs with this scheme keep the host as text: it is never parsed as an address.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let elsewhere = url
        .query_pairs()
        .any(|(name, value)| name == "host" && !value.starts_with('/'));
    let is_loopback = host
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    !elsewhere && (host.is_empty() || host == "localhost" || is_loopback)
}
