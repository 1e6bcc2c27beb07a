//! Opening and closing of a store.

use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_runtime::running::RunningTaskScopes;
use callboard_runtime::{AuditStore, JournalResult, MailStore, Store};
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::audit::{self, AuditSetup, SqlAudit};
use crate::backend::{Backend, ReadPool};
use crate::error::StoreError;
use crate::mail::SqlMail;
use crate::options::{StoreLocation, StoreOptions};
use crate::read_only_store::ReadOnlyStore;
use crate::retention::{self, CleanupReport};
use crate::retention_clock::RetentionClock;
use crate::sql::postgres::Connector;
use crate::sql::{DbConnection, Sql, args, to_unix_ms};
use crate::store_core::StoreCore;
use crate::writer::{BatchWriter, StoreMetrics};
use crate::{postgres, sqlite};

/// Open store with exclusive write access. Clones share it; close it once with [`Self::close`].
#[derive(Clone)]
pub struct SqlStore {
    read_only: ReadOnlyStore,
    pub(crate) audit: Arc<SqlAudit>,
    cleanup_task: Option<AbortHandle>,
}

impl Deref for SqlStore {
    type Target = ReadOnlyStore;

    fn deref(&self) -> &ReadOnlyStore {
        &self.read_only
    }
}

impl SqlStore {
    /// Opens a store for writing. Creates and migrates the schema, takes the writer lock, expires
    /// the task leases of earlier processes with the same writer name, and records the start in the
    /// audit.
    ///
    /// # Errors
    /// [`StoreError`], if the place holds something else, is damaged, in use, unreachable, or has a
    /// newer schema than this program knows: the data is unchanged then. [`StoreError::Key`] if the
    /// audit key is lost or another one: the schema may have been migrated then.
    pub async fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        Self::open_inner(options)
            .await
            .map_err(|error| options.location.with_place(error))
    }

    async fn open_inner(options: &StoreOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let (place, mut db, readers): (Box<dyn Backend>, _, _) = match &options.location {
            StoreLocation::Sqlite(path) => {
                audit::check_not_lost(path, options)?;
                let (place, db) = sqlite::open(path, options).await?;
                let readers = ReadPool::sqlite(
                    sqlite::connect_options(path),
                    options.readers,
                    options.place(),
                );
                (Box::new(place), db, readers)
            }
            StoreLocation::Postgres { url, password } => {
                let connector = Connector::new(url, password.as_ref())?;
                let (place, db) = postgres::open(options, connector.clone()).await?;
                (
                    Box::new(place),
                    db,
                    ReadPool::postgres(connector, options.readers, options.place()),
                )
            }
        };
        let run: Arc<str> = Uuid::new_v4().to_string().into();
        let audit = AuditSetup::read(options, &mut db).await?;
        let opened_before = db.number("SELECT max(since_ms) FROM writer", &[]).await?;
        let clock = RetentionClock::open(&mut db, opened_before, options.clock_jump_max).await?;
        let (epoch, now_ms) = begin_epoch(&mut db, &options.writer, &run).await?;
        place.set_epoch(epoch);
        let worker: Arc<str> = format!("{}#{}", options.writer, epoch).into();
        let chain = audit.chain(options, &run);
        let batches = BatchWriter::new(
            place,
            options,
            Some(chain),
            Some(db),
            worker.clone(),
            now_ms,
        );
        let core = StoreCore::start(options, readers, run, worker, batches, Some(clock));
        let audit = Arc::new(audit.record_start(&core).await?);
        let cleaning = options
            .cleanup_interval
            .map(|every| retention::spawn_cleanup(&core, every));
        Ok(Self {
            read_only: ReadOnlyStore { core },
            audit,
            cleanup_task: cleaning,
        })
    }

    /// Opens a store for reading, also beside a node that has it open for writing. Creates and
    /// migrates nothing.
    ///
    /// # Errors
    /// [`StoreError`], if the store doesn't exist, has an older or newer schema than this program,
    /// or can't be reached.
    pub async fn open_read_only(options: &StoreOptions) -> Result<ReadOnlyStore, StoreError> {
        Self::open_read_only_inner(options)
            .await
            .map_err(|error| options.location.with_place(error))
    }

    async fn open_read_only_inner(options: &StoreOptions) -> Result<ReadOnlyStore, StoreError> {
        let (place, readers): (Box<dyn Backend>, _) = match &options.location {
            StoreLocation::Sqlite(path) => {
                let readers = ReadPool::sqlite(sqlite::connect_options(path), 1, options.place());
                (
                    Box::new(sqlite::open_read_only(path, options).await?),
                    readers,
                )
            }
            StoreLocation::Postgres { url, password } => {
                let connector = Connector::new(url, password.as_ref())?;
                let place = postgres::open_read_only(options, connector.clone()).await?;
                (
                    Box::new(place),
                    ReadPool::postgres(connector, 1, options.place()),
                )
            }
        };
        let run: Arc<str> = Uuid::new_v4().to_string().into();
        let worker: Arc<str> = "visitor".into();
        let batches = BatchWriter::new(place, options, None, None, worker.clone(), 0);
        Ok(ReadOnlyStore {
            core: StoreCore::start(options, readers, run, worker, batches, None),
        })
    }

    /// Closes the store for all clones: rejects new writes, commits the queued ones, and releases
    /// the writer lock. Later operations fail with `JournalError::Unavailable`.
    pub async fn close(&self) {
        if let Some(cleaning) = &self.cleanup_task {
            cleaning.abort();
        }
        self.audit.record_end().await;
        self.core.close().await;
    }

    /// Returns the audit log of this store.
    pub fn audit(&self) -> Arc<dyn AuditStore> {
        self.audit.clone()
    }

    /// Returns the mail store. `marks` computes the digests that stand for message bodies in the
    /// audit: usually [`Self::audit`].
    pub fn mail(&self, marks: Arc<dyn AuditStore>) -> Arc<dyn MailStore> {
        Arc::new(SqlMail::new(self.core.clone(), marks))
    }

    /// Returns all storage traits as a [`Store`], for the configuration of an agent system.
    pub fn store(&self) -> Store {
        let audit = self.audit();
        Store {
            journal: self.journal(),
            tasks: self.tasks(audit.clone()),
            running_tasks: RunningTaskScopes::default(),
            mail: self.mail(audit.clone()),
            kv: self.notes(),
            audit,
            run: self.core.run_id.clone(),
        }
    }

    /// Removes all data past its retention now.
    ///
    /// # Errors
    /// Errors of the store. Data removed before the error stays removed.
    pub async fn clean(&self) -> JournalResult<CleanupReport> {
        retention::clean(&self.core).await
    }

    /// Returns a snapshot of the counters of this store.
    pub fn metrics(&self) -> StoreMetrics {
        self.core.writer.metrics.snapshot()
    }

    /// Returns the random id that was generated when this store was opened. Audit entries hold it
    /// as their run.
    pub fn run_id(&self) -> &str {
        &self.core.run_id
    }
}

/// Increments the epoch of the writer name. Expires the task leases of earlier processes with this
/// name; they have ended, since this process got the writer lock. Returns the new epoch and the
/// time in Unix milliseconds.
async fn begin_epoch(db: &mut DbConnection, writer: &str, run: &str) -> sqlx::Result<(i64, i64)> {
    db.run(Sql {
        sqlite: "BEGIN IMMEDIATE",
        postgres: "BEGIN",
    })
    .await?;
    let last = db.number("SELECT max(since_ms) FROM writer", &[]).await?;
    let now_ms = to_unix_ms(SystemTime::now()).max(last);
    let epoch = db
        .number(
            "INSERT INTO writer (name, epoch, run, since_ms, closed) VALUES ($1, 1, $2, $3, 0) ON CONFLICT (name) DO UPDATE \
             SET epoch = writer.epoch + 1, run = excluded.run, since_ms = excluded.since_ms, closed = 0 RETURNING epoch",
            &args![writer, run, now_ms],
        )
        .await?;
    let mine = format!("{writer}#");
    // Not 0: their workers were lost and haven't released them (`LeaseView::RELEASED`).
    db.execute(
        "UPDATE task SET lease_until_ms = 1 WHERE lease_by IS NOT NULL AND lease_until_ms > 0 \
         AND substr(lease_by, 1, length($1)) = $1",
        &args![mine.as_str()],
    )
    .await?;
    db.run("COMMIT").await?;
    Ok((epoch, now_ms))
}
