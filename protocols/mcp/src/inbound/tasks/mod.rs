//! Tasks: calls of tools that outlive the request that began them, and the process.
//!
//! One store and one state machine (the runtime's) behind both eras' words: the experiment of 2025-11-25 ([`legacy`]) and the
//! extension `io.modelcontextprotocol/tasks` of 2026-07-28 ([`modern`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Abilities, Answer, Failure, Principal, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::live::{
    BeginWork, CannotResume, Ending, Found, LiveOptions, LiveTask, LiveTasks, Run, TaskHost,
};
use callboard_runtime::{
    Begun, By, CallMeta, Caller, Lease, NewTask, Task, TaskError, TaskId, TaskOwner, TaskStep,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::Outcome;
use super::client::MessageSink;
use super::endpoint::Endpoint;
use super::options::{TASK_TTL_MIN, TaskOptions, TaskStore};
use super::request::{Method, Params, Request};
use super::tools::TaskSupport;
use crate::wire::{Era, Revision};
use record::{Extra, ended, refused};

pub(crate) use modern::{EXTENSION, adopt, declares, follow, undeclared};

mod legacy;
mod modern;
mod record;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;

/// A request, as far as tasks need to know it.
pub(crate) struct TaskRequest<'a> {
    pub request: &'a Request,
    pub revision: Revision,
    /// The request's own call: whose it is, and who can be asked while it is open.
    pub call: &'a CallMeta,
    /// The session that it belongs to, in the legacy era.
    pub session: Option<u64>,
    /// What the client declared that it can do.
    pub client: &'a Abilities,
    /// Makes whoever is told of progress and log lines after the request is answered, in the legacy era. The token fires at
    /// the task's end.
    pub background: Option<&'a (dyn Fn(CancellationToken) -> Arc<dyn Caller> + Sync)>,
    /// Where the client hears of a task's steps, in the legacy era.
    pub unsolicited: Option<&'a Arc<dyn MessageSink>>,
}

impl<'a> TaskRequest<'a> {
    /// A request of the stateless era.
    pub fn modern(request: &'a Request, call: &'a CallMeta, client: &'a Abilities) -> Self {
        let revision = Revision::V2026_07_28;
        Self {
            request,
            revision,
            call,
            session: None,
            client,
            background: None,
            unsolicited: None,
        }
    }
}

/// The tasks of an endpoint.
pub(crate) struct TaskService {
    pub endpoint: Endpoint,
    options: TaskOptions,
    /// This run of the process.
    run: Arc<str>,
    /// Those that run here, and the store.
    live: Arc<LiveTasks>,
    /// They are this endpoint's alone.
    owned: bool,
}

/// A task that was begun, and its handle where it runs here.
type Started = (Arc<Task>, Option<LiveTask>);

impl TaskService {
    /// Serves the tasks of `endpoint` from now on.
    pub fn new(endpoint: Endpoint) -> Arc<Self> {
        let scope = format!("mcp:{}", endpoint.options.info.name);
        let options = endpoint.options.tasks.clone();
        let is_shared = options.store.is_some();
        let TaskStore {
            tasks: store,
            run,
            live: scopes,
        } = options
            .store
            .clone()
            .unwrap_or_else(|| TaskStore::in_memory(options.tasks_max));
        let live = LiveOptions {
            is_shared,
            stays: true,
            ..LiveOptions::default()
        };
        let owned = scopes.is_none();
        let live = match scopes {
            Some(scopes) => scopes.of(&store, scope, live),
            None => LiveTasks::new(store, scope, live),
        };
        let service = Arc::new(Self {
            endpoint,
            options,
            run,
            live,
            owned,
        });
        service.live.serve(&service);
        service
    }

    /// Whether a request may be about tasks.
    pub fn concerns(&self, method: Method) -> bool {
        use Method::{CallTool, CancelTask, GetTask, ListTasks, TaskResult, UpdateTask};
        matches!(
            method,
            CallTool | GetTask | TaskResult | ListTasks | UpdateTask | CancelTask
        ) && self.endpoint.adapter().has_task_tools()
    }

    /// Does a request that is about tasks, or begins one, of those that [concern](Self::concerns) them. `None` for any other:
    /// the agent does it.
    pub async fn perform(self: &Arc<Self>, request: TaskRequest<'_>) -> Option<Outcome> {
        self.live.start();
        match request.revision {
            Revision::V2025_11_25 => legacy::perform(self, &request).await,
            Revision::V2026_07_28 => modern::perform(self, &request).await,
            _ => None,
        }
    }

    /// The member of a server's capabilities that says that there are tasks; `None` where there are none.
    pub fn capability(&self, revision: Revision) -> Option<(&'static str, RawObject)> {
        if !self.endpoint.adapter().has_task_tools() {
            return None;
        }
        match (revision, revision.era()) {
            (Revision::V2025_11_25, _) => Some(("tasks", legacy::capability())),
            (_, Era::Modern) => Some(("extensions", RawObject::of(EXTENSION, RawObject::new()))),
            _ => None,
        }
    }

    /// Nobody serves them here any more. Those of a store that others share go on; of any other they are cancelled, and
    /// what is kept elsewhere stays there, for whoever serves next.
    pub fn leave(&self) {
        if self.owned {
            self.live.stop();
        }
    }

    fn owner(&self, principal: &Principal, session: Option<u64>) -> TaskOwner {
        TaskOwner::of(
            principal,
            session
                .map(|session| format!("{}:{session}", self.run))
                .as_deref(),
        )
    }

    /// Begins the call that a request asks for as a task. When this returns, anybody who may can find it. A request whose key
    /// was there is answered with the task that has it.
    ///
    /// # Errors
    /// `OVERLOADED` where too many are kept or the store can't keep more, `INVALID_PARAMS` for what is no key or another's.
    async fn begin(
        self: &Arc<Self>,
        request: &TaskRequest<'_>,
        ttl: Duration,
    ) -> Result<Started, RpcError> {
        // A call of its own: the request's ends with its answer.
        let mut call = CallMeta::new(request.call.principal.clone());
        call.trace = request.call.trace;
        let told = request
            .background
            .map(|background| background(call.cancel.clone()));
        let work = self.call_tool(request.request.params.raw(), request.revision, call);
        self.run(request, ttl, told, work).await
    }

    async fn run(
        &self,
        request: &TaskRequest<'_>,
        ttl: Duration,
        told: Option<Arc<dyn Caller>>,
        work: BeginWork<'_>,
    ) -> Result<Started, RpcError> {
        let (params, principal) = (&request.request.params, &request.call.principal);
        let ttl = ttl.clamp(TASK_TTL_MIN, self.options.ttl_max.max(TASK_TTL_MIN));
        let extra = Extra {
            revision: request.revision,
            client: request.client.clone(),
            ttl,
        };
        let tool = params.name().unwrap_or_default().into_owned();
        let expires = SystemTime::now() + ttl;
        let new = NewTask {
            scope: self.live.scope.clone(),
            owner: self.owner(principal, request.session),
            key: record::key(params)?,
            request: record::request(params),
            class: self.options.class,
            on_restart: self.endpoint.adapter().on_restart(&tool),
            deadline: Some(expires),
            extra: extra.written(),
            scope_tasks_max: Some(self.options.tasks_max),
            owner_tasks_max: Some(self.options.of_owner_max),
            ..NewTask::new(
                Principal::clone(principal),
                self.endpoint.options.info.name.clone(),
                tool,
                expires,
            )
        };
        match self.live.keep(new).await.map_err(refused)? {
            Begun::Again(task) => {
                let live = self.live.get(&task.id);
                Ok((task, live))
            }
            Begun::New(task, lease) => {
                let run = Run {
                    task: task.clone(),
                    lease,
                    is_resumed: false,
                    abilities: Arc::new(extra.client),
                    told,
                    work,
                };
                Ok((task, Some(self.live.run(run))))
            }
        }
    }

    /// Whether the call of this tool becomes a task once its first questions are answered.
    pub fn asks_first(&self, params: &Params, client: &Abilities) -> bool {
        let adapter = self.endpoint.adapter();
        let asks_first =
            |tool: Cow<'_, str>| adapter.task_support(&tool) == TaskSupport::AfterQuestions;
        adapter.has_task_tools() && params.name().is_some_and(asks_first) && declares(client)
    }

    /// The work of a call that begins now.
    fn call_tool(
        self: &Arc<Self>,
        params: Option<&RawValue>,
        revision: Revision,
        call: CallMeta,
    ) -> BeginWork<'static> {
        let (service, request) = (
            self.clone(),
            Request::new("tools/call", params.map(RawValue::to_owned)),
        );
        Box::new(move |caller, expiry| {
            let call = call.with_caller(caller).until(expiry);
            Box::pin(async move {
                ending(
                    service
                        .endpoint
                        .adapter()
                        .perform(&request, revision, call)
                        .await,
                )
            })
        })
    }

    /// A task of `request`'s owner.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where it names none: another's isn't told from one that never was.
    async fn find(&self, request: &TaskRequest<'_>) -> Result<Found, RpcError> {
        let params = &request.request.params;
        params.check_object()?;
        let id = params
            .task_id()
            .ok_or_else(|| RpcError::invalid_params("`taskId` must be a string"))?;
        self.find_of(&self.owner(&request.call.principal, request.session), &id)
            .await
    }

    async fn find_of(&self, owner: &TaskOwner, id: &str) -> Result<Found, RpcError> {
        let id = TaskId::new(id).map_err(|_| unknown())?;
        self.live
            .find(&id, owner)
            .await
            .map_err(|error| refused(error.into()))?
            .ok_or_else(unknown)
    }

    /// Whether the task is of a session of nobody in particular in an earlier run: its number means another by now.
    fn is_of_lost_session(&self, task: &Task) -> bool {
        let session = task.owner.as_str().strip_prefix("session:");
        session.is_some_and(|session| {
            session
                .rsplit_once(':')
                .is_none_or(|(run, _)| run != &*self.run)
        })
    }
}

/// How a task ends whose call came to this.
fn ending(outcome: Outcome) -> Ending {
    Box::new(move |_| vec![ended(outcome)])
}

/// Answers a question of a task; nothing where it waits no more. Ends when the answer is kept.
///
/// # Errors
/// The store's: the question still waits.
async fn answer_question(
    found: &mut Found,
    key: String,
    answer: Result<Answer, Failure>,
) -> Result<(), RpcError> {
    let taken = match (&found.live, answer) {
        (Some(live), Ok(answer)) => live.tell(Vec::new(), Some((key, answer))).await,
        (Some(live), Err(why)) => live.give_up(key, why).await,
        // That somebody couldn't answer is no answer: only its worker gives a question up.
        (None, Err(_)) => return Ok(()),
        (None, Ok(answer)) => {
            let step = TaskStep::Answered {
                key,
                answer: answer.to_raw(),
            };
            found
                .tasks
                .step(&found.task.id, By::Owner(&found.task.owner), vec![step])
                .await
        }
    };
    match taken {
        Ok(task) => {
            found.task = task;
            Ok(())
        }
        Err(TaskError::HasEnded(_) | TaskError::Illegal { .. } | TaskError::NotFound) => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

/// Why a task can't be looked at.
fn gone(error: TaskError) -> RpcError {
    if error == TaskError::NotFound {
        unknown()
    } else {
        refused(error)
    }
}

fn unknown() -> RpcError {
    RpcError::invalid_params("there is no such task")
}

impl TaskHost for TaskService {
    /// Who serves no tools as tasks could only fail them. Another agent may have such tools later.
    fn can_resume(&self) -> bool {
        self.endpoint.adapter().has_task_tools()
    }

    fn resume(
        self: Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>> {
        Box::pin(async move {
            let unavailable = |why| Failure::unavailable(why);
            if self.is_of_lost_session(&task) {
                return Err(CannotResume::IsForgotten(unavailable(
                    "nobody can ask for it any more",
                )));
            }
            let (Some(extra), Some(params)) = (Extra::of(&task), &task.request) else {
                return Err(CannotResume::Fails(unavailable(
                    "what it was asked wasn't kept",
                )));
            };
            let call = CallMeta::new(Arc::new(task.principal.clone()));
            let work = self.call_tool(Some(params), extra.revision, call);
            let abilities = Arc::new(extra.client);
            self.live.run(Run {
                task,
                lease,
                is_resumed: true,
                abilities,
                told: None,
                work,
            });
            Ok(())
        })
    }
}
