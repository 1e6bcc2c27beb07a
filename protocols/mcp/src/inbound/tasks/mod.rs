//! Tasks: calls of tools that outlive the request that began them.
//!
//! One store and one state machine ([`record`]) behind both eras' words: the experiment of 2025-11-25 ([`legacy`]) and the
//! extension `io.modelcontextprotocol/tasks` of 2026-07-28 ([`modern`]).

mod asking;
mod clock;
mod legacy;
mod live;
mod modern;
mod options;
mod record;
mod store;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use callboard_message::{Abilities, RawObject, TaskState as State};
use callboard_rpc::{RpcError, code};
use callboard_runtime::{CallMeta, Caller};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::endpoint::Endpoint;
use super::link::Link;
use super::options::InboundOptions;
use crate::wire::code as mcp;
use crate::wire::{Era, Revision};
use live::{Begin, Live, Work};
use record::{Owner, TaskRecord};
use store::{MemoryTasks, TaskStore};

pub(crate) use modern::{Adoption, EXTENSION, adopt, asks_first, declares, follow, undeclared};
pub use options::{
    TASK_POLL_INTERVAL_DEFAULT, TASK_QUESTIONS_MAX, TASK_TTL_DEFAULT, TASK_TTL_MAX_DEFAULT, TASK_TTL_MIN,
    TASKS_MAX_DEFAULT, TASKS_OF_OWNER_MAX_DEFAULT, TaskOptions,
};

/// A request, as far as tasks need to know it.
pub(crate) struct TaskRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) revision: Revision,
    /// The request's own call: whose it is, and who can be asked while it is open.
    pub(crate) call: &'a CallMeta,
    /// The session that it belongs to, in the legacy era.
    pub(crate) session: Option<u64>,
    /// What the client declared that it can do.
    pub(crate) client: &'a Abilities,
    /// Makes whoever is told of progress and log lines after the request is answered. The token fires at the task's end.
    pub(crate) background: &'a (dyn Fn(CancellationToken) -> Option<Arc<dyn Caller>> + Sync),
    /// Where the client hears of a task's steps, in the legacy era.
    pub(crate) unsolicited: Option<&'a Arc<dyn Link>>,
}

/// Whether a request may be about tasks.
pub(crate) fn concerns(endpoint: &Endpoint, method: &str) -> bool {
    (method == "tools/call" || method.starts_with("tasks/")) && endpoint.surface().has_task_tools()
}

/// Does a request that is about tasks, or begins one. `None` for any other: on with [`super::surface::Surface::perform`].
pub(crate) async fn intercept(
    endpoint: &Arc<Endpoint>,
    request: TaskRequest<'_>,
) -> Option<Result<Box<RawValue>, RpcError>> {
    if !concerns(endpoint, request.method) {
        return None;
    }
    match request.revision {
        Revision::V2025_11_25 => legacy::intercept(endpoint, request).await,
        Revision::V2026_07_28 => modern::intercept(endpoint, request).await,
        _ => None,
    }
}

/// The member of a server's capabilities that says that there are tasks; `None` where there are none.
pub(crate) fn capability(endpoint: &Endpoint, revision: Revision) -> Option<(&'static str, RawObject)> {
    if !endpoint.surface().has_task_tools() {
        return None;
    }
    match (revision, revision.era()) {
        (Revision::V2025_11_25, _) => Some(("tasks", legacy::capability())),
        (_, Era::Modern) => Some(("extensions", RawObject::new().with(EXTENSION, RawObject::new()))),
        _ => None,
    }
}

/// The tasks of an endpoint.
pub(crate) struct TaskState {
    options: TaskOptions,
    store: Box<dyn TaskStore>,
    live: Mutex<HashMap<String, Live>>,
    last: AtomicU64,
    stopped: CancellationToken,
}

/// A task that was found.
pub(crate) struct Found {
    record: Arc<TaskRecord>,
    /// While it is kept in this process.
    live: Option<Live>,
}

impl TaskState {
    pub(crate) fn new(options: &InboundOptions) -> Self {
        let options = options.tasks.clone();
        let store = Box::new(MemoryTasks::new(options.tasks_max, options.of_owner_max));
        Self { options, store, live: Mutex::default(), last: AtomicU64::new(0), stopped: CancellationToken::new() }
    }

    /// Cancels all that run and forgets all that are kept: nobody is there any more who could ask for them.
    pub(crate) fn stop(&self) {
        self.stopped.cancel();
    }

    fn stopped(&self) -> CancellationToken {
        self.stopped.clone()
    }

    /// How long a task is kept whose client wants `wanted`.
    fn ttl(&self, wanted: Option<Duration>) -> Duration {
        wanted.unwrap_or(self.options.ttl).clamp(TASK_TTL_MIN, self.options.ttl_max.max(TASK_TTL_MIN))
    }

    /// Begins the call that a request asks for as a task. When this returns, anybody who may can find it.
    ///
    /// # Errors
    /// `OVERLOADED` where too many are kept.
    async fn begin(
        &self,
        endpoint: &Arc<Endpoint>,
        request: &TaskRequest<'_>,
        ttl: Option<Duration>,
    ) -> Result<Live, RpcError> {
        let owner = Owner::of(&request.call.principal, request.session);
        // A call of its own: the request's ends with its answer.
        let mut call = CallMeta::new(request.call.principal.clone());
        call.trace = request.call.trace;
        let told = (request.background)(call.cancel.clone());
        let (params, revision) = (request.params.map(RawValue::to_owned), request.revision);
        let surface = endpoint.clone();
        let work = Box::new(move |caller, expiry| -> Work {
            let call = call.with_caller(caller).until(expiry);
            Box::pin(async move { surface.surface().perform("tools/call", params.as_deref(), revision, call).await })
        });
        self.run(owner, ttl, |record| {
            let (endpoint, abilities) = (endpoint.clone(), request.client.clone());
            Begin { endpoint, record, abilities, told, work }
        })
        .await
    }

    async fn run<'a>(
        &self,
        owner: Owner,
        ttl: Option<Duration>,
        begin: impl FnOnce(Arc<TaskRecord>) -> Begin<'a>,
    ) -> Result<Live, RpcError> {
        let now = SystemTime::now();
        let record = Arc::new(TaskRecord {
            id: Uuid::new_v4().to_string(),
            owner,
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            created: now,
            updated: now,
            ttl: self.ttl(ttl),
            state: State::Working,
            said: None,
            open: Vec::new(),
            outcome: None,
        });
        self.store.begin(record.clone()).await.map_err(|full| RpcError::new(mcp::OVERLOADED, full.to_string()))?;
        let begun = live::begin(begin(record.clone()));
        self.live().insert(record.id.clone(), begun.clone());
        Ok(begun)
    }

    /// A task of `request`'s owner.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where it names none: another's isn't told from one that never was.
    async fn find(&self, request: &TaskRequest<'_>) -> Result<Found, RpcError> {
        let id = super::surface::object(request.params)?.text("taskId");
        let id = id.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`taskId` must be a string"))?;
        let owner = Owner::of(&request.call.principal, request.session);
        let live = self.live().get(&id).cloned();
        let record = match &live {
            Some(live) => Some(live.seen.borrow().clone()),
            None => self.store.get(&id).await,
        };
        let record = record.filter(|record| record.owner == owner);
        let record = record.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "there is no such task"))?;
        Ok(Found { record, live })
    }

    async fn put(&self, record: Arc<TaskRecord>) {
        self.store.put(record).await;
    }

    async fn forget(&self, id: &str) {
        self.live().remove(id);
        self.store.remove(id).await;
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// Cancels it, where it still runs.
    async fn cancel(&self) {
        if let Some(live) = &self.live {
            live.cancel().await;
        }
    }

    /// As it is now.
    fn now(&self) -> Arc<TaskRecord> {
        self.live.as_ref().map_or_else(|| self.record.clone(), |live| live.seen.borrow().clone())
    }
}
