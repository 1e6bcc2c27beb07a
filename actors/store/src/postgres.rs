//! Postgres backend: one process for each writer name, fenced by its epoch.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use callboard_runtime::JournalError;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Backend, WriteRoom, reserve_bytes};
use crate::error::StoreError;
use crate::options::StoreOptions;
use crate::sql::postgres::Connector;
use crate::sql::{DbConnection, args};

/// Forward migrations: the one at index `n` takes the schema from version `n` to `n + 1`.
const MIGRATIONS: &[&str] = &[
    include_str!("schema/postgres/0001.sql"),
    include_str!("schema/postgres/0002.sql"),
    include_str!("schema/postgres/0003.sql"),
    include_str!("schema/postgres/0004.sql"),
    include_str!("schema/postgres/0005.sql"),
];
/// Newest schema version of this program.
const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Maximum time to connect to the database server.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum wait for the writer lock. A process that has just ended may still hold it, because the
/// server notices the end late. After it, opening fails with `InUse`. Fixed.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts to take the writer lock. Fixed.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time for which the last known database size is reused.
const SIZE_CACHE_TTL: Duration = Duration::from_secs(10);

pub(crate) struct PostgresBackend {
    writer: String,
    size_max: u64,
    connector: Connector,
    /// Fencing epoch of this process under its writer name; 0 for a read-only view.
    epoch: AtomicI64,
    size: Mutex<Option<(Instant, u64)>>,
}

pub(crate) async fn connect(connector: &Connector) -> sqlx::Result<DbConnection> {
    let connected = timeout(CONNECT_WAIT_MAX, connector.connect()).await;
    connected
        .map_err(|_| sqlx::Error::PoolTimedOut)?
        .map(DbConnection::Postgres)
}

/// Opens the database for writing: checks that the server syncs commits, migrates, and takes the
/// writer lock. Returns the backend and its write connection.
pub(crate) async fn open(
    options: &StoreOptions,
    connector: Connector,
) -> Result<(PostgresBackend, DbConnection), StoreError> {
    let at = options.place();
    let mut db = connect(&connector).await?;
    check_durability(&mut db).await?;
    migrate(&mut db, &at).await?;
    let place = PostgresBackend::new(options, connector);
    if !place.acquire_writer_lock(&mut db).await? {
        return Err(StoreError::InUse {
            what: format!("writer `{}` of {at}", place.writer),
            pid: None,
        });
    }
    Ok((place, db))
}

/// Opens a database that another process may write to, without migrating it.
pub(crate) async fn open_read_only(
    options: &StoreOptions,
    connector: Connector,
) -> Result<PostgresBackend, StoreError> {
    let at = options.place();
    let mut db = connect(&connector).await?;
    let version = schema_version(&mut db, &at).await?;
    db.close().await?;
    match version {
        0 => Err(StoreError::Missing { place: at }),
        found if found < SCHEMA_VERSION => Err(StoreError::OlderSchema {
            place: at,
            found,
            known: SCHEMA_VERSION,
        }),
        _ => Ok(PostgresBackend::new(options, connector)),
    }
}

impl PostgresBackend {
    fn new(options: &StoreOptions, connector: Connector) -> Self {
        let (writer, size_max) = (options.writer.clone(), options.size_max);
        Self {
            writer,
            size_max,
            connector,
            epoch: AtomicI64::new(0),
            size: Mutex::default(),
        }
    }

    fn is_read_only(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) == 0
    }

    /// Takes the advisory lock of this writer name. The lock is held until the connection is
    /// closed. The lock's name includes the schema because one database may hold two stores.
    /// Returns `false` if another process still holds it after [`LOCK_WAIT_MAX`].
    async fn acquire_writer_lock(&self, db: &mut DbConnection) -> sqlx::Result<bool> {
        let until = Instant::now() + LOCK_WAIT_MAX;
        loop {
            let taken = db
                .number(
                    "SELECT CAST(CAST(pg_try_advisory_lock(hashtextextended(current_schema() || '/' || $1, 1668047460)) \
                     AS INT) AS BIGINT)",
                    &args![self.writer.as_str()],
                )
                .await?;
            if taken == 1 || Instant::now() >= until {
                return Ok(taken == 1);
            }
            sleep(LOCK_RETRY_PAUSE).await;
        }
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    fn set_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    fn is_over_limit(&self, room: WriteRoom) -> bool {
        let bytes_max = match room {
            WriteRoom::Limit => self.size_max,
            WriteRoom::Reserve => self.size_max.saturating_add(reserve_bytes(self.size_max)),
            WriteRoom::Cleanup => return false,
        };
        self.size.lock().is_some_and(|(_, bytes)| bytes > bytes_max)
    }

    async fn begin(&self, db: &mut DbConnection) -> sqlx::Result<bool> {
        db.run("BEGIN").await?;
        if self.is_read_only() {
            return Ok(true);
        }
        let name = args![self.writer.as_str()];
        let epoch = db
            .number("SELECT epoch FROM writer WHERE name = $1 FOR SHARE", &name)
            .await?;
        Ok(epoch == self.epoch.load(Ordering::Relaxed))
    }

    async fn reopen(&self) -> Result<DbConnection, StoreError> {
        let mut db = connect(&self.connector).await?;
        check_durability(&mut db).await?;
        if !self.is_read_only() {
            let name = args![self.writer.as_str()];
            let is_ours = self.acquire_writer_lock(&mut db).await?
                && db
                    .number("SELECT epoch FROM writer WHERE name = $1", &name)
                    .await?
                    == self.epoch.load(Ordering::Relaxed);
            if !is_ours {
                return Err(JournalError::Fenced {
                    writer: self.writer.clone(),
                }
                .into());
            }
        }
        Ok(db)
    }

    async fn size_bytes(&self, db: &mut DbConnection) -> sqlx::Result<u64> {
        let known = *self.size.lock();
        if let Some((looked, bytes)) = known
            && looked.elapsed() < SIZE_CACHE_TTL
        {
            return Ok(bytes);
        }
        let bytes = db
            .number("SELECT pg_database_size(current_database())", &[])
            .await?
            .unsigned_abs();
        *self.size.lock() = Some((Instant::now(), bytes));
        Ok(bytes)
    }
}

/// Rejects a server that may lose acknowledged commits at a power failure.
async fn check_durability(db: &mut DbConnection) -> Result<(), StoreError> {
    for name in ["fsync", "full_page_writes"] {
        if db.text("SELECT current_setting($1)", &args![name]).await? != "on" {
            return Err(StoreError::NotDurable(format!(
                "turn on `{name}` of the Postgres server"
            )));
        }
    }
    if matches!(
        db.text("SHOW synchronous_commit", &[]).await?.as_str(),
        "off" | "local"
    ) {
        db.run("SET synchronous_commit = on").await?;
    }
    Ok(())
}

/// Migrates in one transaction. A lock makes concurrent processes migrate one after another.
async fn migrate(db: &mut DbConnection, at: &str) -> Result<(), StoreError> {
    db.run("BEGIN").await?;
    db.run("SELECT pg_advisory_xact_lock(1668047460)").await?;
    let version = schema_version(db, at).await?;
    for migration in MIGRATIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or_default())
    {
        db.run(*migration).await?;
    }
    let known = SCHEMA_VERSION.to_string();
    db.execute(
        "INSERT INTO meta (name, value) VALUES ('schema', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        &args![known.as_str()],
    )
    .await?;
    Ok(db.run("COMMIT").await?)
}

/// Returns the schema version; 0 if the schema has no store yet.
async fn schema_version(db: &mut DbConnection, at: &str) -> Result<i64, StoreError> {
    let is_there = db.number(
        "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'meta'",
        &[],
    );
    if is_there.await? == 0 {
        return Ok(0);
    }
    let row = db
        .row("SELECT value FROM meta WHERE name = 'schema'", &[])
        .await?;
    let found = row.and_then(|row| row.get::<&str>(0).ok()?.parse().ok());
    match found {
        Some(found) if (0..=SCHEMA_VERSION).contains(&found) => Ok(found),
        Some(found) => Err(StoreError::NewerSchema {
            place: at.to_owned(),
            found,
            known: SCHEMA_VERSION,
        }),
        None => Err(StoreError::NotAStore { path: at.into() }),
    }
}
