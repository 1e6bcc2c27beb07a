//! Opening and closing a store.

use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_runtime::live::LiveScopes;
use callboard_runtime::{Audit, JournalResult, Mail, Store};
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::audit::{Prepared, SqlAudit};
use crate::error::StoreError;
use crate::mail::SqlMail;
use crate::options::{StoreOptions, Where};
use crate::parts::{Core, Visitor};
use crate::place::{Place, Readers};
use crate::retention::{self, Cleaned};
use crate::sql::{Db, Sql, args, ms};
use crate::writer::{Batches, StoreMeasures};
use crate::{postgres, sqlite};

/// An open store. Clones are the same store; it is closed once, by [`Self::close`].
#[derive(Clone)]
pub struct SqlStore {
    visitor: Visitor,
    pub(crate) audit: Arc<SqlAudit>,
    cleaning: Option<AbortHandle>,
}

impl Deref for SqlStore {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

impl SqlStore {
    /// Opens it: makes and migrates what is missing, takes the writer's lock, and ends the leases of this writer's earlier
    /// processes.
    ///
    /// # Errors
    /// The place is another's, damaged, in use, newer than this program, or not to be reached; then nothing was changed.
    pub async fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        Self::opened(options)
            .await
            .map_err(|error| options.at.located(error))
    }

    async fn opened(options: &StoreOptions) -> Result<Self, StoreError> {
        options.checked()?;
        let (place, mut db, readers): (Box<dyn Place>, _, _) = match &options.at {
            Where::Sqlite(path) => {
                let (place, db) = sqlite::open(path, options).await?;
                let readers = Readers::sqlite(
                    sqlite::connect_options(path),
                    options.readers,
                    options.place(),
                );
                (Box::new(place), db, readers)
            }
            Where::Postgres { url, password } => {
                let connect = postgres::connect_options(url, password.as_ref())?;
                let (place, db) = postgres::open(options, connect.clone()).await?;
                (
                    Box::new(place),
                    db,
                    Readers::postgres(connect, options.readers, options.place()),
                )
            }
        };
        let run: Arc<str> = Uuid::new_v4().to_string().into();
        let audit = Prepared::read(options, &mut db).await?;
        let (epoch, now_ms) = begin_epoch(&mut db, &options.writer, &run).await?;
        place.is_epoch(epoch);
        let worker: Arc<str> = format!("{}#{}", options.writer, epoch).into();
        let chain = audit.chain(options, &run);
        let batches = Batches::new(
            place,
            options,
            Some(chain),
            Some(db),
            worker.clone(),
            now_ms,
        );
        let core = Core::start(options, readers, run, worker, batches);
        let audit = Arc::new(audit.begin(&core).await?);
        let cleaning = options
            .clean_every
            .map(|every| retention::keep_cleaning(&core, every));
        Ok(Self {
            visitor: Visitor { core },
            audit,
            cleaning,
        })
    }

    /// Looks into a store, also beside a node that has it open. Nothing is made or migrated.
    ///
    /// # Errors
    /// There is none, it is older or newer than this program, or not to be reached.
    pub async fn visit(options: &StoreOptions) -> Result<Visitor, StoreError> {
        Self::visited(options)
            .await
            .map_err(|error| options.at.located(error))
    }

    async fn visited(options: &StoreOptions) -> Result<Visitor, StoreError> {
        let (place, readers): (Box<dyn Place>, _) = match &options.at {
            Where::Sqlite(path) => {
                let readers = Readers::sqlite(sqlite::connect_options(path), 1, options.place());
                (Box::new(sqlite::visit(path, options).await?), readers)
            }
            Where::Postgres { url, password } => {
                let connect = postgres::connect_options(url, password.as_ref())?;
                let place = postgres::visit(options, connect.clone()).await?;
                (
                    Box::new(place),
                    Readers::postgres(connect, 1, options.place()),
                )
            }
        };
        let run: Arc<str> = Uuid::new_v4().to_string().into();
        let worker: Arc<str> = "visitor".into();
        let batches = Batches::new(place, options, None, None, worker.clone(), 0);
        Ok(Visitor {
            core: Core::start(options, readers, run, worker, batches),
        })
    }

    /// Takes nothing more, writes what is queued, and lets go of the place. Everything that shares the store answers
    /// `Unavailable` from then on.
    pub async fn close(&self) {
        if let Some(cleaning) = &self.cleaning {
            cleaning.abort();
        }
        self.audit.end().await;
        self.core.close().await;
    }

    /// Its audit.
    pub fn audit(&self) -> Arc<dyn Audit> {
        self.audit.clone()
    }

    /// Its mail; `marks` says what stands for the letters' bodies: its own audit, as a rule.
    pub fn mail(&self, marks: Arc<dyn Audit>) -> Arc<dyn Mail> {
        Arc::new(SqlMail::new(self.core.clone(), marks))
    }

    /// All its parts, for a system to keep in.
    pub fn store(&self) -> Store {
        let audit = self.audit();
        Store {
            journal: self.journal(),
            tasks: self.tasks(audit.clone()),
            live: LiveScopes::default(),
            mail: self.mail(audit.clone()),
            notes: self.notes(),
            audit,
            run: self.core.run.clone(),
        }
    }

    /// Removes now what is past its retention.
    ///
    /// # Errors
    /// The store's; what was removed before it stays removed.
    pub async fn clean(&self) -> JournalResult<Cleaned> {
        retention::clean(&self.core).await
    }

    /// What it has done so far.
    pub fn measures(&self) -> StoreMeasures {
        self.core.writer.measures.read()
    }

    /// This opening's id: random.
    pub fn run(&self) -> &str {
        &self.core.run
    }
}

/// A new epoch for the writer, and the time. The leases of its earlier processes end here: they are gone, for the lock was free.
async fn begin_epoch(db: &mut Db, writer: &str, run: &str) -> sqlx::Result<(i64, i64)> {
    db.run(Sql {
        sqlite: "BEGIN IMMEDIATE",
        postgres: "BEGIN",
    })
    .await?;
    let last = db.number("SELECT max(since_ms) FROM writer", &[]).await?;
    let now_ms = ms(SystemTime::now()).max(last);
    let epoch = db
        .number(
            "INSERT INTO writer (name, epoch, run, since_ms, closed) VALUES ($1, 1, $2, $3, 0) ON CONFLICT (name) DO UPDATE \
             SET epoch = writer.epoch + 1, run = excluded.run, since_ms = excluded.since_ms, closed = 0 RETURNING epoch",
            &args![writer, run, now_ms],
        )
        .await?;
    let mine = format!("{writer}#");
    db.execute(
        "UPDATE task SET lease_until_ms = 0 WHERE lease_by IS NOT NULL AND substr(lease_by, 1, length($1)) = $1",
        &args![mine.as_str()],
    )
    .await?;
    db.run("COMMIT").await?;
    Ok((epoch, now_ms))
}
