//! Work on a task that is dropped before its end: with the threads of the HTTP server that took its message, for example.

use std::sync::Arc;

use callboard_runtime::{Lease, Released};

use super::Core;

/// Dropped, it lets go of the task, so that whoever serves next needs not wait for the lease to run out.
pub(super) struct LetGo {
    core: Arc<Core>,
    lease: Lease,
    is_done: bool,
}

impl LetGo {
    pub(super) fn of(core: &Arc<Core>, lease: &Lease) -> Self {
        Self { core: core.clone(), lease: lease.clone(), is_done: false }
    }

    /// There is nothing to let go of any more.
    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for LetGo {
    fn drop(&mut self) {
        let (core, lease) = (self.core.clone(), self.lease.clone());
        if self.is_done {
            return core.is_gone(&lease);
        }
        // The runtime that this runs in may be ending; the one that the server was made in ends after it.
        match &self.core.home {
            Some(home) => drop(home.spawn(async move {
                core.release(&lease, Released::Interrupted).await;
                core.is_gone(&lease);
            })),
            None => core.is_gone(&lease),
        }
    }
}
