//! What was said here, as tasks of its own: each outlives this process where the store does.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::surface::{Abilities, Converse};
use callboard_message::{
    Content, DataClass, Failure, FailureKind, Message, Principal, Progress, RawObject,
};
use callboard_orchestration::decide::RunId;
use callboard_runtime::live::{
    BeginWork, CannotResume, Ending, LiveOptions, LiveTask, LiveTasks, Run, TaskHost,
};
use callboard_runtime::{
    AgentRef, Begun, By, CallMeta, Caller, JournalError, Lease, NewTask, OnRestart, Task,
    TaskError, TaskFilter, TaskId, TaskOutcome, TaskStep, Tasks,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::answer::{asked, result_of};
use super::print::{Screen, one_line};
use crate::config::OrchestratorDeclaration;

/// How long what was said here is kept.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Most tasks of one REPL that are kept; then the oldest that have ended make room.
const TASKS_MAX: usize = 10_000;
/// Tasks that a list shows at most.
const LISTED_MAX: usize = 200;
/// Shortest beginning of an id that names a task.
const PREFIX_CHARS_MIN: usize = 4;
/// Tasks that are read at once.
const PAGE: usize = 100;
/// Member of [`Task::extra`]: the session.
const SESSION: &str = "context";

/// The tasks of this REPL.
pub(super) struct Desk {
    pub(super) live: Arc<LiveTasks>,
    agent: AgentRef,
    /// The agent's id.
    id: String,
    class: DataClass,
    screen: Screen,
    /// The task that somebody waits for at the prompt.
    attended: Mutex<Option<TaskId>>,
}

impl Desk {
    /// What was left by an earlier process goes on from here, once there is a runtime.
    pub(super) fn open(
        tasks: Arc<dyn Tasks>,
        agent: AgentRef,
        OrchestratorDeclaration { id, class, .. }: &OrchestratorDeclaration,
        screen: &Screen,
    ) -> Arc<Self> {
        let options = LiveOptions {
            is_shared: true,
            stays: false,
            makes_room: true,
            artifacts: Some(|artifact| artifact.0.clone()),
        };
        let live = LiveTasks::new(tasks, format!("repl:{id}"), options);
        let (id, screen, attended) = (id.clone(), screen.clone(), Mutex::default());
        let desk = Arc::new(Self {
            live,
            agent,
            id,
            class: *class,
            screen,
            attended,
        });
        desk.live.serve(&desk);
        desk
    }

    /// Says something to the agent: the task that answers it.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn say(
        self: &Arc<Self>,
        session: &str,
        text: &str,
    ) -> Result<LiveTask, TaskError> {
        let task = TaskId::fresh();
        let said = Converse::of([Content::text(text)])
            .0
            .with("key", &task)
            .with("context", session);
        let new = NewTask {
            id: task,
            scope: self.live.scope.clone(),
            request: Some(said.to_raw()),
            class: self.class,
            on_restart: OnRestart::Resume,
            extra: RawObject::of(SESSION, session),
            owner_tasks_max: Some(TASKS_MAX),
            ..NewTask::new(
                Principal::local_operator(),
                self.id.clone(),
                Converse::NAME,
                SystemTime::now() + KEPT_FOR,
            )
        };
        match self.live.keep(new).await? {
            Begun::New(task, lease) => Ok(self.run(task, lease, false, said.to_raw())),
            // An id is never used twice.
            Begun::Again(task) => self
                .live
                .get(&task.id)
                .ok_or(TaskError::HasEnded(task.state)),
        }
    }

    fn run(
        self: &Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
        is_resumed: bool,
        said: Box<RawValue>,
    ) -> LiveTask {
        let (agent, principal) = (self.agent.clone(), Arc::new(task.principal.clone()));
        let work: BeginWork<'static> = Box::new(move |caller, expiry| {
            let call = CallMeta::new(principal).with_caller(caller).until(expiry);
            Box::pin(async move {
                let gone = call.cancel.clone().drop_guard();
                let reply = agent
                    .ask_named(Converse::NAME, said, Some(Arc::new(call)))
                    .await;
                gone.disarm();
                let ending: Ending = Box::new(move |_| vec![end(reply)]);
                ending
            })
        });
        let told: Arc<dyn Caller> = Arc::new(Onlooker {
            desk: self.clone(),
            task: task.id.clone(),
        });
        self.live.run(Run {
            task,
            lease,
            is_resumed,
            abilities: abilities(),
            told: Some(told),
            work,
        })
    }

    /// A task by its id, or by the beginning of one of ours that begins no other.
    ///
    /// # Errors
    /// What to type.
    pub(super) async fn find(&self, given: &str) -> Result<Arc<Task>, String> {
        let unknown = || format!("There is no task {} (:tasks lists them)", one_line(given));
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
        if given.chars().count() < PREFIX_CHARS_MIN {
            return Err(unknown());
        }
        let ours = self.ours(None).await.map_err(|error| error.to_string())?;
        let mut begun_so = ours
            .into_iter()
            .filter(|task| task.id.as_str().starts_with(given));
        match (begun_so.next(), begun_so.next()) {
            (Some(task), None) => Ok(task),
            (None, _) => Err(unknown()),
            (Some(_), Some(_)) => Err(format!("Several tasks begin with {given}: type more of it")),
        }
    }

    /// The newest tasks that were begun here, of one session or of all, oldest first.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn ours(&self, session: Option<&str>) -> Result<Vec<Arc<Task>>, JournalError> {
        let filter = TaskFilter {
            scope: Some(self.live.scope.clone()),
            ..TaskFilter::default()
        };
        let mut all = self.list(filter).await?;
        if let Some(session) = session {
            all.retain(|task| session_of(task) == session);
        }
        Ok(all)
    }

    /// The newest tasks of this agent, whoever began them, oldest first.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Task>>, JournalError> {
        self.list(TaskFilter::default()).await
    }

    /// The steps of the plan that a task has come to, if it did: where each of them stands now.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn parts(&self, of: &Task) -> Result<Vec<Arc<Task>>, JournalError> {
        // A plan's own task is one that can be looked at too.
        for run in [Some(of.id.clone()), self.run_of(of), told_run(of)]
            .into_iter()
            .flatten()
        {
            let parts = self
                .list(TaskFilter {
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

    /// The plan's own task, as the agent names it by what was said.
    fn run_of(&self, of: &Task) -> Option<TaskId> {
        let said = Converse(said_of(of)?);
        let key = Some(said.key()).filter(|key| !key.is_empty())?;
        let run = RunId::of(&self.id, of.owner.as_str(), &said.context(), &key);
        TaskId::new(run.as_str()).ok()
    }

    async fn list(&self, filter: TaskFilter) -> Result<Vec<Arc<Task>>, JournalError> {
        let mut all: Vec<Arc<Task>> = Vec::new();
        loop {
            let after = all.last().map_or(0, |task| task.number);
            let (page, is_more) = self.live.tasks.list(filter.clone(), after, PAGE).await?;
            all.extend(page);
            if !is_more {
                break;
            }
        }
        all.drain(..all.len().saturating_sub(LISTED_MAX));
        Ok(all)
    }

    /// Ends a task, wherever it runs. It as it is then.
    ///
    /// # Errors
    /// `HasEnded`, or the store's.
    pub(super) async fn cancel(&self, id: &TaskId) -> Result<Arc<Task>, TaskError> {
        match self.live.get(id) {
            Some(live) => live.cancel().await,
            None => self.live.tasks.want_cancel(id, By::Operator).await,
        }
    }

    /// From now on somebody waits for this task at the prompt, or for none.
    pub(super) fn attend(&self, task: Option<&TaskId>) {
        *self.attended.lock() = task.cloned();
    }

    fn is_attended(&self, task: &TaskId) -> bool {
        self.attended.lock().as_ref() == Some(task)
    }

    /// Tells of a task that nobody waits for at the prompt: that it asks, and that it ended. `told`: the key of a question that
    /// was put already.
    pub(super) fn watch(self: &Arc<Self>, live: &LiveTask, mut told: String) {
        let (desk, mut seen) = (self.clone(), live.seen.clone());
        tokio::spawn(async move {
            loop {
                let task = seen.borrow_and_update().clone();
                let is_attended = desk.is_attended(&task.id);
                if task.state.is_terminal() {
                    if !is_attended {
                        desk.screen.notice(&format!(
                            "🔔 Task {} ended: {} (:task {})",
                            task.id, task.state, task.id
                        ));
                    }
                    return;
                }
                if let Some(open) = task
                    .open
                    .first()
                    .filter(|open| open.key != told && !is_attended)
                {
                    told.clone_from(&open.key);
                    let text = asked(&open.question);
                    let line = text.lines().next().unwrap_or_default();
                    desk.screen.notice(&format!(
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

    /// Lets go of what runs: it goes on with the next start where it was kept.
    pub(super) async fn close(&self) {
        self.live.stop();
        self.live.stopped().await;
    }
}

impl TaskHost for Desk {
    fn resume(
        self: Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>> {
        Box::pin(async move {
            let Some(said) = task.request.clone() else {
                let why = Failure::unavailable(not_kept(task.class));
                return Err(CannotResume::Fails(why));
            };
            self.screen.notice(&format!("🔔 Task {} goes on", task.id));
            let live = self.run(task, lease, true, said);
            self.watch(&live, String::new());
            Ok(())
        })
    }
}

/// Why a task can't go on that an earlier process began.
fn not_kept(class: DataClass) -> &'static str {
    match class {
        DataClass::Clinical => "what it was asked wasn't kept, for it is clinical: say it again",
        _ => "what it was asked wasn't kept: say it again",
    }
}

/// The session that a task belongs to.
pub(super) fn session_of(task: &Task) -> String {
    task.extra.text(SESSION).unwrap_or_default()
}

/// What was said to begin a task.
pub(super) fn text_of_request(task: &Task) -> String {
    let Some(said) = said_of(task) else {
        return "(not kept)".to_owned();
    };
    match Converse(said.clone()).texts() {
        text if text.is_empty() => super::print::laid_out(&said.to_raw()),
        text => text,
    }
}

/// The same, in the agent's words.
fn said_of(task: &Task) -> Option<RawObject> {
    let request = RawObject::parse(task.request.as_ref()?).ok()?;
    // A task of a protocol has what it was asked in its own words.
    Some(request.object("arguments").unwrap_or(request))
}

/// The plan's own task, where the answer tells of it.
fn told_run(task: &Task) -> Option<TaskId> {
    let Some(TaskOutcome::Reply(reply)) = &task.outcome else {
        return None;
    };
    let run = result_of(reply)
        .0
        .object("structuredContent")?
        .text("run")?;
    TaskId::new(run).ok()
}

fn end(reply: Result<Box<RawValue>, Failure>) -> TaskStep {
    match reply {
        Ok(reply) => TaskStep::Completed(reply),
        Err(failure) if failure.kind == FailureKind::Rejected => TaskStep::Rejected(failure),
        Err(failure) if failure.kind == FailureKind::Cancelled => TaskStep::Cancelled {
            why: failure.message,
        },
        Err(failure) => TaskStep::Failed(failure),
    }
}

/// What a person at a prompt can answer.
fn abilities() -> Arc<Abilities> {
    let forms = RawObject::of("form", RawObject::new()).with("url", RawObject::new());
    Arc::new(Abilities(RawObject::of("elicitation", forms)))
}

/// Shows how far a task has come, while somebody waits for it. Questions are the task's.
struct Onlooker {
    desk: Arc<Desk>,
    task: TaskId,
}

impl Caller for Onlooker {
    fn progress(&self, progress: Progress) {
        if let Some(message) = progress
            .message
            .filter(|_| self.desk.is_attended(&self.task))
        {
            self.desk.screen.aside(&message);
        }
    }
}
