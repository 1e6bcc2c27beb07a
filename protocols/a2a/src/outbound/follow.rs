//! Following a task: by its stream, taken up again where it breaks off; else by looking at it.

use std::time::Duration;

use callboard_runtime::Backoff;
use tokio::time::{sleep, timeout};

use super::conversation::Talk;
use super::error::PeerError;
use super::options::{HISTORY_MESSAGES_MAX, RESUME_PAUSE, RESUMES_MAX};
use super::push::Expected;
use super::stream::Events;
use crate::wire::{GetTaskRequest, StreamResponse, TaskPushNotificationConfig};

/// How often in a row a task may be looked at in vain before the agent counts as away.
const LOOKS_IN_VAIN_MAX: u32 = 10;

impl Talk<'_> {
    /// Follows a stream of which the first event has come.
    pub(super) async fn listen_from(&mut self, events: Events, first: Option<StreamResponse>) -> Result<(), PeerError> {
        if let Some(first) = first {
            self.hear(first, false)?;
            if self.story.is_settled() {
                return Ok(());
            }
        }
        self.listen(events).await
    }

    /// Follows a stream, taking it up again where it breaks off, until there is nothing to wait for.
    pub(super) async fn listen(&mut self, events: Events) -> Result<(), PeerError> {
        let (mut stream, mut place, mut resumed, mut tries) = (Some(events), None::<String>, false, 0);
        loop {
            if let Some(events) = &mut stream {
                let next = events.next().await?;
                place = events.last_event_id().map(str::to_owned).or(place);
                if let Some(event) = next {
                    if self.hear(event, resumed)? {
                        tries = 0;
                    }
                    if self.story.is_settled() {
                        return Ok(());
                    }
                    continue;
                }
            }
            if self.story.task.is_empty() {
                return Err(PeerError::Broken);
            }
            // Without a place to go on from, the task itself says what was missed.
            if stream.take().is_some() && place.is_none() && self.look().await.is_ok() && self.story.is_settled() {
                return Ok(());
            }
            if tries == RESUMES_MAX {
                return self.watch().await;
            }
            if tries > 0 {
                sleep(pause(RESUME_PAUSE, tries - 1)).await;
            }
            tries += 1;
            match self.peer.subscribe(&self.story.task, place.as_deref()).await {
                Ok(events) => {
                    resumed = place.is_some();
                    self.gap |= !resumed || !self.story.is_numbered();
                    stream = Some(events);
                }
                // It may have ended meanwhile; or it can't be followed.
                Err(error) if error.is_unsupported() || error.is_of_unknown_task() => return self.watch().await,
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks at the task.
    pub(super) async fn look(&mut self) -> Result<(), PeerError> {
        let request =
            GetTaskRequest { id: self.story.task.clone(), history_length: Some(0), ..GetTaskRequest::default() };
        let task = self.peer.get(request).await?;
        self.polled = true;
        if let Some(news) = self.story.adopt(&task)? {
            (self.heard)(&StreamResponse::Task(task));
            self.tell(news);
        }
        Ok(())
    }

    /// Looks at what the agent said, where that may be the answer and may have been missed.
    pub(super) async fn hear_history(&mut self) {
        if !self.polled || self.story.task.is_empty() || !self.story.ended_without_answer() {
            return;
        }
        let request = GetTaskRequest {
            id: self.story.task.clone(),
            history_length: Some(HISTORY_MESSAGES_MAX),
            ..GetTaskRequest::default()
        };
        let heard = self.peer.get(request).await.and_then(|task| self.story.hear_history(&task));
        if let Err(error) = heard {
            callboard_message::log::debug!(%error, "the history of a remote agent's task can't be had");
        }
    }

    /// Looks at the task again and again, until there is nothing to wait for.
    pub(super) async fn watch(&mut self) -> Result<(), PeerError> {
        let pushed = self.have_pushed().await;
        let (mut looks, mut in_vain) = (0, 0);
        while !self.story.is_settled() {
            if self.story.task.is_empty() {
                return Err(PeerError::Protocol("the agent's task has no id".into()));
            }
            if looks > 0 {
                let pause = pause(self.peer.options().poll, looks - 1);
                match &pushed {
                    Some(pushed) => drop(timeout(pause, pushed.arrived()).await),
                    None => sleep(pause).await,
                }
            }
            looks += 1;
            match self.look().await {
                Ok(()) => in_vain = 0,
                Err(error) if error.is_lost() && in_vain < LOOKS_IN_VAIN_MAX => in_vain += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has the agent push what happens, where both sides can: a push only says that it is time to look.
    async fn have_pushed(&mut self) -> Option<Expected> {
        if !self.pushes || self.story.is_settled() || self.story.task.is_empty() {
            return None;
        }
        let expected = self.peer.options().push.as_ref()?.expect()?;
        let config = TaskPushNotificationConfig {
            task_id: self.story.task.clone(),
            url: expected.url.to_string(),
            token: expected.token.clone(),
            ..TaskPushNotificationConfig::default()
        };
        match self.peer.push(config).await {
            Ok(()) => Some(expected),
            Err(error) => {
                callboard_message::log::debug!(%error, "a remote agent doesn't push");
                None
            }
        }
    }
}

/// The first pause, doubled `times` times, within the longest; half of it random.
fn pause((first, max): (Duration, Duration), times: u32) -> Duration {
    Backoff { first, max, jitter: 0.5 }.pause(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pauses double up to their bound. Method: the first, one on the way, far past it.
    #[test]
    fn pauses_double() {
        let pauses = (Duration::from_millis(100), Duration::from_secs(5));
        for (times, most) in [(0, 100), (1, 200), (5, 3_200), (6, 5_000), (100, 5_000)] {
            assert!((0..100).all(|_| (most / 2..=most).contains(&pause(pauses, times).as_millis())), "{times}");
        }
    }
}
