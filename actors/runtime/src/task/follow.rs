use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, try_unfold};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{TaskEvent, TaskId, Tasks};
use crate::journal::JournalError;

/// How often [`follow`] looks where nothing in this process says that there is something new: another node may write.
pub(crate) const FOLLOW_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it waits between looks while others' tasks change, and its own doesn't: many follow, and each change wakes all.
const PAUSE_AFTER_VAIN_LOOK: Duration = Duration::from_millis(20);
/// Events that it reads at once.
const EVENTS_READ_MAX: usize = 100;

struct Follower {
    tasks: Arc<dyn Tasks>,
    id: TaskId,
    after: u64,
    read: VecDeque<TaskEvent>,
    changes: watch::Receiver<u64>,
    /// It was woken, and there was nothing new.
    in_vain: bool,
}

/// The events of a task whose number is over `after`: none is missed, and none comes twice. It ends after the task's end, and
/// where there is no such task (any more).
pub fn follow(tasks: Arc<dyn Tasks>, id: TaskId, after: u64) -> BoxStream<'static, Result<TaskEvent, JournalError>> {
    let changes = tasks.changes();
    let follower = Follower { tasks, id, after, read: VecDeque::new(), changes, in_vain: false };
    try_unfold(follower, |mut follower| async move { Ok(follower.next().await?.map(|event| (event, follower))) })
        .boxed()
}

impl Follower {
    async fn next(&mut self) -> Result<Option<TaskEvent>, JournalError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.after = event.number;
                self.in_vain = false;
                return Ok(Some(event));
            }
            // Marked as seen before the look: what comes after it wakes.
            self.changes.mark_unchanged();
            self.look().await?;
            if !self.read.is_empty() {
                continue;
            }
            match self.tasks.get(&self.id).await? {
                None => return Ok(None),
                Some(task) if task.state.is_terminal() => {
                    // Its last events may have been kept between the two looks.
                    self.look().await?;
                    if self.read.is_empty() {
                        return Ok(None);
                    }
                }
                Some(_) => {
                    self.wait().await;
                    self.in_vain = true;
                }
            }
        }
    }

    async fn look(&mut self) -> Result<(), JournalError> {
        self.read = self.tasks.events(&self.id, self.after, EVENTS_READ_MAX).await?.into();
        Ok(())
    }

    async fn wait(&mut self) {
        match timeout(FOLLOW_LOOK_EVERY, self.changes.changed()).await {
            Ok(Ok(())) if self.in_vain => sleep(PAUSE_AFTER_VAIN_LOOK).await,
            // Nobody tells any more.
            Ok(Err(_)) => sleep(FOLLOW_LOOK_EVERY).await,
            Ok(Ok(())) | Err(_) => {}
        }
    }
}
