//! The store in a file: checked before it is touched, locked, write-ahead, synced at each commit.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::time::{Instant, sleep};

use crate::error::{SQLITE_BUSY, StoreError, sqlite_code};
use crate::files::{Lock, folder, private, sync_entry};
use crate::options::StoreOptions;
use crate::place::Place;
use crate::sql::Db;

/// Forward migrations: the one at index `n` takes the schema from version `n` to `n + 1`.
const MIGRATIONS: &[&str] = &[
    include_str!("schema/sqlite/0001.sql"),
    include_str!("schema/sqlite/0002.sql"),
    include_str!("schema/sqlite/0003.sql"),
];
/// The newest schema that this program knows.
const SCHEMA: i64 = MIGRATIONS.len() as i64;
/// `application_id` of a store's file: "clbd".
const APPLICATION_ID: i64 = 0x636c_6264;
/// The first bytes of any SQLite file, and where in its header the application's id is.
const MAGIC: &[u8] = b"SQLite format 3\0";
const APPLICATION_ID_AT: usize = 68;
const HEADER_BYTES: usize = 100;

/// How long a statement waits for another process (a visitor's cancel, a backup).
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before asking again for a lock that SQLite doesn't wait for.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Pages past the limit that a write may use that makes room.
/// At the limit: `SizeLimit`; deletions pass.
const SIZE_RESERVE_PAGES: u64 = 256;
/// Pages of log after which a commit moves them into the file.
const CHECKPOINT_PAGES: u32 = 1000;
/// Bytes of log that are kept on disk after it was moved.
const LOG_BYTES_KEPT: u64 = 64 * 1024 * 1024;

/// An open file.
pub(crate) struct SqlitePlace {
    path: PathBuf,
    size_max: u64,
    options: SqliteConnectOptions,
    page_bytes: u64,
    /// None: a visitor, beside a process that has it.
    lock: Option<Lock>,
}

/// How any connection to the file is opened. Statements aren't logged: what can't be said needn't be kept out of a log.
pub(crate) fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .statement_cache_capacity(256)
        // What a statement sets aside must not lie in a folder for temporary files.
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// Takes the lock, checks the file, migrates it, and answers the connection that writes.
pub(crate) async fn open(
    path: &Path,
    options: &StoreOptions,
) -> Result<(SqlitePlace, Db), StoreError> {
    // Where this process has it open, the file must not be opened past SQLite: closing it would give SQLite's locks away.
    let held = if is_file(path)? && Lock::is_there(path) {
        Some(Lock::take(path)?)
    } else {
        None
    };
    look_at(path)?;
    create_private(path)?;
    let lock = held.map_or_else(|| Lock::take(path), Ok)?;
    let connect = connect_options(path);
    let mut db = Db::Sqlite(Box::new(connect.clone().connect().await?));
    check_intact(&mut db, path).await?;
    let version = schema_version(&mut db, path).await?;

    // Only now is the file known to be ours: what follows writes to it.
    if version == 0 {
        db.run("PRAGMA auto_vacuum = INCREMENTAL").await?;
    }
    write_ahead(&mut db).await?;
    migrate(&mut db, path).await?;
    let page_bytes = db.number("PRAGMA page_size", &[]).await?;
    let place = SqlitePlace::new(path, options, connect, page_bytes, Some(lock));
    place.configure(&mut db).await?;
    Ok((place, db))
}

/// Looks at a file that another process may have open. It is not made, migrated or checked page by page.
pub(crate) async fn visit(path: &Path, options: &StoreOptions) -> Result<SqlitePlace, StoreError> {
    let missing = || StoreError::Missing {
        place: path.display().to_string(),
    };
    let is_there = is_file(path)? && fs::metadata(path).is_ok_and(|file| file.len() > 0);
    if !is_there {
        return Err(missing());
    }
    let connect = connect_options(path).create_if_missing(false);
    let mut db = Db::Sqlite(Box::new(connect.clone().read_only(true).connect().await?));
    let version = schema_version(&mut db, path).await?;
    let page_bytes = db.number("PRAGMA page_size", &[]).await?;
    db.close().await?;
    match version {
        0 => Err(missing()),
        found if found < SCHEMA => Err(StoreError::OlderSchema {
            place: path.display().to_string(),
            found,
            known: SCHEMA,
        }),
        _ => Ok(SqlitePlace::new(path, options, connect, page_bytes, None)),
    }
}

impl SqlitePlace {
    fn new(
        path: &Path,
        options: &StoreOptions,
        connect: SqliteConnectOptions,
        page_bytes: i64,
        lock: Option<Lock>,
    ) -> Self {
        let (path, size_max, page_bytes) = (
            path.to_owned(),
            options.size_max,
            page_bytes.unsigned_abs().max(512),
        );
        Self {
            path,
            size_max,
            options: connect,
            page_bytes,
            lock,
        }
    }

    fn pages_max(&self) -> u64 {
        (self.size_max / self.page_bytes).max(1)
    }

    /// What holds for a connection only, and is read back: a commit that isn't synced acknowledges nothing.
    async fn configure(&self, db: &mut Db) -> Result<(), StoreError> {
        db.run("PRAGMA synchronous = FULL").await?;
        for (name, value) in [
            ("wal_autocheckpoint", u64::from(CHECKPOINT_PAGES)),
            ("journal_size_limit", LOG_BYTES_KEPT),
        ] {
            set(db, name, value).await?;
        }
        set(db, "max_page_count", self.pages_max()).await?;
        let synchronous = db.number("PRAGMA synchronous", &[]).await?;
        if synchronous != 2 {
            return Err(StoreError::NotDurable(format!(
                "synchronous is {synchronous}, not FULL"
            )));
        }
        let mode = db.text("PRAGMA journal_mode", &[]).await?;
        if mode != "wal" {
            return Err(StoreError::NotDurable(format!(
                "journal_mode is {mode}, not wal: the file system may not allow it"
            )));
        }
        Ok(())
    }
}

#[async_trait]
impl Place for SqlitePlace {
    async fn begin(&self, db: &mut Db) -> sqlx::Result<bool> {
        db.run("BEGIN IMMEDIATE").await.map(|()| true)
    }

    async fn tidy(&self, db: &mut Db) -> sqlx::Result<()> {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        let has_grown = fs::metadata(log).is_ok_and(|log| log.len() > LOG_BYTES_KEPT);
        if has_grown {
            db.run("PRAGMA wal_checkpoint(TRUNCATE)").await
        } else {
            Ok(())
        }
    }

    async fn reopen(&self) -> Result<Db, StoreError> {
        let mut db = Db::Sqlite(Box::new(
            self.options
                .clone()
                .create_if_missing(false)
                .connect()
                .await?,
        ));
        self.configure(&mut db).await?;
        Ok(db)
    }

    async fn close(&self, db: Option<Db>) -> sqlx::Result<()> {
        let closed = match db {
            Some(mut db) => {
                let moved = if self.lock.is_some() {
                    db.run("PRAGMA wal_checkpoint(TRUNCATE)").await
                } else {
                    Ok(())
                };
                db.close().await.and(moved)
            }
            None => Ok(()),
        };
        if let Some(lock) = &self.lock {
            lock.release();
        }
        closed
    }

    async fn open_reserve(&self, db: &mut Db) -> sqlx::Result<()> {
        set(db, "max_page_count", self.pages_max() + SIZE_RESERVE_PAGES).await
    }

    async fn close_reserve(&self, db: &mut Db) -> sqlx::Result<()> {
        set(db, "max_page_count", self.pages_max()).await
    }

    async fn bytes(&self, db: &mut Db) -> sqlx::Result<u64> {
        let pages = db.number("PRAGMA page_count", &[]).await?.unsigned_abs();
        let free = db
            .number("PRAGMA freelist_count", &[])
            .await?
            .unsigned_abs();
        Ok(pages.saturating_sub(free) * self.page_bytes)
    }
}

/// A setting that is a number. Its name is one of ours.
async fn set(db: &mut Db, name: &str, value: u64) -> sqlx::Result<()> {
    db.run_text(format!("PRAGMA {name} = {value}")).await
}

/// Sets WAL. SQLite doesn't wait by itself when two connections do so at once, for each holds what the other needs.
async fn write_ahead(db: &mut Db) -> sqlx::Result<()> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match db.run("PRAGMA journal_mode = WAL").await {
            Err(e)
                if sqlite_code(&e).map(|code| code & 0xff) == Some(SQLITE_BUSY)
                    && Instant::now() < until =>
            {
                sleep(BUSY_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// In one transaction, so that a start that fails leaves nothing behind and may be tried again.
pub(crate) async fn migrate(db: &mut Db, path: &Path) -> Result<(), StoreError> {
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

pub(crate) async fn check_intact(db: &mut Db, path: &Path) -> Result<(), StoreError> {
    let verdict = db.text("PRAGMA quick_check(1)", &[]).await?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(StoreError::Damaged {
            path: path.to_owned(),
        })
    }
}

/// The schema's version: 0 in a new file. A file that isn't ours or is from the future is refused untouched.
async fn schema_version(db: &mut Db, path: &Path) -> Result<i64, StoreError> {
    let application = db.number("PRAGMA application_id", &[]).await?;
    let found = db.number("PRAGMA user_version", &[]).await?;
    let tables = db.number("SELECT count(*) FROM sqlite_schema", &[]).await?;
    let is_new = application == 0 && found == 0 && tables == 0;
    if !is_new && application != APPLICATION_ID {
        return Err(StoreError::NotAStore {
            path: path.to_owned(),
        });
    }
    if !(0..=SCHEMA).contains(&found) {
        return Err(StoreError::NewerSchema {
            place: path.display().to_string(),
            found,
            known: SCHEMA,
        });
    }
    Ok(found)
}

/// `false` where there is nothing; what is there must be a file.
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

/// Refuses what can't be a store, or can't be written, without asking SQLite, which may write to what it opens.
fn look_at(path: &Path) -> Result<(), StoreError> {
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
        .get(APPLICATION_ID_AT..APPLICATION_ID_AT + 4)
        .and_then(|id| id.try_into().ok())
        .map(u32::from_be_bytes);
    // 0 is also a store's whose first transaction is in the log only.
    let may_be_ours = header.starts_with(MAGIC)
        && id.is_some_and(|id| id == 0 || i64::from(id) == APPLICATION_ID);
    if may_be_ours {
        Ok(())
    } else {
        Err(StoreError::NotAStore { path: path_buf() })
    }
}

/// Makes folder and file where they are missing, readable for their owner only; SQLite gives its side files the same
/// rights. What is there keeps its rights.
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
    made.create(folder(path))
        .map_err(|source| not_created(folder(path), source))?;
    match private(path, OpenOptions::new().write(true).create_new(true)) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The folder's entry must survive as well as what is written into the file.
        made => {
            let kept = made
                .and_then(|file| file.sync_all())
                .and_then(|()| sync_entry(path));
            kept.map_err(|source| not_created(path, source))
        }
    }
}
