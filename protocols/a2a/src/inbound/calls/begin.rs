//! Messages that begin a task, or come again; tasks that an earlier process or another node left.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use callboard_message::json::raw;
use callboard_message::{Abilities, Failure, RawObject, TaskState};
use callboard_runtime::live::{BeginWork, CannotResume, Ending, LiveTask, Ran, Run, TaskHost};
use callboard_runtime::{
    Audit, Begun, CallMeta, Lease, NewTask, OnRestart, Task, TaskId, TaskStep,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::pick::{Picked, pick};
use super::skills::{Callee, Route};
use super::view::{self, CONTEXT, MESSAGE, written_context};
use super::{Calls, Who};
use crate::convert::{Ended, ended};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    Message, Part, SendMessageRequest, TaskPushNotificationConfig, Wire, written_about,
};
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
    pub(super) how: Taken,
}

/// How a task took a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The message began it.
    Begun,
    /// The message had begun it before: it is the same, or has the same key.
    BegunBefore,
    /// The message is an answer, or a part of one.
    Answered,
    /// The task had the message before: there is nothing to wait for.
    Again,
}

impl Calls {
    /// Begins the call that a message asks for. `id`: what an older client calls the task.
    pub(super) async fn begin(
        &self,
        who: &Who,
        request: SendMessageRequest,
        id: Option<TaskId>,
        waits: Waits,
    ) -> Result<Sent, A2aError> {
        let context = match &*request.message.context_id {
            "" => Uuid::new_v4().to_string(),
            id => id.to_owned(),
        };
        let id = id.unwrap_or_else(TaskId::fresh);
        let callee = self.callee();
        let call = who.call();
        let skills = callee.skills(call.clone()).await?;
        let picked = pick(&skills, &request)?;
        let told = match callee.route(&picked.skill) {
            Route::Converse => {
                self.with_referenced(who, &request.message, &picked.arguments)
                    .await?
            }
            Route::Message | Route::Tool => None,
        };
        let arguments = told.as_deref().unwrap_or(&picked.arguments);
        let call = callee.judged(&picked.skill, arguments, call).await?;
        // Without what is told of other tasks: that is another thing later, and the message still the same.
        let mut kept = Some(self.request_of(&request, &picked));
        let push = request
            .configuration
            .as_ref()
            .and_then(|given| given.task_push_notification_config.as_ref());
        let push = push.map(Wire::to_json).unwrap_or_default();
        let asked = [
            &*picked.skill,
            kept.as_deref().map_or("null", RawValue::get),
            &push,
        ];
        let mut known = Known::of(
            who,
            &request.message,
            &self.options,
            &*self.store.audit,
            asked,
        )?;
        let on_restart = callee.on_restart(&skills, &picked.skill);
        let begun = loop {
            let asked = kept
                .take()
                .unwrap_or_else(|| self.request_of(&request, &picked));
            let mut new = self.new_task(who, &context, id.clone(), picked.skill.clone(), asked);
            (new.key, new.on_restart) = (known.key(), on_restart);
            match self.live.keep(new).await? {
                Begun::Again(task) if known.is_over(&task) => known = known.next(),
                begun => break begun,
            }
        };
        let (task, lease) = match begun {
            Begun::Again(task) => {
                let live = self.live.get(&task.id);
                return Ok(Sent {
                    task,
                    live,
                    how: Taken::BegunBefore,
                });
            }
            Begun::New(task, lease) => (task, lease),
        };
        if let Some(config) = request
            .configuration
            .and_then(|given| given.task_push_notification_config)
        {
            // Where that can't be kept, there is no task.
            if let Err(error) = self.keep_push(who, &task, config).await {
                self.live.forget(&lease.task).await;
                return Err(error);
            }
        }
        let work = self.work(callee, &task, told.unwrap_or(picked.arguments), call);
        let run = run_of(task.clone(), lease, false, work);
        let (task, live) = match waits {
            Waits::ForItsBeginning => (task, Some(self.live.run(run))),
            Waits::ForItsEnd => match self.live.run_at_once(run).await? {
                Ran::Goes(task, live) => (task, Some(live)),
                Ran::Ended(task) => (task, None),
            },
        };
        Ok(Sent {
            task,
            live,
            how: Taken::Begun,
        })
    }

    /// A task of `who`'s in a conversation, without a key, that asks a skill what `request` says.
    fn new_task(
        &self,
        who: &Who,
        context: &str,
        id: TaskId,
        skill: String,
        request: Box<RawValue>,
    ) -> NewTask {
        let options = &self.options.tasks;
        let expires = SystemTime::now() + options.ttl;
        let mut extra = RawObject::new();
        extra.set_text(CONTEXT, context);
        extra.set_text(DIALECT, who.dialect.version());
        if who.is_anonymous() && self.options.one_anonymous {
            extra.set(OF_PARTY, true);
        }
        NewTask {
            id,
            scope: self.live.scope.clone(),
            owner: who.owner(),
            principal: who.principal.as_ref().clone(),
            agent: self.options.info.name.clone(),
            message: skill,
            key: None,
            request: Some(request),
            class: options.class,
            on_restart: OnRestart::Fail,
            parent: None,
            needs: Vec::new(),
            deadline: Some(expires),
            expires,
            extra,
            scope_tasks_max: Some(options.tasks_max),
            owner_tasks_max: Some(options.owner_tasks_max),
        }
    }

    /// What a task keeps of the request that begins it. Nobody goes on with what is in no store that lasts; then the arguments,
    /// which follow from the message, aren't kept beside it.
    fn request_of(&self, request: &SendMessageRequest, picked: &Picked) -> Box<RawValue> {
        let with_arguments = self.lasts() || request.metadata.is_some();
        let bytes: usize = request.message.parts.iter().map(Part::bytes).sum();
        let of_arguments = if with_arguments {
            picked.arguments.get().len()
        } else {
            0
        };
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

    pub(super) async fn keep_push(
        &self,
        who: &Who,
        task: &Arc<Task>,
        config: TaskPushNotificationConfig,
    ) -> Result<(), A2aError> {
        match self.push.get() {
            Some(keep) => keep(who.clone(), task.clone(), config).await,
            None => {
                Err(ErrorKind::PushNotificationNotSupported
                    .error("there are no push notifications"))
            }
        }
    }

    /// The work of a call that was judged.
    fn work(
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
                let became: Ending = Box::new(move |has_all| {
                    steps_of(ended(reply, &skill, is_result, has_all), lasts)
                });
                became
            })
        })
    }
}

/// A task that is to run here. Whoever looks in may be anybody, a person or an agent: they can answer anything.
fn run_of(task: Arc<Task>, lease: Lease, is_resumed: bool, work: BeginWork<'_>) -> Run<'_> {
    static ALL: LazyLock<Arc<Abilities>> = LazyLock::new(|| Arc::new(Abilities::all()));
    Run {
        task,
        lease,
        is_resumed,
        abilities: ALL.clone(),
        told: None,
        work,
    }
}

/// The steps that end a task. What an artifact tells is kept once where nobody reads it otherwise: in no store that lasts.
fn steps_of(ended: Ended, lasts: bool) -> Vec<TaskStep> {
    match ended {
        Ended {
            artifact: None,
            step,
        } => vec![step],
        Ended {
            artifact: Some(artifact),
            step,
        } => {
            let made = TaskStep::Artifact(view::kept(artifact, false, true));
            match step {
                TaskStep::Completed(_) if !lasts => {
                    vec![made, TaskStep::Completed(RawValue::NULL.to_owned())]
                }
                step => vec![made, step],
            }
        }
    }
}

/// What a task was asked: its skill is [`Task::message`].
fn arguments(task: &Task) -> Option<Box<RawValue>> {
    RawObject::parse(task.request.as_deref()?)
        .ok()?
        .remove(ARGUMENTS)
}

/// For how long a task is kept, from now on.
pub(super) fn left(task: &Task) -> Duration {
    task.expires
        .duration_since(SystemTime::now())
        .unwrap_or_default()
}

/// Member of a message's metadata: the same key of the same owner is the same task, as long as that is kept. A string of 1 to
/// 128 bytes.
const KEY: &str = "callboard/key";
/// What keys of ours begin with, and no client's.
const OURS: &str = "callboard/again:";
/// How much of a message's hash is its mark, in hexadecimal digits.
const MARK_DIGITS: usize = 32;
/// How often one message may begin a task anew, each time when the one before counts no more; after that it isn't known again
/// until those are forgotten.
/// At the limit: after that it isn't known again. Changed by `TaskOptions::repeat_within`.
const TURNS_MAX: u32 = 64;

/// What the same message is known by.
#[derive(Debug, PartialEq)]
enum Known {
    /// Nothing.
    Not,
    /// The key that its client gave it.
    ByKey(String),
    /// Itself, for so long after its task began.
    ByItself {
        mark: String,
        turn: u32,
        within: Duration,
    },
}

impl Known {
    /// What a message is known by that asks for what `asked` says: its skill, what is kept of its request, and its push
    /// configuration. Its mark is made by `marks`, for it is kept where what was said may not be.
    ///
    /// # Errors
    /// `InvalidParams` for a key that isn't a text, or looks like one of ours.
    fn of(
        who: &Who,
        message: &Message,
        options: &A2aOptions,
        marks: &dyn Audit,
        asked: [&str; 3],
    ) -> Result<Self, A2aError> {
        if let Some(key) = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(KEY))
        {
            let invalid = |why: String| {
                ErrorKind::InvalidParams.error(format!("`metadata[\"{KEY}\"]` {why}"))
            };
            let key: String = serde_json::from_str(key.get())
                .map_err(|_| invalid("must be a string".to_owned()))?;
            return match key.starts_with(OURS) {
                true => Err(invalid(format!("can't begin with `{OURS}`"))),
                false => Ok(Self::ByKey(key)),
            };
        }
        // Messages of 0.1 have no ids, tasks have. Among people whom nobody tells apart an id may be two people's, unless it is one
        // that nobody has twice.
        let within = options.tasks.repeat_within;
        let is_whose = options.one_anonymous
            || !who.is_anonymous()
            || Uuid::try_parse(&message.message_id).is_ok();
        if who.dialect == Dialect::V01 || within.is_zero() || !is_whose {
            return Ok(Self::Not);
        }
        let digest = asked
            .into_iter()
            .fold(Sha256::new(), |hash, part| {
                hash.chain_update(part).chain_update([0])
            })
            .finalize();
        let hash = marks.mark(options.tasks.class, &digest).hash;
        let digits = hash.rsplit(':').next().unwrap_or_default();
        let mark = digits.get(..MARK_DIGITS).unwrap_or(digits).to_owned();
        Ok(Self::ByItself {
            mark,
            turn: 0,
            within,
        })
    }

    /// The task's key.
    fn key(&self) -> Option<String> {
        match self {
            Self::Not => None,
            Self::ByKey(key) => Some(key.clone()),
            Self::ByItself { mark, turn, .. } => Some(format!("{OURS}{mark}:{turn}")),
        }
    }

    /// Whether `task`, which the message began once, is its answer no more: its time is over, or it came to nothing, which another
    /// try may not.
    fn is_over(&self, task: &Task) -> bool {
        let came_to_nothing = task.state.is_terminal() && task.state != TaskState::Completed;
        let is_too_old = |within| !counts(task.created, SystemTime::now(), within);
        matches!(self, Self::ByItself { within, .. } if came_to_nothing || is_too_old(*within))
    }

    /// What it is known by the next time that it begins a task.
    fn next(self) -> Self {
        match self {
            Self::ByItself { turn, .. } if turn + 1 == TURNS_MAX => Self::Not,
            Self::ByItself { mark, turn, within } => Self::ByItself {
                mark,
                turn: turn + 1,
                within,
            },
            same => same,
        }
    }
}

/// Whether a task that was begun at `begun` is still the answer to its message.
fn counts(begun: SystemTime, now: SystemTime, within: Duration) -> bool {
    now.duration_since(begun).unwrap_or_default() <= within
}

impl TaskHost for Calls {
    fn resume(
        self: Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>> {
        Box::pin(async move {
            let Some(given) = arguments(&task) else {
                let why = Failure::unavailable("what it was asked wasn't kept");
                return Err(CannotResume::Fails(why));
            };
            let (callee, call) = (
                self.callee(),
                CallMeta::new(Arc::new(task.principal.clone())),
            );
            let given = match view::first_message(&task)
                .filter(|_| callee.route(&task.message) == Route::Converse)
            {
                Some(said) => {
                    let who = Who::new(call.principal.clone(), Dialect::V10);
                    let told = self.with_referenced(&who, &said, &given).await;
                    let unread = |_| {
                        CannotResume::Fails(Failure::unavailable("what it refers to can't be read"))
                    };
                    told.map_err(unread)?.unwrap_or(given)
                }
                None => given,
            };
            let call = callee
                .judged(&task.message, &given, call)
                .await
                .map_err(CannotResume::Fails)?;
            let work = self.work(callee, &task, given, call);
            self.live.run(run_of(task, lease, true, work));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::{DataClass, Principal};
    use callboard_runtime::MemoryAudit;

    use super::*;

    /// Goal: nobody finds out by a mark what was said where that could be guessed. Method: the mark that stores of other keys make of
    /// one message.
    #[test]
    fn marks_are_keyed() {
        let who = Who::new(Arc::new(Principal::agent("ann")), Dialect::V10);
        let known = |class| {
            let mut options = A2aOptions::at("http://127.0.0.1:1".parse().unwrap());
            options.tasks.class = class;
            let asked = ["skill", "null", ""];
            Known::of(
                &who,
                &Message::default(),
                &options,
                &MemoryAudit::default(),
                asked,
            )
            .unwrap()
            .key()
            .unwrap()
        };
        assert_eq!(known(DataClass::Internal), known(DataClass::Internal));
        assert_ne!(known(DataClass::Clinical), known(DataClass::Clinical));
        assert_eq!(
            known(DataClass::Clinical).len(),
            OURS.len() + MARK_DIGITS + 2
        );
    }

    /// Goal: a message is known for its time and no longer, and never more often than there are turns. Method: the last moment and
    /// the one after; a task that counts no more, as often as there are turns.
    #[test]
    fn for_a_time() {
        let (begun, within) = (SystemTime::UNIX_EPOCH, Duration::from_secs(600));
        for (after, is_known) in [(0, true), (600_000, true), (600_001, false)] {
            assert_eq!(
                counts(begun, begun + Duration::from_millis(after), within),
                is_known,
                "{after}"
            );
        }
        assert!(
            counts(begun + within, begun, within),
            "a clock that was put back"
        );

        let mut known = Known::ByItself {
            mark: "mark".to_owned(),
            turn: 0,
            within,
        };
        let mut keys = Vec::new();
        while let Some(key) = known.key() {
            keys.push(key);
            known = known.next();
        }
        assert_eq!(
            (keys.len(), &*keys[1]),
            (TURNS_MAX as usize, "callboard/again:mark:1")
        );
    }
}
