//! One call of ours, as a task of a remote agent: what is said, what is heard, what is asked, until it ends.

use std::time::Duration;

use callboard_message::{Artifact, Failure, FailureKind, Progress};
use callboard_runtime::{Backoff, Caller};
use futures::future::BoxFuture;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::bindings::Events;
use super::error::PeerError;
use super::options::{HISTORY_MESSAGES_MAX, RESUME_PAUSE, RESUMES_MAX, ROUNDS_MAX};
use super::peer::Peer;
use super::push::Expected;
use super::questions::Asked;
use super::story::{News, Story};
use crate::ErrorKind;
use crate::convert::content_of;
use crate::wire::{
    GetTaskRequest, Message, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    StreamResponse, TaskPushNotificationConfig,
};

/// What is said first.
pub(super) struct Opening {
    pub(super) message: Message,
    /// A question that nobody here answers leaves the task as it is, for somebody to answer later.
    pub(super) keeps: bool,
}

/// Why a conversation doesn't go on.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// See what the agent, or its connection, says.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// See what whoever was asked says.
    #[error(transparent)]
    Failed(Failure),
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Peer(error) => error.into(),
            Stopped::Failed(failure) => failure,
        }
    }
}

/// Hears every event that is news.
type Tap<'a> = &'a (dyn Fn(&StreamResponse) + Sync);

/// Says `opening` and stays until there is an answer, or the task's end; whoever called is told and asked meanwhile.
///
/// # Errors
/// See [`Stopped`].
pub(super) async fn converse(
    peer: &Peer,
    caller: Option<&dyn Caller>,
    opening: Opening,
) -> Result<Story, Stopped> {
    let mut talk = Talk::of(peer, caller, &opening.message, &|_| {}).await?;
    talk.through(opening).await?;
    Ok(talk.story)
}

impl Peer {
    /// Says something and stays until there is an answer, the task's end, or a question that nobody answers; `caller` is told
    /// and asked meanwhile, and `heard` each event that is news.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub async fn converse(
        &self,
        message: Message,
        caller: &dyn Caller,
        heard: &(dyn Fn(&StreamResponse) + Sync),
    ) -> Result<SendMessageResponse, Stopped> {
        let mut talk = Talk::of(self, Some(caller), &message, heard).await?;
        match talk
            .through(Opening {
                message,
                keeps: true,
            })
            .await
        {
            Err(Stopped::Failed(failure))
                if failure.kind == FailureKind::NobodyToAsk && talk.story.is_paused() => {}
            other => other?,
        }
        Ok(talk.story.into_response())
    }

    /// Hears what happens to a task until there is nothing to wait for; as [`converse`](Self::converse).
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn follow(
        &self,
        task: &str,
        caller: &dyn Caller,
        heard: &(dyn Fn(&StreamResponse) + Sync),
    ) -> Result<SendMessageResponse, PeerError> {
        let message = Message {
            task_id: task.to_owned(),
            ..Message::default()
        };
        let mut talk = Talk::of(self, Some(caller), &message, heard).await?;
        talk.keeps = true;
        match self.subscribe(task, None).await {
            Ok(events) => talk.listen(events, None).await?,
            Err(error) if error.is_unsupported() => talk.watch().await?,
            Err(error) => return Err(error),
        }
        talk.hear_history().await;
        Ok(talk.story.into_response())
    }
}

struct Talk<'a> {
    peer: &'a Peer,
    caller: Option<&'a dyn Caller>,
    heard: Tap<'a>,
    story: Story,
    /// The agent streams, as far as is known.
    streams: bool,
    pushes: bool,
    /// Reports of progress so far.
    told: u32,
    /// Something may have been missed: the task itself says how it ended.
    gap: bool,
    /// The task has been looked at: what was said between two looks is in its history alone.
    polled: bool,
    /// The task is left alone when nobody waits for it any more.
    keeps: bool,
    unfinished: Unfinished,
}

impl<'a> Talk<'a> {
    async fn of(
        peer: &'a Peer,
        caller: Option<&'a dyn Caller>,
        message: &Message,
        heard: Tap<'a>,
    ) -> Result<Self, PeerError> {
        let card = peer.card().await?;
        Ok(Self {
            peer,
            caller,
            heard,
            story: Story::of(&message.task_id, &message.context_id),
            streams: card.capabilities.streaming == Some(true),
            pushes: card.capabilities.push_notifications == Some(true),
            told: 0,
            gap: false,
            polled: false,
            keeps: false,
            unfinished: Unfinished {
                peer: peer.clone(),
                task: None,
                beginning: None,
            },
        })
    }

    async fn through(&mut self, opening: Opening) -> Result<(), Stopped> {
        let Opening { mut message, keeps } = opening;
        for _ in 0..=ROUNDS_MAX {
            self.say(message).await?;
            if !self.story.is_paused() || self.story.message.is_some() {
                self.end().await;
                return Ok(());
            }
            let asked = Asked::of(&self.story);
            let answered = match self.caller {
                Some(caller) => caller.ask(asked.question.clone()).await,
                None => Err(Failure::nobody_to_ask("nobody to ask")),
            };
            let answer = match answered {
                Ok(answer) => answer,
                Err(failure) if failure.kind == FailureKind::NobodyToAsk => {
                    if keeps {
                        self.unfinished.task = None;
                    }
                    return Err(Stopped::Failed(failure.with_data(self.story.place())));
                }
                Err(failure) => return Err(Stopped::Failed(failure)),
            };
            message = asked.reply(answer, &self.story).map_err(Stopped::Failed)?;
            self.story.answer();
        }
        let why = format!("the agent asked more than {ROUNDS_MAX} times");
        Err(Stopped::Failed(
            Failure::rejected(why).with_data(self.story.place()),
        ))
    }

    /// Says something, and listens until there is nothing to wait for.
    async fn say(&mut self, message: Message) -> Result<(), PeerError> {
        let mut request = SendMessageRequest {
            message,
            ..SendMessageRequest::default()
        };
        if self.streams {
            match self.begin(request.clone()).await {
                Ok((events, first)) => return self.listen(events, first).await,
                Err(error) if error.is_unsupported() => self.streams = false,
                Err(error) => return Err(error),
            }
        }
        request.configuration = Some(SendMessageConfiguration {
            history_length: Some(HISTORY_MESSAGES_MAX),
            ..Default::default()
        });
        if request.message.task_id.is_empty() && self.peer.names_tasks().await {
            // So it can be ended before there is an answer.
            let id = Uuid::new_v4().to_string();
            self.unfinished.task = Some(id.clone());
            request.message.task_id = id;
        }
        match self.peer.send(request).await {
            Ok(response) => drop(self.hear(response.into(), false)?),
            // A proxy gave up waiting; the task is known from an earlier round.
            Err(error) if error.is_lost() && !self.story.task.is_empty() => {}
            Err(error) => {
                if !error.is_lost() {
                    self.unfinished.follow(&self.story);
                }
                return Err(error);
            }
        }
        self.watch().await
    }

    /// Opens a stream, and hears its first event.
    async fn begin(&mut self, request: SendMessageRequest) -> Result<Begun, PeerError> {
        let peer = self.peer.clone();
        let beginning = self.unfinished.beginning.insert(Box::pin(async move {
            let mut events = peer.stream(request).await?;
            let first = events.next().await?;
            Ok((events, first))
        }));
        let begun = beginning.await;
        self.unfinished.beginning = None;
        begun
    }

    /// Takes in an event, and tells whoever called. Whether there was anything new.
    fn hear(&mut self, event: StreamResponse, resumed: bool) -> Result<bool, PeerError> {
        let Some(news) = self.story.hear(&event, resumed)? else {
            return Ok(false);
        };
        (self.heard)(&event);
        self.tell(news);
        Ok(true)
    }

    fn tell(&mut self, news: Vec<News>) {
        if !self.keeps {
            self.unfinished.follow(&self.story);
        }
        for news in news {
            match news {
                News::Said(text) => self.progress(text),
                News::Artifact {
                    artifact,
                    append,
                    last,
                } => {
                    let mut told =
                        Artifact::new(&artifact.artifact_id, content_of(&artifact.parts)).0;
                    for (name, value) in [
                        ("name", &artifact.name),
                        ("description", &artifact.description),
                    ] {
                        if !value.is_empty() {
                            told.set(name, value);
                        }
                    }
                    told.set_some("metadata", &artifact.metadata);
                    if append || last {
                        told = told.with("append", append).with("last", last);
                    }
                    if let Some(caller) = self.caller {
                        caller.artifact(Artifact(told));
                    }
                }
            }
        }
    }

    fn progress(&mut self, text: String) {
        self.told += 1;
        if let Some(caller) = self.caller {
            caller.progress(Progress {
                done: f64::from(self.told),
                total: None,
                message: Some(text),
            });
        }
    }

    /// What is left to hear once the task has ended.
    async fn end(&mut self) {
        // What an agent without numbers said while nobody listened is in the task.
        if self.gap && !self.story.task.is_empty() && self.look().await.is_err() {
            callboard_message::log::debug!("an ended task can't be looked at");
        }
        self.hear_history().await;
        // Beside artifacts, which have been given already, a last word would be lost.
        let last_word = self
            .story
            .said
            .as_ref()
            .filter(|_| !self.story.artifacts.is_empty())
            .map(Message::text);
        if let Some(text) = last_word.filter(|text| !text.is_empty()) {
            self.progress(text);
        }
    }
}

/// How often in a row a task may be looked at in vain before the agent counts as away.
const LOOKS_IN_VAIN_MAX: u32 = 10;

impl Talk<'_> {
    /// Follows a stream, of which the first event may have come, taking it up again where it breaks off, until there is
    /// nothing to wait for.
    async fn listen(
        &mut self,
        events: Events,
        first: Option<StreamResponse>,
    ) -> Result<(), PeerError> {
        if let Some(first) = first {
            self.hear(first, false)?;
            if self.story.is_settled() {
                return Ok(());
            }
        }
        let (mut stream, mut place, mut resumed, mut tries) =
            (Some(events), None::<String>, false, 0);
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
            if stream.take().is_some()
                && place.is_none()
                && self.look().await.is_ok()
                && self.story.is_settled()
            {
                return Ok(());
            }
            if tries == RESUMES_MAX {
                return self.watch().await;
            }
            if tries > 0 {
                sleep(pause(RESUME_PAUSE, tries - 1)).await;
            }
            tries += 1;
            match self
                .peer
                .subscribe(&self.story.task, place.as_deref())
                .await
            {
                Ok(events) => {
                    resumed = place.is_some();
                    self.gap |= !resumed || !self.story.is_numbered();
                    stream = Some(events);
                }
                // It may have ended meanwhile; or it can't be followed.
                Err(error)
                    if error.is_unsupported() || error.kind() == Some(ErrorKind::TaskNotFound) =>
                {
                    return self.watch().await;
                }
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks for the task with at most the last `messages_max` messages.
    fn request(&self, messages_max: i32) -> GetTaskRequest {
        let (id, history_length) = (self.story.task.clone(), Some(messages_max));
        GetTaskRequest {
            id,
            history_length,
            ..GetTaskRequest::default()
        }
    }

    /// Looks at the task.
    async fn look(&mut self) -> Result<(), PeerError> {
        let task = self.peer.get(self.request(0)).await?;
        self.polled = true;
        if let Some(news) = self.story.adopt(&task)? {
            (self.heard)(&StreamResponse::Task(task));
            self.tell(news);
        }
        Ok(())
    }

    /// Looks at what the agent said, where that may be the answer and may have been missed.
    async fn hear_history(&mut self) {
        if !self.polled || self.story.task.is_empty() || !self.story.ended_without_answer() {
            return;
        }
        let heard = self.peer.get(self.request(HISTORY_MESSAGES_MAX)).await;
        let heard = heard.and_then(|task| self.story.hear_history(&task));
        if let Err(error) = heard {
            callboard_message::log::debug!(%error, "the history of a remote agent's task can't be had");
        }
    }

    /// Looks at the task again and again, until there is nothing to wait for.
    async fn watch(&mut self) -> Result<(), PeerError> {
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
    Backoff {
        first,
        max,
        jitter: 0.5,
    }
    .pause(times)
}

/// A task that hasn't ended: dropped with it, the agent is told that nobody waits any more.
struct Unfinished {
    peer: Peer,
    task: Option<String>,
    /// A stream that hasn't said yet which task it is of.
    beginning: Option<BoxFuture<'static, Result<Begun, PeerError>>>,
}

/// A stream and its first event.
type Begun = (Events, Option<StreamResponse>);

impl Unfinished {
    fn follow(&mut self, story: &Story) {
        let is_open = !story.has_ended() && story.message.is_none() && !story.task.is_empty();
        self.task = is_open.then(|| story.task.clone());
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let (task, beginning, peer) = (self.task.take(), self.beginning.take(), self.peer.clone());
        if task.is_none() && beginning.is_none() {
            return;
        }
        self.peer.leave(async move {
            let begun = async { story_of(beginning?.await.ok()?.1?).filter(|story| !story.has_ended()) };
            let task = match task {
                Some(task) => task,
                None => match begun.await {
                    Some(story) => story.task,
                    None => return,
                },
            };
            if let Err(error) = peer.cancel(&task).await {
                callboard_message::log::debug!(%error, "a remote agent isn't told of a cancelled call");
            }
        });
    }
}

fn story_of(event: StreamResponse) -> Option<Story> {
    let mut story = Story::default();
    story.hear(&event, false).ok()?;
    (!story.task.is_empty() && story.message.is_none()).then_some(story)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: pauses double up to their bound. Method: the first, one on the way, far past it.
    #[test]
    fn pauses_double() {
        let pauses = (Duration::from_millis(100), Duration::from_secs(5));
        for (times, most) in [(0, 100), (1, 200), (5, 3_200), (6, 5_000), (100, 5_000)] {
            assert!(
                (0..100).all(|_| (most / 2..=most).contains(&pause(pauses, times).as_millis())),
                "{times}"
            );
        }
    }
}
