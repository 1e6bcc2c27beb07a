//! Our client: an agent that stands for a server elsewhere, and a caller who answers what it asks.

use callboard::mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard::message::SamplingAnswer;
use callboard::message::capabilities::{CallTool, GetPrompt, ListTools, ReadResource};
use callboard::message::{
    Answer, Content, ElicitationAnswer, Failure, Message, Question, RawObject, Root, RootsAnswer,
};
use callboard::{AgentRef, CallEvent, PendingQuestion, System};
use serde_json::json;

use crate::kit::{SOON, soon};
use crate::round::{CAPITAL, FOLDER, Heard, Kind, NAME, Round, Step};

/// Takes the steps, by calls whose questions are answered.
pub async fn round(server: &AgentRef, steps: impl IntoIterator<Item = &Step>) -> Round {
    let mut round = Round::default();
    for step in steps {
        let mut seen = Seen::default();
        match take(server, step, &mut seen).await {
            Ok(said) => {
                seen.step.asked.sort();
                round
                    .steps
                    .insert(step.label.to_owned(), Heard { said, ..seen.step });
                round.logs.extend(seen.logs);
            }
            Err(why) => {
                return Round {
                    broken: Some(format!("{}: {why}", step.label)),
                    ..round
                };
            }
        }
    }
    round
}

async fn take(server: &AgentRef, step: &Step, seen: &mut Seen) -> Result<String, Failure> {
    let params = || {
        RawObject::new()
            .with("name", step.name)
            .with("arguments", &step.arguments)
    };
    Ok(match step.kind {
        Kind::Tools => {
            let listed = ask(server, ListTools::default(), seen).await?;
            let tools: Vec<RawObject> = listed.read("tools").unwrap_or_default();
            let mut names: Vec<_> = tools.iter().filter_map(|tool| tool.text("name")).collect();
            names.sort();
            names.join(" ")
        }
        Kind::Tool => {
            let result = ask(server, CallTool(params()), seen).await?;
            let text = result.texts();
            if result.is_error() {
                format!("error: {text}")
            } else {
                text
            }
        }
        Kind::GiveUp => {
            let mut call = server.call(CallTool(params())).within(SOON).start();
            while let Some(event) = soon("progress", call.next()).await {
                if let CallEvent::Progress(progress) = event {
                    seen.step
                        .progress
                        .push((progress.done, progress.total.unwrap_or_default()));
                    break;
                }
            }
            "given up".to_owned()
        }
        Kind::Resource => {
            let read = ask(
                server,
                ReadResource(RawObject::new().with("uri", step.name)),
                seen,
            )
            .await?;
            let contents: Vec<RawObject> = read.0.read("contents").unwrap_or_default();
            contents
                .first()
                .and_then(|content| content.text("text"))
                .unwrap_or_default()
        }
        Kind::Prompt => {
            let messages: Vec<RawObject> = ask(server, GetPrompt(params()), seen)
                .await?
                .0
                .read("messages")
                .unwrap_or_default();
            let content = messages
                .first()
                .and_then(|message| message.read::<Content>("content"));
            content
                .and_then(|content| content.as_text())
                .unwrap_or_default()
        }
    })
}

/// Progress, questions and result of a call.
#[derive(Default)]
pub struct Seen {
    pub step: Heard,
    pub logs: Vec<String>,
}

/// One call. What it tells and asks on the way goes into `seen`.
pub async fn ask<M, R>(server: &AgentRef, message: M, seen: &mut Seen) -> Result<R, Failure>
where
    M: Message<Reply = Result<R, Failure>>,
    R: Send + 'static,
{
    let mut call = server.call(message).within(SOON).start();
    while let Some(event) = soon("what a call says", call.next()).await {
        match event {
            CallEvent::Progress(progress) => {
                seen.step
                    .progress
                    .push((progress.done, progress.total.unwrap_or_default()));
            }
            CallEvent::Log(line) => seen.logs.push(line.0.text("data").unwrap_or_default()),
            CallEvent::Question(pending) => seen.step.asked.push(answer(pending)),
            _ => {}
        }
    }
    call.reply().await.map_err(Failure::from)?
}

/// Answers, as a person, a model and a lender of folders would; what was asked.
fn answer(pending: PendingQuestion) -> String {
    let (asked, answer) = match &pending.question {
        Question::Elicit(form) => (
            form.message(),
            Answer::Elicit(ElicitationAnswer::accept(json!({ "name": NAME }))),
        ),
        Question::Sample(sample) => {
            let answer = SamplingAnswer::text("peer", CAPITAL, Some("endTurn"));
            (
                sample
                    .texts()
                    .pop()
                    .map(|(_, text)| text)
                    .unwrap_or_default(),
                Answer::Sample(answer),
            )
        }
        _ => {
            let lent = Root {
                uri: FOLDER.to_owned(),
                name: Some("lent".to_owned()),
            };
            (
                "roots".to_owned(),
                Answer::Roots(RootsAnswer::from_roots(vec![lent])),
            )
        }
    };
    pending.answer(answer);
    asked
}

/// An agent that stands for the server at `endpoint`.
pub fn connect(system: &System, endpoint: ServerEndpoint, era: Option<Era>) -> AgentRef {
    let era = era.map_or(EraChoice::Auto, EraChoice::Only);
    system.spawn(
        McpClient::new(
            endpoint,
            McpClientOptions {
                era,
                ..McpClientOptions::default()
            },
        )
        .unwrap(),
    )
}
