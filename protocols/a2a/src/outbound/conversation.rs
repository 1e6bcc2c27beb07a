//! A call of a remote agent from first message to result: sends messages, follows the task, and
//! passes questions to the caller.

use std::time::Duration;

use callboard_message::{Artifact, Failure, FailureKind, Progress};
use callboard_runtime::{Backoff, Caller};
use futures::future::BoxFuture;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::bindings::RemoteEventStream;
use super::client::A2aClient;
use super::conversation_request::ConversationRequest;
use super::error::A2aClientError;
use super::options::{
    HISTORY_MESSAGES_MAX, QUESTION_ROUNDS_MAX, STREAM_RESUME_DELAY, STREAM_RESUMES_MAX,
};
use super::push::ExpectedPush;
use super::questions::RemoteQuestion;
use super::remote_contexts::ContextBinding;
use super::task_state::{RemoteTaskState, TaskUpdate};
use crate::ErrorKind;
use crate::convert::parts_to_content;
use crate::wire::{
    A2aMessage, GetTaskRequest, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    StreamResponse, TaskPushNotificationConfig,
};

/// Reason why a conversation ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// The request to the remote agent failed.
    #[error(transparent)]
    Client(#[from] A2aClientError),
    /// The caller couldn't answer a question or refused to, or the agent asked too often.
    #[error(transparent)]
    Failed(Failure),
}

impl From<ConversationError> for Failure {
    fn from(stopped: ConversationError) -> Self {
        match stopped {
            ConversationError::Client(error) => error.into(),
            ConversationError::Failed(failure) => failure,
        }
    }
}

/// Callback that is called with every new event.
type EventObserver<'a> = &'a (dyn Fn(&StreamResponse) + Sync);

/// Holds a conversation with the remote agent: sends `opening`, and waits for a direct reply or the
/// end of the task. Questions of the agent are put to `caller`; progress and artifacts are reported
/// to it.
///
/// # Errors
/// [`ConversationError`].
pub(super) async fn converse(
    client: &A2aClient,
    caller: Option<&dyn Caller>,
    opening: ConversationRequest,
) -> Result<RemoteTaskState, ConversationError> {
    let mut conversation = Conversation::open(client, caller, &opening.message, &|_| {}).await?;
    conversation.run(opening).await?;
    Ok(conversation.state)
}

impl A2aClient {
    /// Sends a message and waits for a direct reply, the end of the task, or a question that
    /// `caller` can't answer. Questions of the agent are put to `caller`; progress and artifacts
    /// are reported to it. `observer` is called with each new event.
    ///
    /// # Errors
    /// [`ConversationError`] if a request fails or `caller` refuses to answer.
    pub async fn converse(
        &self,
        message: A2aMessage,
        caller: &dyn Caller,
        observer: &(dyn Fn(&StreamResponse) + Sync),
    ) -> Result<SendMessageResponse, ConversationError> {
        let mut conversation = Conversation::open(self, Some(caller), &message, observer).await?;
        match conversation
            .run(ConversationRequest {
                message,
                keeps_task: true,
                ..ConversationRequest::default()
            })
            .await
        {
            Err(ConversationError::Failed(failure))
                if failure.kind == FailureKind::NoResponder && conversation.state.is_paused() => {}
            other => other?,
        }
        Ok(conversation.state.into_response())
    }

    /// Follows an existing task until it has ended or has a question, and returns its state.
    /// Progress and artifacts are reported to `caller`; `observer` is called with each new event.
    /// Dropping the future doesn't cancel the task.
    ///
    /// # Errors
    /// [`A2aClientError`] if a request fails.
    pub async fn follow(
        &self,
        task: &str,
        caller: &dyn Caller,
        observer: &(dyn Fn(&StreamResponse) + Sync),
    ) -> Result<SendMessageResponse, A2aClientError> {
        let message = A2aMessage {
            task_id: task.to_owned(),
            ..A2aMessage::default()
        };
        let mut conversation = Conversation::open(self, Some(caller), &message, observer).await?;
        conversation.keeps_task = true;
        match self.subscribe(task, None).await {
            Ok(events) => conversation.follow_stream(events, None).await?,
            Err(error) if error.is_unsupported() => conversation.poll_until_settled().await?,
            Err(error) => return Err(error),
        }
        conversation.load_missed().await;
        conversation.load_history().await;
        Ok(conversation.state.into_response())
    }
}

struct Conversation<'a> {
    client: &'a A2aClient,
    caller: Option<&'a dyn Caller>,
    observer: EventObserver<'a>,
    state: RemoteTaskState,
    /// Whether the agent supports streaming: as its card says, until it rejects a stream.
    supports_streaming: bool,
    supports_push: bool,
    /// Number of progress reports so far.
    progress_count: u32,
    /// Whether events may have been missed. Then the final state is read by polling the task.
    may_have_missed: bool,
    /// Whether the task has been polled. Messages of the agent between two polls appear only in the
    /// task's history.
    polled: bool,
    /// Whether the task keeps running when the conversation is dropped. Otherwise it is cancelled.
    keeps_task: bool,
    cancel_guard: CancelTaskOnDrop,
}

impl<'a> Conversation<'a> {
    async fn open(
        client: &'a A2aClient,
        caller: Option<&'a dyn Caller>,
        message: &A2aMessage,
        observer: EventObserver<'a>,
    ) -> Result<Self, A2aClientError> {
        let card = client.card().await?;
        Ok(Self {
            client,
            caller,
            observer,
            state: RemoteTaskState::for_task(&message.task_id, &message.context_id),
            supports_streaming: card.capabilities.streaming == Some(true),
            supports_push: card.capabilities.push_notifications == Some(true),
            progress_count: 0,
            may_have_missed: false,
            polled: false,
            keeps_task: false,
            cancel_guard: CancelTaskOnDrop {
                client: client.clone(),
                task: None,
                opening: None,
            },
        })
    }

    async fn run(&mut self, opening: ConversationRequest) -> Result<(), ConversationError> {
        let (keeps, binding) = (opening.keeps_task, opening.binding);
        let mut request = SendMessageRequest {
            message: opening.message,
            metadata: opening.metadata,
            ..SendMessageRequest::default()
        };
        for _ in 0..=QUESTION_ROUNDS_MAX {
            self.send_bound(request, binding.as_ref()).await?;
            if !self.state.is_paused() || self.state.direct_reply.is_some() {
                self.finish().await;
                return Ok(());
            }
            let asked = RemoteQuestion::from_task(&self.state);
            let answered = match self.caller {
                Some(caller) => caller.ask(asked.question.clone()).await,
                None => Err(Failure::no_responder(
                    "nobody can answer the question: call from a client that supports such questions",
                )),
            };
            let answer = match answered {
                Ok(answer) => answer,
                Err(failure) if failure.kind == FailureKind::NoResponder => {
                    if keeps {
                        self.cancel_guard.task = None;
                    }
                    return Err(ConversationError::Failed(
                        failure.with_data(self.state.task_reference()),
                    ));
                }
                Err(failure) => return Err(ConversationError::Failed(failure)),
            };
            let message = asked.reply_message(answer, &self.state);
            request = SendMessageRequest {
                message: message.map_err(ConversationError::Failed)?,
                ..SendMessageRequest::default()
            };
            self.state.mark_answered();
        }
        let why = format!("the agent asked more than {QUESTION_ROUNDS_MAX} times in one call");
        Err(ConversationError::Failed(
            Failure::rejected(why).with_data(self.state.task_reference()),
        ))
    }

    /// Sends a message as [`Self::send_message`] does, and remembers the agent's id of the
    /// conversation in `binding`. If the agent refuses the id of a new task's message, the message
    /// is sent once more without it.
    async fn send_bound(
        &mut self,
        request: SendMessageRequest,
        binding: Option<&ContextBinding>,
    ) -> Result<(), A2aClientError> {
        let Some(binding) = binding else {
            return self.send_message(request).await;
        };
        let again = request.message.task_id.is_empty().then(|| {
            let mut again = request.clone();
            again.message.context_id.clear();
            again
        });
        match (self.send_message(request).await, again) {
            (Err(error), Some(again))
                if error.may_refuse_context() && self.state.task_id.is_empty() =>
            {
                self.state = RemoteTaskState::default();
                self.cancel_guard.task = None;
                self.send_message(again).await?;
                // Not before: the agent may have refused something else in the message.
                binding.forget();
            }
            (sent, _) => sent?,
        }
        binding.learn(&self.state.context_id);
        Ok(())
    }

    /// Sends a message and follows the task until it is settled: ended, paused or answered
    /// directly.
    async fn send_message(
        &mut self,
        mut request: SendMessageRequest,
    ) -> Result<(), A2aClientError> {
        if self.supports_streaming {
            match self.open_stream(request.clone()).await {
                Ok((events, first)) => return self.follow_stream(events, first).await,
                Err(error) if error.is_unsupported() => self.supports_streaming = false,
                Err(error) => return Err(error),
            }
        }
        request.configuration = Some(SendMessageConfiguration {
            history_length: Some(HISTORY_MESSAGES_MAX),
            ..Default::default()
        });
        if request.message.task_id.is_empty() && self.client.assigns_task_ids().await {
            // With an id of our own the task can be cancelled before there is a response.
            let id = Uuid::new_v4().to_string();
            self.cancel_guard.task = Some(id.clone());
            request.message.task_id = id;
        }
        match self.client.send(request).await {
            Ok(response) => drop(self.handle_event(response.into(), false)?),
            // For example, a proxy timed out. The task is known from an earlier round.
            Err(error) if error.is_response_lost() && !self.state.task_id.is_empty() => {}
            Err(error) => {
                if !error.is_response_lost() {
                    self.cancel_guard.track_task(&self.state);
                }
                return Err(error);
            }
        }
        self.poll_until_settled().await
    }

    /// Sends a message as a stream request, and waits for the first event of the stream.
    async fn open_stream(
        &mut self,
        request: SendMessageRequest,
    ) -> Result<OpenedStream, A2aClientError> {
        let client = self.client.clone();
        let beginning = self.cancel_guard.opening.insert(Box::pin(async move {
            let mut events = client.stream(request).await?;
            let first = events.next().await?;
            Ok((events, first))
        }));
        let begun = beginning.await;
        self.cancel_guard.opening = None;
        begun
    }

    /// Applies an event to the conversation's state and reports its changes to the caller. Returns
    /// whether the event was new. `resumed` tells that the stream continues an earlier one.
    fn handle_event(
        &mut self,
        event: StreamResponse,
        resumed: bool,
    ) -> Result<bool, A2aClientError> {
        let Some(news) = self.state.apply_event(&event, resumed)? else {
            return Ok(false);
        };
        (self.observer)(&event);
        self.report_updates(news);
        Ok(true)
    }

    fn report_updates(&mut self, news: Vec<TaskUpdate>) {
        if !self.keeps_task {
            self.cancel_guard.track_task(&self.state);
        }
        for news in news {
            match news {
                TaskUpdate::Progress(text) => self.report_progress(text),
                TaskUpdate::Artifact {
                    artifact,
                    append,
                    last,
                } => {
                    let mut told =
                        Artifact::new(&artifact.artifact_id, parts_to_content(&artifact.parts)).0;
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

    fn report_progress(&mut self, text: String) {
        self.progress_count += 1;
        if let Some(caller) = self.caller {
            caller.progress(Progress {
                done: f64::from(self.progress_count),
                total: None,
                message: Some(text),
            });
        }
    }

    /// Completes the state after the task has ended: reads events and messages that were missed.
    async fn finish(&mut self) {
        self.load_missed().await;
        self.load_history().await;
        // Artifacts have been reported already, so the last message would be lost beside them.
        let last_word = self
            .state
            .status_message
            .as_ref()
            .filter(|_| !self.state.artifacts.is_empty())
            .map(A2aMessage::text);
        if let Some(text) = last_word.filter(|text| !text.is_empty()) {
            self.report_progress(text);
        }
    }
}

/// Number of consecutive failed polls after which the agent counts as unreachable.
const POLL_FAILURES_MAX: u32 = 10;

impl Conversation<'_> {
    /// Follows a stream until the task is settled (ended, paused or answered directly), and resumes
    /// it after interruptions. `first` is the stream's first event, if it has been read.
    async fn follow_stream(
        &mut self,
        events: RemoteEventStream,
        first: Option<StreamResponse>,
    ) -> Result<(), A2aClientError> {
        if let Some(first) = first {
            self.handle_event(first, false)?;
            if self.state.is_settled() {
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
                    if self.handle_event(event, resumed)? {
                        tries = 0;
                    }
                    if self.state.is_settled() {
                        return Ok(());
                    }
                    continue;
                }
            }
            if self.state.task_id.is_empty() {
                return Err(A2aClientError::ConnectionBroken);
            }
            // Without a position to resume from, the task itself tells what was missed.
            if stream.take().is_some()
                && place.is_none()
                && self.poll_task().await.is_ok()
                && self.state.is_settled()
            {
                return Ok(());
            }
            if tries == STREAM_RESUMES_MAX {
                return self.poll_until_settled().await;
            }
            if tries > 0 {
                sleep(backoff_delay(STREAM_RESUME_DELAY, tries - 1)).await;
            }
            tries += 1;
            match self
                .client
                .subscribe(&self.state.task_id, place.as_deref())
                .await
            {
                Ok(events) => {
                    resumed = place.is_some();
                    self.may_have_missed |= !resumed || !self.state.has_event_numbers();
                    stream = Some(events);
                }
                // The task may have ended meanwhile, or can't be subscribed to.
                Err(error)
                    if error.is_unsupported() || error.kind() == Some(ErrorKind::TaskNotFound) =>
                {
                    return self.poll_until_settled().await;
                }
                Err(error) if error.is_response_lost() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the request that polls the task, with at most the latest `messages_max` messages of
    /// its history.
    fn get_task_request(&self, messages_max: i32) -> GetTaskRequest {
        let (id, history_length) = (self.state.task_id.clone(), Some(messages_max));
        GetTaskRequest {
            id,
            history_length,
            ..GetTaskRequest::default()
        }
    }

    /// Gets the task once, applies its current state and reports the changes to the caller.
    async fn poll_task(&mut self) -> Result<(), A2aClientError> {
        let task = self.client.get_task(self.get_task_request(0)).await?;
        self.polled = true;
        if let Some(news) = self.state.apply_task(&task)? {
            (self.observer)(&StreamResponse::Task(task));
            self.report_updates(news);
        }
        Ok(())
    }

    /// Reads the ended task if its events may lack something. Without event numbers, events that
    /// were missed can only be found in the task. An agent may also stream the states only, and
    /// keep in the task what it made.
    async fn load_missed(&mut self) {
        let is_silent = !self.polled && self.state.ended_in_silence();
        if (self.may_have_missed || is_silent)
            && !self.state.task_id.is_empty()
            && self.poll_task().await.is_err()
        {
            callboard_message::log::debug!("failed to get an ended task");
        }
    }

    /// Loads the agent's messages from the task's history. That is needed only if the task was
    /// polled and ended without artifacts or a final message: then earlier messages may be the
    /// answer.
    async fn load_history(&mut self) {
        if !self.polled || self.state.task_id.is_empty() || !self.state.ended_without_answer() {
            return;
        }
        let heard = self
            .client
            .get_task(self.get_task_request(HISTORY_MESSAGES_MAX))
            .await;
        let heard = heard.and_then(|task| self.state.apply_history(&task));
        if let Err(error) = heard {
            callboard_message::log::debug!(%error, "failed to get the history of a remote task");
        }
    }

    /// Polls the task until it is settled: ended, paused or answered directly.
    async fn poll_until_settled(&mut self) -> Result<(), A2aClientError> {
        let pushed = self.register_push().await;
        let (mut looks, mut in_vain) = (0, 0);
        while !self.state.is_settled() {
            if self.state.task_id.is_empty() {
                return Err(A2aClientError::Protocol(
                    "the agent's task has no id, so it can't be followed: the agent has to be corrected".into(),
                ));
            }
            if looks > 0 {
                let pause = backoff_delay(self.client.options().poll_interval, looks - 1);
                match &pushed {
                    Some(pushed) => drop(timeout(pause, pushed.wait_for_push()).await),
                    None => sleep(pause).await,
                }
            }
            looks += 1;
            match self.poll_task().await {
                Ok(()) => in_vain = 0,
                Err(error) if error.is_response_lost() && in_vain < POLL_FAILURES_MAX => {
                    in_vain += 1
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Registers the task for push notifications, which only trigger the next poll. Returns `None`
    /// if the agent or this client doesn't support them, the task is settled already, or the
    /// registration fails.
    async fn register_push(&mut self) -> Option<ExpectedPush> {
        if !self.supports_push || self.state.is_settled() || self.state.task_id.is_empty() {
            return None;
        }
        let expected = self.client.options().push.as_ref()?.expect_push()?;
        let config = TaskPushNotificationConfig {
            task_id: self.state.task_id.clone(),
            url: expected.url.to_string(),
            token: expected.token.clone(),
            ..TaskPushNotificationConfig::default()
        };
        match self.client.create_push_config(config).await {
            Ok(()) => Some(expected),
            Err(error) => {
                callboard_message::log::debug!(%error, "failed to register for push notifications");
                None
            }
        }
    }
}

/// Returns the delay before the retry with the index `times` (from 0). It is `first`, doubled
/// `times` times, but at most `max`. Half of it is random.
fn backoff_delay((first, max): (Duration, Duration), times: u32) -> Duration {
    Backoff {
        first,
        max,
        jitter: 0.5,
    }
    .pause(times)
}

/// Guard that cancels the remote task when it is dropped, unless the task has ended.
struct CancelTaskOnDrop {
    client: A2aClient,
    task: Option<String>,
    /// Request that is opening a stream. Its task can be cancelled only after the first event has
    /// named it.
    opening: Option<BoxFuture<'static, Result<OpenedStream, A2aClientError>>>,
}

type OpenedStream = (RemoteEventStream, Option<StreamResponse>);

impl CancelTaskOnDrop {
    fn track_task(&mut self, state: &RemoteTaskState) {
        let is_open =
            !state.has_ended() && state.direct_reply.is_none() && !state.task_id.is_empty();
        self.task = is_open.then(|| state.task_id.clone());
    }
}

impl Drop for CancelTaskOnDrop {
    fn drop(&mut self) {
        let (task, beginning, client) =
            (self.task.take(), self.opening.take(), self.client.clone());
        if task.is_none() && beginning.is_none() {
            return;
        }
        self.client.spawn_cleanup(async move {
            let begun = async {
                state_from_event(beginning?.await.ok()?.1?).filter(|state| !state.has_ended())
            };
            let task = match task {
                Some(task) => task,
                None => match begun.await {
                    Some(state) => state.task_id,
                    None => return,
                },
            };
            if let Err(error) = client.cancel_task(&task).await {
                callboard_message::log::debug!(%error, "failed to cancel a remote task");
            }
        });
    }
}

fn state_from_event(event: StreamResponse) -> Option<RemoteTaskState> {
    let mut state = RemoteTaskState::default();
    state.apply_event(&event, false).ok()?;
    (!state.task_id.is_empty() && state.direct_reply.is_none()).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: delays double up to their maximum. Method: the first, one in between, far past the
    /// maximum.
    #[test]
    fn pauses_double() {
        let pauses = (Duration::from_millis(100), Duration::from_secs(5));
        for (times, most) in [(0, 100), (1, 200), (5, 3_200), (6, 5_000), (100, 5_000)] {
            assert!(
                (0..100)
                    .all(|_| (most / 2..=most).contains(&backoff_delay(pauses, times).as_millis())),
                "{times}"
            );
        }
    }
}
