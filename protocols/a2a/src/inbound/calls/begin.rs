//! A message that begins a task.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Abilities, RawObject};
use callboard_runtime::live::{BeginWork, Ending, LiveTask, Run};
use callboard_runtime::{Begun, CallMeta, Lease, NewTask, Task, TaskId, TaskStep};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::history::MESSAGE;
use super::pick::{Picked, pick};
use super::skills::{Callee, Route};
use super::view::{self, CONTEXT, context};
use super::{Core, Who};
use crate::convert::{Ended, ended, of_failure, of_tasks};
use crate::limits::ID_BYTES_MAX;
use crate::wire::{Message, SendMessageRequest, TaskPushNotificationConfig, Wire as _};
use crate::{A2aError, Dialect, ErrorKind};

/// Member of a message's metadata: the same key of the same owner is the same task. A string of 1 to 128 bytes.
const KEY: &str = "callboard/key";
/// Member of [`Task::request`]: what the skill is given.
const ARGUMENTS: &str = "arguments";
/// Member of [`Task::extra`]: what its client spoke.
const DIALECT: &str = "dialect";

/// The words that a task was begun in.
pub(crate) fn dialect_of(task: &Task) -> Option<Dialect> {
    Dialect::of_version(&task.extra.text(DIALECT)?)
}

/// What became of a message.
pub(super) struct Sent {
    /// The task, right after it took the message.
    pub(super) task: Arc<Task>,
    /// While it runs here.
    pub(super) live: Option<LiveTask>,
    /// The message began it.
    pub(super) is_new: bool,
    /// The message had begun it before: it has the same key.
    pub(super) begun_before: bool,
    /// There is nothing to wait for: the task had the message before.
    pub(super) is_again: bool,
}

impl Core {
    /// Begins the call that a message asks for. `id`: what an older client calls the task.
    pub(super) async fn begin(
        self: &Arc<Self>,
        who: &Who,
        request: SendMessageRequest,
        id: Option<TaskId>,
    ) -> Result<Sent, A2aError> {
        let context = context_of(&request.message)?;
        let id = id.unwrap_or_else(TaskId::fresh);
        let callee = self.callee();
        let call = who.call();
        let skills = callee.skills(call.clone()).await.map_err(of_failure)?;
        let picked = pick(&skills, &request)?;
        let call = callee.judged(&picked.skill, &picked.arguments, call).await.map_err(of_failure)?;
        let options = &self.options.tasks;
        let expires = SystemTime::now() + options.ttl;
        let new = NewTask {
            id,
            scope: self.live.scope.clone(),
            owner: who.owner(),
            key: key_of(&request.message)?,
            request: Some(request_of(&request.message, &picked)),
            class: options.class,
            on_restart: callee.on_restart(&skills, &picked.skill),
            deadline: Some(expires),
            extra: RawObject::new().with(CONTEXT, &context).with(DIALECT, who.dialect.version()),
            scope_tasks_max: Some(options.tasks_max),
            owner_tasks_max: Some(options.owner_tasks_max),
            ..NewTask::new(
                who.principal.as_ref().clone(),
                self.options.info.name.clone(),
                picked.skill.clone(),
                expires,
            )
        };
        match self.live.keep(new).await.map_err(|error| of_tasks(&error))? {
            Begun::Again(task) => {
                let live = self.live.get(&task.id);
                Ok(Sent { task, live, is_new: false, begun_before: true, is_again: false })
            }
            Begun::New(task, lease) => {
                let push = request.configuration.and_then(|given| given.task_push_notification_config);
                self.push(who, &task, &lease, push).await?;
                let work = work(callee, &task, picked.arguments, call);
                let live = self.run(task.clone(), lease, false, work);
                Ok(Sent { live: Some(live), task, is_new: true, begun_before: false, is_again: false })
            }
        }
    }

    /// Keeps a push configuration that came with a message that begins a task. Where that can't be, there is no task.
    async fn push(
        &self,
        who: &Who,
        task: &Arc<Task>,
        lease: &Lease,
        config: Option<TaskPushNotificationConfig>,
    ) -> Result<(), A2aError> {
        let Some(config) = config else { return Ok(()) };
        let kept = self.keep_push(who, task, config).await;
        if kept.is_err() {
            self.live.forget(&lease.task).await;
        }
        kept
    }

    pub(super) async fn keep_push(
        &self,
        who: &Who,
        task: &Arc<Task>,
        config: TaskPushNotificationConfig,
    ) -> Result<(), A2aError> {
        match self.push.get() {
            Some(keep) => keep(who.clone(), task.clone(), config).await,
            None => Err(A2aError::new(ErrorKind::PushNotificationNotSupported, "there are no push notifications")),
        }
    }

    /// Has a task run here. Whoever looks in may be anybody, a person or an agent: they can answer anything.
    pub(super) fn run(&self, task: Arc<Task>, lease: Lease, is_resumed: bool, work: BeginWork<'_>) -> LiveTask {
        self.live.run(Run { task, lease, is_resumed, abilities: Abilities::all(), told: None, work })
    }
}

/// The work of a call that was judged.
pub(super) fn work(callee: Arc<Callee>, task: &Task, arguments: Box<RawValue>, call: CallMeta) -> BeginWork<'static> {
    let skill = task.message.clone();
    // Whoever converses knows which conversation it is.
    let arguments = match (callee.route(&skill), RawObject::parse(&arguments)) {
        (Route::Converse, Ok(said)) => said.with("context", context(task)).to_raw(),
        _ => arguments,
    };
    Box::new(move |caller, expiry| {
        let call = call.with_caller(caller).until(expiry);
        Box::pin(async move {
            let reply = callee.ask(&skill, &arguments, call).await;
            let is_result = callee.answers_result(&skill);
            let became: Ending = Box::new(move |has_all| {
                let Ended { artifact, step } = ended(reply, &skill, is_result, has_all);
                let made = artifact.map(|artifact| TaskStep::Artifact(view::kept(&artifact, false, true)));
                made.into_iter().chain([step]).collect()
            });
            became
        })
    })
}

/// What a task was asked: its skill is [`Task::message`].
pub(super) fn arguments(task: &Task) -> Option<Box<RawValue>> {
    RawObject::parse(task.request.as_deref()?).ok()?.remove(ARGUMENTS)
}

/// For how long a task is kept, from now on.
pub(super) fn left(task: &Task) -> Duration {
    task.expires.duration_since(SystemTime::now()).unwrap_or_default()
}

fn request_of(message: &Message, picked: &Picked) -> Box<RawValue> {
    let mut request = RawObject::new();
    request.set_raw(MESSAGE, message.to_raw());
    request.set_raw(ARGUMENTS, picked.arguments.clone());
    request.to_raw()
}

/// The conversation that a message begins or goes on with.
fn context_of(message: &Message) -> Result<String, A2aError> {
    match &*message.context_id {
        "" => Ok(Uuid::new_v4().to_string()),
        id if id.len() > ID_BYTES_MAX || id.chars().any(char::is_control) => {
            Err(A2aError::new(ErrorKind::InvalidParams, "`contextId` is too long, or has control characters"))
        }
        id => Ok(id.to_owned()),
    }
}

fn key_of(message: &Message) -> Result<Option<String>, A2aError> {
    let Some(key) = message.metadata.as_ref().and_then(|metadata| metadata.get(KEY)) else { return Ok(None) };
    let invalid = |_| A2aError::new(ErrorKind::InvalidParams, format!("`metadata[\"{KEY}\"]` must be a string"));
    serde_json::from_str(key.get()).map(Some).map_err(invalid)
}
