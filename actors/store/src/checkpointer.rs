//! Checkpoints of a SQLite file beside its writer, so that commits don't wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use callboard_message::log;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};
use tokio::task::JoinHandle;

use crate::error::error_message;
use crate::sql::DbConnection;

/// Pages in the write-ahead log after which a checkpoint copies them into the file, beside the
/// writer's next commits. Fixed.
const CHECKPOINT_PAGES: u64 = 1000;
/// Pages that a write changes in addition to those for its bytes: rows of indexes and counters. An
/// estimate.
const PAGES_A_WRITE: u64 = 4;
/// Maximum of these pages in one transaction, whose writes share them. An estimate.
const SHARED_PAGES_MAX: u64 = 64;

/// Task with a connection of its own that copies committed pages from the write-ahead log into the
/// file. A failed checkpoint is logged and repeated after as many pages: the log keeps them until then.
pub(crate) struct Checkpointer {
    /// Held during a checkpoint: SQLite refuses a second one of the same file.
    turn: Arc<Mutex<()>>,
    page_bytes: u64,
    /// Approximate number of pages that were written since the latest request.
    pages: AtomicU64,
    running: parking_lot::Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

impl Checkpointer {
    /// Starts the task. The connection is opened for the first checkpoint.
    pub(crate) fn start(connect: SqliteConnectOptions, page_bytes: u64) -> Self {
        let (request, requests) = mpsc::channel(1);
        let turn = Arc::default();
        let connect = connect.create_if_missing(false);
        let task = tokio::spawn(run(connect, requests, Arc::clone(&turn)));
        Self {
            turn,
            page_bytes,
            pages: AtomicU64::new(0),
            running: parking_lot::Mutex::new(Some((request, task))),
        }
    }

    /// Counts a committed transaction. Requests a checkpoint after [`CHECKPOINT_PAGES`].
    pub(crate) fn count(&self, writes: u64, bytes: u64) {
        let shared = PAGES_A_WRITE.saturating_mul(writes).min(SHARED_PAGES_MAX);
        let pages = bytes / self.page_bytes + shared;
        if self.pages.fetch_add(pages, Relaxed) + pages < CHECKPOINT_PAGES {
            return;
        }
        self.pages.store(0, Relaxed);
        if let Some((request, _)) = &*self.running.lock() {
            // If one is requested already, that one copies these pages too.
            let _ = request.try_send(());
        }
    }

    /// Waits for a running checkpoint, and prevents further ones as long as the guard exists.
    pub(crate) async fn pause(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// Waits for a running checkpoint, and closes the connection.
    pub(crate) async fn stop(&self) {
        let running = self.running.lock().take();
        if let Some((request, task)) = running {
            drop(request);
            let _ = task.await;
        }
    }
}

async fn run(
    connect: SqliteConnectOptions,
    mut requests: mpsc::Receiver<()>,
    turn: Arc<Mutex<()>>,
) {
    let mut connection = None;
    while requests.recv().await.is_some() {
        let _turn = turn.lock().await;
        let checkpoint = async {
            let mut db = match connection.take() {
                Some(db) => db,
                None => open(&connect).await?,
            };
            db.run("PRAGMA wal_checkpoint(PASSIVE)").await?;
            connection = Some(db);
            Ok(())
        };
        if let Err(error) = checkpoint.await {
            log::warn!(
                error = error_message(&error),
                "failed to checkpoint the store; its write-ahead log grows until it succeeds"
            );
        }
    }
    if let Some(db) = connection
        && let Err(error) = db.close().await
    {
        log::warn!(
            error = error_message(&error),
            "the store's connection for checkpoints didn't close cleanly"
        );
    }
}

/// Opens a connection whose checkpoints are synced.
async fn open(connect: &SqliteConnectOptions) -> sqlx::Result<DbConnection> {
    let mut db = DbConnection::Sqlite(Box::new(connect.connect().await?));
    db.run("PRAGMA synchronous = FULL").await?;
    Ok(db)
}
