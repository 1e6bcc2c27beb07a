//! SQLite backend: one file, checked before it is written to, locked by one process, in WAL mode
//! and synced at each commit.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::time::{Instant, sleep};

use crate::backend::{Backend, WriteRoom, reserve_bytes};
use crate::checkpointer::Checkpointer;
use crate::error::{SQLITE_BUSY, StoreError, sqlite_code};
use crate::files::{WriterLock, open_private, parent_folder, sync_folder_entry};
use crate::options::StoreOptions;
use crate::sql::DbConnection;

/// Forward migrations: the one at index `n` takes the schema from version `n` to `n + 1`.
const MIGRATIONS: &[&str] = &[
    include_str!("schema/sqlite/0001.sql"),
    include_str!("schema/sqlite/0002.sql"),
    include_str!("schema/sqlite/0003.sql"),
    include_str!("schema/sqlite/0004.sql"),
    include_str!("schema/sqlite/0005.sql"),
];
/// Newest schema version of this program.
const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;
/// SQLite `application_id` of a store file: "clbd".
const APPLICATION_ID: i64 = 0x636c_6264;
/// First bytes of any SQLite file. The application id is at offset [`APPLICATION_ID_OFFSET`] of its
/// header.
const MAGIC: &[u8] = b"SQLite format 3\0";
const APPLICATION_ID_OFFSET: usize = 68;
const HEADER_BYTES: usize = 100;

/// Maximum wait of a statement for a lock of another process, for example one that requests a
/// cancel or makes a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to switch to WAL mode, since SQLite doesn't wait for that lock by
/// itself.
const BUSY_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Maximum size of the write-ahead log file after a checkpoint, in bytes; a larger file is
/// truncated. From this size on, commits checkpoint the log too, if the [`Checkpointer`] isn't at it,
/// and the periodic maintenance waits for a complete checkpoint.
const WAL_BYTES_KEPT: u64 = 64 * 1024 * 1024;

pub(crate) struct SqliteBackend {
    path: PathBuf,
    size_max: u64,
    options: SqliteConnectOptions,
    page_bytes: u64,
    /// `None` for a read-only view, which another process may write beside.
    writing: Option<WriterParts>,
}

/// Parts of a backend that writes to its file.
struct WriterParts {
    lock: WriterLock,
    checkpointer: Checkpointer,
}

/// Returns the options of every connection to the file. Statements aren't logged, because they may
/// hold patient data.
pub(crate) fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .statement_cache_capacity(256)
        // Intermediate results must not be written to a folder for temporary files.
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// Opens the file for writing: takes the lock, checks the file, and migrates it. Returns the
/// backend and its write connection.
pub(crate) async fn open(
    path: &Path,
    options: &StoreOptions,
) -> Result<(SqliteBackend, DbConnection), StoreError> {
    // If this process has the file open, it must not be opened by anything but SQLite: closing the
    // second handle would release SQLite's locks.
    let held = if is_file(path)? && WriterLock::exists(path) {
        Some(WriterLock::acquire(path)?)
    } else {
        None
    };
    check_file(path)?;
    create_private(path)?;
    let lock = held.map_or_else(|| WriterLock::acquire(path), Ok)?;
    let connect = connect_options(path);
    let mut db = DbConnection::Sqlite(Box::new(connect.clone().connect().await?));
    check_intact(&mut db, path).await?;
    let version = schema_version(&mut db, path).await?;

    // The file is known to be a store only now; the following statements write to it.
    if version == 0 {
        db.run("PRAGMA auto_vacuum = INCREMENTAL").await?;
    }
    enable_wal(&mut db).await?;
    migrate(&mut db, path).await?;
    let page_bytes = db.number("PRAGMA page_size", &[]).await?;
    let place = SqliteBackend::new(path, options, connect, page_bytes, Some(lock));
    place.configure(&mut db).await?;
    Ok((place, db))
}

/// Opens a file that another process may have open. It isn't created, migrated or checked page by
/// page.
pub(crate) async fn open_read_only(
    path: &Path,
    options: &StoreOptions,
) -> Result<SqliteBackend, StoreError> {
    let missing = || StoreError::Missing {
        place: path.display().to_string(),
    };
    let is_there = is_file(path)? && fs::metadata(path).is_ok_and(|file| file.len() > 0);
    if !is_there {
        return Err(missing());
    }
    let connect = connect_options(path).create_if_missing(false);
    let mut db = DbConnection::Sqlite(Box::new(connect.clone().read_only(true).connect().await?));
    let version = schema_version(&mut db, path).await?;
    let page_bytes = db.number("PRAGMA page_size", &[]).await?;
    db.close().await?;
    match version {
        0 => Err(missing()),
        found if found < SCHEMA_VERSION => Err(StoreError::OlderSchema {
            place: path.display().to_string(),
            found,
            known: SCHEMA_VERSION,
        }),
        _ => Ok(SqliteBackend::new(path, options, connect, page_bytes, None)),
    }
}

impl SqliteBackend {
    fn new(
        path: &Path,
        options: &StoreOptions,
        connect: SqliteConnectOptions,
        page_bytes: i64,
        lock: Option<WriterLock>,
    ) -> Self {
        let (path, size_max, page_bytes) = (
            path.to_owned(),
            options.size_max,
            page_bytes.unsigned_abs().max(512),
        );
        let writing = lock.map(|lock| WriterParts {
            lock,
            checkpointer: Checkpointer::start(connect.clone(), page_bytes),
        });
        Self {
            path,
            size_max,
            options: connect,
            page_bytes,
            writing,
        }
    }

    fn pages_max(&self) -> u64 {
        (self.size_max / self.page_bytes).max(1)
    }

    /// Sets the pragmas of a connection, and checks that they took effect. Fails with
    /// [`StoreError::NotDurable`] if commits wouldn't be synced.
    async fn configure(&self, db: &mut DbConnection) -> Result<(), StoreError> {
        db.run("PRAGMA synchronous = FULL").await?;
        for (name, value) in [
            ("wal_autocheckpoint", WAL_BYTES_KEPT / self.page_bytes),
            ("journal_size_limit", WAL_BYTES_KEPT),
        ] {
            set_pragma(db, name, value).await?;
        }
        set_pragma(db, "max_page_count", self.pages_max()).await?;
        let synchronous = db.number("PRAGMA synchronous", &[]).await?;
        if synchronous != 2 {
            return Err(StoreError::NotDurable(format!(
                "SQLite set `synchronous` to {synchronous}, not 2 (FULL)"
            )));
        }
        let mode = db.text("PRAGMA journal_mode", &[]).await?;
        if mode != "wal" {
            return Err(StoreError::NotDurable(format!(
                "SQLite set `journal_mode` to {mode}, not `wal`: move the store to a local file system"
            )));
        }
        Ok(())
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn begin(&self, db: &mut DbConnection) -> sqlx::Result<bool> {
        db.run("BEGIN IMMEDIATE").await.map(|()| true)
    }

    fn on_committed(&self, writes: u64, bytes: u64) {
        if let Some(writing) = &self.writing {
            writing.checkpointer.count(writes, bytes);
        }
    }

    async fn maintain(&self, db: &mut DbConnection) -> sqlx::Result<()> {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        let has_grown = fs::metadata(log).is_ok_and(|log| log.len() > WAL_BYTES_KEPT);
        if has_grown {
            let _paused = match &self.writing {
                Some(writing) => Some(writing.checkpointer.pause().await),
                None => None,
            };
            db.run("PRAGMA wal_checkpoint(TRUNCATE)").await
        } else {
            Ok(())
        }
    }

    async fn reopen(&self) -> Result<DbConnection, StoreError> {
        let mut db = DbConnection::Sqlite(Box::new(
            self.options
                .clone()
                .create_if_missing(false)
                .connect()
                .await?,
        ));
        self.configure(&mut db).await?;
        Ok(db)
    }

    async fn close(&self, db: Option<DbConnection>) -> sqlx::Result<()> {
        if let Some(writing) = &self.writing {
            writing.checkpointer.stop().await;
        }
        let closed = match db {
            Some(mut db) => {
                let moved = if self.writing.is_some() {
                    db.run("PRAGMA wal_checkpoint(TRUNCATE)").await
                } else {
                    Ok(())
                };
                db.close().await.and(moved)
            }
            None => Ok(()),
        };
        if let Some(writing) = &self.writing {
            writing.lock.release();
        }
        closed
    }

    async fn open_reserve(&self, db: &mut DbConnection, room: WriteRoom) -> sqlx::Result<()> {
        let reserve = reserve_bytes(self.size_max) / self.page_bytes;
        let pages = match room {
            WriteRoom::Limit => 0,
            WriteRoom::Reserve => reserve,
            WriteRoom::Cleanup => 2 * reserve,
        };
        set_pragma(db, "max_page_count", self.pages_max() + pages).await
    }

    async fn close_reserve(&self, db: &mut DbConnection) -> sqlx::Result<()> {
        set_pragma(db, "max_page_count", self.pages_max()).await
    }

    async fn size_bytes(&self, db: &mut DbConnection) -> sqlx::Result<u64> {
        let pages = db.number("PRAGMA page_count", &[]).await?.unsigned_abs();
        let free = db
            .number("PRAGMA freelist_count", &[])
            .await?
            .unsigned_abs();
        Ok(pages.saturating_sub(free) * self.page_bytes)
    }
}

/// Sets a numeric pragma. `name` must be a constant: it isn't escaped.
async fn set_pragma(db: &mut DbConnection, name: &str, value: u64) -> sqlx::Result<()> {
    db.run_text(format!("PRAGMA {name} = {value}")).await
}

/// Switches to WAL mode. Retries while another connection holds the lock, since SQLite doesn't wait
/// for it by itself.
async fn enable_wal(db: &mut DbConnection) -> sqlx::Result<()> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match db.run("PRAGMA journal_mode = WAL").await {
            Err(e)
                if sqlite_code(&e).map(|code| code & 0xff) == Some(SQLITE_BUSY)
                    && Instant::now() < until =>
            {
                sleep(BUSY_RETRY_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Migrates the schema in one transaction, so that a failed start leaves nothing behind and can be
/// repeated.
pub(crate) async fn migrate(db: &mut DbConnection, path: &Path) -> Result<(), StoreError> {
    db.run("BEGIN IMMEDIATE").await?;
    let version = schema_version(db, path).await?;
    for migration in MIGRATIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or_default())
    {
        db.run(*migration).await?;
    }
    Ok(db.run("COMMIT").await?)
}

pub(crate) async fn check_intact(db: &mut DbConnection, path: &Path) -> Result<(), StoreError> {
    let verdict = db.text("PRAGMA quick_check(1)", &[]).await?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(StoreError::Damaged {
            path: path.to_owned(),
        })
    }
}

/// Returns the schema version; 0 for a new file. Fails without changing the file if it isn't a
/// store or has a newer schema.
async fn schema_version(db: &mut DbConnection, path: &Path) -> Result<i64, StoreError> {
    let application = db.number("PRAGMA application_id", &[]).await?;
    let found = db.number("PRAGMA user_version", &[]).await?;
    let tables = db.number("SELECT count(*) FROM sqlite_schema", &[]).await?;
    let is_new = application == 0 && found == 0 && tables == 0;
    if !is_new && application != APPLICATION_ID {
        return Err(StoreError::NotAStore {
            path: path.to_owned(),
        });
    }
    if !(0..=SCHEMA_VERSION).contains(&found) {
        return Err(StoreError::NewerSchema {
            place: path.display().to_string(),
            found,
            known: SCHEMA_VERSION,
        });
    }
    Ok(found)
}

/// Returns `false` if nothing is at the path. Fails if something other than a file is.
fn is_file(path: &Path) -> Result<bool, StoreError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(true),
        Ok(_) => Err(StoreError::NotAStore {
            path: path.to_owned(),
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(StoreError::NotCreated {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Rejects a file that can't be a store or can't be written. Reads it without SQLite, which may
/// write to any file it opens.
fn check_file(path: &Path) -> Result<(), StoreError> {
    let path_buf = || path.to_owned();
    if !is_file(path)? {
        return Ok(());
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|_| StoreError::ReadOnly { path: path_buf() })?;
    let mut header = Vec::new();
    let read = file.take(HEADER_BYTES as u64).read_to_end(&mut header);
    read.map_err(|source| StoreError::NotCreated {
        path: path_buf(),
        source,
    })?;
    if header.is_empty() {
        return Ok(());
    }
    let id = header
        .get(APPLICATION_ID_OFFSET..APPLICATION_ID_OFFSET + 4)
        .and_then(|id| id.try_into().ok())
        .map(u32::from_be_bytes);
    // The id is also 0 in a store whose first transaction is still in the write-ahead log.
    let may_be_ours = header.starts_with(MAGIC)
        && id.is_some_and(|id| id == 0 || i64::from(id) == APPLICATION_ID);
    if may_be_ours {
        Ok(())
    } else {
        Err(StoreError::NotAStore { path: path_buf() })
    }
}

/// Creates the folder and the file if they are missing, accessible by their owner only; SQLite
/// gives its side files the same permissions. Existing ones keep their permissions.
fn create_private(path: &Path) -> Result<(), StoreError> {
    let mut made = DirBuilder::new();
    made.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        made.mode(0o700);
    }
    let not_created = |path: &Path, source| StoreError::NotCreated {
        path: path.to_owned(),
        source,
    };
    made.create(parent_folder(path))
        .map_err(|source| not_created(parent_folder(path), source))?;
    match open_private(path, OpenOptions::new().write(true).create_new(true)) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The folder's entry must be as durable as the file's content.
        made => {
            let kept = made
                .and_then(|file| file.sync_all())
                .and_then(|()| sync_folder_entry(path));
            kept.map_err(|source| not_created(path, source))
        }
    }
}
