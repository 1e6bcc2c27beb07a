//! Notifications from the workers of a run's tasks to its followers in this process, so that those
//! needn't poll.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use callboard_runtime::TaskId;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::decide::RunId;

/// Notifications buffered per follower of a run. A follower that misses some polls all tasks.
const NOTIFICATIONS_BUFFERED_MAX: usize = 32;

/// Notification channels of the followed runs, by run id.
#[derive(Clone, Default)]
pub(super) struct TaskNotifier(Arc<Mutex<HashMap<RunId, broadcast::Sender<TaskId>>>>);

/// Sender of notifications about one task of a run. Notifies once more when dropped.
#[derive(Clone)]
pub(super) struct TaskNotificationSender {
    notifier: TaskNotifier,
    run: RunId,
    task: TaskId,
}

/// Receiver of the notifications about all tasks of a run.
pub(super) struct TaskNotificationReceiver {
    notifier: TaskNotifier,
    run: RunId,
    receiver: Option<broadcast::Receiver<TaskId>>,
}

impl TaskNotifier {
    pub fn sender(&self, run: RunId, task: TaskId) -> TaskNotificationSender {
        TaskNotificationSender {
            notifier: self.clone(),
            run,
            task,
        }
    }

    pub fn subscribe(&self, run: RunId) -> TaskNotificationReceiver {
        let receiver = match self.0.lock().entry(run.clone()) {
            Entry::Occupied(channel) => channel.get().subscribe(),
            Entry::Vacant(place) => {
                let (channel, receiver) = broadcast::channel(NOTIFICATIONS_BUFFERED_MAX);
                place.insert(channel);
                receiver
            }
        };
        TaskNotificationReceiver {
            notifier: self.clone(),
            run,
            receiver: Some(receiver),
        }
    }

    pub fn followed_runs(&self) -> usize {
        self.0.lock().len()
    }
}

impl TaskNotificationSender {
    /// Notifies the followers that the task has changed.
    pub fn notify(&self) {
        if let Some(channel) = self.notifier.0.lock().get(&self.run) {
            // The last follower may have unsubscribed in between.
            let _ = channel.send(self.task.clone());
        }
    }
}

/// Notifies when the work on a task ends in any way.
impl Drop for TaskNotificationSender {
    fn drop(&mut self) {
        self.notify();
    }
}

impl TaskNotificationReceiver {
    /// Waits for a notification and returns the changed task. `None` if notifications were missed
    /// and any task may have changed.
    pub async fn recv(&mut self) -> Option<TaskId> {
        match &mut self.receiver {
            Some(receiver) => match receiver.recv().await {
                Ok(task) => Some(task),
                Err(broadcast::error::RecvError::Lagged(_)) => None,
                // The channel lives as long as it has a receiver.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }
}

impl Drop for TaskNotificationReceiver {
    fn drop(&mut self) {
        self.receiver = None;
        let mut runs = self.notifier.0.lock();
        if runs
            .get(&self.run)
            .is_some_and(|channel| channel.receiver_count() == 0)
        {
            runs.remove(&self.run);
        }
    }
}
