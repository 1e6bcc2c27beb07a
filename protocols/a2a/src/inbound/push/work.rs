//! The work on one configuration: follows a task, has its events posted, and keeps how far it came.

use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{AuditEntry, NoteError, Task};
use futures::StreamExt;
use tokio::time::sleep;
use url::Url;

use super::config::Kept;
use super::desk::{Desk, PUSH_DROPPED_IN_A_ROW_MAX, unkept};
use super::sender::Sent;
use crate::inbound::calls::Numbered;
use crate::wire::Wire;
use crate::{A2aError, Dialect, ErrorKind};

/// How long a worker waits when the store can't tell what happened.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The work on one configuration.
pub(super) struct Work<'a> {
    pub(super) desk: &'a Desk,
    pub(super) key: &'a str,
    pub(super) kept: Kept,
    /// Of the note, as far as this knows.
    pub(super) version: u64,
}

impl Work<'_> {
    /// Posts events until the task has ended, or the configuration is another or gone.
    pub(super) async fn run(mut self, task: Arc<Task>) {
        let mut dropped_in_a_row = 0;
        let mut task = task;
        loop {
            let Ok(mut events) = self.desk.calls.follow(&task, self.kept.delivered).await else {
                sleep(AGAIN_AFTER).await;
                continue;
            };
            loop {
                let event = match events.next().await {
                    None => return,
                    Some(Ok(event)) => event,
                    Some(Err(_)) => break,
                };
                let Ok(body) = self.body(&task, &event).await else { break };
                let Some(sender) = &self.desk.sender else { return };
                match sender.send(&self.kept.config, self.kept.dialect, &body).await {
                    Sent::Delivered => dropped_in_a_row = 0,
                    Sent::Gone => {
                        let _ = self.desk.notes.remove(&self.desk.space, self.key).await;
                        return;
                    }
                    Sent::Dropped(why) => {
                        dropped_in_a_row += 1;
                        self.note_dropped(&task, event.number, why);
                    }
                }
                self.kept.given_up = dropped_in_a_row >= PUSH_DROPPED_IN_A_ROW_MAX;
                if !self.keep(event.number).await || self.kept.given_up {
                    return;
                }
            }
            // The store couldn't tell what happened next.
            sleep(AGAIN_AFTER).await;
            match self.desk.tasks.get(&task.id).await {
                Ok(Some(now)) => task = now,
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    /// What is posted: 1.0's receivers get the event, those of older versions the task.
    async fn body(&self, task: &Task, event: &Numbered) -> Result<String, A2aError> {
        if self.kept.dialect == Dialect::V10 {
            return Ok(event.event.to_json());
        }
        let gone = || A2aError::new(ErrorKind::TaskNotFound, "the task is gone");
        let now = self.desk.tasks.get(&task.id).await.map_err(unkept)?.ok_or_else(gone)?;
        let seen = self.desk.calls.seen(&now).await?;
        Ok(self.kept.dialect.write_task(&seen).get().to_owned())
    }

    /// Keeps how far it came. Whether it may go on: nobody put another configuration there, or took it away.
    async fn keep(&mut self, number: u64) -> bool {
        self.kept.delivered = number;
        let (notes, space) = (&self.desk.notes, &self.desk.space);
        match notes.put(space, self.key, self.kept.to_body(), Some(self.version)).await {
            Ok(version) => {
                self.version = version;
                true
            }
            Err(NoteError::Changed { .. }) => false,
            Err(error) => {
                // After a restart it would come once more: a receiver must be ready for that.
                callboard_message::log::warn!(%error, "it wasn't kept that a push notification arrived");
                true
            }
        }
    }

    fn note_dropped(&self, task: &Task, event: u64, why: &'static str) {
        let url = Url::parse(&self.kept.config.url).ok();
        let receiver = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let entry = AuditEntry::new("a2a.push_dropped").with_agent(&task.agent).with_peer(receiver);
        let entry = entry.with_principal(&task.principal).with_class(task.class).with_outcome(why);
        self.desk.audit.note(entry.with("task", task.id.as_str()).with("event", event));
    }
}
