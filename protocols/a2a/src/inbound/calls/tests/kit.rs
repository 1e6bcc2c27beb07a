//! An agent that does what it is told, served without a socket.

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::surface::{Converse, SAID};
use callboard_message::{
    Artifact, Content, Elicitation, Failure, Principal, Progress, RawObject, SAID_AT_ONCE, SHOWN,
    TaskState, ToolResult,
};
use callboard_runtime::{
    Agent, AgentRef, ConcurrentHandler, Cx, Handlers, MemoryTasks, Store, SyncHandler, System,
};
use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use crate::inbound::calls::{Calls, Events, Numbered, Who};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    self, Message as Said, Part, Role, SendMessageRequest, SendMessageResponse, StreamResponse,
};
use crate::{A2aError, Dialect};

/// Says it again.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
struct Echo {
    text: String,
}

/// Has a skill.
pub(super) struct Desk;

impl Agent for Desk {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>();
    }
}

impl SyncHandler<Echo> for Desk {
    fn handle(&mut self, message: Echo, _: &mut Cx) -> String {
        message.text
    }
}

/// Looks for a seat, and asks which.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, fallible, idempotent)]
struct Seat {}

/// Goes on after a restart.
pub(super) struct Usher;

/// How long it looks before it asks.
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
        cx: Cx,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        async move {
            tokio::time::sleep(LOOKS_FOR).await;
            let answer = ask(&cx, "seat").await?;
            Ok(answer.texts())
        }
    }
}

/// Does what its first word says.
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
        cx: Cx,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let text = said.texts();
            let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
            match word {
                "say" => Ok(marked(ToolResult::text(rest), SAID_AT_ONCE)),
                "make" => Ok(make(&cx, rest)),
                "ask" => ask(&cx, rest).await,
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

/// So many pieces of one artifact, one after the other.
fn make(cx: &Cx, count: &str) -> ToolResult {
    let count: u32 = count.parse().unwrap();
    for piece in 1..=count {
        let artifact = Artifact::new("numbers", [Content::text(piece.to_string())]);
        cx.artifact(if piece == 1 {
            artifact
        } else {
            artifact.appended(piece == count)
        });
    }
    marked(
        ToolResult::of((1..=count).map(|piece| Content::text(piece.to_string()))),
        SHOWN,
    )
}

/// What was said before, a line a turn.
fn recalled(said: &Converse) -> String {
    let turns: Vec<RawObject> = said.0.read("history").unwrap_or_default();
    let turn = |turn: &RawObject| {
        let content: Vec<Content> = turn.read("content").unwrap();
        let texts: Vec<_> = content.iter().filter_map(Content::as_text).collect();
        format!("{}: {}", turn.text("role").unwrap(), texts.join("|"))
    };
    turns.iter().map(turn).collect::<Vec<_>>().join("\n")
}

async fn ask(cx: &Cx, name: &str) -> Result<ToolResult, Failure> {
    let form = json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let answer = cx
        .elicit(Elicitation::form(format!("Which {name}?"), form))
        .await?;
    let content = answer.content().unwrap_or_default();
    let said = answer
        .0
        .object("_meta")
        .and_then(|meta| meta.object(SAID))
        .unwrap_or_default();
    Ok(ToolResult::text(format!(
        "{:?} {content} by {}",
        answer.action(),
        said.text("key").unwrap()
    )))
}

fn marked(result: ToolResult, mark: &str) -> ToolResult {
    ToolResult(result.0.with("_meta", RawObject::of(mark, true)))
}

/// Runs `test` in a system of its own, time paused.
pub(super) fn paused(test: impl AsyncFnOnce(&System)) {
    callboard_runtime::testkit::paused(async |system| {
        test(system).await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// The same with a [`Talker`] and somebody who calls it.
pub(super) fn talking(test: impl AsyncFnOnce(Arc<Calls>, Who)) {
    paused(async |system| test(talker(system), somebody("ann")).await);
}

pub(super) fn options() -> A2aOptions {
    A2aOptions::at(Url::parse("http://127.0.0.1:1").unwrap())
}

pub(super) fn serve(agent: &AgentRef) -> Arc<Calls> {
    Calls::new(agent.clone(), Arc::new(options()))
}

fn talker(system: &System) -> Arc<Calls> {
    serve(&system.spawn(Talker))
}

/// The next run of the same server.
pub(super) fn serve_with(agent: &AgentRef, tasks: &Arc<MemoryTasks>) -> Arc<Calls> {
    let mut options = options();
    options.tasks.store = Some(Store {
        tasks: tasks.clone(),
        ..Store::in_memory()
    });
    Calls::new(agent.clone(), Arc::new(options))
}

pub(super) fn somebody(name: &str) -> Who {
    let principal = Principal::agent(name);
    Who::new(Arc::new(principal), Dialect::V10)
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

/// The same under another id: the same message twice is one.
pub(super) fn says_as(id: &str, text: &str) -> SendMessageRequest {
    request(message(id, vec![Part::text(text)]))
}

/// The same to a task.
pub(super) fn says_to(task: &wire::Task, id: &str, text: &str) -> SendMessageRequest {
    let message = message(id, vec![Part::text(text)]);
    request(Said {
        task_id: task.id.clone(),
        ..message
    })
}

/// The task that answers.
pub(super) async fn sent(calls: &Calls, who: &Who, request: SendMessageRequest) -> wire::Task {
    match answered(calls, who, request).await {
        Ok(SendMessageResponse::Task(task)) => task,
        Ok(SendMessageResponse::Message(_)) => panic!("a message"),
        Err(error) => panic!("{:?}: {}", error.kind, error.message),
    }
}

/// What answers, as its sender reads it.
pub(super) async fn answered(
    calls: &Calls,
    who: &Who,
    request: SendMessageRequest,
) -> Result<SendMessageResponse, A2aError> {
    who.dialect
        .read_send_response(&calls.send(who, request).await?)
}

pub(super) async fn refused(calls: &Calls, who: &Who, request: SendMessageRequest) -> A2aError {
    calls.send(who, request).await.map(drop).unwrap_err()
}

pub(super) async fn all(events: Events) -> Vec<Numbered> {
    events.map(Result::unwrap).collect().await
}

/// What a stream told, in short.
pub(super) fn story(events: &[Numbered]) -> Vec<String> {
    let told = |event: &Numbered| match &event.event {
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

/// What a task made, in short.
pub(super) fn made(task: &wire::Task) -> Vec<(String, String)> {
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

pub(super) fn said_in(task: &wire::Task) -> String {
    task.status
        .message
        .as_ref()
        .map(|message| texts(&message.parts))
        .unwrap_or_default()
}
