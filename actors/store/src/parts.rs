//! The parts that all of an open store share.

use std::sync::Arc;

use callboard_runtime::{Journal, Notes};
use tokio::sync::{Mutex, oneshot};

use crate::held::Held;
use crate::options::StoreOptions;
use crate::place::Readers;
use crate::writer::{Batches, Writer};

/// What the parts of an open store (tasks, mail, notes, audit) share.
pub(crate) struct Core {
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    /// This process's name in leases, `NAME#EPOCH`.
    pub(crate) worker: Arc<str>,
    /// Of this opening, random.
    pub(crate) run: Arc<str>,
    pub(crate) options: StoreOptions,
    /// What of clinical tasks is in memory only.
    pub(crate) held: Arc<Held>,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Core {
    pub(crate) fn start(
        options: &StoreOptions,
        readers: Readers,
        run: Arc<str>,
        worker: Arc<str>,
        batches: Batches,
    ) -> Arc<Self> {
        let (writer, ended) = Writer::start(batches, options.queue);
        let (options, ended) = (options.clone(), Mutex::new(Some(ended)));
        Arc::new(Self {
            writer,
            readers,
            worker,
            run,
            options,
            held: Arc::default(),
            ended,
        })
    }

    pub(crate) async fn close(&self) {
        self.writer.close().await;
        if let Some(ended) = self.ended.lock().await.take() {
            // The sender is dropped at the latest when the task is.
            let _ = ended.await;
        }
        self.readers.close().await;
    }
}

/// A look into a store, beside the node that writes to it: what needs no writer's lock.
#[derive(Clone)]
pub struct Visitor {
    pub(crate) core: Arc<Core>,
}

impl Visitor {
    /// Its streams.
    pub fn journal(&self) -> Arc<dyn Journal> {
        self.core.clone()
    }

    /// Its notes.
    pub fn notes(&self) -> Arc<dyn Notes> {
        self.core.clone()
    }

    /// Lets go of it.
    pub async fn close(&self) {
        self.core.close().await;
    }
}
