//! Single attempt at an action: runs the tool or asks the agent.

use std::sync::Arc;

use callboard_guardrail::TextOrigin;
use callboard_message::capabilities::{CallTool, Converse, ListTools, RESERVED_PREFIX};
use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Answer, Content, Elicitation, ElicitationAction, ElicitationAnswer,
    FAILURE_META_KEY, Failure, FailureKind, Message as _, MessageSpec, PARENT_META_KEY, Question,
    RawObject, TaskState, ToolResult,
};
use callboard_runtime::{AgentRef, Caller, Context};
use futures::future::BoxFuture;
use serde_json::Value;

use super::{StepExecution, check_guardrail, result_text};
use crate::decide::limits::STEP_RESULT_BYTES_MAX;
use crate::decide::{
    Action, DecideFollowUp, Deciders, FollowUp, RunId, Turn, only_text_param, suppress_artifacts,
    with_caller,
};
use crate::memory::{DelegatedRequest, now_ms};
use crate::peer_registry::PeerHealth;

/// Key in a result's `_meta` that holds the state of the task at a remote A2A agent.
const REMOTE_TASK_MEMBER: &str = "a2a";
/// Metadata key of the idempotency key. An orchestrator runs requests with the same key only once.
const IDEMPOTENCY_KEY_MEMBER: &str = "callboard/key";
/// Maximum tool names listed in an error message. Further ones are left out.
const TOOLS_LISTED_MAX: usize = 16;

/// Failure of one attempt.
pub(super) struct StepAttemptError {
    pub failure: Failure,
    /// Whether the agent can't be reached: it is unknown or counts as down.
    pub is_agent_unavailable: bool,
    /// Whether the tool or agent has finished with the request. A retry under the same idempotency
    /// key would return the same failure.
    pub is_final: bool,
}

impl StepAttemptError {
    pub fn from_failure(failure: Failure) -> Self {
        Self {
            failure,
            is_agent_unavailable: false,
            is_final: true,
        }
    }
}

impl StepExecution<'_> {
    /// Makes one attempt to perform the action. `settled` is the number of earlier attempts that
    /// ended with a final failure ([`StepAttemptError::is_final`]). The idempotency key contains
    /// it, so that an attempt after a final failure counts as a new request.
    ///
    /// # Errors
    /// The failure of the tool or agent, also for a result marked as an error, or `Blocked` by the
    /// guardrail.
    pub(super) async fn attempt(
        &self,
        action: &Action,
        settled: u32,
    ) -> Result<ToolResult, StepAttemptError> {
        match action {
            Action::Local { tool, params } => {
                let Self {
                    options,
                    cx,
                    run,
                    history,
                    ..
                } = *self;
                let used = options
                    .tools
                    .run_in_conversation(tool, params.clone(), run, history.to_vec(), cx)
                    .await;
                let result = used.map_err(StepAttemptError::from_failure)?;
                if result.is_error() {
                    Err(StepAttemptError::from_failure(failure_of_result(result)))
                } else {
                    Ok(result)
                }
            }
            Action::Remote { agent, text } => self.ask_remote(agent, text, settled).await,
        }
    }

    async fn ask_remote(
        &self,
        id: &str,
        text: &str,
        settled: u32,
    ) -> Result<ToolResult, StepAttemptError> {
        let known = self.options.peer_registry.get(id);
        let is_away = known
            .as_ref()
            .is_none_or(|known| known.state == PeerHealth::Down);
        let away = |failure| StepAttemptError {
            failure,
            is_agent_unavailable: is_away,
            is_final: false,
        };
        let agent = self
            .options
            .peer_registry
            .agent_ref(id)
            .await
            .map_err(away)?;
        let key = match settled {
            0 => format!("{}/{}", self.run, self.step),
            settled => format!("{}/{}/{settled}", self.run, self.step),
        };
        let task = format!("{key}@{id}");
        self.record_outgoing(&task, id, text).await;
        let answer = self.send_to_agent(&agent, id, text, &key).await;
        let there = remote_task_id(&answer);
        let ended = match answer {
            Ok(result) if result.is_error() => {
                Err(StepAttemptError::from_failure(failure_of_result(result)))
            }
            Ok(result) => match check_guardrail(
                self.options.guard.as_ref(),
                &result.texts(),
                TextOrigin::ToolResult,
                self.cx,
            )
            .await
            {
                Ok(()) if self.options.guard.is_some() => Ok(clear_shown(result)),
                Ok(()) => Ok(result),
                Err(blocked) => Err(StepAttemptError::from_failure(blocked)),
            },
            Err(failure) => {
                let is_passing = matches!(
                    failure.kind,
                    FailureKind::Unavailable | FailureKind::TimedOut | FailureKind::Overloaded
                );
                Err(StepAttemptError {
                    failure,
                    is_agent_unavailable: is_away && is_passing,
                    is_final: !is_passing,
                })
            }
        };
        self.record_outcome(&task, there, &ended).await;
        ended
    }

    /// Sends text to an agent and waits for the answer. The agent's questions go to the caller. A
    /// repeated call with the same `key` refers to the same task at the agent. An agent that
    /// doesn't converse gets the text through its only tool with a single text parameter, without
    /// the key.
    ///
    /// # Errors
    /// The agent's failure, or `InvalidInput` if it takes no plain text.
    async fn send_to_agent(
        &self,
        agent: &AgentRef,
        id: &str,
        text: &str,
        key: &str,
    ) -> Result<ToolResult, Failure> {
        let options = self.options;
        let mut history = self.history.to_vec();
        history.push(Turn::user(self.goal));
        if text != self.goal {
            history.push(Turn::assistant(format!("[to {id}] {text}")));
        }
        let judged = |inner| -> Arc<dyn Caller> {
            let (deciders, run) = (options.deciders.clone(), self.run.clone());
            Arc::new(AnswerReviewer {
                inner,
                cx: self.cx.clone(),
                deciders,
                run,
                history,
            })
        };
        let cx = with_caller(self.cx, judged).unwrap_or_else(|| self.cx.clone());
        // The guardrail has to check artifacts before anyone sees them.
        let cx = if options.guard.is_some() {
            suppress_artifacts(&cx)
        } else {
            cx
        };
        let specs = agent.specs();
        let converses = specs.iter().any(|spec| spec.name == Converse::NAME);
        if converses || agent.is_proxy() {
            let said = self.converse_message(id, text, key);
            match cx
                .ask(agent, said)
                .await
                .map_err(Failure::from)
                .and_then(|reply| reply)
            {
                // The agent's protocol has only tools.
                Err(failure) if failure.kind == FailureKind::NotFound && !converses => {}
                other => return other,
            }
        }
        if agent.is_proxy() || specs.iter().any(|spec| spec.name == ListTools::NAME) {
            let listed = cx
                .ask(agent, ListTools(RawObject::new()))
                .await
                .map_err(Failure::from)??;
            let tools: Vec<RawObject> = listed.read("tools").unwrap_or_default();
            let named = |tool: &RawObject| {
                Some((
                    tool.text("name")?,
                    tool.read("inputSchema").unwrap_or_default(),
                ))
            };
            let (name, arguments) = only_text_tool(tools.iter().filter_map(named), id, text)?;
            return cx
                .ask(agent, CallTool::new(&name, arguments))
                .await
                .map_err(Failure::from)?;
        }
        let messages = specs
            .iter()
            .filter(|spec| !spec.name.starts_with(RESERVED_PREFIX));
        let named = messages
            .clone()
            .map(|spec| (spec.name.clone(), spec.input_schema.clone()));
        let (name, arguments) = only_text_tool(named, id, text)?;
        let reply = agent
            .ask_named(&*name, arguments.to_raw(), cx.next_hop())
            .await?;
        let spec = messages.clone().find(|spec| spec.name == name);
        Ok(reply_to_result(spec, &reply))
    }

    fn converse_message(&self, id: &str, text: &str, key: &str) -> Converse {
        let Converse(body) = Converse::from_content([Content::text(text)]);
        let mut metadata = RawObject::single(IDEMPOTENCY_KEY_MEMBER, key);
        if let Some(parent) = self.parent {
            metadata.set(PARENT_META_KEY, parent);
        }
        let body = body.with("key", key).with("metadata", metadata);
        Converse(match self.context {
            "" => body,
            // The id is hashed: ours means nothing to the other agent and is none of its business.
            context => body.with(
                "context",
                RunId::of(&self.options.id, id, context, "context").as_str(),
            ),
        })
    }

    async fn record_outgoing(&self, task: &str, to: &str, request: &str) {
        let outgoing = DelegatedRequest {
            task: task.to_owned(),
            to: to.to_owned(),
            request: request.to_owned(),
            answer: None,
            state: TaskState::Working,
            at_ms: now_ms(),
        };
        // The log is for people; a failure to write it doesn't stop the work.
        if let Err(failure) = self.options.memory.remember(outgoing).await {
            callboard_message::log::warn!(%failure, "failed to store a delegated request: the list of sent tasks lacks it");
        }
    }

    /// Records the outcome of a delegated request in the log. `there` is the task's id at the other
    /// agent; if known, it replaces this orchestrator's own id `task`. A failure to do so is only
    /// logged.
    async fn record_outcome(
        &self,
        task: &str,
        there: Option<String>,
        ended: &Result<ToolResult, StepAttemptError>,
    ) {
        let (state, answer) = match ended {
            Ok(result) => (
                TaskState::Completed,
                result_text(result, STEP_RESULT_BYTES_MAX),
            ),
            Err(trouble) if trouble.failure.kind == FailureKind::Blocked => {
                (TaskState::Failed, String::new())
            }
            Err(trouble) => (
                failed_task_state(&trouble.failure),
                trouble.failure.message.clone(),
            ),
        };
        let answer = Some(answer).filter(|answer| !answer.is_empty());
        let memory = &self.options.memory;
        let noted = match (there, memory.get(task).await) {
            (Some(there), Ok(Some(before))) => {
                memory
                    .replace(
                        task,
                        DelegatedRequest {
                            task: there,
                            state,
                            answer,
                            ..before
                        },
                    )
                    .await
            }
            _ => memory.update(task, state, answer).await,
        };
        if let Err(failure) = noted {
            callboard_message::log::warn!(%failure, "failed to store the outcome of a delegated request: the list of sent tasks lacks it");
        }
    }
}

/// Returns the id that the remote agent gave the task, if its answer contains one.
fn remote_task_id(answer: &Result<ToolResult, Failure>) -> Option<String> {
    let place = match answer {
        Ok(result) => result.0.object("_meta")?.object(REMOTE_TASK_MEMBER)?,
        Err(failure) => {
            RawObject::parse(&serde_json::value::to_raw_value(failure.data.as_ref()?).ok()?).ok()?
        }
    };
    place.text("taskId").filter(|id| !id.is_empty())
}

/// Removes the mark that the result's artifacts were sent to the caller already. With a guardrail,
/// artifacts are held back until the result is checked.
fn clear_shown(mut result: ToolResult) -> ToolResult {
    if let Some(mut meta) = result
        .0
        .object("_meta")
        .filter(|meta| meta.has(ARTIFACTS_SENT_META_KEY))
    {
        meta.remove(ARTIFACTS_SENT_META_KEY);
        result.0.set("_meta", meta);
    }
    result
}

/// Returns the final task state for a failure: `Rejected`, `Canceled`, or else `Failed`.
pub(crate) fn failed_task_state(failure: &Failure) -> TaskState {
    match failure.kind {
        FailureKind::Rejected => TaskState::Rejected,
        FailureKind::Cancelled => TaskState::Canceled,
        _ => TaskState::Failed,
    }
}

/// Returns the failure of a result that is marked as an error. A result from a callboard agent
/// names the failure kind; otherwise the kind follows from the state of the A2A task, or is
/// `Internal`.
fn failure_of_result(result: ToolResult) -> Failure {
    let meta = result.0.object("_meta").unwrap_or_default();
    let ours = meta
        .object(FAILURE_META_KEY)
        .and_then(|ours| ours.read("kind"));
    let theirs = meta
        .object("a2a")
        .and_then(|place| place.read::<TaskState>("state"));
    let kind = ours.unwrap_or(match theirs {
        Some(TaskState::Rejected) => FailureKind::Rejected,
        Some(TaskState::Canceled) => FailureKind::Cancelled,
        Some(TaskState::InputRequired | TaskState::AuthRequired) => FailureKind::NoResponder,
        // A failed tool isn't a rejection: another tool may succeed.
        _ => FailureKind::Internal,
    });
    let reason = result
        .0
        .object("structuredContent")
        .and_then(|told: RawObject| told.text("reason"));
    let message = reason.unwrap_or_else(|| result.texts());
    Failure::new(
        kind,
        if message.is_empty() {
            "it failed and gave no reason".to_owned()
        } else {
            message
        },
    )
}

/// Returns the name of the agent's only tool with a single required text parameter, and arguments
/// with `text` as this parameter.
///
/// # Errors
/// `InvalidInput`, listing the tools, if there is no such tool or more than one.
fn only_text_tool(
    tools: impl Iterator<Item = (String, Value)>,
    agent: &str,
    text: &str,
) -> Result<(String, RawObject), Failure> {
    let mut names = Vec::new();
    let mut fitting = Vec::new();
    for (name, schema) in tools {
        if let Some(member) = only_text_param(&schema) {
            fitting.push((name.clone(), RawObject::single(&member, text)));
        }
        names.push(name);
    }
    match (fitting.pop(), fitting.is_empty()) {
        (Some(found), true) => Ok(found),
        _ => {
            names.truncate(TOOLS_LISTED_MAX);
            let why = format!(
                "{agent} has no single tool that takes a plain text: call one of its tools by name: {}",
                names.join(", ")
            );
            Err(Failure::invalid(why))
        }
    }
}

/// Converts an agent's reply to a plain message, as declared by `spec`, to a tool result: a reply
/// of the type `ToolResult` unchanged, a string as text, an object as structured content and text,
/// and any other value as its JSON text.
fn reply_to_result(spec: Option<&MessageSpec>, reply: &serde_json::value::RawValue) -> ToolResult {
    let is_result = spec.is_some_and(|spec| spec.output_schema.is_none());
    match (is_result, serde_json::from_str::<String>(reply.get())) {
        (true, _) => {
            serde_json::from_str(reply.get()).unwrap_or_else(|_| ToolResult::text(reply.get()))
        }
        (false, Ok(text)) => ToolResult::text(text),
        (false, Err(_)) if reply.get().starts_with('{') => {
            ToolResult::text(reply.get()).with_structured_content(reply)
        }
        (false, Err(_)) => ToolResult::text(reply.get()),
    }
}

/// Caller that has the user's answers to another agent's questions reviewed (DP1) before the agent
/// receives them.
struct AnswerReviewer {
    inner: Arc<dyn Caller>,
    /// Context of the call, without this reviewer.
    cx: Context,
    deciders: Arc<Deciders>,
    run: RunId,
    /// Conversation, goal, and the text sent to the agent.
    history: Vec<Turn>,
}

impl AnswerReviewer {
    async fn review_answer(&self, elicitation: Elicitation) -> Result<Answer, Failure> {
        let answer = self
            .inner
            .ask(Question::Elicit(elicitation.clone()))
            .await?;
        let Answer::Elicit(given) = &answer else {
            return Ok(answer);
        };
        // Only accepted forms contain text that can be improved.
        if given.action() != ElicitationAction::Accept {
            return Ok(answer);
        }
        let history = self.history.clone();
        let message = DecideFollowUp {
            history,
            reason: elicitation.message(),
            message: answer_text(given),
        };
        let question = match self
            .deciders
            .decide(&self.cx, &self.run, message)
            .await
            .outcome
        {
            Some(FollowUp::HandleDirectly) => return Ok(answer),
            Some(FollowUp::NeedHumanInput { question }) => question,
            None => None,
        };
        let mut again = Question::Elicit(match question {
            Some(question) => Elicitation(elicitation.0.with("message", question)),
            None => elicitation,
        });
        // The original key already has the insufficient answer.
        if let Some(key) = again.take_key() {
            again = again.with_key(&format!("{key}-again"));
        }
        // The user is asked once more; then the answer is passed on as it is.
        match self.inner.ask(again).await? {
            Answer::Elicit(better) if better.action() == ElicitationAction::Accept => {
                Ok(Answer::Elicit(better))
            }
            _ => Ok(answer),
        }
    }
}

/// Returns the values of an answer, one per line.
fn answer_text(answer: &ElicitationAnswer) -> String {
    let words = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    match answer.content() {
        Some(Value::Object(members)) => members.values().map(words).collect::<Vec<_>>().join("\n"),
        Some(other) => words(&other),
        None => String::new(),
    }
}

impl Caller for AnswerReviewer {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            match question {
                Question::Elicit(elicitation) if elicitation.target_url().is_none() => {
                    self.review_answer(elicitation).await
                }
                other => self.inner.ask(other).await,
            }
        })
    }
}
