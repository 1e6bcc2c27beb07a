//! Messages become calls, calls are seen as tasks.
//!
//! A message begins a task in the store before its agent is asked ([`begin`]); the runtime's [`LiveTasks`] take the steps of those
//! that run here. Whoever looks at it sees what the store has ([`view`]), waits for it or
//! goes along with its events ([`stream`]); who sends to it answers what it asks ([`follow_up`]).

mod begin;
mod follow_up;
mod page;
mod pick;
mod skills;
mod stream;
#[cfg(test)]
mod tests;
mod view;

use std::sync::{Arc, OnceLock};

use callboard_message::json::raw;
use callboard_message::{FailureKind, Principal, PrincipalKind, TraceContext};
use callboard_runtime::live::{Found, LiveOptions, LiveTasks};
use callboard_runtime::{AgentRef, CallMeta, Store, Task, TaskError, TaskId, TaskOwner};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use parking_lot::RwLock;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::options::A2aOptions;
use crate::wire::{
    self, Message, SendMessageRequest, SendMessageResponse, StreamResponse,
    TaskPushNotificationConfig,
};
use crate::{A2aError, Dialect, ErrorKind};
use begin::{Sent, Taken, Waits};
use skills::Callee;
use stream::Until;

pub(crate) use begin::dialect_of;
pub(crate) use page::most;
pub(crate) use skills::{Skill, Skills};

/// What a stream tells, in the canonical model, and its place among the task's events.
#[derive(Debug, Clone)]
pub(crate) struct Numbered {
    /// What `id:` says.
    pub(crate) number: u64,
    pub(crate) event: StreamResponse,
    /// Nothing follows.
    pub(crate) ends: bool,
}

/// A stream of a task. It can be dropped at any time; the call goes on.
pub(crate) type Events = BoxStream<'static, Result<Numbered, A2aError>>;

/// Keeps the push configuration that came with a message, before its call begins.
pub(crate) type KeepPush = dyn Fn(Who, Arc<Task>, TaskPushNotificationConfig) -> BoxFuture<'static, Result<(), A2aError>>
    + Send
    + Sync;

/// An agent's calls and tasks, whatever wire they come by.
pub(crate) struct Calls {
    options: Arc<A2aOptions>,
    /// Where tasks and push configurations are kept.
    pub(crate) store: Store,
    /// Who is served now. What a message began with one goes on with it.
    callee: RwLock<Arc<Callee>>,
    push: OnceLock<Arc<KeepPush>>,
    /// Those that run here.
    pub(crate) live: Arc<LiveTasks>,
}

impl Calls {
    /// Within a tokio runtime it begins to look after the store's tasks; outside of one the first request does.
    pub(crate) fn new(agent: AgentRef, options: Arc<A2aOptions>) -> Arc<Self> {
        let store = options.tasks.store();
        let live = LiveOptions {
            is_shared: options.tasks.store.is_some(),
            makes_room: true,
            artifacts: Some(view::made),
            ..LiveOptions::default()
        };
        let calls = Arc::new(Self {
            live: store.live.of(&store.tasks, options.scope(), live),
            store,
            callee: RwLock::new(Arc::new(Callee::new(agent))),
            push: OnceLock::new(),
            options,
        });
        calls.live.serve(&calls);
        calls
    }

    /// Where push configurations that come with a message go. Without it there are no push notifications. To be said once.
    pub(crate) fn keep_pushes_with(&self, keep: Arc<KeepPush>) {
        // Said twice, the first stands.
        let _ = self.push.set(keep);
    }

    /// Another agent takes the place of this one. Calls that run go on with theirs.
    pub(crate) fn replace(&self, agent: AgentRef) {
        *self.callee.write() = Arc::new(Callee::new(agent));
    }

    /// Ends the work on all tasks here, whoever else serves them; a store that lasts hands them to whoever serves next.
    pub(crate) async fn stop(&self) {
        self.live.stop();
        self.live.stopped().await;
    }

    /// What the agent can do, as `call`'s principal may know.
    ///
    /// # Errors
    /// `Denied`, `Blocked`: the policy's; `Overloaded` where the agent can't be asked now.
    pub(crate) async fn skills(&self, call: CallMeta) -> Result<Arc<Skills>, A2aError> {
        let callee = self.callee();
        let call = callee.seen(call).await?;
        Ok(callee.skills(call).await?)
    }

    /// Whether `call`'s principal may know what the agent can do.
    pub(crate) async fn is_seen_by(&self, call: CallMeta) -> bool {
        let judged = self.callee().seen(call).await;
        !judged.is_err_and(|refused| {
            matches!(refused.kind, FailureKind::Denied | FailureKind::Blocked)
        })
    }

    /// What answers a message, in its sender's dialect: once its task has ended or asks, or at once where that is wanted.
    ///
    /// # Errors
    /// Before there is a task: `InvalidParams`, `ContentTypeNotSupported`, `TaskNotFound`, `UnsupportedOperation`,
    /// `Overloaded`, `Denied`, `Blocked`. Later a failure is the task's state.
    pub(crate) async fn send(
        &self,
        who: &Who,
        request: SendMessageRequest,
    ) -> Result<Box<RawValue>, A2aError> {
        let given = request.configuration.as_ref();
        let is_blocking = !given.is_some_and(|given| given.return_immediately);
        let messages_max = most(given.and_then(|given| given.history_length));
        let waits = if is_blocking {
            Waits::ForItsEnd
        } else {
            Waits::ForItsBeginning
        };
        let Sent {
            mut task,
            live,
            how,
        } = self.take(who, request, waits).await?;
        if is_blocking && how != Taken::Again && !task.state.is_terminal() {
            let mut found = self.live.found(task, live);
            follow_up::settled(&mut found, Instant::now() + self.options.call_deadline).await?;
            task = found.task;
        }
        if how == Taken::Begun
            && is_blocking
            && let Some(message) = self.said_at_once(&task).await
        {
            return Ok(who
                .dialect
                .write_send_response(&SendMessageResponse::Message(message)));
        }
        if who.dialect == Dialect::V10 {
            let mut out = String::from("{\"task\":");
            if view::write(&task, messages_max, &mut out) {
                out.push('}');
                return Ok(raw(out));
            }
        }
        let task = self.seen(&task, messages_max).await?;
        Ok(who
            .dialect
            .write_send_response(&SendMessageResponse::Task(task)))
    }

    /// First the task, then what happens to it, until it ends or asks.
    ///
    /// # Errors
    /// As [`Calls::send`].
    pub(crate) async fn stream(
        &self,
        who: &Who,
        request: SendMessageRequest,
    ) -> Result<Events, A2aError> {
        let given = request.configuration.as_ref();
        let messages_max = most(given.and_then(|given| given.history_length));
        let sent = self.take(who, request, Waits::ForItsBeginning).await?;
        self.told(sent, messages_max).await
    }

    /// First the task, then what happens to it, until it ends; with `last_event` as it was then, and all that came after.
    ///
    /// # Errors
    /// `TaskNotFound`; `UnsupportedOperation` where it has ended, and nothing came after `last_event`.
    pub(crate) async fn subscribe(
        &self,
        who: &Who,
        id: &str,
        last_event: Option<u64>,
    ) -> Result<Events, A2aError> {
        let task = self.find(who, id).await?.task;
        let missed = last_event.filter(|last| *last < task.last_event);
        if task.state.is_terminal() && missed.is_none() {
            return Err(ErrorKind::UnsupportedOperation
                .error("the task has ended")
                .about(id));
        }
        let task = match missed {
            Some(last) => Arc::new(self.as_of(&task, last).await?),
            None => task,
        };
        self.from(task, None, Until::End).await
    }

    /// A task with at most the last `messages_max` messages; `None`: all.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(crate) async fn get(
        &self,
        who: &Who,
        id: &str,
        messages_max: Option<u32>,
    ) -> Result<wire::Task, A2aError> {
        let found = self.find(who, id).await?;
        self.seen(&found.task, messages_max).await
    }

    /// Ends a task; answers it as it is then.
    ///
    /// # Errors
    /// `TaskNotFound`, `TaskNotCancelable`.
    pub(crate) async fn cancel(&self, who: &Who, id: &str) -> Result<wire::Task, A2aError> {
        let mut found = self.find(who, id).await?;
        follow_up::cancel_found(&mut found).await?;
        self.seen(&found.task, None).await
    }

    /// A task of `who`'s, as it is kept.
    ///
    /// # Errors
    /// `TaskNotFound`, for another's as for one that never was.
    pub(crate) async fn owned(&self, who: &Who, id: &str) -> Result<Arc<Task>, A2aError> {
        Ok(self.find(who, id).await?.task)
    }

    /// A task of anybody's in the canonical model, with at most the last `messages_max` messages; `None`: all.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn seen(
        &self,
        task: &Task,
        messages_max: Option<u32>,
    ) -> Result<wire::Task, A2aError> {
        Ok(view::task(
            task,
            self.history(task, messages_max).await?,
            true,
        ))
    }

    /// What happens to a task after its event `after`, until it ends, for push notifications.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn follow(&self, task: &Task, after: u64) -> Result<Events, A2aError> {
        let then = self.as_of(task, after.min(task.last_event)).await?;
        Ok(self.after(then, Until::End))
    }

    fn callee(&self) -> Arc<Callee> {
        self.callee.read().clone()
    }

    /// A message begins a task, or goes to the one that it names.
    async fn take(
        &self,
        who: &Who,
        mut request: SendMessageRequest,
        waits: Waits,
    ) -> Result<Sent, A2aError> {
        self.live.start();
        let id = std::mem::take(&mut request.message.task_id);
        if id.is_empty() {
            return self.begin(who, request, None, waits).await;
        }
        if who.dialect == Dialect::V01 {
            // Its clients name their tasks.
            let named = TaskId::new(&*id)?;
            return match self.live.find(&named, &who.owner()).await? {
                Some(found) => self.go_on(who, found, request).await,
                None => match self.begin(who, request, Some(named), waits).await {
                    // It is another's.
                    Err(error) if error.message == TaskError::KeyReused.to_string() => {
                        Err(A2aError::task_not_found(&id))
                    }
                    begun => begun,
                },
            };
        }
        let found = self.find(who, &id).await?;
        self.go_on(who, found, request).await
    }

    async fn go_on(
        &self,
        who: &Who,
        found: Found,
        request: SendMessageRequest,
    ) -> Result<Sent, A2aError> {
        let push = request
            .configuration
            .and_then(|given| given.task_push_notification_config);
        if let Some(config) = push.filter(|_| !found.task.state.is_terminal()) {
            self.keep_push(who, &found.task, config).await?;
        }
        self.follow_up(found, request.message).await
    }

    /// What a call said at once and nothing else: then there need be no task.
    async fn said_at_once(&self, task: &Task) -> Option<Message> {
        // Nothing happened to it but its beginning and its end.
        let message = view::message(task).filter(|_| task.last_event == 2)?;
        self.live.forget(&task.id).await;
        Some(message)
    }
}

/// Who sends a request, and how.
#[derive(Clone)]
pub(crate) struct Who {
    /// Whose the task is that it begins, and which it finds.
    pub(crate) principal: Arc<Principal>,
    /// What it speaks.
    pub(crate) dialect: Dialect,
    /// The request's place in a trace.
    pub(crate) trace: TraceContext,
    /// How many agents it has passed through.
    pub(crate) hops: u16,
}

impl Who {
    /// Somebody at the beginning of a trace.
    pub(crate) fn new(principal: Arc<Principal>, dialect: Dialect) -> Self {
        Self {
            principal,
            dialect,
            trace: TraceContext::root(),
            hops: 0,
        }
    }

    /// The same, called from `caller`'s place in a trace, if that is known.
    pub(crate) fn traced(self, caller: Option<TraceContext>) -> Self {
        Self {
            trace: caller.map_or(self.trace, |caller| caller.child()),
            ..self
        }
    }

    pub(crate) fn owner(&self) -> TaskOwner {
        TaskOwner::of(&self.principal, None)
    }

    /// Whether it showed no credential.
    fn is_anonymous(&self) -> bool {
        self.principal.kind == PrincipalKind::Anonymous
    }

    /// A call of its own: the request's ends with its answer.
    pub(crate) fn call(&self) -> CallMeta {
        CallMeta {
            trace: self.trace,
            hops: self.hops,
            ..CallMeta::new(self.principal.clone())
        }
    }
}
