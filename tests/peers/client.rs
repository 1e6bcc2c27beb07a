//! Our client: an agent that stands for a server elsewhere, and a caller who answers what it asks.

use callboard::mcp::outbound::{ClientOptions, Endpoint, Era, EraChoice, McpClient};
use callboard::message::surface::{CallTool, GetPrompt, ListTools, ReadResource};
use callboard::message::{Answer, Content, ElicitAnswer, Failure, Message, Question, RawObject, Root, RootsAnswer};
use callboard::message::{SampleAnswer, ToolResult};
use callboard::{AgentRef, CallEvent, PendingQuestion, System};
use serde_json::{Value, json};

use crate::kit::{SOON, soon};
use crate::round::{CAPITAL, ECHOED, FOLDER, NAME, Round};

/// A whole round of `server`, by calls whose questions are answered.
pub async fn round(server: &AgentRef) -> Round {
    let mut round = Round::default();
    let listed = ask(server, ListTools::default(), &mut round).await.unwrap();
    let tools: Vec<RawObject> = listed.read("tools").unwrap();
    round.tools = tools.iter().map(|tool| tool.text("name").unwrap()).collect();
    round.tools.sort();
    round.echo = tool(server, "echo", json!({ "text": ECHOED }), &mut round).await;
    round.ask_name = tool(server, "ask_name", json!({}), &mut round).await;
    round.ask_model = tool(server, "ask_model", json!({}), &mut round).await;
    round.folders = tool(server, "folders", json!({}), &mut round).await;
    round.count = tool(server, "count", json!({ "to": 3 }), &mut round).await;
    round.fail = tool(server, "fail", json!({}), &mut round).await;
    let greeting = ReadResource(RawObject::new().with("uri", "peer://greeting"));
    let contents: Vec<RawObject> = ask(server, greeting, &mut round).await.unwrap().0.read("contents").unwrap();
    round.resource = contents[0].text("text").unwrap();
    let greet = GetPrompt(RawObject::new().with("name", "greet").with("arguments", json!({ "name": NAME })));
    let messages: Vec<RawObject> = ask(server, greet, &mut round).await.unwrap().0.read("messages").unwrap();
    round.prompt = messages[0].read::<Content>("content").unwrap().as_text().unwrap();
    round
}

/// One call of a tool; what it says.
async fn tool(server: &AgentRef, name: &str, arguments: Value, round: &mut Round) -> String {
    let result: ToolResult = ask(server, CallTool::new(name, arguments), round).await.unwrap();
    let text = result.texts();
    if result.is_error() { format!("error: {text}") } else { text }
}

/// One call. What it tells and asks on the way goes into `round`.
pub async fn ask<M, R>(server: &AgentRef, message: M, round: &mut Round) -> Result<R, Failure>
where
    M: Message<Reply = Result<R, Failure>>,
    R: Send + 'static,
{
    let mut call = server.call(message).within(SOON).start();
    while let Some(event) = soon("what a call says", call.next()).await {
        match event {
            CallEvent::Progress(progress) => round.progress.push((progress.done, progress.total.unwrap_or_default())),
            CallEvent::Log(line) => round.logs.push(line.0.text("data").unwrap_or_default()),
            CallEvent::Question(pending) => round.asked.push(answer(pending)),
            _ => {}
        }
    }
    call.reply().await.map_err(Failure::from)?
}

/// Answers, as a person, a model and a lender of folders would; what was asked.
fn answer(pending: PendingQuestion) -> String {
    let (asked, answer) = match &pending.question {
        Question::Elicit(form) => (form.message(), Answer::Elicit(ElicitAnswer::accept(json!({ "name": NAME })))),
        Question::Sample(sample) => {
            let answer = SampleAnswer::text("peer", CAPITAL, Some("endTurn"));
            (sample.texts().pop().map(|(_, text)| text).unwrap_or_default(), Answer::Sample(answer))
        }
        _ => {
            let lent = Root { uri: FOLDER.to_owned(), name: Some("lent".to_owned()) };
            ("roots".to_owned(), Answer::Roots(RootsAnswer::of(vec![lent])))
        }
    };
    pending.answer(answer);
    asked
}

/// An agent that stands for the server at `endpoint`.
pub fn connect(system: &System, endpoint: Endpoint, era: Option<Era>) -> AgentRef {
    let era = era.map_or(EraChoice::Auto, EraChoice::Only);
    system.spawn(McpClient::new(endpoint, ClientOptions { era, ..ClientOptions::default() }).unwrap())
}
