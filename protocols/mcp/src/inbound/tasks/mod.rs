//! Tasks: calls of tools that outlive the request that began them, and the process.
//!
//! One store and one state machine (the runtime's) behind both eras' words: the experiment of 2025-11-25 ([`legacy`]) and the
//! extension `io.modelcontextprotocol/tasks` of 2026-07-28 ([`modern`]).

mod asking;
mod found;
mod legacy;
mod live;
mod modern;
mod options;
mod record;
mod recover;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use callboard_message::{Abilities, Principal, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::{
    Begun, CallMeta, Caller, JournalError, Lease, NewTask, Released, Task, TaskError, TaskId, TaskOwner, Tasks,
};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::link::Link;
use super::options::InboundOptions;
use super::surface::tool_name;
use crate::wire::{Era, Revision};
use live::{Begin, Live, Work};
use record::Extra;

pub(crate) use modern::{Adoption, EXTENSION, adopt, asks_first, declares, follow, undeclared};
pub use options::{
    TASK_POLL_INTERVAL_DEFAULT, TASK_QUESTIONS_MAX, TASK_TTL_DEFAULT, TASK_TTL_MAX_DEFAULT, TASK_TTL_MIN,
    TASKS_MAX_DEFAULT, TASKS_OF_OWNER_MAX_DEFAULT, TaskOptions, TaskStore,
};
pub(crate) use recover::start;

/// How often a beginning whose outcome is unknown is tried again.
const BEGIN_TRIES_MAX: usize = 3;

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
    start(endpoint);
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
    store: Arc<dyn Tasks>,
    /// This run of the process.
    run: Arc<str>,
    /// The store is others' too, and outlives the endpoint: see [`recover`].
    is_shared: bool,
    /// What its tasks are kept under.
    scope: String,
    /// Those that run here.
    live: Mutex<HashMap<TaskId, Live>>,
    keeper: OnceLock<()>,
    stopped: CancellationToken,
}

/// What becomes a task.
struct Beginning<'a> {
    principal: &'a Principal,
    session: Option<u64>,
    revision: Revision,
    client: &'a Abilities,
    /// Of the `tools/call`.
    params: Option<&'a RawValue>,
    ttl: Option<Duration>,
    told: Option<Arc<dyn Caller>>,
    /// See [`Begin::work`].
    work: Box<dyn FnOnce(Arc<dyn Caller>, tokio::time::Instant) -> Work + Send + 'a>,
}

/// A task that was begun, and its handle where it runs here.
type Started = (Arc<Task>, Option<Live>);

impl TaskState {
    pub(crate) fn new(options: &InboundOptions) -> Self {
        let scope = format!("mcp:{}", options.info.name);
        let options = options.tasks.clone();
        let is_shared = options.store.is_some();
        let TaskStore { tasks: store, run } =
            options.store.clone().unwrap_or_else(|| TaskStore::in_memory(options.tasks_max));
        let (live, keeper, stopped) = (Mutex::default(), OnceLock::new(), CancellationToken::new());
        Self { options, store, run, is_shared, scope, live, keeper, stopped }
    }

    /// Cancels all that run. What is kept elsewhere stays there, for whoever serves next.
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

    fn owner(&self, principal: &Principal, session: Option<u64>) -> TaskOwner {
        TaskOwner::of(principal, session.map(|session| format!("{}:{session}", self.run)).as_deref())
    }

    /// Begins the call that a request asks for as a task. When this returns, anybody who may can find it. A request whose key
    /// was there is answered with the task that has it.
    ///
    /// # Errors
    /// `OVERLOADED` where too many are kept or the store can't keep more, `INVALID_PARAMS` for what is no key or another's.
    async fn begin(
        &self,
        endpoint: &Arc<Endpoint>,
        request: &TaskRequest<'_>,
        ttl: Option<Duration>,
    ) -> Result<Started, RpcError> {
        // A call of its own: the request's ends with its answer.
        let mut call = CallMeta::new(request.call.principal.clone());
        call.trace = request.call.trace;
        let told = (request.background)(call.cancel.clone());
        let work = perform(endpoint, request.params, request.revision, call);
        let beginning = Beginning {
            principal: &request.call.principal,
            session: request.session,
            revision: request.revision,
            client: request.client,
            params: request.params,
            ttl,
            told,
            work,
        };
        self.run(endpoint, beginning).await
    }

    async fn run(&self, endpoint: &Arc<Endpoint>, beginning: Beginning<'_>) -> Result<Started, RpcError> {
        let Beginning { principal, session, revision, client, params, ttl, told, work } = beginning;
        let left = self.ttl(ttl);
        let extra = Extra { revision, client: client.clone(), ttl: left };
        let tool = tool_name(params).unwrap_or_default();
        let expires = SystemTime::now() + left;
        let new = NewTask {
            scope: self.scope.clone(),
            owner: self.owner(principal, session),
            key: record::key(params)?,
            request: record::request(params),
            class: self.options.class,
            on_restart: endpoint.surface().on_restart(&tool),
            deadline: Some(expires),
            extra: extra.written(),
            scope_tasks_max: Some(self.options.tasks_max),
            owner_tasks_max: Some(self.options.of_owner_max),
            ..NewTask::new(principal.clone(), endpoint.options.info.name.clone(), tool, expires)
        };
        match self.keep(new).await.map_err(record::refused)? {
            Begun::Again(task) => {
                let live = self.live().get(&task.id).cloned();
                Ok((task, live))
            }
            Begun::New(task, lease) => {
                let begin = Begin {
                    endpoint: endpoint.clone(),
                    task: task.clone(),
                    lease,
                    is_resumed: false,
                    left,
                    abilities: extra.client,
                    told,
                    work,
                };
                Ok((task, Some(self.go(begin))))
            }
        }
    }

    /// Keeps a task. Whoever wants it may go away meanwhile: then it is left to [`recover`], as one that nobody began.
    async fn keep(&self, new: NewTask) -> Result<Begun, TaskError> {
        if !self.is_shared {
            // In memory it is done at once.
            return self.store.begin(new).await;
        }
        let (store, (begun, was_begun)) = (self.store.clone(), tokio::sync::oneshot::channel());
        tokio::spawn(async move {
            if let Err(Ok(Begun::New(_, lease))) = begun.send(begin_surely(&*store, new).await)
                && let Err(error) = store.release(&lease, Released::Waits).await
            {
                tracing::warn!(task = %lease.task, %error, "a task that nobody waits for wasn't let go of");
            }
        });
        was_begun.await.unwrap_or_else(|_| Err(JournalError::Unavailable("it is closing".to_owned()).into()))
    }

    /// Has a task run here.
    fn go(&self, begin: Begin<'_>) -> Live {
        // Locked before it runs: it takes itself out when it ends.
        let mut live = self.live();
        let id = begin.task.id.clone();
        let begun = live::begin(begin);
        live.insert(id, begun.clone());
        begun
    }

    async fn forget(&self, id: &TaskId) {
        if let Err(error) = self.store.forget(id).await {
            // It has expired: the store's retention forgets it too.
            tracing::warn!(task = %id, %error, "a task whose time is over wasn't forgotten");
        }
    }

    async fn release(&self, lease: &Lease, why: Released) {
        if let Err(error) = self.store.release(lease, why).await {
            // Its lease runs out.
            tracing::warn!(task = %lease.task, %error, "a task wasn't let go of");
        }
    }

    /// A task runs here no more.
    fn is_gone(&self, lease: &Lease) {
        let mut live = self.live();
        if live.get(&lease.task).is_some_and(|live| live.lease == *lease) {
            live.remove(&lease.task);
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<TaskId, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work of a call that begins now.
fn perform(
    endpoint: &Arc<Endpoint>,
    params: Option<&RawValue>,
    revision: Revision,
    call: CallMeta,
) -> Box<dyn FnOnce(Arc<dyn Caller>, tokio::time::Instant) -> Work + Send> {
    let (endpoint, params) = (endpoint.clone(), params.map(RawValue::to_owned));
    Box::new(move |caller, expiry| {
        let call = call.with_caller(caller).until(expiry);
        Box::pin(async move { endpoint.surface().perform("tools/call", params.as_deref(), revision, call).await })
    })
}

/// Begins a task. Where the store can't say whether it was kept, it is asked again: the id is the same.
async fn begin_surely(store: &dyn Tasks, new: NewTask) -> Result<Begun, TaskError> {
    let id = new.id.clone();
    let mut tried = 1;
    loop {
        return match store.begin(new.clone()).await {
            Err(TaskError::Journal(JournalError::Unknown(_))) if tried < BEGIN_TRIES_MAX => {
                tried += 1;
                continue;
            }
            // It was kept before, and its worker is this process.
            Ok(Begun::Again(task)) if task.id == id => match &task.lease {
                Some(view) if view.by == store.worker() => {
                    let lease = Lease { task: id, by: view.by.clone(), epoch: view.epoch };
                    Ok(Begun::New(task, lease))
                }
                _ => Ok(Begun::Again(task)),
            },
            other => other,
        };
    }
}
