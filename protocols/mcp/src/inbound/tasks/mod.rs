//! Tasks: tool calls that outlive the request that began them, and the process.
//!
//! The runtime's store and state machine serve both eras: the experiment of 2025-11-25 ([`legacy`])
//! and the extension `io.modelcontextprotocol/tasks` of 2026-07-28 ([`modern`]).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Answer, CallerCapabilities, Failure, Principal, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::running::{
    BeginTaskCall, CannotResume, EndSteps, FoundTask, RunningTask, RunningTaskOptions,
    RunningTasks, TaskHost, TaskRun,
};
use callboard_runtime::{
    CallContext, Caller, CreateOutcome, Lease, NewTask, Task, TaskActor, TaskError, TaskId,
    TaskOwner, TaskStep,
};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::RpcResult;
use super::client_messages::MessageSink;
use super::endpoint::AgentEndpoint;
use super::options::{McpTaskOptions, McpTaskStore, TASK_TTL_MIN};
use super::request::{McpRequest, ParamName, RequestParams};
use super::tools::TaskSupport;
use crate::wire::{Era, Revision};
use record::{TaskExtra, final_step, task_error};

pub(crate) use modern::{
    TASKS_EXTENSION, adopt_call, declares_extension, follow_tasks, missing_extension,
};

pub(crate) mod legacy;
pub(crate) mod modern;
mod record;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;

/// A request that concerns a task, with its context.
pub(crate) struct TaskRequest<'a> {
    pub request: &'a McpRequest,
    pub revision: Revision,
    /// Context of the request. Its caller can be asked questions while the request is open.
    pub call: CallContext,
    /// Number of the request's session; `None` in the modern era.
    pub session: Option<u64>,
    /// Capabilities of the client that sent the request.
    pub client: CallerCapabilities,
    /// Creates the caller to which a task sends progress and log messages after the response. The
    /// token is cancelled when the task ends. `None` in the modern era.
    pub background: Option<Box<CreateCaller<'a>>>,
    /// Sink for task status notifications; `None` in the modern era.
    pub unsolicited: Option<Arc<dyn MessageSink>>,
}

/// Function that creates the caller of a task, which ends when the token is cancelled.
type CreateCaller<'a> = dyn Fn(CancellationToken) -> Arc<dyn Caller> + Send + Sync + 'a;

impl<'a> TaskRequest<'a> {
    /// Creates a task request of the modern era.
    pub fn modern(request: &'a McpRequest, call: CallContext, client: CallerCapabilities) -> Self {
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

/// Tasks of one endpoint, for both eras.
pub(crate) struct TaskService {
    pub endpoint: AgentEndpoint,
    options: McpTaskOptions,
    /// Identifier of this run of the process, part of the owner of anonymous sessions' tasks.
    run: Arc<str>,
    /// Tasks that run in this process, and the store of all tasks.
    live: Arc<RunningTasks>,
    /// True if running tasks end when this endpoint closes; false if they continue in the process.
    owns_tasks: bool,
}

/// A started task, and its handle if it runs in this process.
type StartedTask = (Arc<Task>, Option<RunningTask>);

impl TaskService {
    /// Creates the service, and attaches it to the task store as the server that resumes
    /// interrupted tasks of its scope.
    pub fn new(endpoint: AgentEndpoint) -> Arc<Self> {
        let scope = format!("mcp:{}", endpoint.options.info.name);
        let options = endpoint.options.tasks.clone();
        let is_shared = options.store.is_some();
        let McpTaskStore {
            tasks: store,
            run,
            live_scopes: scopes,
        } = options
            .store
            .clone()
            .unwrap_or_else(|| McpTaskStore::in_memory(options.tasks_max));
        let live = RunningTaskOptions {
            is_shared,
            keeps_ended: true,
            ..RunningTaskOptions::default()
        };
        let owned = scopes.is_none();
        let live = match scopes {
            Some(scopes) => scopes.for_scope(&store, scope, live),
            None => RunningTasks::new(store, scope, live),
        };
        let service = Arc::new(Self {
            endpoint,
            options,
            run,
            live,
            owns_tasks: owned,
        });
        let adapter = service.endpoint.adapter();
        service.live.report_to(adapter.agent.system().node_events());
        service.live.attach_host(&service);
        service
    }

    /// Returns true if the agent has tools that can run as tasks, and the revision has tasks. Then
    /// also starts the renewal of leases, if it hasn't been started.
    pub fn serves(&self, revision: Revision) -> bool {
        let has_tasks = matches!(revision, Revision::V2025_11_25 | Revision::V2026_07_28)
            && self.endpoint.adapter().has_task_tools();
        if has_tasks {
            self.live.start_renewal();
        }
        has_tasks
    }

    /// Returns the server capability that declares tasks: member name and value. `None` if no tool
    /// can run as a task, or if the revision has no tasks.
    pub fn capability(&self, revision: Revision) -> Option<(&'static str, RawObject)> {
        if !self.endpoint.adapter().has_task_tools() {
            return None;
        }
        match (revision, revision.era()) {
            (Revision::V2025_11_25, _) => Some(("tasks", legacy::capability())),
            (_, Era::Modern) => Some((
                "extensions",
                RawObject::single(TASKS_EXTENSION, RawObject::new()),
            )),
            _ => None,
        }
    }

    /// Closes the service. Its running tasks are cancelled if they belong to this endpoint alone;
    /// otherwise they continue.
    pub fn close(&self) {
        if self.owns_tasks {
            self.live.stop();
        }
    }

    fn owner(&self, principal: &Principal, session: Option<u64>) -> TaskOwner {
        TaskOwner::from_principal(
            principal,
            session
                .map(|session| format!("{}:{session}", self.run))
                .as_deref(),
        )
    }

    /// Starts a tool call as a task, which is in the store when this returns. A request that
    /// repeats an idempotency key of its owner gets the existing task.
    ///
    /// # Errors
    /// `OVERLOADED` if there are too many tasks or the store is full. `INVALID_PARAMS` if the
    /// idempotency key is invalid or was used for a different request.
    async fn start_task(
        self: &Arc<Self>,
        request: &TaskRequest<'_>,
        ttl: Duration,
    ) -> Result<StartedTask, RpcError> {
        // The task has a call of its own, because the request's call ends with the response.
        let mut call = CallContext::new(request.call.principal.clone());
        (call.trace, call.hops) = (request.call.trace, request.call.hops);
        call.origin = request.call.origin;
        let background = request.background.as_ref();
        let observer = background.map(|background| background(call.cancel.clone()));
        let work = self.call_tool(request.request.clone(), request.revision, call);
        self.start_work(request, ttl, observer, work).await
    }

    async fn start_work(
        &self,
        request: &TaskRequest<'_>,
        ttl: Duration,
        observer: Option<Arc<dyn Caller>>,
        work: BeginTaskCall<'_>,
    ) -> Result<StartedTask, RpcError> {
        let (params, principal) = (&request.request.params, &request.call.principal);
        let ttl = ttl.clamp(TASK_TTL_MIN, self.options.ttl_max.max(TASK_TTL_MIN));
        let extra = TaskExtra {
            revision: request.revision,
            client: request.client.clone(),
            ttl,
        };
        let tool = params
            .text(ParamName::Name)
            .unwrap_or_default()
            .into_owned();
        let expires = SystemTime::now() + ttl;
        let new = NewTask {
            scope: self.live.scope.clone(),
            owner: self.owner(principal, request.session),
            key: record::idempotency_key(params)?,
            request: record::stored_request(params),
            class: self.options.class,
            on_restart: self.endpoint.adapter().on_restart(&tool),
            deadline: Some(expires),
            extra: extra.to_object(),
            scope_tasks_max: Some(self.options.tasks_max),
            owner_tasks_max: Some(self.options.tasks_per_owner_max),
            ..NewTask::new(
                Principal::clone(principal),
                self.endpoint.options.info.name.clone(),
                tool,
                expires,
            )
        };
        match self.live.create(new).await.map_err(task_error)? {
            CreateOutcome::Existing(task) => {
                let live = self.live.get(&task.id);
                Ok((task, live))
            }
            CreateOutcome::Created(task, lease) => {
                let run = TaskRun {
                    task: task.clone(),
                    lease,
                    is_resumed: false,
                    abilities: Arc::new(extra.client),
                    observer,
                    begin_call: work,
                };
                Ok((task, Some(self.live.run(run))))
            }
        }
    }

    /// Returns true if a call of the tool named by `params` becomes a task after its first
    /// questions are answered.
    pub fn asks_before_task(&self, params: &RequestParams, client: &CallerCapabilities) -> bool {
        let adapter = self.endpoint.adapter();
        let asks_first =
            |tool: Cow<'_, str>| adapter.task_support(&tool) == TaskSupport::AfterQuestions;
        adapter.has_task_tools()
            && params.text(ParamName::Name).is_some_and(asks_first)
            && declares_extension(client)
    }

    /// Returns a function that executes a tool call as a task. The runtime calls it once the task
    /// may run.
    fn call_tool(
        self: &Arc<Self>,
        request: McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> BeginTaskCall<'static> {
        let service = self.clone();
        Box::new(move |caller, expiry| {
            let call = call.with_caller(caller).with_deadline(expiry);
            Box::pin(async move {
                let adapter = service.endpoint.adapter();
                task_ending(adapter.call_tool(&request, revision, call).await)
            })
        })
    }

    /// Finds the task named by `request`, if it belongs to the sender of the request.
    ///
    /// # Errors
    /// `INVALID_PARAMS` if there is no such task. Tasks of other owners are reported as missing,
    /// too.
    async fn find(&self, request: &TaskRequest<'_>) -> Result<FoundTask, RpcError> {
        let params = &request.request.params;
        params.check_object()?;
        let id = params
            .text(ParamName::TaskId)
            .ok_or_else(|| RpcError::invalid_params("`taskId` must be a string"))?;
        self.find_owned(&self.owner(&request.call.principal, request.session), &id)
            .await
    }

    async fn find_owned(&self, owner: &TaskOwner, id: &str) -> Result<FoundTask, RpcError> {
        let id = TaskId::new(id).map_err(|_| unknown_task())?;
        self.live
            .find(&id, owner)
            .await
            .map_err(|error| task_error(error.into()))?
            .ok_or_else(unknown_task)
    }

    /// Returns true if the task belongs to an anonymous session of an earlier run of the process.
    /// Its session number may now identify another session.
    fn is_of_lost_session(&self, task: &Task) -> bool {
        let session = task.owner.as_str().strip_prefix("session:");
        session.is_some_and(|session| {
            session
                .rsplit_once(':')
                .is_none_or(|(run, _)| run != &*self.run)
        })
    }
}

/// Returns the function that ends a task with the outcome of its call.
fn task_ending(outcome: RpcResult) -> EndSteps {
    Box::new(move |_| vec![final_step(outcome)])
}

/// Answers the question `key` of a task, and returns once the answer is stored. Does nothing if the
/// question is no longer open.
///
/// # Errors
/// Errors of the store; the question stays open.
async fn answer_question(
    found: &mut FoundTask,
    key: String,
    answer: Result<Answer, Failure>,
) -> Result<(), RpcError> {
    let taken = match (&found.running, answer) {
        (Some(live), Ok(answer)) => live.apply(Vec::new(), Some((key, answer))).await,
        (Some(live), Err(why)) => live.withdraw_question(key, why).await,
        // A failure isn't an answer: only the worker of the task withdraws a question.
        (None, Err(_)) => return Ok(()),
        (None, Ok(answer)) => {
            let step = TaskStep::Answered {
                key,
                answer: answer.to_raw(),
            };
            found
                .tasks
                .apply(
                    &found.task.id,
                    TaskActor::Owner(&found.task.owner),
                    vec![step],
                )
                .await
        }
    };
    match taken {
        Ok(task) => {
            found.task = task;
            Ok(())
        }
        Err(TaskError::HasEnded(_) | TaskError::Illegal { .. } | TaskError::NotFound) => Ok(()),
        Err(error) => Err(task_error(error)),
    }
}

fn lookup_error(error: TaskError) -> RpcError {
    if error == TaskError::NotFound {
        unknown_task()
    } else {
        task_error(error)
    }
}

fn unknown_task() -> RpcError {
    RpcError::invalid_params(
        "there is no such task: it may have expired, or belong to another client",
    )
}

impl TaskHost for TaskService {
    /// Returns true if the agent has tools that can run as tasks. Without them a resumed task could
    /// only fail, so it waits for a later agent that has them.
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
                return Err(CannotResume::Forget(unavailable(
                    "the session that could request it has ended",
                )));
            }
            let (Some(extra), Some(params)) = (TaskExtra::from_task(&task), &task.request) else {
                return Err(CannotResume::Fail(unavailable(
                    "the task couldn't go on after a restart, because its request wasn't stored: send it again",
                )));
            };
            let call = CallContext::new(Arc::new(task.principal.clone()));
            let request = McpRequest::new("tools/call", Some(params.clone()));
            let work = self.call_tool(request, extra.revision, call);
            let abilities = Arc::new(extra.client);
            self.live.run(TaskRun {
                task,
                lease,
                is_resumed: true,
                abilities,
                observer: None,
                begin_call: work,
            });
            Ok(())
        })
    }
}
