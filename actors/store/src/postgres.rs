//! The store in a Postgres database: one process a writer's name, fenced by its epoch.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use callboard_runtime::JournalError;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use crate::error::StoreError;
use crate::options::StoreOptions;
use crate::place::Place;
use crate::sql::{Db, args};

/// Forward migrations: the one at index `n` takes the schema from version `n` to `n + 1`.
const MIGRATIONS: &[&str] = &[
    include_str!("schema/postgres/0001.sql"),
    include_str!("schema/postgres/0002.sql"),
    include_str!("schema/postgres/0003.sql"),
];
/// The newest schema that this program knows.
const SCHEMA: i64 = MIGRATIONS.len() as i64;

/// How long a connection may take.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum wait for the lock of a process that has just ended: the server notices its end late. Afterwards the store is in use by another. Fixed.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts to take that lock. Fixed.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// How old the known size of the database may be.
const SIZE_KNOWN_FOR: Duration = Duration::from_secs(10);

/// An open database.
pub(crate) struct PostgresPlace {
    writer: String,
    size_max: u64,
    options: PgConnectOptions,
    /// 0: a visitor, beside the process of that name.
    epoch: AtomicI64,
    size: Mutex<Option<(Instant, u64)>>,
}

/// How any connection to the database is opened. Statements aren't logged, as in SQLite.
pub(crate) fn connect_options(
    url: &Url,
    password: Option<&SecretString>,
) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_url(url).map_err(|e| StoreError::Url(e.to_string()))?;
    let options = match password {
        Some(password) => options.password(password.expose_secret()),
        None => options,
    };
    Ok(options
        .application_name("callboard")
        .statement_cache_capacity(256)
        .disable_statement_logging())
}

pub(crate) async fn connect(options: &PgConnectOptions) -> sqlx::Result<Db> {
    let connection = timeout(CONNECT_WAIT_MAX, options.connect())
        .await
        .map_err(|_| sqlx::Error::PoolTimedOut)??;
    Ok(Db::Postgres(Box::new(connection)))
}

/// Checks that the server keeps what it acknowledges, migrates, takes the writer's lock, and answers its connection.
pub(crate) async fn open(
    options: &StoreOptions,
    connect_to: PgConnectOptions,
) -> Result<(PostgresPlace, Db), StoreError> {
    let at = options.place();
    let mut db = connect(&connect_to).await?;
    durable(&mut db).await?;
    migrate(&mut db, &at).await?;
    let place = PostgresPlace::new(options, connect_to);
    if !place.lock(&mut db).await? {
        return Err(StoreError::InUse {
            what: format!("writer `{}` of {at}", place.writer),
            pid: None,
        });
    }
    Ok((place, db))
}

/// Looks at a database that another process may write to. It is not migrated.
pub(crate) async fn visit(
    options: &StoreOptions,
    connect_to: PgConnectOptions,
) -> Result<PostgresPlace, StoreError> {
    let at = options.place();
    let mut db = connect(&connect_to).await?;
    let version = schema_version(&mut db, &at).await?;
    db.close().await?;
    match version {
        0 => Err(StoreError::Missing { place: at }),
        found if found < SCHEMA => Err(StoreError::OlderSchema {
            place: at,
            found,
            known: SCHEMA,
        }),
        _ => Ok(PostgresPlace::new(options, connect_to)),
    }
}

impl PostgresPlace {
    fn new(options: &StoreOptions, connect: PgConnectOptions) -> Self {
        let (writer, size_max) = (options.writer.clone(), options.size_max);
        Self {
            writer,
            size_max,
            options: connect,
            epoch: AtomicI64::new(0),
            size: Mutex::default(),
        }
    }

    fn is_visitor(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) == 0
    }

    /// The lock goes with the connection. Its name holds the schema: two stores may be in one database.
    async fn lock(&self, db: &mut Db) -> sqlx::Result<bool> {
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
            sleep(LOCK_PAUSE).await;
        }
    }
}

#[async_trait]
impl Place for PostgresPlace {
    fn is_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    fn is_too_large(&self) -> bool {
        self.size
            .lock()
            .is_some_and(|(_, bytes)| bytes > self.size_max)
    }

    async fn begin(&self, db: &mut Db) -> sqlx::Result<bool> {
        db.run("BEGIN").await?;
        if self.is_visitor() {
            return Ok(true);
        }
        let name = args![self.writer.as_str()];
        let epoch = db
            .number("SELECT epoch FROM writer WHERE name = $1 FOR SHARE", &name)
            .await?;
        Ok(epoch == self.epoch.load(Ordering::Relaxed))
    }

    async fn reopen(&self) -> Result<Db, StoreError> {
        let mut db = connect(&self.options).await?;
        durable(&mut db).await?;
        if !self.is_visitor() {
            let name = args![self.writer.as_str()];
            let is_ours = self.lock(&mut db).await?
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

    async fn bytes(&self, db: &mut Db) -> sqlx::Result<u64> {
        let known = *self.size.lock();
        if let Some((looked, bytes)) = known
            && looked.elapsed() < SIZE_KNOWN_FOR
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

/// Refuses a server that loses what it acknowledged when the power fails.
async fn durable(db: &mut Db) -> Result<(), StoreError> {
    for name in ["fsync", "full_page_writes"] {
        if db.text("SELECT current_setting($1)", &args![name]).await? != "on" {
            return Err(StoreError::NotDurable(format!(
                "{name} of the Postgres server is off"
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

/// In one transaction, one process after another.
async fn migrate(db: &mut Db, at: &str) -> Result<(), StoreError> {
    db.run("BEGIN").await?;
    db.run("SELECT pg_advisory_xact_lock(1668047460)").await?;
    let version = schema_version(db, at).await?;
    for migration in MIGRATIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or_default())
    {
        db.run(*migration).await?;
    }
    let known = SCHEMA.to_string();
    db.execute(
        "INSERT INTO meta (name, value) VALUES ('schema', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        &args![known.as_str()],
    )
    .await?;
    Ok(db.run("COMMIT").await?)
}

/// 0 where the schema has no store yet.
async fn schema_version(db: &mut Db, at: &str) -> Result<i64, StoreError> {
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
        Some(found) if (0..=SCHEMA).contains(&found) => Ok(found),
        Some(found) => Err(StoreError::NewerSchema {
            place: at.to_owned(),
            found,
            known: SCHEMA,
        }),
        None => Err(StoreError::NotAStore { path: at.into() }),
    }
}
