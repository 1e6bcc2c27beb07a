//! Messages become calls, calls are seen as tasks.

mod begin;
mod caller;
mod follow_up;
mod history;
mod live;
mod owner;
mod pick;
mod recover;
mod skills;
mod stream;
mod view;
mod wait;

use std::sync::Arc;

use callboard_runtime::{AgentRef, CallMeta, Store, Task};
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::options::A2aOptions;
use crate::wire::{
    self, ListTasksRequest, ListTasksResponse, SendMessageRequest, SendMessageResponse, StreamResponse,
    TaskPushNotificationConfig,
};
use crate::{A2aError, ErrorKind};

pub(crate) use owner::Who;
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
pub(crate) type KeepPush =
    dyn Fn(Who, Arc<Task>, TaskPushNotificationConfig) -> BoxFuture<'static, Result<(), A2aError>> + Send + Sync;

/// An agent's calls and tasks, whatever wire they come by.
#[derive(Clone)]
pub(crate) struct Calls(Arc<Core>);

struct Core {
    options: Arc<A2aOptions>,
    store: Store,
}

fn later<T>() -> Result<T, A2aError> {
    Err(A2aError::new(ErrorKind::UnsupportedOperation, "not yet"))
}

impl Calls {
    /// Within a tokio runtime it begins to look after the store's tasks; outside of one the first request does.
    pub(crate) fn new(_agent: AgentRef, options: Arc<A2aOptions>) -> Self {
        Self(Arc::new(Core { store: options.tasks.store(), options }))
    }

    /// The store that tasks and push configurations are kept in.
    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    /// Where push configurations that come with a message go. Without it there are no push notifications. To be said once.
    pub(crate) fn keep_push(&self, _keep: Arc<KeepPush>) {}

    /// Another agent takes the place of this one. Calls that run go on with theirs.
    pub(crate) fn replace(&self, _agent: AgentRef) {}

    /// Ends the work on all tasks here; a store that lasts hands them to whoever serves next.
    pub(crate) async fn stop(&self) {}

    /// What the agent can do, as `call`'s principal may know.
    pub(crate) async fn skills(&self, _call: CallMeta) -> Result<Arc<Skills>, A2aError> {
        later()
    }

    pub(crate) async fn send(&self, _who: &Who, _request: SendMessageRequest) -> Result<SendMessageResponse, A2aError> {
        later()
    }

    /// First the task, then what happens to it, until it ends or asks.
    pub(crate) async fn stream(&self, _who: &Who, _request: SendMessageRequest) -> Result<Events, A2aError> {
        later()
    }

    /// First the task, then what happens to it, until it ends; with `last_event` as it was then, and all that came after.
    pub(crate) async fn subscribe(&self, _who: &Who, _id: &str, _last_event: Option<u64>) -> Result<Events, A2aError> {
        later()
    }

    pub(crate) async fn get(&self, _who: &Who, _id: &str, _history: Option<u32>) -> Result<wire::Task, A2aError> {
        later()
    }

    pub(crate) async fn list(&self, _who: &Who, _request: ListTasksRequest) -> Result<ListTasksResponse, A2aError> {
        later()
    }

    pub(crate) async fn cancel(&self, _who: &Who, _id: &str) -> Result<wire::Task, A2aError> {
        later()
    }

    /// A task of `who`'s, as it is kept.
    ///
    /// # Errors
    /// `TaskNotFound`, for another's as for one that never was.
    pub(crate) async fn owned(&self, _who: &Who, _id: &str) -> Result<Arc<Task>, A2aError> {
        later()
    }

    /// A task of anybody's in the canonical model, for push notifications.
    pub(crate) async fn seen(&self, _task: &Task) -> Result<wire::Task, A2aError> {
        later()
    }

    /// What happens to a task after an event, for push notifications.
    pub(crate) fn follow(&self, _task: Arc<Task>, _after: u64) -> Events {
        Box::pin(futures::stream::empty())
    }
}
