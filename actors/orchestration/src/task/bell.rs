//! Notifications from the workers of a run's tasks to its followers in this process, so that those needn't poll.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use callboard_runtime::TaskId;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::decide::RunId;

/// Rings that wait for a follower; one that misses some looks at everything.
const RINGS_WAITING_MAX: usize = 32;

/// A bell for each run that is followed here.
#[derive(Clone, Default)]
pub(super) struct Bells(Arc<Mutex<HashMap<RunId, broadcast::Sender<TaskId>>>>);

/// Rings for one task of a run.
#[derive(Clone)]
pub(super) struct Ringer {
    bells: Bells,
    run: RunId,
    task: TaskId,
}

/// Hears the bell of a run.
pub(super) struct Hearing {
    bells: Bells,
    run: RunId,
    rung: Option<broadcast::Receiver<TaskId>>,
}

impl Bells {
    pub fn ringer(&self, run: RunId, task: TaskId) -> Ringer {
        Ringer {
            bells: self.clone(),
            run,
            task,
        }
    }

    pub fn hear(&self, run: RunId) -> Hearing {
        let rung = match self.0.lock().entry(run.clone()) {
            Entry::Occupied(bell) => bell.get().subscribe(),
            Entry::Vacant(place) => {
                let (bell, rung) = broadcast::channel(RINGS_WAITING_MAX);
                place.insert(bell);
                rung
            }
        };
        Hearing {
            bells: self.clone(),
            run,
            rung: Some(rung),
        }
    }

    /// Number of runs that are followed.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Ringer {
    /// Something happens to the task now.
    pub fn ring(&self) {
        if let Some(bell) = self.bells.0.lock().get(&self.run) {
            // Whoever followed may have just gone.
            let _ = bell.send(self.task.clone());
        }
    }
}

/// When the work on a task ends, however it does.
impl Drop for Ringer {
    fn drop(&mut self) {
        self.ring();
    }
}

impl Hearing {
    /// Which task it rings for; `None`: for any of them.
    pub async fn rung(&mut self) -> Option<TaskId> {
        match &mut self.rung {
            Some(rung) => match rung.recv().await {
                Ok(task) => Some(task),
                Err(broadcast::error::RecvError::Lagged(_)) => None,
                // The bell is there as long as somebody hears it.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.rung = None;
        let mut runs = self.bells.0.lock();
        if runs
            .get(&self.run)
            .is_some_and(|bell| bell.receiver_count() == 0)
        {
            runs.remove(&self.run);
        }
    }
}
