//! Test orchestrator with scripted deciders and scripted peers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_guardrail::Guardrail;
use callboard_message::capabilities::Converse;
use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Answer, Artifact, Content, DataClass, ElicitationAnswer, Failure,
    Message, Principal, Question, RawMessage, RawObject, ToolResult,
};
use callboard_runtime::testkit::{run_with_paused_time, run_with_real_time};
use callboard_runtime::{
    Agent, AgentRef, CallEvent, ConcurrentHandler, Context, Handlers, System, TaskRunner,
    TaskRunnerHandle, TaskRunnerOptions,
};
use futures::future::BoxFuture;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::super::{TaskOrchestrator, TaskOrchestratorOptions};
use crate::decide::intake::IntakeOptions;
use crate::decide::{Decider, Deciders};
use crate::memory::DelegatedRequestLog;
use crate::peer_registry::{
    AddressSource, AgentConnector, FetchedCard, PeerRegistry, PeerRegistryOptions,
};
use crate::tools::{CommandOptions, TOOL_NAMES, ToolDeps, Toolbox};

const ID: &str = "orchestrator";

/// Scripted answers by message; the last one of each list repeats.
type Script = Arc<Mutex<HashMap<String, VecDeque<Value>>>>;

/// Decider that follows the script and records its requests.
struct Player {
    script: Script,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Agent for Player {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(1_024);
    }
}

impl ConcurrentHandler<RawMessage> for Player {
    fn handle(
        &mut self,
        message: RawMessage,
        _: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let asked: Value = serde_json::from_str(message.payload.get()).unwrap();
        let mut script = self.script.lock().unwrap();
        let answers = script.get_mut(&message.name);
        let scripted = answers.and_then(|all| {
            if all.len() > 1 {
                all.pop_front()
            } else {
                all.front().cloned()
            }
        });
        let answer = scripted.unwrap_or_else(|| by_default(&message.name, &asked));
        self.asked.lock().unwrap().push((message.name, asked));
        async move {
            match answer.get("fails") {
                Some(failure) => Err(serde_json::from_value(failure.clone()).unwrap()),
                None => Ok(to_raw_value(&answer).unwrap()),
            }
        }
    }
}

/// Returns the outcome for messages without a script: the simplest route.
fn by_default(message: &str, asked: &Value) -> Value {
    let outcome = match message {
        "decide_follow_up" => json!("handle_directly"),
        "decide_intake" => json!({ "local": { "tool_name": "echo", "params": {} } }),
        "decide_clarity" => json!("clear"),
        "decide_split" => json!("no"),
        "decide_route" => json!("local"),
        "decide_tool" => json!({ "tool_name": "echo", "params": { "text": asked["request"] } }),
        "write_answer" => json!(format!("written: {}", asked["request"].as_str().unwrap())),
        "decide_recovery" => json!({ "abandon": { "reason": "nobody said what to do" } }),
        "synthesize" => json!({ "final_answer": "all together", "confidence": 0.9 }),
        "decide_confirm" => json!("confirm_needed"),
        other => panic!("nobody decides {other}"),
    };
    json!({ "outcome": outcome, "confidence": 0.9 })
}

/// Builds a clear decision.
pub(super) fn decided(outcome: Value) -> Value {
    json!({ "outcome": outcome, "confidence": 0.9 })
}

/// Builds a plan from steps: id, input message, dependencies.
pub(super) fn steps(steps: &[(&str, &str, &[&str])]) -> Value {
    let step = |(id, text, needs): &(&str, &str, &[&str])| json!({ "id": id, "input_message": text, "metadata": { "depends_on": needs } });
    decided(json!({ "steps": steps.iter().map(step).collect::<Vec<_>>() }))
}

/// Reaction of a peer to its next message.
#[derive(Clone)]
pub(super) enum Act {
    Say(&'static str),
    /// Answers, after sending the answer as an artifact of the task `t-1`.
    Show(&'static str),
    Fail(Failure),
    /// Asks for one word and answers with it.
    Ask(&'static str),
    /// Never answers.
    Hang,
}

/// Peer agent that follows a script.
struct Peer {
    script: VecDeque<Act>,
    said: Arc<Mutex<Vec<Converse>>>,
}

impl Agent for Peer {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(64);
    }
}

impl ConcurrentHandler<Converse> for Peer {
    fn handle(
        &mut self,
        said: Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let text = said.texts();
        self.said.lock().unwrap().push(said);
        let act = if self.script.len() > 1 {
            self.script.pop_front()
        } else {
            self.script.front().cloned()
        };
        async move {
            match act {
                Some(Act::Say(text)) => Ok(ToolResult::text(text)),
                Some(Act::Show(text)) => {
                    cx.artifact(Artifact::new("result", [Content::text(text)]));
                    let ToolResult(told) = ToolResult::text(text);
                    let place = RawObject::single("taskId", "t-1");
                    Ok(ToolResult(told.with(
                        "_meta",
                        RawObject::single(ARTIFACTS_SENT_META_KEY, true).with("a2a", place),
                    )))
                }
                Some(Act::Fail(failure)) => Err(failure),
                Some(Act::Ask(what)) => {
                    let schema = json!({ "type": "object", "properties": { "answer": { "type": "string" } } });
                    let Answer::Elicit(answer) =
                        cx.ask_caller(Question::elicit(what, schema)).await?
                    else {
                        return Err(Failure::internal("no answer"));
                    };
                    Ok(ToolResult::text(format!(
                        "heard {}",
                        answer.content().unwrap_or_default()["answer"]
                    )))
                }
                Some(Act::Hang) => std::future::pending().await,
                None => Ok(ToolResult::text(text)),
            }
        }
    }
}

struct Nowhere;

impl AgentConnector for Nowhere {
    fn fetch_card<'a>(
        &'a self,
        _: &'a Url,
        _: AddressSource,
    ) -> BoxFuture<'a, Result<FetchedCard, Failure>> {
        Box::pin(async { Err(Failure::unavailable("nobody is there")) })
    }

    fn open(&self, _: &System, _: &Url, _: AddressSource) -> Result<AgentRef, Failure> {
        Err(Failure::unavailable("nobody is there"))
    }
}

/// Running orchestrator with its surroundings.
pub(super) struct Kit {
    pub(super) system: System,
    pub(super) agent: AgentRef,
    pub(super) memory: DelegatedRequestLog,
    pub(super) ending: CancellationToken,
    known: PeerRegistry,
    script: Script,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    runner: Option<TaskRunnerHandle>,
}

/// Person who answers questions, given the question's key and text.
type Person<'a> = &'a dyn Fn(&str, &str) -> Option<ElicitationAnswer>;

/// Result of a call, with its events.
pub(super) struct Heard {
    pub(super) reply: Result<ToolResult, Failure>,
    /// Keys and texts of the questions.
    pub(super) questions: Vec<(String, String)>,
    pub(super) progress: Vec<String>,
    pub(super) artifacts: Vec<String>,
}

impl Heard {
    pub(super) fn text(&self) -> String {
        self.reply.as_ref().unwrap().texts()
    }

    pub(super) fn failure(&self) -> &Failure {
        self.reply.as_ref().unwrap_err()
    }
}

/// Runs `test` with an orchestrator with changed options, in paused time.
pub(super) fn with(
    change: impl FnOnce(&mut TaskOrchestratorOptions),
    test: impl AsyncFnOnce(&mut Kit),
) {
    run_with_paused_time(async |system| run(system, false, change, test).await);
}

/// Runs `test` with an orchestrator that decides at once (DP0) and may answer then, in paused time.
pub(super) fn with_combined(test: impl AsyncFnOnce(&mut Kit)) {
    with_combined_options(|_| {}, test);
}

/// Runs `test` like [`with_combined`], with changed options.
pub(super) fn with_combined_options(
    change: impl FnOnce(&mut TaskOrchestratorOptions),
    test: impl AsyncFnOnce(&mut Kit),
) {
    let answers = |options: &mut TaskOrchestratorOptions| {
        options.intake.answer_prompt = Some(String::new());
        change(options);
    };
    run_with_paused_time(async |system| run(system, true, answers, test).await);
}

/// Runs `test` with an orchestrator with the default options, in paused time.
pub(super) fn with_kit(test: impl AsyncFnOnce(&mut Kit)) {
    with(|_| {}, test);
}

/// Runs `test` with an orchestrator behind a guardrail, in paused time.
pub(super) fn with_guard(test: impl AsyncFnOnce(&mut Kit)) {
    run_with_paused_time(async |system| {
        let guard = system.spawn(Guardrail::default());
        run(system, false, |options| options.guard = Some(guard), test).await;
    });
}

/// Runs `test` with an orchestrator in real time, for commands.
pub(super) fn with_programs(test: impl AsyncFnOnce(&mut Kit)) {
    run_with_real_time(async |system| run(system, false, |_| {}, test).await);
}

async fn run(
    system: &System,
    is_combined: bool,
    change: impl FnOnce(&mut TaskOrchestratorOptions),
    test: impl AsyncFnOnce(&mut Kit),
) {
    let mut kit = Kit::new(system, is_combined, change).await;
    test(&mut kit).await;
    if let Some(runner) = kit.runner.take() {
        runner.stop().await;
    }
    system.shutdown(Duration::from_secs(5)).await;
}

impl Kit {
    async fn new(
        system: &System,
        is_combined: bool,
        change: impl FnOnce(&mut TaskOrchestratorOptions),
    ) -> Self {
        let (script, asked) = (Script::default(), Arc::new(Mutex::new(Vec::new())));
        let player = system.spawn(Player {
            script: script.clone(),
            asked: asked.clone(),
        });
        let decider = Decider::model("script", player);
        let deciders = Arc::new(match is_combined {
            true => Deciders::new(ID, DataClass::Personal, |_| vec![decider.clone()]),
            false => Deciders::uniform(ID, DataClass::Personal, &decider),
        });
        let notes = system.store().kv.clone();
        let known = PeerRegistryOptions {
            id: ID.into(),
            name: "Orchestrator".into(),
            allowed_origins: Vec::new(),
        };
        let known = PeerRegistry::open(system, notes.clone(), Arc::new(Nowhere), known)
            .await
            .unwrap();
        let deps = ToolDeps {
            deciders: deciders.clone(),
            peer_registry: known.clone(),
            system_prompt: String::new(),
            command: Some(CommandOptions::new(["echo"], std::env::temp_dir())),
        };
        let memory = DelegatedRequestLog::new(notes, ID, DataClass::Personal);
        let ending = CancellationToken::new();
        let mut options = TaskOrchestratorOptions {
            id: ID.into(),
            name: "Orchestrator".into(),
            description: "Takes requests".into(),
            deciders,
            intake: IntakeOptions::default(),
            confidence_min: super::super::CONFIDENCE_MIN_DEFAULT,
            max_risk: crate::decide::limits::RISK_MAX_DEFAULT,
            cost_micro_usd_max: None,
            tools: Toolbox::new(&TOOL_NAMES.map(str::to_owned), deps).unwrap(),
            peer_registry: known.clone(),
            memory: memory.clone(),
            guard: None,
            system_prompt: String::new(),
            class: DataClass::Personal,
            task_ttl: super::super::TASK_TTL_DEFAULT,
            shutdown: ending.clone(),
        };
        change(&mut options);
        let agent = system.spawn(TaskOrchestrator::new(options));
        system.directory().register(ID, &agent).unwrap();
        let runner = Some(TaskRunner::start(
            system,
            TaskRunnerOptions {
                tasks_max: 64,
                ..TaskRunnerOptions::default()
            },
        ));
        Self {
            system: system.clone(),
            agent,
            memory,
            ending,
            known,
            script,
            asked,
            runner,
        }
    }

    /// Scripts the decider's answers to a message.
    pub(super) fn decide(&self, message: &str, answers: impl IntoIterator<Item = Value>) {
        self.script
            .lock()
            .unwrap()
            .insert(message.to_owned(), answers.into_iter().collect());
    }

    /// Returns the recorded requests to deciders under a message name.
    pub(super) fn asked(&self, message: &str) -> Vec<Value> {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .filter(|(name, _)| name == message)
            .map(|(_, asked)| asked.clone())
            .collect()
    }

    /// Returns the names of all recorded requests to deciders, in order.
    pub(super) fn asked_all(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Adds a peer under `id` and returns the log of its messages.
    pub(super) fn peer(
        &self,
        id: &str,
        script: impl IntoIterator<Item = Act>,
    ) -> Arc<Mutex<Vec<Converse>>> {
        let said = Arc::new(Mutex::new(Vec::new()));
        let peer = self.system.spawn(Peer {
            script: script.into_iter().collect(),
            said: said.clone(),
        });
        self.known.declare(id, peer);
        said
    }

    /// Stops the task runner and releases its tasks, as a process that ends does.
    pub(super) async fn stop_runner(&mut self) {
        self.runner.take().unwrap().stop().await;
    }

    pub(super) fn start_runner(&mut self) {
        self.runner = Some(TaskRunner::start(
            &self.system,
            TaskRunnerOptions::default(),
        ));
    }

    /// Sends a text and waits for the end of the call.
    pub(super) async fn say(&self, text: &str, person: Person<'_>) -> Heard {
        self.hear(said(text, "", ""), person).await
    }

    pub(super) async fn hear(&self, said: Converse, person: Person<'_>) -> Heard {
        self.hear_of(Principal::local_operator(), said, person)
            .await
    }

    pub(super) async fn hear_of(
        &self,
        principal: Principal,
        said: impl Asks,
        person: Person<'_>,
    ) -> Heard {
        let limit = Duration::from_secs(3_600);
        let mut call = self
            .agent
            .call(said)
            .principal(principal)
            .within(limit)
            .start();
        let (mut questions, mut progress, mut artifacts) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(event) = call.next().await {
            match event {
                CallEvent::Progress(told) => progress.extend(told.message),
                CallEvent::Artifact(artifact) => artifacts.push(artifact.id()),
                CallEvent::Question(mut pending) => {
                    let key = pending.question.take_key().unwrap_or_default();
                    let Question::Elicit(form) = &pending.question else {
                        panic!("no form")
                    };
                    let answer = person(&key, &form.message());
                    questions.push((key, form.message()));
                    match answer {
                        Some(answer) => pending.answer(Answer::Elicit(answer)),
                        None => pending.refuse(Failure::new(
                            callboard_message::FailureKind::NoResponder,
                            "nobody to ask",
                        )),
                    }
                }
                _ => {}
            }
        }
        let reply = call
            .reply()
            .await
            .map_err(Failure::from)
            .and_then(|reply| reply);
        Heard {
            reply,
            questions,
            progress,
            artifacts,
        }
    }
}

/// Message that is answered by a tool result.
pub(super) trait Asks: Message<Reply = Result<ToolResult, Failure>> {}

impl<M: Message<Reply = Result<ToolResult, Failure>>> Asks for M {}

/// Builds a message with an idempotency key and a conversation id.
pub(super) fn said(text: &str, key: &str, context: &str) -> Converse {
    let Converse(body) = Converse::from_content([Content::text(text)]);
    let body: RawObject = body.with("key", key).with("context", context);
    Converse(body)
}

/// Person who isn't there to answer.
pub(super) fn nobody(_: &str, _: &str) -> Option<ElicitationAnswer> {
    None
}

/// Person who answers every question with that word and confirms everything.
pub(super) fn says(word: &'static str) -> impl Fn(&str, &str) -> Option<ElicitationAnswer> {
    move |key, _| {
        let content = if key.contains("confirm") {
            json!({ "confirm": true })
        } else {
            json!({ "answer": word })
        };
        Some(ElicitationAnswer::accept(content))
    }
}
