//! A message that begins a task.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use callboard_message::json::raw;
use callboard_message::{Abilities, RawObject};
use callboard_runtime::live::{BeginWork, Ending, LiveTask, Ran, Run};
use callboard_runtime::{Begun, CallMeta, Lease, NewTask, Task, TaskId, TaskStep};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::history::MESSAGE;
use super::pick::{Picked, pick};
use super::repeat::{Asks, Known};
use super::skills::{Callee, Route};
use super::view::{self, CONTEXT, written_context};
use super::{Core, Who};
use crate::convert::{Ended, ended, of_failure, of_tasks};
use crate::limits::ID_BYTES_MAX;
use crate::wire::{Message, Part, SendMessageRequest, TaskPushNotificationConfig, written_about};
use crate::{A2aError, Dialect, ErrorKind};

/// Member of [`Task::request`]: what the skill is given.
const ARGUMENTS: &str = "arguments";
/// Member of [`Task::extra`]: what its client spoke.
const DIALECT: &str = "dialect";

/// Member of [`Task::extra`]: it was begun without a credential where all who come in so are one party.
const OF_PARTY: &str = "party";

/// Whether a task that nobody's credential began may be shown to a party that lists its tasks: what strangers began elsewhere may
/// not.
pub(super) fn is_of_party(task: &Task) -> bool {
    task.extra.has(OF_PARTY)
}

/// The words that a task was begun in.
pub(crate) fn dialect_of(task: &Task) -> Option<Dialect> {
    Dialect::of_version(&task.extra.text(DIALECT)?)
}

/// Room for what a message has besides its parts, in bytes.
const MESSAGE_ROOM_BYTES: usize = 256;

/// What somebody waits for who begins a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Only that it has begun.
    ForItsBeginning,
    /// Until it has ended, or asks.
    ForItsEnd,
}

/// What became of a message.
pub(super) struct Sent {
    /// The task, right after it took the message; where somebody waits for its end, and that came at once, as it ended.
    pub(super) task: Arc<Task>,
    /// While it runs here.
    pub(super) live: Option<LiveTask>,
    /// The message began it.
    pub(super) is_new: bool,
    /// The message had begun it before: it is the same, or has the same key.
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
        waits: Waits,
    ) -> Result<Sent, A2aError> {
        let context = context_of(&request.message)?;
        let id = id.unwrap_or_else(TaskId::fresh);
        let callee = self.callee();
        let call = who.call();
        let skills = callee.skills(call.clone()).await.map_err(of_failure)?;
        let picked = pick(&skills, &request)?;
        let told = match callee.route(&picked.skill) {
            Route::Converse => self.with_referenced(who, &request.message, &picked.arguments).await?,
            Route::Message | Route::Tool => None,
        };
        let arguments = told.as_deref().unwrap_or(&picked.arguments);
        let call = callee.judged(&picked.skill, arguments, call).await.map_err(of_failure)?;
        // Without what is told of other tasks: that is another thing later, and the message still the same.
        let mut kept = Some(self.request_of(&request, &picked));
        let push = request.configuration.as_ref().and_then(|given| given.task_push_notification_config.as_ref());
        let asks = Asks { skill: &picked.skill, request: kept.as_deref().unwrap_or(RawValue::NULL), push };
        let mut known = Known::of(who, &request.message, &self.options, &*self.store.audit, asks)?;
        let begun = loop {
            let options = &self.options.tasks;
            let expires = SystemTime::now() + options.ttl;
            let mut extra = RawObject::new();
            extra.set_text(CONTEXT, &context);
            extra.set_text(DIALECT, who.dialect.version());
            if who.is_anonymous() && self.options.one_anonymous {
                extra.set(OF_PARTY, true);
            }
            let new = NewTask {
                id: id.clone(),
                scope: self.live.scope.clone(),
                owner: who.owner(),
                principal: who.principal.as_ref().clone(),
                agent: self.options.info.name.clone(),
                message: picked.skill.clone(),
                key: known.key(),
                request: Some(kept.take().unwrap_or_else(|| self.request_of(&request, &picked))),
                class: options.class,
                on_restart: callee.on_restart(&skills, &picked.skill),
                parent: None,
                needs: Vec::new(),
                deadline: Some(expires),
                expires,
                extra,
                scope_tasks_max: Some(options.tasks_max),
                owner_tasks_max: Some(options.owner_tasks_max),
            };
            match self.live.keep(new).await.map_err(|error| of_tasks(&error))? {
                Begun::Again(task) if known.is_over(&task) => known = known.next(),
                begun => break begun,
            }
        };
        match begun {
            Begun::Again(task) => {
                let live = self.live.get(&task.id);
                Ok(Sent { task, live, is_new: false, begun_before: true, is_again: false })
            }
            Begun::New(task, lease) => {
                let push = request.configuration.and_then(|given| given.task_push_notification_config);
                self.push(who, &task, &lease, push).await?;
                let work = self.work(callee, &task, told.unwrap_or(picked.arguments), call);
                let (task, live) = match waits {
                    Waits::ForItsBeginning => (task.clone(), Some(self.live.run(run_of(task, lease, false, work)))),
                    Waits::ForItsEnd => {
                        let ran = self.live.run_at_once(run_of(task, lease, false, work)).await;
                        match ran.map_err(|error| of_tasks(&error))? {
                            Ran::Goes(task, live) => (task, Some(live)),
                            Ran::Ended(task) => (task, None),
                        }
                    }
                };
                Ok(Sent { live, task, is_new: true, begun_before: false, is_again: false })
            }
        }
    }

    /// What a task keeps of the request that begins it. Nobody goes on with what is in no store that lasts; then the arguments,
    /// which follow from the message, aren't kept beside it.
    fn request_of(&self, request: &SendMessageRequest, picked: &Picked) -> Box<RawValue> {
        let with_arguments = self.lasts() || request.metadata.is_some();
        let bytes: usize = request.message.parts.iter().map(Part::bytes).sum();
        let of_arguments = if with_arguments { picked.arguments.get().len() } else { 0 };
        written_about(bytes + of_arguments + MESSAGE_ROOM_BYTES, |out| {
            let mut kept = out.object();
            kept.always(MESSAGE, &request.message);
            if with_arguments {
                kept.member(ARGUMENTS).json(picked.arguments.get());
            }
            kept.end();
        })
    }

    /// Whether tasks are kept in a store that outlives this server, or may.
    fn lasts(&self) -> bool {
        self.options.tasks.store.is_some()
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

    /// The work of a call that was judged.
    pub(super) fn work(
        &self,
        callee: Arc<Callee>,
        task: &Task,
        arguments: Box<RawValue>,
        call: CallMeta,
    ) -> BeginWork<'static> {
        let skill = task.message.clone();
        // Whoever converses knows which conversation it is.
        let arguments = match (callee.route(&skill), arguments.get().strip_suffix('}')) {
            (Route::Converse, Some(said)) if said.len() > 1 => {
                raw([said, ",\"context\":", written_context(task), "}"].concat())
            }
            _ => arguments,
        };
        let lasts = self.lasts();
        Box::new(move |caller, expiry| {
            let call = call.with_caller(caller).until(expiry);
            Box::pin(async move {
                let reply = callee.ask(&skill, arguments, call).await;
                let is_result = callee.answers_result(&skill);
                let became: Ending = Box::new(move |has_all| steps_of(ended(reply, &skill, is_result, has_all), lasts));
                became
            })
        })
    }
}

/// A task that is to run here. Whoever looks in may be anybody, a person or an agent: they can answer anything.
pub(super) fn run_of(task: Arc<Task>, lease: Lease, is_resumed: bool, work: BeginWork<'_>) -> Run<'_> {
    static ALL: LazyLock<Arc<Abilities>> = LazyLock::new(|| Arc::new(Abilities::all()));
    Run { task, lease, is_resumed, abilities: ALL.clone(), told: None, work }
}

/// The steps that end a task. What an artifact tells is kept once where nobody reads it otherwise: in no store that lasts.
fn steps_of(ended: Ended, lasts: bool) -> Vec<TaskStep> {
    match ended {
        Ended { artifact: None, step } => vec![step],
        Ended { artifact: Some(artifact), step } => {
            let made = TaskStep::Artifact(view::kept(artifact, false, true));
            match step {
                TaskStep::Completed(_) if !lasts => vec![made, TaskStep::Completed(RawValue::NULL.to_owned())],
                step => vec![made, step],
            }
        }
    }
}

/// What a task was asked: its skill is [`Task::message`].
pub(super) fn arguments(task: &Task) -> Option<Box<RawValue>> {
    RawObject::parse(task.request.as_deref()?).ok()?.remove(ARGUMENTS)
}

/// For how long a task is kept, from now on.
pub(super) fn left(task: &Task) -> Duration {
    task.expires.duration_since(SystemTime::now()).unwrap_or_default()
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
