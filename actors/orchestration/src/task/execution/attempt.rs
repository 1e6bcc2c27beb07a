//! One try: the tool is used, or the agent asked.

use std::sync::Arc;

use callboard_guardrail::Origin;
use callboard_message::surface::{CallTool, Converse, ListTools, RESERVED_PREFIX};
use callboard_message::{
    Answer, Content, ElicitAction, ElicitAnswer, Elicitation, FAILURE, Failure, FailureKind,
    Message as _, MessageSpec, Question, RawObject, SHOWN, TaskState, ToolResult,
};
use callboard_runtime::{AgentRef, Caller, Cx};
use futures::future::BoxFuture;
use serde_json::Value;

use super::{Errand, passes, text_of};
use crate::decide::limits::STEP_RESULT_BYTES_MAX;
use crate::decide::{
    Action, DecideFollowUp, Deciders, FollowUp, RunId, Turn, text_member, with_caller, withheld,
};
use crate::memory::{Outgoing, now_ms};
use crate::peer_registry::Health;

/// Member of a result's `_meta`, and what a failure's data is: where the task stands at an A2A agent.
const PLACE: &str = "a2a";
/// The member of a message's metadata that makes a callboard do it once.
const ONCE: &str = "callboard/key";
/// Tools that an error names at most.
const NAMED_MAX: usize = 16;

/// Why a try failed.
pub(super) struct Trouble {
    pub failure: Failure,
    /// The agent isn't there at all.
    pub is_away: bool,
    /// Whoever failed has ended it: the same again under the same key would be the same failure.
    pub is_settled: bool,
}

impl Trouble {
    pub fn of(failure: Failure) -> Self {
        Self {
            failure,
            is_away: false,
            is_settled: true,
        }
    }
}

impl Errand<'_> {
    /// Does it once. `settled` counts the tries before that came to an end at who did them.
    pub(super) async fn once(&self, action: &Action, settled: u32) -> Result<ToolResult, Trouble> {
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
                    .run_within(tool, params.clone(), run, history.to_vec(), cx)
                    .await;
                let result = used.map_err(Trouble::of)?;
                if result.is_error() {
                    Err(Trouble::of(failure_of(result)))
                } else {
                    Ok(result)
                }
            }
            Action::Remote { agent, text } => self.remote(agent, text, settled).await,
        }
    }

    async fn remote(&self, id: &str, text: &str, settled: u32) -> Result<ToolResult, Trouble> {
        let known = self.options.known.get(id);
        let is_away = known
            .as_ref()
            .is_none_or(|known| known.state == Health::Down);
        let away = |failure| Trouble {
            failure,
            is_away,
            is_settled: false,
        };
        let agent = self.options.known.agent(id).await.map_err(away)?;
        let key = match settled {
            0 => format!("{}/{}", self.run, self.step),
            settled => format!("{}/{}/{settled}", self.run, self.step),
        };
        let task = format!("{key}@{id}");
        self.remember(&task, id, text).await;
        let answer = self.tell(&agent, id, text, &key).await;
        let there = task_there(&answer);
        let ended = match answer {
            Ok(result) if result.is_error() => Err(Trouble::of(failure_of(result))),
            Ok(result) => match passes(
                self.options.guard.as_ref(),
                &result.texts(),
                Origin::ToolResult,
            )
            .await
            {
                Ok(()) if self.options.guard.is_some() => Ok(not_shown(result)),
                Ok(()) => Ok(result),
                Err(blocked) => Err(Trouble::of(blocked)),
            },
            Err(failure) => {
                let is_passing = matches!(
                    failure.kind,
                    FailureKind::Unavailable | FailureKind::TimedOut | FailureKind::Overloaded
                );
                Err(Trouble {
                    failure,
                    is_away: is_away && is_passing,
                    is_settled: !is_passing,
                })
            }
        };
        self.heard(&task, there, &ended).await;
        ended
    }

    /// Tells an agent something, and hears the answer. What it asks meanwhile goes to whoever called. The same key again is
    /// the same task.
    async fn tell(
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
            Arc::new(JudgedAnswers {
                inner,
                cx: self.cx.clone(),
                deciders,
                run,
                history,
            })
        };
        let cx = with_caller(self.cx, judged).unwrap_or_else(|| self.cx.clone());
        // What the guardrail has yet to judge nobody sees.
        let cx = if options.guard.is_some() {
            withheld(&cx)
        } else {
            cx
        };
        let specs = agent.specs();
        let converses = specs.iter().any(|spec| spec.name == Converse::NAME);
        if converses || agent.is_outside() {
            let said = self.converse(id, text, key);
            match cx
                .ask(agent, said)
                .await
                .map_err(Failure::from)
                .and_then(|reply| reply)
            {
                // It speaks a protocol that has only tools.
                Err(failure) if failure.kind == FailureKind::NotFound && !converses => {}
                other => return other,
            }
        }
        if agent.is_outside() || specs.iter().any(|spec| spec.name == ListTools::NAME) {
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
            let (name, arguments) = only(tools.iter().filter_map(named), id, text)?;
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
        let (name, arguments) = only(named, id, text)?;
        let reply = agent
            .ask_named(&*name, arguments.to_raw(), cx.next_hop())
            .await?;
        let spec = messages.clone().find(|spec| spec.name == name);
        Ok(result_of(spec, &reply))
    }

    fn converse(&self, id: &str, text: &str, key: &str) -> Converse {
        let Converse(body) = Converse::of([Content::text(text)]);
        let body = body
            .with("key", key)
            .with("metadata", RawObject::of(ONCE, key));
        Converse(match self.context {
            "" => body,
            // Ours says nothing to it, and is nobody's business there.
            context => body.with(
                "context",
                RunId::of(&self.options.id, id, context, "context").as_str(),
            ),
        })
    }

    async fn remember(&self, task: &str, to: &str, request: &str) {
        let outgoing = Outgoing {
            task: task.to_owned(),
            to: to.to_owned(),
            request: request.to_owned(),
            answer: None,
            state: TaskState::Working,
            at_ms: now_ms(),
        };
        // What went out is asked for by people; the work doesn't hang on it.
        if let Err(failure) = self.options.memory.remember(outgoing).await {
            callboard_message::log::warn!(%failure, "a request that goes out isn't remembered");
        }
    }

    /// Notes what came of a task that went out; from then on it is remembered by its name there, where it has one.
    async fn heard(&self, task: &str, there: Option<String>, ended: &Result<ToolResult, Trouble>) {
        let (state, answer) = match ended {
            Ok(result) => (TaskState::Completed, text_of(result, STEP_RESULT_BYTES_MAX)),
            Err(trouble) if trouble.failure.kind == FailureKind::Blocked => {
                (TaskState::Failed, String::new())
            }
            Err(trouble) => (state_of(&trouble.failure), trouble.failure.message.clone()),
        };
        let answer = Some(answer).filter(|answer| !answer.is_empty());
        let memory = &self.options.memory;
        let noted = match (there, memory.get(task).await) {
            (Some(there), Ok(Some(before))) => {
                memory
                    .settle(
                        task,
                        Outgoing {
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
            callboard_message::log::warn!(%failure, "what came of a request isn't remembered");
        }
    }
}

/// A task's id at the agent that works on it, where that says it.
fn task_there(answer: &Result<ToolResult, Failure>) -> Option<String> {
    let place = match answer {
        Ok(result) => result.0.object("_meta")?.object(PLACE)?,
        Err(failure) => {
            RawObject::parse(&serde_json::value::to_raw_value(failure.data.as_ref()?).ok()?).ok()?
        }
    };
    place.text("taskId").filter(|id| !id.is_empty())
}

/// A result of which nobody was shown anything before it was judged, whatever it says.
fn not_shown(mut result: ToolResult) -> ToolResult {
    if let Some(mut meta) = result.0.object("_meta").filter(|meta| meta.has(SHOWN)) {
        meta.remove(SHOWN);
        result.0.set("_meta", meta);
    }
    result
}

/// Final state of a task with this failure.
pub(crate) fn state_of(failure: &Failure) -> TaskState {
    match failure.kind {
        FailureKind::Rejected => TaskState::Rejected,
        FailureKind::Cancelled => TaskState::Canceled,
        _ => TaskState::Failed,
    }
}

/// Failure of a result: a callboard's as it was there, others' by the state of their task.
fn failure_of(result: ToolResult) -> Failure {
    let meta = result.0.object("_meta").unwrap_or_default();
    let ours = meta.object(FAILURE).and_then(|ours| ours.read("kind"));
    let theirs = meta
        .object("a2a")
        .and_then(|place| place.read::<TaskState>("state"));
    let kind = ours.unwrap_or(match theirs {
        Some(TaskState::Rejected) => FailureKind::Rejected,
        Some(TaskState::Canceled) => FailureKind::Cancelled,
        Some(TaskState::InputRequired | TaskState::AuthRequired) => FailureKind::NobodyToAsk,
        // A tool that fails doesn't refuse: another may do it.
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
            "it failed, and didn't say why".to_owned()
        } else {
            message
        },
    )
}

/// The only tool that takes one text, and nothing else for sure.
fn only(
    tools: impl Iterator<Item = (String, Value)>,
    agent: &str,
    text: &str,
) -> Result<(String, RawObject), Failure> {
    let mut names = Vec::new();
    let mut fitting = Vec::new();
    for (name, schema) in tools {
        if let Some(member) = text_member(&schema) {
            fitting.push((name.clone(), RawObject::of(&member, text)));
        }
        names.push(name);
    }
    match (fitting.pop(), fitting.is_empty()) {
        (Some(found), true) => Ok(found),
        _ => {
            names.truncate(NAMED_MAX);
            let why = format!(
                "{agent} takes no plain words; it has the tools: {}",
                names.join(", ")
            );
            Err(Failure::invalid(why))
        }
    }
}

/// A plain reply as a tool's result.
fn result_of(spec: Option<&MessageSpec>, reply: &serde_json::value::RawValue) -> ToolResult {
    let is_result = spec.is_some_and(|spec| spec.output_schema.is_none());
    match (is_result, serde_json::from_str::<String>(reply.get())) {
        (true, _) => {
            serde_json::from_str(reply.get()).unwrap_or_else(|_| ToolResult::text(reply.get()))
        }
        (false, Ok(text)) => ToolResult::text(text),
        (false, Err(_)) if reply.get().starts_with('{') => {
            ToolResult::text(reply.get()).structured(reply)
        }
        (false, Err(_)) => ToolResult::text(reply.get()),
    }
}

/// Caller that has the answers to another agent's questions judged before the agent gets them.
struct JudgedAnswers {
    inner: Arc<dyn Caller>,
    /// The call without this.
    cx: Cx,
    deciders: Arc<Deciders>,
    run: RunId,
    /// What was said before, what is wanted, and what the agent was told.
    history: Vec<Turn>,
}

impl JudgedAnswers {
    async fn form(&self, elicitation: Elicitation) -> Result<Answer, Failure> {
        let answer = self
            .inner
            .ask(Question::Elicit(elicitation.clone()))
            .await?;
        let Answer::Elicit(given) = &answer else {
            return Ok(answer);
        };
        // Only what was said can be said better.
        if given.action() != ElicitAction::Accept {
            return Ok(answer);
        }
        let history = self.history.clone();
        let message = DecideFollowUp {
            history,
            reason: elicitation.message(),
            message: said(given),
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
        // Under its own key there is an answer already: the one that won't do.
        if let Some(key) = again.take_key() {
            again = again.key(&format!("{key}-again"));
        }
        // Once more, and then it goes on as it is.
        match self.inner.ask(again).await? {
            Answer::Elicit(better) if better.action() == ElicitAction::Accept => {
                Ok(Answer::Elicit(better))
            }
            _ => Ok(answer),
        }
    }
}

/// The words of an answer, one value a line.
fn said(answer: &ElicitAnswer) -> String {
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

impl Caller for JudgedAnswers {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            match question {
                Question::Elicit(elicitation) if elicitation.address().is_none() => {
                    self.form(elicitation).await
                }
                other => self.inner.ask(other).await,
            }
        })
    }
}
