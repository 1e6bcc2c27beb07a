//! Checkpoints of a SQLite file beside its writer, so that commits don't wait for them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use callboard_message::log;
use parking_lot::Mutex;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::error_message;
use crate::sql::DbConnection;

/// Pages in the write-ahead log after which a checkpoint copies them into the file, beside the
/// writer's next commits. Fixed.
const CHECKPOINT_PAGES: u64 = 1000;
/// Pages that a write changes in addition to those for its bytes: rows of indexes and counters. An
/// estimate.
const PAGES_A_WRITE: u64 = 4;

/// Task with a connection of its own that copies committed pages from the write-ahead log into the
/// file. A failed checkpoint is logged and repeated later: the log keeps the pages until then.
pub(crate) struct Checkpointer {
    page_bytes: u64,
    /// Approximate number of pages that were written since the latest request.
    pages: AtomicU64,
    running: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

impl Checkpointer {
    /// Starts the task. The connection is opened for the first checkpoint.
    pub(crate) fn start(connect: SqliteConnectOptions, page_bytes: u64) -> Self {
        let (request, requests) = mpsc::channel(1);
        let task = tokio::spawn(run(connect.create_if_missing(false), requests));
        Self {
            page_bytes,
            pages: AtomicU64::new(0),
            running: Mutex::new(Some((request, task))),
        }
    }

    /// Counts a committed transaction. Requests a checkpoint after [`CHECKPOINT_PAGES`].
    pub(crate) fn count(&self, writes: u64, bytes: u64) {
        let pages = bytes / self.page_bytes + PAGES_A_WRITE.saturating_mul(writes);
        if self.pages.fetch_add(pages, Relaxed) + pages < CHECKPOINT_PAGES {
            return;
        }
        self.pages.store(0, Relaxed);
        if let Some((request, _)) = &*self.running.lock() {
            // If one is requested already, that one copies these pages too.
            let _ = request.try_send(());
        }
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

async fn run(connect: SqliteConnectOptions, mut requests: mpsc::Receiver<()>) {
    let mut connection = None;
    while requests.recv().await.is_some() {
        let checkpoint = async {
            let mut db = match connection.take() {
                Some(db) => db,
                None => DbConnection::Sqlite(Box::new(connect.connect().await?)),
            };
            db.run("PRAGMA wal_checkpoint(PASSIVE)").await?;
            connection = Some(db);
            Ok(())
        };
        if let Err(error) = checkpoint.await {
            log::debug!(
                error = error_message(&error),
                "failed to checkpoint the store"
            );
        }
    }
    if let Some(db) = connection {
        // Nothing is lost: the writer's connection is still open.
        let _ = db.close().await;
    }
}
