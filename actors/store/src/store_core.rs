//! State shared by the storage traits of one open store.

use std::sync::Arc;

use callboard_runtime::JournalResult;
use tokio::sync::{Mutex, oneshot};

use crate::backend::ReadPool;
use crate::options::StoreOptions;
use crate::owner_quota::{OwnedKind, OwnerQuota};
use crate::retention_clock::RetentionClock;
use crate::sql::SqlArg;
use crate::volatile_store::VolatileStore;
use crate::writer::{BatchWriter, WriterHandle};

/// Writer, read pool and options of an open store, shared by its journal, tasks, mail, key-value
/// store and audit.
pub(crate) struct StoreCore {
    pub(crate) writer: WriterHandle,
    pub(crate) readers: ReadPool,
    /// Name of this process in task leases: `NAME#EPOCH`.
    pub(crate) worker: Arc<str>,
    /// Random id that was generated when this store was opened.
    pub(crate) run_id: Arc<str>,
    pub(crate) options: StoreOptions,
    pub(crate) owner_quota: OwnerQuota,
    /// Time from which retention is counted. `None` in a read-only view, which removes nothing.
    pub(crate) retention_clock: Option<RetentionClock>,
    /// In-memory store for the bodies of clinical tasks, which are never written to disk.
    pub(crate) volatile: Arc<VolatileStore>,
    writer_done: Mutex<Option<oneshot::Receiver<()>>>,
}

impl StoreCore {
    pub(crate) fn start(
        options: &StoreOptions,
        readers: ReadPool,
        run: Arc<str>,
        worker: Arc<str>,
        batches: BatchWriter,
        retention_clock: Option<RetentionClock>,
    ) -> Arc<Self> {
        let (writer, ended) = WriterHandle::start(batches, options.queue);
        let owner_quota = OwnerQuota::new(options.size_max, options.owner_bytes_max);
        let (options, ended) = (options.clone(), Mutex::new(Some(ended)));
        Arc::new(Self {
            writer,
            readers,
            worker,
            run_id: run,
            options,
            owner_quota,
            retention_clock,
            volatile: Arc::default(),
            writer_done: ended,
        })
    }

    /// Counts `bytes` of new data for their owner, as [`OwnerQuota::admit`]. Repeated data, of
    /// which the query `is_repeated` finds the earlier, is admitted beyond the quota too: its
    /// writer gets the earlier.
    pub(crate) async fn admit_or_repeat(
        &self,
        (kind, owner): (OwnedKind, &str),
        bytes: usize,
        is_repeated: &'static str,
        key: &[SqlArg<'_>],
    ) -> JournalResult<()> {
        let size = self.writer.metrics.size_bytes();
        let admitted = self
            .owner_quota
            .admit(&self.readers, size, (kind, owner), bytes as u64)
            .await;
        match admitted {
            Err(error) if !self.readers.has_row(is_repeated, key).await? => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) async fn close(&self) {
        self.writer.close().await;
        if let Some(ended) = self.writer_done.lock().await.take() {
            // The sender is dropped at the latest when the task is.
            let _ = ended.await;
        }
        self.readers.close().await;
    }
}
