//! Helpers: agents that follow instructions, served without a socket.

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::capabilities::{Converse, SOURCE_MESSAGE_META_KEY};
use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Artifact, Content, DIRECT_MESSAGE_META_KEY, Elicitation, Failure,
    Principal, Progress, RawObject, TaskState, ToolResult,
};
use callboard_runtime::{
    Agent, AgentRef, ConcurrentHandler, Context, Handlers, MemoryTaskStore, Store, SyncHandler,
    System,
};
use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use crate::inbound::calls::{A2aTaskService, NumberedEvent, RequestContext, TaskEventStream};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    self, A2aMessage as Said, Part, Role, SendMessageRequest, SendMessageResponse, StreamResponse,
};
use crate::{A2aError, Dialect};

/// Says it again.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
struct Echo {
    text: String,
}

/// Agent with one skill.
pub(super) struct EchoAgent;

impl Agent for EchoAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>();
    }
}

impl SyncHandler<Echo> for EchoAgent {
    fn handle(&mut self, message: Echo, _: &mut Context) -> String {
        message.text
    }
}

/// Looks for a seat, and asks which.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible, idempotent)]
struct Seat {}

/// Agent whose calls resume after a restart.
pub(super) struct Usher;

/// Time before [`Usher`] asks.
pub(super) const LOOKS_FOR: Duration = Duration::from_secs(2);

impl Agent for Usher {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Seat>(8);
    }
}

impl ConcurrentHandler<Seat> for Usher {
    fn handle(
        &mut self,
        _: Seat,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        async move {
            tokio::time::sleep(LOOKS_FOR).await;
            let answer = ask(&cx, "seat").await?;
            Ok(answer.texts())
        }
    }
}

/// Agent that does what the first word of a message says.
#[derive(Clone)]
pub(super) struct Talker;

impl Agent for Talker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(64);
    }
}

impl ConcurrentHandler<Converse> for Talker {
    fn handle(
        &mut self,
        said: Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let text = said.texts();
            let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
            match word {
                "say" => Ok(marked(ToolResult::text(rest), DIRECT_MESSAGE_META_KEY)),
                "make" => Ok(make(&cx, rest)),
                "ask" => ask(&cx, rest).await,
                "choose" => choose(&cx, rest).await,
                "visit" => {
                    let visit = Elicitation::url("Sign in", "https://id.example/1", "visit-1");
                    cx.elicit(visit)
                        .await
                        .map(|answer| ToolResult::text(format!("{:?}", answer.action())))
                }
                "wait" => {
                    cx.progress(Progress {
                        done: 1.0,
                        total: None,
                        message: Some("waiting".into()),
                    });
                    cx.cancelled().await;
                    Err(Failure::cancelled("cancelled"))
                }
                "reject" => Err(Failure::rejected("I won't")),
                "recall" => Ok(ToolResult::text(recalled(&said))),
                "fail" => Ok(ToolResult::error("no luck")),
                _ => Ok(ToolResult::text(format!("heard: {text}"))),
            }
        }
    }
}

/// Sends `count` pieces of one artifact, one after the other.
fn make(cx: &Context, count: &str) -> ToolResult {
    let count: u32 = count.parse().unwrap();
    for piece in 1..=count {
        let artifact = Artifact::new("numbers", [Content::text(piece.to_string())]);
        cx.artifact(if piece == 1 {
            artifact
        } else {
            artifact.appending(piece == count)
        });
    }
    marked(
        ToolResult::from_content((1..=count).map(|piece| Content::text(piece.to_string()))),
        ARTIFACTS_SENT_META_KEY,
    )
}

/// Returns the history given to a conversation, one turn a line.
fn recalled(said: &Converse) -> String {
    let turns: Vec<RawObject> = said.0.read("history").unwrap_or_default();
    let turn = |turn: &RawObject| {
        let content: Vec<Content> = turn.read("content").unwrap();
        let texts: Vec<_> = content.iter().filter_map(Content::as_text).collect();
        format!("{}: {}", turn.text("role").unwrap(), texts.join("|"))
    };
    turns.iter().map(turn).collect::<Vec<_>>().join("\n")
}

async fn ask(cx: &Context, name: &str) -> Result<ToolResult, Failure> {
    ask_field(cx, name, json!({ "type": "string" })).await
}

async fn choose(cx: &Context, name: &str) -> Result<ToolResult, Failure> {
    let choice = json!({ "type": "string", "enum": ["small", "large"] });
    ask_field(cx, name, choice).await
}

async fn ask_field(
    cx: &Context,
    name: &str,
    field: serde_json::Value,
) -> Result<ToolResult, Failure> {
    let form = json!({ "type": "object", "properties": { name: field }, "required": [name] });
    let answer = cx
        .elicit(Elicitation::form(format!("Which {name}?"), form))
        .await?;
    let content = answer.content().unwrap_or_default();
    let said = answer
        .0
        .object("_meta")
        .and_then(|meta| meta.object(SOURCE_MESSAGE_META_KEY))
        .unwrap_or_default();
    Ok(ToolResult::text(format!(
        "{:?} {content} by {}",
        answer.action(),
        said.text("key").unwrap()
    )))
}

fn marked(result: ToolResult, mark: &str) -> ToolResult {
    ToolResult(result.0.with("_meta", RawObject::single(mark, true)))
}

/// Runs `test` in a system of its own, with time paused.
pub(super) fn paused(test: impl AsyncFnOnce(&System)) {
    callboard_runtime::testkit::run_with_paused_time(async |system| {
        test(system).await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Runs `test` with a served [`Talker`] and a caller, with time paused.
pub(super) fn talking(test: impl AsyncFnOnce(Arc<A2aTaskService>, RequestContext)) {
    paused(async |system| test(talker(system), somebody("ann")).await);
}

pub(super) fn options() -> A2aOptions {
    A2aOptions::new(Url::parse("http://127.0.0.1:1").unwrap())
}

pub(super) fn serve(agent: &AgentRef) -> Arc<A2aTaskService> {
    A2aTaskService::new(agent.clone(), Arc::new(options()))
}

fn talker(system: &System) -> Arc<A2aTaskService> {
    serve(&system.spawn(Talker))
}

/// Starts another server of the same agent on the same store.
pub(super) fn serve_with(agent: &AgentRef, tasks: &Arc<MemoryTaskStore>) -> Arc<A2aTaskService> {
    let mut options = options();
    options.tasks.store = Some(Store {
        tasks: tasks.clone(),
        ..Store::in_memory()
    });
    A2aTaskService::new(agent.clone(), Arc::new(options))
}

pub(super) fn somebody(name: &str) -> RequestContext {
    let principal = Principal::agent(name);
    RequestContext::new(Arc::new(principal), Dialect::V10)
}

pub(super) fn message(id: &str, parts: Vec<Part>) -> Said {
    Said {
        message_id: id.into(),
        role: Role::User,
        parts,
        ..Said::default()
    }
}

pub(super) fn request(message: Said) -> SendMessageRequest {
    SendMessageRequest {
        message,
        ..SendMessageRequest::default()
    }
}

pub(super) fn says(text: &str) -> SendMessageRequest {
    says_as("m1", text)
}

/// Returns a message with this id. A repeated id and text count as the same message.
pub(super) fn says_as(id: &str, text: &str) -> SendMessageRequest {
    request(message(id, vec![Part::text(text)]))
}

/// Returns a message to a task.
pub(super) fn says_to(task: &wire::A2aTask, id: &str, text: &str) -> SendMessageRequest {
    let message = message(id, vec![Part::text(text)]);
    request(Said {
        task_id: task.id.clone(),
        ..message
    })
}

/// Sends a message and returns the task in the response.
pub(super) async fn sent(
    calls: &A2aTaskService,
    who: &RequestContext,
    request: SendMessageRequest,
) -> wire::A2aTask {
    match answered(calls, who, request).await {
        Ok(SendMessageResponse::Task(task)) => task,
        Ok(SendMessageResponse::Message(_)) => panic!("a message"),
        Err(error) => panic!("{:?}: {}", error.kind, error.message),
    }
}

/// Sends a message and returns the response as its sender reads it.
pub(super) async fn answered(
    calls: &A2aTaskService,
    who: &RequestContext,
    request: SendMessageRequest,
) -> Result<SendMessageResponse, A2aError> {
    who.dialect
        .read_send_response(&calls.send(who, request).await?)
}

pub(super) async fn refused(
    calls: &A2aTaskService,
    who: &RequestContext,
    request: SendMessageRequest,
) -> A2aError {
    calls.send(who, request).await.map(drop).unwrap_err()
}

pub(super) async fn all(events: TaskEventStream) -> Vec<NumberedEvent> {
    events.map(Result::unwrap).collect().await
}

/// Returns the events of a stream in short form.
pub(super) fn story(events: &[NumberedEvent]) -> Vec<String> {
    let told = |event: &NumberedEvent| match &event.event {
        StreamResponse::Task(task) => format!("task {}", stands(task.status.state, &task.status)),
        StreamResponse::Message(message) => format!("message {}", texts(&message.parts)),
        StreamResponse::StatusUpdate(update) => stands(update.status.state, &update.status),
        StreamResponse::ArtifactUpdate(update) => {
            let (append, last) = (update.append, update.last_chunk);
            format!(
                "{} {} {append} {last}",
                update.artifact.artifact_id,
                texts(&update.artifact.parts)
            )
        }
    };
    events.iter().map(told).collect()
}

fn stands(state: TaskState, status: &wire::TaskStatus) -> String {
    let said = status
        .message
        .as_ref()
        .map(|message| texts(&message.parts))
        .unwrap_or_default();
    format!("{state} {said}").trim().to_owned()
}

pub(super) fn texts(parts: &[Part]) -> String {
    parts
        .iter()
        .filter_map(Part::as_text)
        .collect::<Vec<_>>()
        .join("|")
}

/// Returns a task's artifacts in short form.
pub(super) fn made(task: &wire::A2aTask) -> Vec<(String, String)> {
    let artifacts = task.artifacts.iter().flatten();
    let shown = |part: &Part| {
        part.as_text()
            .or_else(|| part.as_data().map(|data| data.get()))
            .unwrap()
            .to_owned()
    };
    artifacts
        .map(|a| {
            (
                a.artifact_id.clone(),
                a.parts.iter().map(shown).collect::<Vec<_>>().join("|"),
            )
        })
        .collect()
}

pub(super) fn said_in(task: &wire::A2aTask) -> String {
    task.status
        .message
        .as_ref()
        .map(|message| texts(&message.parts))
        .unwrap_or_default()
}
