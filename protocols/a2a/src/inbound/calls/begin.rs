//! A message that begins a task.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{RawObject, TaskState};
use callboard_runtime::{
    Begun, CallMeta, JournalError, Lease, NewTask, Released, Task, TaskError, TaskFilter, TaskId, TaskOwner, Tasks,
};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::history::{MESSAGE, first};
use super::live::{self, Begin, Live, Work};
use super::pick::{Picked, pick};
use super::skills::{Callee, Route};
use super::view::{CONTEXT, context};
use super::{Core, Who};
use crate::convert::{ended, of_failure, of_tasks};
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
/// How often a beginning whose outcome is unknown is tried again.
const BEGIN_TRIES_MAX: usize = 3;
/// Ended tasks that are forgotten at once to make room.
const FORGOTTEN_AT_ONCE: usize = 64;

/// What became of a message.
pub(super) struct Sent {
    /// The task, right after it took the message.
    pub(super) task: Arc<Task>,
    /// While it runs here.
    pub(super) live: Option<Live>,
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
            scope: self.scope.clone(),
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
        match self.keep(new).await.map_err(|error| of_tasks(&error))? {
            Begun::Again(task) => {
                let live = self.live().get(&task.id).cloned();
                Ok(Sent { task, live, is_new: false, begun_before: true, is_again: false })
            }
            Begun::New(task, lease) => {
                let push = request.configuration.and_then(|given| given.task_push_notification_config);
                self.push(who, &task, &lease, push).await?;
                let work = work(callee, &task, picked.arguments, call);
                let left = options.ttl;
                let begun = Begin { core: self.clone(), task: task.clone(), lease, is_resumed: false, left, work };
                Ok(Sent { live: Some(self.go(begun)), task, is_new: true, begun_before: false, is_again: false })
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
            self.forget(&lease.task).await;
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

    /// Keeps a task. Whoever wants it may go away meanwhile: then it is left as one that nobody began.
    async fn keep(self: &Arc<Self>, new: NewTask) -> Result<Begun, TaskError> {
        if !self.is_shared {
            // In memory it is done at once.
            return self.keep_somehow(new).await;
        }
        let (core, (begun, was_begun)) = (self.clone(), oneshot::channel());
        tokio::spawn(async move {
            if let Err(Ok(Begun::New(_, lease))) = begun.send(core.keep_somehow(new).await) {
                core.release(&lease, Released::Waits).await;
            }
        });
        was_begun.await.unwrap_or_else(|_| Err(JournalError::Unavailable("it is closing".to_owned()).into()))
    }

    /// Keeps a task; where too many are kept, in place of its owner's oldest that have ended.
    async fn keep_somehow(&self, new: NewTask) -> Result<Begun, TaskError> {
        let owner = new.owner.clone();
        match begin_surely(&*self.store.tasks, new.clone()).await {
            Err(error @ (TaskError::TooMany { .. } | TaskError::Journal(JournalError::Full { .. }))) => {
                if self.make_room(owner).await == 0 {
                    return Err(error);
                }
                begin_surely(&*self.store.tasks, new).await
            }
            other => other,
        }
    }

    /// Forgets the oldest ended tasks of an owner, and answers how many those were.
    async fn make_room(&self, owner: TaskOwner) -> usize {
        let ended = TaskState::ALL.into_iter().filter(|state| state.is_terminal()).collect();
        let of_owner =
            TaskFilter { scope: Some(self.scope.clone()), owner: Some(owner), states: ended, ..TaskFilter::default() };
        match self.store.tasks.list(of_owner, 0, FORGOTTEN_AT_ONCE).await {
            Ok((tasks, _)) => {
                for task in &tasks {
                    self.forget(&task.id).await;
                }
                tasks.len()
            }
            Err(error) => {
                tracing::warn!(%error, "no look at which tasks could make room");
                0
            }
        }
    }

    /// Has a task run here.
    pub(super) fn go(&self, begin: Begin) -> Live {
        // Locked before it runs: it takes itself out when it ends.
        let mut live = self.live();
        let id = begin.task.id.clone();
        let begun = live::begin(begin);
        live.insert(id, begun.clone());
        begun
    }
}

/// The work of a call that was judged.
pub(super) fn work(
    callee: Arc<Callee>,
    task: &Task,
    arguments: Box<RawValue>,
    call: CallMeta,
) -> Box<dyn FnOnce(Arc<dyn callboard_runtime::Caller>, tokio::time::Instant) -> Work + Send> {
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
            let became: Box<dyn FnOnce(bool) -> _ + Send> =
                Box::new(move |has_all| ended(reply, &skill, is_result, has_all));
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

/// Whether a task was begun by a message of that id.
pub(super) fn was_begun_by(task: &Task, message_id: &str) -> bool {
    first(task).is_some_and(|message| message.message_id == message_id)
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
            Ok(Begun::Again(task)) if tried > 1 && task.id == id => match &task.lease {
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
