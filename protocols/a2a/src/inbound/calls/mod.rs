//! Calls as tasks: messages begin calls, and clients see the calls as tasks.
//!
//! A message begins a task in the store before its agent is called ([`task_start`]);
//! [`RunningTasks`] of the runtime records the steps of tasks that run in this process. A client
//! gets the stored task ([`view`]), waits for it, or streams its events ([`stream`]). A message to
//! an existing task answers its question ([`follow_up`]).

mod follow_up;
mod history;
mod idempotency;
mod lookup;
mod references;
mod skill_selection;
mod skills;
mod stream;
mod task_list;
mod task_start;
#[cfg(test)]
mod tests;
mod view;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::json::raw_from_written;
use callboard_message::{FailureKind, Principal, PrincipalKind, TraceContext};
use callboard_runtime::running::{FoundTask, RunningTaskOptions, RunningTasks};
use callboard_runtime::{
    AgentRef, CallContext, CallOrigin, Store, Task, TaskError, TaskId, TaskOwner,
};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self as futures_stream, BoxStream};
use parking_lot::RwLock;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::options::A2aOptions;
use crate::limits::EXTENSIONS_MAX;
use crate::wire::{
    self, A2aMessage, ListTasksRequest, ListTasksResponse, SendMessageRequest, SendMessageResponse,
    StreamResponse, TaskPushNotificationConfig,
};
use crate::{A2aError, Dialect, ErrorKind};
use follow_up::FollowUps;
use history::TaskHistory;
use lookup::TaskLookup;
use references::ReferencedTasks;
use skills::ServedAgent;
use stream::{StreamEnd, TaskStreams};
use task_list::TaskLists;
use task_start::{AssignedTaskId, MessageDisposition, SendOutcome, WaitMode};

pub use lookup::RelatedAgents;
pub(crate) use skills::{Skill, SkillSet};
pub(crate) use task_list::history_limit;
pub(crate) use task_start::task_dialect;

/// Time for which the first event of a stream is delayed, in case the call gives a direct reply.
/// At the limit: the stream begins with the task.
const DIRECT_REPLY_TIMEOUT: Duration = Duration::from_millis(100);

/// An event of a task's stream in the format of 1.0, with its number.
#[derive(Debug, Clone)]
pub(crate) struct NumberedEvent {
    /// Number of the event within its task, sent as the SSE field `id`.
    pub(crate) number: u64,
    pub(crate) event: StreamResponse,
    /// Whether the stream ends with this event.
    pub(crate) is_last: bool,
}

/// Stream of a task's events. Dropping the stream doesn't end the task's call.
pub(crate) type TaskEventStream = BoxStream<'static, Result<NumberedEvent, A2aError>>;

/// Callback that stores the push configuration of a message before its call begins.
pub(crate) type PushConfigHandler = dyn Fn(
        RequestContext,
        Arc<Task>,
        TaskPushNotificationConfig,
    ) -> BoxFuture<'static, Result<(), A2aError>>
    + Send
    + Sync;

/// Service that performs A2A operations on the calls and tasks of one agent. All protocol bindings
/// share it.
pub(crate) struct A2aTaskService {
    options: Arc<A2aOptions>,
    /// Store of tasks and push configurations.
    pub(crate) store: Store,
    /// Agent for future calls. A running call keeps the agent with which it began.
    agent: RwLock<Arc<ServedAgent>>,
    push: OnceLock<Arc<PushConfigHandler>>,
    /// Tasks that run in this process.
    pub(crate) live: Arc<RunningTasks>,
    lookup: Arc<TaskLookup>,
    history: TaskHistory,
    references: ReferencedTasks,
    lists: TaskLists,
    streams: TaskStreams,
    follow_ups: FollowUps,
}

impl A2aTaskService {
    /// Creates the service. Within a tokio runtime it resumes the tasks in the store at once,
    /// otherwise at the first request.
    pub(crate) fn new(agent: AgentRef, options: Arc<A2aOptions>) -> Arc<Self> {
        let store = options.tasks.store_or_in_memory();
        let live = RunningTaskOptions {
            is_shared: options.tasks.store.is_some(),
            evicts_ended: true,
            artifact_encoder: Some(view::convert_artifact),
            ..RunningTaskOptions::default()
        };
        let running = &store.running_tasks;
        let tasks = running.for_scope(&store.tasks, options.task_scope(), live);
        tasks.report_to(agent.system().node_events());
        let lookup = Arc::new(TaskLookup::new(store.clone(), tasks.clone(), live));
        let history = TaskHistory::new(store.tasks.clone());
        let calls = Arc::new(Self {
            live: tasks,
            references: ReferencedTasks::new(
                lookup.clone(),
                history.clone(),
                options.agent.name.clone(),
            ),
            lists: TaskLists::new(
                store.tasks.clone(),
                lookup.clone(),
                history.clone(),
                options.shares_anonymous_tasks,
            ),
            streams: TaskStreams::new(store.tasks.clone(), history.clone()),
            follow_ups: FollowUps::new(store.tasks.clone(), history.clone()),
            lookup,
            history,
            store,
            agent: RwLock::new(Arc::new(ServedAgent::new(agent))),
            push: OnceLock::new(),
            options,
        });
        calls.live.attach_host(&calls);
        calls
    }

    /// Sets the callback that stores push configurations. Until it is set, push notifications are
    /// unsupported. Later calls have no effect.
    pub(crate) fn set_push_handler(&self, handler: Arc<PushConfigHandler>) {
        let _ = self.push.set(handler);
    }

    /// Replaces the agent for future calls. Running calls continue with the previous agent.
    pub(crate) fn replace_agent(&self, agent: AgentRef) {
        *self.agent.write() = Arc::new(ServedAgent::new(agent));
    }

    /// Replaces the agents whose tasks are found too.
    pub(crate) fn set_related_agents(&self, related: RelatedAgents) {
        self.lookup.set_related_agents(related);
    }

    /// Stops running tasks of this agent and store in this process. Tasks in a durable store are
    /// resumed by the next server.
    pub(crate) async fn stop(&self) {
        self.end_subscriptions();
        self.live.stop();
        self.live.wait_until_stopped().await;
    }

    /// Returns the agent's skills that `call`'s principal may see.
    ///
    /// # Errors
    /// `Denied` or `Blocked` by the policy; `Overloaded` if the agent can't be asked now.
    pub(crate) async fn visible_skills(
        &self,
        call: CallContext,
    ) -> Result<Arc<SkillSet>, A2aError> {
        let callee = self.served_agent();
        // The card still tells where and how the agent is reached.
        if !callee.is_permitted(&call) {
            return Ok(Arc::default());
        }
        let call = callee.authorize_listing(call).await?;
        Ok(callee.skills(call).await?)
    }

    /// Returns whether the rules permit a call's principal something of the agent.
    pub(crate) fn is_permitted(&self, call: &CallContext) -> bool {
        self.served_agent().is_permitted(call)
    }

    /// Returns whether `call`'s principal may see the agent's skills.
    pub(crate) async fn is_visible_to(&self, call: CallContext) -> bool {
        let judged = self.served_agent().authorize_listing(call).await;
        !judged.is_err_and(|refused| {
            matches!(refused.kind, FailureKind::Denied | FailureKind::Blocked)
        })
    }

    /// Sends a message and returns the response in the sender's dialect. The response comes when
    /// the task has ended or has a question, or immediately if the request says so.
    ///
    /// # Errors
    /// `InvalidParams`, `ContentTypeNotSupported`, `TaskNotFound`, `UnsupportedOperation`,
    /// `Overloaded`, `Denied` or `Blocked`, if the message isn't accepted. A failure after that
    /// becomes the task's state.
    pub(crate) async fn send(
        &self,
        who: &RequestContext,
        request: SendMessageRequest,
    ) -> Result<Box<RawValue>, A2aError> {
        let given = request.configuration.as_ref();
        let is_blocking = !given.is_some_and(|given| given.return_immediately);
        let messages_max = history_limit(given.and_then(|given| given.history_length));
        let waits = if is_blocking {
            WaitMode::UntilSettled
        } else {
            WaitMode::UntilStarted
        };
        let SendOutcome {
            mut task,
            live,
            disposition: how,
        } = self.accept_message(who, request, waits).await?;
        if is_blocking && how != MessageDisposition::Duplicate && !task.state.is_terminal() {
            let mut found = self.live.found_task(task, live);
            follow_up::wait_until_settled(&mut found, Instant::now() + self.options.call_deadline)
                .await?;
            task = found.task;
        }
        if how == MessageDisposition::TaskCreated
            && is_blocking
            && let Some(message) = self.take_direct_reply(&task).await
        {
            return Ok(who
                .dialect
                .write_send_response(&SendMessageResponse::Message(message)));
        }
        if who.dialect == Dialect::V10 {
            let mut out = String::from("{\"task\":");
            if view::write_task_json(&task, messages_max, &mut out) {
                out.push('}');
                return Ok(raw_from_written(out));
            }
        }
        let task = self.to_wire_task(&task, messages_max).await?;
        Ok(who
            .dialect
            .write_send_response(&SendMessageResponse::Task(task)))
    }

    /// Sends a message and returns a stream: first the task, then its events until it ends or has a
    /// question.
    ///
    /// # Errors
    /// As [`A2aTaskService::send`].
    pub(crate) async fn stream(
        &self,
        who: &RequestContext,
        request: SendMessageRequest,
    ) -> Result<TaskEventStream, A2aError> {
        let given = request.configuration.as_ref();
        let messages_max = history_limit(given.and_then(|given| given.history_length));
        let sent = self
            .accept_message(who, request, WaitMode::UntilStarted)
            .await?;
        self.response_stream(sent, messages_max).await
    }

    /// Returns a stream of a task: first the task in its current state, then its events until it
    /// ends. With `last_event` the stream begins with the task's state after the event of that
    /// number instead.
    ///
    /// # Errors
    /// `TaskNotFound`; `UnsupportedOperation` if the task has ended and has no events after
    /// `last_event`.
    pub(crate) async fn subscribe(
        &self,
        who: &RequestContext,
        id: &str,
        last_event: Option<u64>,
    ) -> Result<TaskEventStream, A2aError> {
        let task = self.lookup.find(who, id).await?.task;
        let missed = last_event.filter(|last| *last < task.last_event);
        if task.state.is_terminal() && missed.is_none() {
            return Err(ErrorKind::UnsupportedOperation
                .error("the task has ended and sends no more events: get the task instead")
                .with_task(id));
        }
        let task = match missed {
            Some(last) => Arc::new(self.streams.task_at_event(&task, last).await?),
            None => task,
        };
        self.streams.subscribe(task).await
    }

    /// Ends all subscriptions to tasks, also later ones at once. Streams of sent messages go on.
    pub(crate) fn end_subscriptions(&self) {
        self.streams.end_subscriptions();
    }

    /// Returns a page of the caller's tasks.
    ///
    /// # Errors
    /// `InvalidParams` if the page token is invalid.
    pub(crate) async fn list_tasks(
        &self,
        who: &RequestContext,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse, A2aError> {
        self.lists.list(who, request).await
    }

    /// Returns a task with at most the latest `messages_max` messages of its history; with all
    /// messages if that is `None`.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(crate) async fn get_task(
        &self,
        who: &RequestContext,
        id: &str,
        messages_max: Option<u32>,
    ) -> Result<wire::A2aTask, A2aError> {
        let found = self.lookup.find(who, id).await?;
        self.to_wire_task(&found.task, messages_max).await
    }

    /// Cancels a task and returns its new state.
    ///
    /// # Errors
    /// `TaskNotFound`, `TaskNotCancelable`.
    pub(crate) async fn cancel_task(
        &self,
        who: &RequestContext,
        id: &str,
    ) -> Result<wire::A2aTask, A2aError> {
        let mut found = self.lookup.find(who, id).await?;
        follow_up::cancel_found_task(&mut found).await?;
        self.to_wire_task(&found.task, None).await
    }

    /// Returns the stored task with this id, if it belongs to the caller.
    ///
    /// # Errors
    /// `TaskNotFound`, also for a task of another owner.
    pub(crate) async fn owned_task(
        &self,
        who: &RequestContext,
        id: &str,
    ) -> Result<Arc<Task>, A2aError> {
        Ok(self.lookup.find(who, id).await?.task)
    }

    /// Converts a stored task of any owner to the format of 1.0, with at most the latest
    /// `messages_max` messages of its history; with all messages if that is `None`.
    ///
    /// # Errors
    /// Errors of the task store.
    pub(crate) async fn to_wire_task(
        &self,
        task: &Task,
        messages_max: Option<u32>,
    ) -> Result<wire::A2aTask, A2aError> {
        self.history.to_wire_task(task, messages_max).await
    }

    /// Returns a stream of a task's events after the event with the number `after`, until the task
    /// ends. Used for push notifications.
    ///
    /// # Errors
    /// Errors of the task store.
    pub(crate) async fn events_after(
        &self,
        task: &Task,
        after: u64,
    ) -> Result<TaskEventStream, A2aError> {
        let then = self
            .streams
            .task_at_event(task, after.min(task.last_event))
            .await?;
        Ok(self.streams.stream_after(then, StreamEnd::TaskEnd))
    }

    fn served_agent(&self) -> Arc<ServedAgent> {
        self.agent.read().clone()
    }

    /// Begins a new task with a message, or passes the message to the existing task that it names.
    async fn accept_message(
        &self,
        who: &RequestContext,
        mut request: SendMessageRequest,
        waits: WaitMode,
    ) -> Result<SendOutcome, A2aError> {
        self.live.start_renewal();
        let id = std::mem::take(&mut request.message.task_id);
        if id.is_empty() {
            return self.start_task(who, request, None, waits).await;
        }
        if who.dialect == Dialect::V01 {
            return self.accept_in_named_task(who, request, &id, waits).await;
        }
        let found = self.lookup.find(who, &id).await?;
        self.continue_task(who, found, request).await
    }

    /// Begins or continues the task `id` of a client of 0.1, which assigns the ids. A task that has
    /// ended begins anew in the same conversation, and its agent gets the earlier messages. The
    /// message that began a task has no effect while the task runs, because messages of 0.1 have no
    /// ids by which a repetition could be told from an answer.
    async fn accept_in_named_task(
        &self,
        who: &RequestContext,
        mut request: SendMessageRequest,
        id: &str,
        waits: WaitMode,
    ) -> Result<SendOutcome, A2aError> {
        let named = TaskId::new(id)?;
        let found = self.lookup.find_stored(who, &named).await?;
        let replaces = found.is_some();
        if let Some(found) = found {
            if !found.task.state.is_terminal() {
                let first = view::first_message(&found.task);
                let is_repeated = first.is_some_and(|first| first.parts == request.message.parts);
                return match is_repeated {
                    true => Ok(SendOutcome::duplicate(found)),
                    false => self.continue_task(who, found, request).await,
                };
            }
            follow_up::check_context(&found.task, &request.message)?;
            request.message.context_id = view::context_id(&found.task);
        }
        let assigned = AssignedTaskId {
            id: named,
            replaces,
        };
        match self.start_task(who, request, Some(assigned), waits).await {
            // The id belongs to a task of another owner.
            Err(error) if error.message == TaskError::KeyReused.to_string() => {
                Err(A2aError::task_not_found(id))
            }
            begun => begun,
        }
    }

    async fn continue_task(
        &self,
        who: &RequestContext,
        found: FoundTask,
        request: SendMessageRequest,
    ) -> Result<SendOutcome, A2aError> {
        let push = request
            .configuration
            .and_then(|given| given.task_push_notification_config);
        if let Some(config) = push.filter(|_| !found.task.state.is_terminal()) {
            self.store_push_config(who, &found.task, config).await?;
        }
        self.follow_ups.accept(found, request.message).await
    }

    /// Returns the stream that responds to a sent message: a single direct reply, or the task and
    /// its later events until it ends or has a question. The task has at most the latest
    /// `messages_max` messages; all if that is `None`.
    ///
    /// # Errors
    /// Errors of the task store.
    async fn response_stream(
        &self,
        sent: SendOutcome,
        messages_max: Option<u32>,
    ) -> Result<TaskEventStream, A2aError> {
        if sent.disposition == MessageDisposition::TaskCreated
            && let Some(live) = sent.live.clone()
        {
            let (mut seen, first) = (live.updates, sent.task.last_event);
            let is_news = |task: &Arc<Task>| task.last_event > first;
            let until = Instant::now() + DIRECT_REPLY_TIMEOUT;
            let now = timeout_at(until, seen.wait_for(is_news))
                .await
                .ok()
                .and_then(Result::ok)
                .map(|now| now.clone());
            if let Some(task) = now
                && let Some(message) = self.take_direct_reply(&task).await
            {
                let event = StreamResponse::Message(message);
                return Ok(futures_stream::iter([Ok(NumberedEvent {
                    number: task.last_event,
                    event,
                    is_last: true,
                })])
                .boxed());
            }
        }
        let task = match sent.disposition == MessageDisposition::TaskExisted {
            // A repeated message gets the same stream as the first one.
            true => Arc::new(self.streams.task_at_event(&sent.task, 1).await?),
            false => sent.task,
        };
        self.streams
            .stream_from(task, messages_max, StreamEnd::TaskEndOrQuestion)
            .await
    }

    /// Returns the direct reply of a call that recorded nothing else, and deletes the call's task,
    /// because a direct reply needs none. `None` if the call gave another reply.
    async fn take_direct_reply(&self, task: &Task) -> Option<A2aMessage> {
        // Only the beginning and the end of the task have been recorded.
        let message = view::direct_reply(task).filter(|_| task.last_event == 2)?;
        self.live.delete(&task.id).await;
        Some(message)
    }
}

/// Context of a request: its principal, dialect, trace and hops.
#[derive(Clone)]
pub(crate) struct RequestContext {
    /// Principal that owns the tasks of the request.
    pub(crate) principal: Arc<Principal>,
    /// Dialect in which the request was sent.
    pub(crate) dialect: Dialect,
    /// Trace context of the request.
    pub(crate) trace: TraceContext,
    /// Number of agents that the request has passed through.
    pub(crate) hops: u16,
    /// URIs of the protocol extensions that the client requests, at most
    /// [`EXTENSIONS_MAX`](crate::limits::EXTENSIONS_MAX).
    pub(crate) extensions: Vec<String>,
}

impl RequestContext {
    /// Creates the context of a request at the beginning of a trace.
    pub(crate) fn new(principal: Arc<Principal>, dialect: Dialect) -> Self {
        Self {
            principal,
            dialect,
            trace: TraceContext::root(),
            hops: 0,
            extensions: Vec::new(),
        }
    }

    /// Sets the protocol extensions that the client requests.
    pub(crate) fn with_extensions<'a>(self, uris: impl Iterator<Item = &'a str>) -> Self {
        let uris = uris.filter(|uri| !uri.is_empty()).take(EXTENSIONS_MAX);
        Self {
            extensions: uris.map(str::to_owned).collect(),
            ..self
        }
    }

    /// Returns the context as a child of the caller's trace, if that is known.
    pub(crate) fn with_parent_trace(self, caller: Option<TraceContext>) -> Self {
        Self {
            trace: caller.map_or(self.trace, |caller| caller.child()),
            ..self
        }
    }

    pub(crate) fn owner(&self) -> TaskOwner {
        TaskOwner::from_principal(&self.principal, None)
    }

    /// Returns whether the request had no credential.
    fn is_anonymous(&self) -> bool {
        self.principal.kind == PrincipalKind::Anonymous
    }

    /// Returns the context for the agent's call. It doesn't depend on the request, because the call
    /// may outlive it.
    pub(crate) fn call_context(&self) -> CallContext {
        CallContext {
            trace: self.trace,
            origin: CallOrigin {
                version: self.dialect.version(),
                ..CallOrigin::A2A
            },
            hops: self.hops,
            ..CallContext::new(self.principal.clone())
        }
    }
}
