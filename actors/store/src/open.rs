//! Opening a store, and what its parts share.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_runtime::Journal;
use tokio::sync::{Mutex, oneshot};
use uuid::Uuid;

use crate::batch::Batches;
use crate::clock::ms;
use crate::error::StoreError;
use crate::journal::SqlJournal;
use crate::measures::StoreMeasures;
use crate::options::{StoreOptions, Where};
use crate::place::Place;
use crate::readers::Readers;
use crate::sql::Db;
use crate::writer::Writer;
use crate::{postgres, sqlite};

/// What the parts of an open store (tasks, inboxes, notes, audit) share.
pub(crate) struct Core {
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    /// This process's name in leases, `NAME#EPOCH`.
    pub(crate) worker: Arc<str>,
    /// Of this opening, random.
    pub(crate) run: Arc<str>,
    pub(crate) place: Arc<Place>,
    pub(crate) options: StoreOptions,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

/// An open store. Clones are the same store; it is closed once, by [`Self::close`].
#[derive(Clone)]
pub struct SqlStore {
    pub(crate) core: Arc<Core>,
}

impl SqlStore {
    /// Opens it: makes and migrates what is missing, takes the writer's lock, and ends the leases of this writer's earlier
    /// processes.
    ///
    /// # Errors
    /// The place is another's, damaged, in use, newer than this program, or not to be reached; then nothing was changed.
    pub async fn open(options: &StoreOptions) -> Result<Self, StoreError> {
        options.checked()?;
        let at = options.place();
        let told = |source| StoreError::Database { place: at.clone(), source };
        let (place, mut db, readers) = match &options.at {
            Where::Sqlite(path) => {
                let (place, db) = sqlite::open(path, options).await?;
                let readers = Readers::sqlite(sqlite::connect_options(path), options.readers);
                (Place::Sqlite(place), db, readers)
            }
            Where::Postgres { url, password } => {
                let connect = postgres::connect_options(url, password.as_ref())?;
                let (place, db) = postgres::open(options, connect.clone()).await?;
                (Place::Postgres(place), db, Readers::postgres(connect, options.readers))
            }
        };
        let run: Arc<str> = Uuid::new_v4().to_string().into();
        let began = begin_epoch(&mut db, &options.writer, &run).await.map_err(told)?;
        if let Place::Postgres(place) = &place {
            place.is_epoch(began.epoch);
        }
        let worker: Arc<str> = format!("{}#{}", options.writer, began.epoch).into();
        let place = Arc::new(place);
        let batches = Batches::new(Arc::clone(&place), None, db, Arc::clone(&worker), began.now_ms);
        let (writer, ended) = Writer::start(batches, options.queue);
        let ended = Mutex::new(Some(ended));
        Ok(Self { core: Arc::new(Core { writer, readers, worker, run, place, options: options.clone(), ended }) })
    }

    /// Takes nothing more, writes what is queued, and lets go of the place. Everything that shares the store answers
    /// `Unavailable` from then on.
    pub async fn close(&self) {
        self.core.writer.close().await;
        if let Some(ended) = self.core.ended.lock().await.take() {
            // The sender is dropped at the latest when the task is.
            let _ = ended.await;
        }
        self.core.readers.close().await;
    }

    /// Its streams.
    pub fn journal(&self) -> Arc<dyn Journal> {
        Arc::new(SqlJournal::new(Arc::clone(&self.core)))
    }

    /// What it has done so far.
    pub fn measures(&self) -> StoreMeasures {
        self.core.writer.measures().read()
    }

    /// This opening's id: random.
    pub fn run(&self) -> &str {
        &self.core.run
    }
}

/// A process's turn at a store.
struct Began {
    epoch: i64,
    now_ms: i64,
}

/// A new epoch for the writer. The leases of its earlier processes end here: they are gone, for the lock was free.
async fn begin_epoch(db: &mut Db, writer: &str, run: &str) -> Result<Began, sqlx::Error> {
    db.run(crate::sql::Sql { sqlite: "BEGIN IMMEDIATE", postgres: "BEGIN" }).await?;
    let last = db.number("SELECT max(since_ms) FROM writer", &[]).await?;
    let now_ms = ms(SystemTime::now()).max(last);
    let epoch = db
        .number(
            "INSERT INTO writer (name, epoch, run, since_ms, closed) VALUES ($1, 1, $2, $3, 0) ON CONFLICT (name) DO UPDATE \
             SET epoch = writer.epoch + 1, run = excluded.run, since_ms = excluded.since_ms, closed = 0 RETURNING epoch",
            &[writer.into(), run.into(), now_ms.into()],
        )
        .await?;
    let mine = format!("{writer}#");
    db.execute(
        "UPDATE task SET lease_until_ms = 0 WHERE lease_by IS NOT NULL AND substr(lease_by, 1, length($1)) = $1",
        &[mine.as_str().into()],
    )
    .await?;
    db.run("COMMIT").await?;
    Ok(Began { epoch, now_ms })
}
