//! Start of tasks: by new and repeated messages, and by resuming tasks of an earlier process or
//! another node.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use callboard_message::capabilities::Converse;
use callboard_message::json::{quote_into, raw_from_written};
use callboard_message::{CallerCapabilities, Failure, Message as _, PARENT_META_KEY, RawObject};
use callboard_runtime::running::{
    BeginTaskCall, CannotResume, EndSteps, FoundTask, RunOutcome, RunningTask, TaskHost, TaskRun,
};
use callboard_runtime::{
    CallContext, CreateOutcome, Lease, NewTask, OnRestart, Task, TaskId, TaskStep,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::idempotency::IdempotencyKey;
use super::skill_selection::{SelectedSkill, select_skill};
use super::skills::{ServedAgent, SkillRoute};
use super::view::{self, CONTEXT_MEMBER, MESSAGE_MEMBER, context_id_json};
use super::{A2aTaskService, RequestContext};
use crate::convert::{TaskCompletion, origin_of_reply, task_completion};
use crate::wire::{
    A2aMessage, Part, SendMessageRequest, TaskPushNotificationConfig, WireType, write_json_sized,
};
use crate::{A2aError, Dialect, ErrorKind};

/// Key in [`Task::request`] of the skill's arguments.
const ARGUMENTS: &str = "arguments";
/// Key in [`Task::request`] of the message, in the form of [`Converse`], for a skill that gets the
/// message itself.
const MESSAGE_ARGUMENTS: &str = "said";
/// Key in [`Task::extra`] of the protocol version in which the client began the task.
const DIALECT: &str = "dialect";

/// Key in [`Task::extra`] that marks tasks of anonymous callers, begun while all anonymous callers
/// counted as one owner (`A2aOptions::shares_anonymous_tasks`).
const SHARED_ANONYMOUS: &str = "party";

/// Returns whether an anonymous caller's task may be listed for other anonymous callers. A task may
/// not if it was begun while anonymous callers counted as separate owners.
pub(super) fn is_shared_anonymous(task: &Task) -> bool {
    task.extra.has(SHARED_ANONYMOUS)
}

/// Returns the dialect in which a task was begun; `None` if it isn't recorded.
pub(crate) fn task_dialect(task: &Task) -> Option<Dialect> {
    Dialect::from_version(&task.extra.text(DIALECT)?)
}

/// Estimated size of a message's JSON without its parts, in bytes. Used for the initial capacity of
/// buffers.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

/// Point until which the sender of a message waits for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitMode {
    /// Wait until the task is stored.
    UntilStarted,
    /// Wait until the task has ended or has an open question.
    UntilSettled,
}

/// Result of accepting a message.
pub(super) struct SendOutcome {
    /// State of the task right after it accepted the message. If the sender waits for the task's
    /// end, it may be the state at the end instead.
    pub(super) task: Arc<Task>,
    /// Handle of the task while it runs in this process.
    pub(super) live: Option<RunningTask>,
    pub(super) disposition: MessageDisposition,
}

impl SendOutcome {
    /// Creates the outcome of a message that has no effect on the task.
    pub(super) fn duplicate(found: FoundTask) -> Self {
        Self {
            task: found.task,
            live: found.running,
            disposition: MessageDisposition::Duplicate,
        }
    }
}

/// Id of a task that the client assigned (0.1).
pub(super) struct AssignedTaskId {
    pub(super) id: TaskId,
    /// Whether an ended task of the caller has the id, which the new one replaces.
    pub(super) replaces: bool,
}

/// Effect of a message on its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageDisposition {
    /// The message began the task.
    TaskCreated,
    /// The message had begun the task before: it is the same, or has the same idempotency key.
    TaskExisted,
    /// The message is a complete or partial answer to a question of the task.
    Answered,
    /// The task had received the same message before, so it has no effect.
    Duplicate,
}

impl A2aTaskService {
    /// Begins a task for a message. `assigned` is the task's id if the client assigned one (0.1).
    pub(super) async fn start_task(
        &self,
        who: &RequestContext,
        request: SendMessageRequest,
        assigned: Option<AssignedTaskId>,
        waits: WaitMode,
    ) -> Result<SendOutcome, A2aError> {
        let place = TaskPlace::of(&request.message);
        let replaces = assigned.as_ref().is_some_and(|assigned| assigned.replaces);
        let id = assigned.map_or_else(TaskId::generate, |assigned| assigned.id);
        let callee = self.served_agent();
        let call = who.call_context();
        let skills = callee.skills(call.clone()).await?;
        let picked = select_skill(&skills, &request)?;
        let mut references = request.message.reference_task_ids.clone();
        references.extend(replaces.then(|| id.as_str().to_owned()));
        let route = callee.route(&picked.skill, picked.is_message);
        let called = (&*callee, route, &*picked.skill);
        let told = self
            .references
            .with_references(who, called, &references, &picked.arguments)
            .await?;
        let arguments = told.as_deref().unwrap_or(&picked.arguments);
        // Of a message, only the agent reads the arguments.
        let judged = match picked.is_message {
            true => RawValue::NULL,
            false => arguments,
        };
        let call = callee.authorize(&picked.skill, judged, call).await?;
        // Content of referenced tasks isn't included: it may change later while the message stays
        // the same.
        let mut kept = Some(self.stored_request(&request, &picked));
        let stored = kept.as_deref().map_or("null", RawValue::get);
        let mut known = self.idempotency_key(who, &request, &picked.skill, stored)?;
        let on_restart = callee.on_restart(&skills, &picked.skill);
        if replaces {
            self.delete_ended(&id).await?;
        }
        let begun = loop {
            let asked = kept
                .take()
                .unwrap_or_else(|| self.stored_request(&request, &picked));
            let mut new = self.new_task(who, &place, id.clone(), picked.skill.clone(), asked);
            (new.key, new.on_restart) = (known.task_key(), on_restart);
            match self.live.create(new).await? {
                CreateOutcome::Existing(task) if known.is_stale(&task) => {
                    known = known.next_attempt()
                }
                begun => break begun,
            }
        };
        let (task, lease) = match begun {
            CreateOutcome::Existing(task) => {
                let live = self.live.get(&task.id);
                return Ok(SendOutcome {
                    task,
                    live,
                    disposition: MessageDisposition::TaskExisted,
                });
            }
            CreateOutcome::Created(task, lease) => (task, lease),
        };
        if let Some(config) = request
            .configuration
            .and_then(|given| given.task_push_notification_config)
        {
            // If the push configuration can't be stored, the task isn't begun.
            if let Err(error) = self.store_push_config(who, &task, config).await {
                self.live.delete(&lease.task).await;
                return Err(error);
            }
        }
        let arguments = told.unwrap_or(picked.arguments);
        let work = self.task_work(callee, route, &task, arguments, call);
        self.run_created(task_run(task, lease, false, work), waits)
            .await
    }

    /// Deletes a task that has ended, so that a new one can have its id.
    ///
    /// # Errors
    /// `UnsupportedOperation` if the task has begun anew since it was found.
    async fn delete_ended(&self, id: &TaskId) -> Result<(), A2aError> {
        match self.store.tasks.get(id).await? {
            Some(task) if task.state.is_terminal() => self.live.delete(id).await,
            Some(_) => {
                return Err(ErrorKind::UnsupportedOperation
                    .error("another message has just begun the task anew: send this one again")
                    .with_task(id.as_str()));
            }
            None => {}
        }
        Ok(())
    }

    /// Runs a task that a message has created.
    async fn run_created(
        &self,
        run: TaskRun<'_>,
        waits: WaitMode,
    ) -> Result<SendOutcome, A2aError> {
        let (task, live) = match waits {
            WaitMode::UntilStarted => (run.task.clone(), Some(self.live.run(run))),
            WaitMode::UntilSettled => match self.live.run_inline(run).await? {
                RunOutcome::Running(task, live) => (task, Some(live)),
                RunOutcome::Ended(task) => (task, None),
            },
        };
        Ok(SendOutcome {
            task,
            live,
            disposition: MessageDisposition::TaskCreated,
        })
    }

    /// Returns the key by which a repetition of the message is recognised. `stored` is the request
    /// as it is stored with the task.
    fn idempotency_key(
        &self,
        who: &RequestContext,
        request: &SendMessageRequest,
        skill: &str,
        stored: &str,
    ) -> Result<IdempotencyKey, A2aError> {
        let push = request
            .configuration
            .as_ref()
            .and_then(|given| given.task_push_notification_config.as_ref());
        let push = push.map(WireType::to_json).unwrap_or_default();
        IdempotencyKey::for_message(
            who,
            &request.message,
            &self.options,
            &*self.store.audit,
            [skill, stored, &push],
        )
    }

    /// Returns a new task of the caller. Its idempotency key isn't
    /// set yet.
    fn new_task(
        &self,
        who: &RequestContext,
        place: &TaskPlace,
        id: TaskId,
        skill: String,
        request: Box<RawValue>,
    ) -> NewTask {
        let options = &self.options.tasks;
        let expires = SystemTime::now() + options.ttl;
        let mut extra = RawObject::new();
        extra.set_text(CONTEXT_MEMBER, &place.context);
        extra.set_text(DIALECT, who.dialect.version());
        if let Some(parent) = &place.parent {
            extra.set_text(PARENT_META_KEY, parent.as_str());
        }
        if who.is_anonymous() && self.options.shares_anonymous_tasks {
            extra.set(SHARED_ANONYMOUS, true);
        }
        NewTask {
            id,
            scope: self.live.scope.clone(),
            owner: who.owner(),
            principal: who.principal.as_ref().clone(),
            agent: self.options.agent.name.clone(),
            message: skill,
            key: None,
            request: Some(request),
            class: options.data_class,
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

    /// Returns the request to store with a task: the message and the skill's arguments. Without a
    /// durable store, no other process can resume the task; the arguments are then stored only if
    /// the request has metadata, so that requests that differ only there have different idempotency
    /// keys.
    fn stored_request(
        &self,
        request: &SendMessageRequest,
        picked: &SelectedSkill,
    ) -> Box<RawValue> {
        let with_arguments = self.is_durable() || request.metadata.is_some();
        let bytes: usize = request.message.parts.iter().map(Part::content_bytes).sum();
        let of_arguments = if with_arguments {
            picked.arguments.get().len()
        } else {
            0
        };
        write_json_sized(bytes + of_arguments + MESSAGE_OVERHEAD_BYTES, |out| {
            let mut kept = out.object();
            kept.always(MESSAGE_MEMBER, &request.message);
            if with_arguments {
                let name = match picked.is_message && picked.skill != Converse::NAME {
                    true => MESSAGE_ARGUMENTS,
                    false => ARGUMENTS,
                };
                kept.member(name).json(picked.arguments.get());
            }
            kept.end();
        })
    }

    /// Returns whether tasks are in a configured store, which may outlive this server.
    fn is_durable(&self) -> bool {
        self.options.tasks.store.is_some()
    }

    pub(super) async fn store_push_config(
        &self,
        who: &RequestContext,
        task: &Arc<Task>,
        config: TaskPushNotificationConfig,
    ) -> Result<(), A2aError> {
        match self.push.get() {
            Some(keep) => keep(who.clone(), task.clone(), config).await,
            None => Err(ErrorKind::PushNotificationNotSupported.error(
                "this agent doesn't support push notifications: leave out the push configuration",
            )),
        }
    }

    /// Returns the callback that performs a task's call, which the policy has already allowed, and
    /// converts its reply to the task's final steps.
    fn task_work(
        &self,
        callee: Arc<ServedAgent>,
        route: SkillRoute,
        task: &Task,
        arguments: Box<RawValue>,
        call: CallContext,
    ) -> BeginTaskCall<'static> {
        let skill = task.message.clone();
        // An agent that gets the message gets the id of the conversation too; one behind a tool may
        // be a stranger and doesn't get the task's.
        let arguments = match (route, arguments.get().strip_suffix('}')) {
            (SkillRoute::Converse | SkillRoute::ToolMessage, Some(said)) if said.len() > 1 => {
                let mut told = [said, ",\"context\":", context_id_json(task)].concat();
                if route == SkillRoute::Converse {
                    told.push_str(",\"task\":");
                    quote_into(task.id.as_str(), &mut told);
                }
                told.push('}');
                raw_from_written(told)
            }
            _ => arguments,
        };
        let is_durable = self.is_durable();
        Box::new(move |caller, expiry| {
            let call = call.with_caller(caller).with_deadline(expiry);
            Box::pin(async move {
                let reply = callee.ask(route, &skill, arguments, call).await;
                let is_result = callee.returns_tool_result(route, &skill);
                let became: EndSteps = Box::new(move |has_all| {
                    final_steps(
                        task_completion(reply, &skill, is_result, has_all),
                        is_durable,
                    )
                });
                became
            })
        })
    }
}

/// Conversation of a new task, and the task of its sender that it belongs to.
struct TaskPlace {
    context: String,
    parent: Option<TaskId>,
}

impl TaskPlace {
    /// Returns the place that a message names. Without a conversation, it begins one.
    fn of(message: &A2aMessage) -> Self {
        let context = match &*message.context_id {
            "" => Uuid::new_v4().to_string(),
            id => id.to_owned(),
        };
        let metadata = message.metadata.as_ref();
        let parent = metadata.and_then(|metadata| metadata.text(PARENT_META_KEY));
        Self {
            context,
            parent: parent.and_then(|id| TaskId::new(id).ok()),
        }
    }
}

/// Returns the description of a task to run in this process. Its caller states all capabilities,
/// because the client may be any person or agent.
fn task_run(
    task: Arc<Task>,
    lease: Lease,
    is_resumed: bool,
    work: BeginTaskCall<'_>,
) -> TaskRun<'_> {
    static ALL: LazyLock<Arc<CallerCapabilities>> =
        LazyLock::new(|| Arc::new(CallerCapabilities::all()));
    TaskRun {
        task,
        lease,
        is_resumed,
        abilities: ALL.clone(),
        observer: None,
        begin_call: work,
    }
}

/// Returns the steps that end a task. Without a durable store, a reply that is also stored as an
/// artifact isn't stored a second time, except for its reference to a remote task and its decision.
fn final_steps(ended: TaskCompletion, is_durable: bool) -> Vec<TaskStep> {
    match ended {
        TaskCompletion {
            artifact: None,
            step,
        } => vec![step],
        TaskCompletion {
            artifact: Some(artifact),
            step,
        } => {
            let made = TaskStep::Artifact(view::stored_artifact(artifact, false, true));
            match step {
                TaskStep::Completed(reply) if !is_durable => {
                    let kept = origin_of_reply(&reply);
                    vec![made, TaskStep::Completed(kept)]
                }
                step => vec![made, step],
            }
        }
    }
}

/// Returns the skill's arguments stored with a task, and whether they are the message itself.
fn stored_arguments(task: &Task) -> Option<(Box<RawValue>, bool)> {
    let mut request = RawObject::parse(task.request.as_deref()?).ok()?;
    match request.remove(MESSAGE_ARGUMENTS) {
        Some(said) => Some((said, true)),
        None => Some((request.remove(ARGUMENTS)?, task.message == Converse::NAME)),
    }
}

/// Returns the remaining retention of a task; zero if it has expired.
pub(super) fn remaining_ttl(task: &Task) -> Duration {
    task.expires
        .duration_since(SystemTime::now())
        .unwrap_or_default()
}

impl TaskHost for A2aTaskService {
    fn resume(
        self: Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>> {
        Box::pin(async move {
            let Some((given, is_message)) = stored_arguments(&task) else {
                let why = Failure::unavailable(
                    "the task couldn't go on after a restart, because its request wasn't stored: send it again",
                );
                return Err(CannotResume::Fail(why));
            };
            let (callee, call) = (
                self.served_agent(),
                CallContext::new(Arc::new(task.principal.clone())),
            );
            let route = callee.route(&task.message, is_message);
            let given = match view::first_message(&task).filter(|_| is_message) {
                Some(said) => {
                    let who = RequestContext::new(call.principal.clone(), Dialect::V10);
                    let called = (&*callee, route, &*task.message);
                    let told = self
                        .references
                        .with_references(&who, called, &said.reference_task_ids, &given)
                        .await;
                    let unread = |_| {
                        CannotResume::Fail(Failure::unavailable(
                            "the task couldn't go on after a restart, because tasks that its message refers to can't be read",
                        ))
                    };
                    told.map_err(unread)?.unwrap_or(given)
                }
                None => given,
            };
            let call = callee
                .authorize(&task.message, &given, call)
                .await
                .map_err(CannotResume::Fail)?;
            let work = self.task_work(callee, route, &task, given, call);
            self.live.run(task_run(task, lease, true, work));
            Ok(())
        })
    }
}
