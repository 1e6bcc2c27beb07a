//! Messages to the agent as tasks. With a persistent store they outlive the process.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::capabilities::{CallerCapabilities, Converse};
use callboard_message::{
    Content, DataClass, Failure, FailureKind, Message, Principal, Progress, RawObject,
};
use callboard_orchestration::decide::RunId;
use callboard_runtime::running::{
    BeginTaskCall, CannotResume, EndSteps, RunningTask, RunningTaskOptions, RunningTasks, TaskHost,
    TaskRun,
};
use callboard_runtime::{
    AgentRef, CallContext, Caller, CreateOutcome, JournalError, Lease, NewTask, OnRestart, Task,
    TaskActor, TaskError, TaskFilter, TaskId, TaskOutcome, TaskStep, TaskStore,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::answer::{parse_result, question_text};
use super::print::{Screen, summary_line};
use crate::config::OrchestratorDeclaration;

/// Retention of a task, counted from its request.
const TASK_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum stored tasks of one REPL. Beyond it the oldest ended ones are deleted.
const STORED_TASKS_MAX: usize = 10_000;
/// Maximum tasks in a list.
const LISTED_TASKS_MAX: usize = 200;
/// Minimum length of a prefix that identifies a task, in characters.
const PREFIX_CHARS_MIN: usize = 4;
/// Tasks read per page.
const PAGE_TASKS: usize = 100;
/// Member of [`Task::extra`] that holds the session id.
const SESSION_KEY: &str = "context";

/// Tasks of this REPL.
pub(super) struct TaskSession {
    pub(super) live: Arc<RunningTasks>,
    agent: AgentRef,
    /// Id of the agent.
    id: String,
    class: DataClass,
    screen: Screen,
    /// Task whose answer the user waits for at the prompt.
    attended_task: Mutex<Option<TaskId>>,
}

impl TaskSession {
    /// Opens the session. Tasks of an earlier process resume.
    pub(super) fn open(
        tasks: Arc<dyn TaskStore>,
        agent: AgentRef,
        OrchestratorDeclaration { id, class, .. }: &OrchestratorDeclaration,
        screen: &Screen,
    ) -> Arc<Self> {
        let options = RunningTaskOptions {
            is_shared: true,
            keeps_ended: false,
            evicts_ended: true,
            artifact_encoder: Some(|artifact| artifact.0.clone()),
        };
        let live = RunningTasks::new(tasks, format!("repl:{id}"), options);
        let (id, screen, attended) = (id.clone(), screen.clone(), Mutex::default());
        let desk = Arc::new(Self {
            live,
            agent,
            id,
            class: *class,
            screen,
            attended_task: attended,
        });
        desk.live.attach_host(&desk);
        desk
    }

    /// Sends a message to the agent. Returns the task that answers it.
    ///
    /// # Errors
    /// Error of the task store.
    pub(super) async fn submit(
        self: &Arc<Self>,
        session: &str,
        text: &str,
    ) -> Result<RunningTask, TaskError> {
        let task = TaskId::generate();
        let said = Converse::from_content([Content::text(text)])
            .0
            .with("key", &task)
            .with("context", session)
            .with("task", &task);
        let new = NewTask {
            id: task,
            scope: self.live.scope.clone(),
            request: Some(said.to_raw()),
            class: self.class,
            on_restart: OnRestart::Resume,
            extra: RawObject::single(SESSION_KEY, session),
            owner_tasks_max: Some(STORED_TASKS_MAX),
            ..NewTask::new(
                Principal::local_operator(),
                self.id.clone(),
                Converse::NAME,
                SystemTime::now() + TASK_RETENTION,
            )
        };
        match self.live.create(new).await? {
            CreateOutcome::Created(task, lease) => Ok(self.run(task, lease, false, said.to_raw())),
            // An id isn't used twice.
            CreateOutcome::Existing(task) => self
                .live
                .get(&task.id)
                .ok_or_else(|| TaskError::not_running(task.state)),
        }
    }

    fn run(
        self: &Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
        is_resumed: bool,
        said: Box<RawValue>,
    ) -> RunningTask {
        let (agent, principal) = (self.agent.clone(), Arc::new(task.principal.clone()));
        let work: BeginTaskCall<'static> = Box::new(move |caller, expiry| {
            let call = CallContext::new(principal)
                .with_caller(caller)
                .with_deadline(expiry);
            Box::pin(async move {
                let gone = call.cancel.clone().drop_guard();
                let reply = agent
                    .ask_named(Converse::NAME, said, Some(Arc::new(call)))
                    .await;
                gone.disarm();
                let ending: EndSteps = Box::new(move |_| vec![final_step(reply)]);
                ending
            })
        });
        let told: Arc<dyn Caller> = Arc::new(ProgressPrinter {
            session: self.clone(),
            task: task.id.clone(),
        });
        self.live.run(TaskRun {
            task,
            lease,
            is_resumed,
            abilities: prompt_abilities(),
            observer: Some(told),
            begin_call: work,
        })
    }

    /// Finds a task by its id, or by a prefix of the id that only one of this user's tasks has.
    ///
    /// # Errors
    /// Text for the user: there is no such task, or the prefix is ambiguous.
    pub(super) async fn find_task(&self, given: &str) -> Result<Arc<Task>, String> {
        let unknown = || {
            format!(
                "There is no task {} (:tasks lists them)",
                summary_line(given)
            )
        };
        let id = TaskId::new(given).map_err(|_| unknown())?;
        if let Some(task) = self
            .live
            .tasks
            .get(&id)
            .await
            .map_err(|error| error.to_string())?
        {
            return Ok(task);
        }
        let ours = self
            .own_tasks(None)
            .await
            .map_err(|error| error.to_string())?;
        find_by_prefix(ours, given, |task| task.id.as_str())?.ok_or_else(unknown)
    }

    /// Returns the tasks of one session, or of all sessions for `None`, oldest first: of the newest
    /// [`LISTED_TASKS_MAX`] tasks of this REPL.
    ///
    /// # Errors
    /// Error of the task store.
    pub(super) async fn own_tasks(
        &self,
        session: Option<&str>,
    ) -> Result<Vec<Arc<Task>>, JournalError> {
        let filter = TaskFilter {
            scope: Some(self.live.scope.clone()),
            ..TaskFilter::default()
        };
        let mut all = self.list_tasks(filter).await?;
        if let Some(session) = session {
            all.retain(|task| session_id_of(task) == session);
        }
        Ok(all)
    }

    /// Returns the newest [`LISTED_TASKS_MAX`] tasks in the store, of all agents and clients,
    /// oldest first.
    ///
    /// # Errors
    /// Error of the task store.
    pub(super) async fn all_tasks(&self) -> Result<Vec<Arc<Task>>, JournalError> {
        self.list_tasks(TaskFilter::default()).await
    }

    /// Returns the tasks of the plan's steps in their current state; empty if the task has no plan.
    ///
    /// # Errors
    /// Error of the task store.
    pub(super) async fn plan_steps(&self, of: &Task) -> Result<Vec<Arc<Task>>, JournalError> {
        // The given task may itself be the plan's task.
        for run in [Some(of.id.clone()), self.run_id_of(of), run_id_in_reply(of)]
            .into_iter()
            .flatten()
        {
            let parts = self
                .list_tasks(TaskFilter {
                    parent: Some(run),
                    ..TaskFilter::default()
                })
                .await?;
            if !parts.is_empty() {
                return Ok(parts);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the id of the task with the plan, which the agent derives from the request; `None`
    /// if the request isn't stored or has no key.
    fn run_id_of(&self, of: &Task) -> Option<TaskId> {
        let said = Converse(request_body(of)?);
        let key = Some(said.key()).filter(|key| !key.is_empty())?;
        let run = RunId::of(&self.id, of.owner.as_str(), &said.context(), &key);
        TaskId::new(run.as_str()).ok()
    }

    async fn list_tasks(&self, filter: TaskFilter) -> Result<Vec<Arc<Task>>, JournalError> {
        let mut all: Vec<Arc<Task>> = Vec::new();
        loop {
            let after = all.last().map_or(0, |task| task.number);
            let (page, is_more) = self
                .live
                .tasks
                .list(filter.clone(), after, PAGE_TASKS)
                .await?;
            all.extend(page);
            if !is_more {
                break;
            }
        }
        all.drain(..all.len().saturating_sub(LISTED_TASKS_MAX));
        Ok(all)
    }

    /// Cancels a task, also one that another process runs. Returns its last state.
    ///
    /// # Errors
    /// `HasEnded`, or the store's.
    pub(super) async fn cancel(&self, id: &TaskId) -> Result<Arc<Task>, TaskError> {
        if let Some(live) = self.live.get(id) {
            match live.cancel().await {
                // Another worker may continue it.
                Err(TaskError::NotRunning) => {}
                cancelled => return cancelled,
            }
        }
        self.live
            .tasks
            .request_cancel(id, TaskActor::Operator)
            .await
    }

    /// Sets the task that the user waits for at the prompt; `None` if there is none.
    pub(super) fn set_attended(&self, task: Option<&TaskId>) {
        *self.attended_task.lock() = task.cloned();
    }

    fn is_attended(&self, task: &TaskId) -> bool {
        self.attended_task.lock().as_ref() == Some(task)
    }

    /// Prints questions and the end of a task that the user doesn't wait for. `told`: key of a
    /// question that was printed already.
    pub(super) fn watch_unattended(self: &Arc<Self>, live: &RunningTask, mut told: String) {
        let (desk, mut seen) = (self.clone(), live.updates.clone());
        tokio::spawn(async move {
            loop {
                let task = seen.borrow_and_update().clone();
                let is_attended = desk.is_attended(&task.id);
                if task.state.is_terminal() {
                    if !is_attended {
                        desk.screen.print_notice(&format!(
                            "🔔 Task {} ended: {} (:task {})",
                            task.id, task.state, task.id
                        ));
                    }
                    return;
                }
                if let Some(open) = task
                    .open_questions
                    .first()
                    .filter(|open| open.key != told && !is_attended)
                {
                    told.clone_from(&open.key);
                    let text = question_text(&open.question);
                    let line = text.lines().next().unwrap_or_default();
                    desk.screen.print_notice(&format!(
                        "🔔 Task {} asks: {line} (:answer {})",
                        task.id, task.id
                    ));
                }
                if seen.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Stops the running tasks. Stored ones resume at the next start.
    pub(super) async fn stop(&self) {
        self.live.stop();
        self.live.wait_until_stopped().await;
    }
}

impl TaskHost for TaskSession {
    fn resume(
        self: Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>> {
        Box::pin(async move {
            let Some(said) = task.request.clone() else {
                let why = Failure::unavailable(not_resumable_reason(task.class));
                return Err(CannotResume::Fail(why));
            };
            self.screen
                .print_notice(&format!("🔔 Task {} goes on", task.id));
            let live = self.run(task, lease, true, said);
            self.watch_unattended(&live, String::new());
            Ok(())
        })
    }
}

/// Returns the only item whose id begins with `given`; `None` if there is none, or if `given` has
/// fewer than [`PREFIX_CHARS_MIN`] characters.
///
/// # Errors
/// Text for the user: several ids begin so.
pub(super) fn find_by_prefix<T>(
    items: Vec<T>,
    given: &str,
    id: impl Fn(&T) -> &str,
) -> Result<Option<T>, String> {
    if given.chars().count() < PREFIX_CHARS_MIN {
        return Ok(None);
    }
    let mut found = items.into_iter().filter(|item| id(item).starts_with(given));
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(format!(
            "Several task ids begin with {given}: type more characters"
        )),
        (only, _) => Ok(only),
    }
}

/// Returns the reason why a task of an earlier process can't be resumed.
fn not_resumable_reason(class: DataClass) -> &'static str {
    match class {
        DataClass::Clinical => {
            "the task can't be resumed, because its request is clinical and wasn't stored: send it again"
        }
        _ => "the task can't be resumed, because its request wasn't stored: send it again",
    }
}

/// Returns the session id of a task.
pub(super) fn session_id_of(task: &Task) -> String {
    task.extra.text(SESSION_KEY).unwrap_or_default()
}

/// Returns the text of a task's request, for display: its JSON if it has no text, and `(not kept)`
/// if the request isn't stored.
pub(super) fn request_text(task: &Task) -> String {
    let Some(said) = request_body(task) else {
        return "(not kept)".to_owned();
    };
    match Converse(said.clone()).texts() {
        text if text.is_empty() => super::print::pretty_json(&said.to_raw()),
        text => text,
    }
}

/// Returns a task's request as a [`Converse`] object; `None` if it isn't stored or is no object.
fn request_body(task: &Task) -> Option<RawObject> {
    let request = RawObject::parse(task.request.as_ref()?).ok()?;
    // Tasks over a protocol hold the request under `arguments`.
    Some(request.object("arguments").unwrap_or(request))
}

/// Returns the id of the task with the plan if the answer names it (`run`).
fn run_id_in_reply(task: &Task) -> Option<TaskId> {
    let Some(TaskOutcome::Reply(reply)) = &task.outcome else {
        return None;
    };
    let run = parse_result(reply)
        .0
        .object("structuredContent")?
        .text("run")?;
    TaskId::new(run).ok()
}

fn final_step(reply: Result<Box<RawValue>, Failure>) -> TaskStep {
    match reply {
        Ok(reply) => TaskStep::Completed(reply),
        Err(failure) if failure.kind == FailureKind::Rejected => TaskStep::Rejected(failure),
        Err(failure) if failure.kind == FailureKind::Cancelled => TaskStep::Cancelled {
            why: failure.message,
        },
        Err(failure) => TaskStep::Failed(failure),
    }
}

/// Returns the kinds of question that a user at a prompt can answer: elicitations by form and by
/// URL.
fn prompt_abilities() -> Arc<CallerCapabilities> {
    let forms = RawObject::single("form", RawObject::new()).with("url", RawObject::new());
    Arc::new(CallerCapabilities(RawObject::single("elicitation", forms)))
}

/// Printer of progress for the task that the user waits for. Questions are handled by the task.
struct ProgressPrinter {
    session: Arc<TaskSession>,
    task: TaskId,
}

impl Caller for ProgressPrinter {
    fn progress(&self, progress: Progress) {
        if let Some(message) = progress
            .message
            .filter(|_| self.session.is_attended(&self.task))
        {
            self.session.screen.print_progress(&message);
        }
    }
}
