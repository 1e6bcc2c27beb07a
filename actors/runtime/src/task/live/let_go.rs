//! Work on a task that is dropped before its end: with the thread of the HTTP server that took its request, for example.

use std::sync::Arc;

use super::LiveTasks;
use crate::task::{Lease, Released};

/// Dropped, it lets go of the task, so that whoever serves next needs not wait for the lease to run out.
pub(super) struct LetGo {
    all: Arc<LiveTasks>,
    lease: Lease,
    is_done: bool,
}

impl LetGo {
    pub(super) fn of(all: &Arc<LiveTasks>, lease: &Lease) -> Self {
        Self { all: all.clone(), lease: lease.clone(), is_done: false }
    }

    /// There is nothing to let go of any more.
    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for LetGo {
    fn drop(&mut self) {
        let (all, lease) = (self.all.clone(), self.lease.clone());
        match &self.all.home {
            // The runtime that this runs in may be ending; the one that serves ends after it.
            Some(home) if !self.is_done => drop(home.spawn(async move {
                all.release(&lease, Released::Interrupted).await;
                all.is_gone(&lease);
            })),
            _ => all.is_gone(&lease),
        }
    }
}
