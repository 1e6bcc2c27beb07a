//! `callboard send`: one message, one answer.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::Converse;
use callboard_message::{CallId, Content, Failure, FailureKind, Message, Principal, ToolResult};
use callboard_runtime::{AgentRef, CallMeta, Caller};
use tokio::time::{Instant, timeout};

use super::a2a;
use super::mcp::commands::show_result;
use super::mcp::terminal::Terminal;
use super::repl::{Embedded, is_file};
use super::{EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, EXIT_INPUT_REQUIRED, Outcome, interrupted, show};
use crate::node::NodeError;

/// How long an answer may take, questions included.
const TIMEOUT_DEFAULT_S: u64 = 300;

#[derive(Debug, clap::Args)]
pub(super) struct SendArguments {
    /// A topology file, `example:NAME`, or the address of an agent elsewhere.
    #[arg(value_name = "FILE|ADDRESS")]
    target: String,
    /// What to say.
    text: String,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// Read answers to the agent's questions from standard input even where that is no terminal.
    #[arg(long)]
    ask: bool,
    /// How long it may take in all, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_DEFAULT_S,
        value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

/// Runs it.
pub(super) async fn run(arguments: &SendArguments) -> Outcome {
    let SendArguments { target, text, json, ask, timeout } = arguments;
    if is_file(target) {
        return shown(here(&Embedded::choose(Some(target), None, None)?, arguments).await?, *json);
    }
    let url = if target.contains("://") { target.clone() } else { format!("http://{target}") };
    a2a::send(&a2a::SendArguments::new(url, text, *timeout, *json, *ask)).await
}

/// The agent of a file answers in this process.
async fn here(embedded: &Embedded, arguments: &SendArguments) -> Result<Result<ToolResult, Failure>, NodeError> {
    let node = embedded.start().await?;
    let Some(orchestrated) = node.orchestrator(&embedded.id) else {
        node.shutdown().await;
        return Err(NodeError::NoOrchestrator { id: Some(embedded.id.clone()) });
    };
    let limit = Duration::from_secs(arguments.timeout);
    let reply = tokio::select! {
        reply = timeout(limit, ask(&orchestrated.agent, arguments, limit)) => {
            reply.unwrap_or_else(|_| Err(Failure::new(FailureKind::TimedOut, format!("not done in {limit:?}"))))
        }
        () = interrupted() => Err(Failure::new(FailureKind::Cancelled, "interrupted")),
    };
    node.shutdown().await;
    Ok(reply)
}

async fn ask(agent: &AgentRef, arguments: &SendArguments, limit: Duration) -> Result<ToolResult, Failure> {
    let asks = arguments.ask || !arguments.json && std::io::stdin().is_terminal();
    let person: Arc<dyn Caller> = Arc::new(Terminal::new(asks, true, Vec::new()));
    let call = CallMeta::new(Arc::new(Principal::local_operator())).with_caller(person).until(Instant::now() + limit);
    let _gone = call.cancel.clone().drop_guard();
    let said = Converse::of([Content::text(&arguments.text)]).0.with("key", CallId::fresh().to_string());
    let reply = agent.ask_named(Converse::NAME, said.to_raw(), Some(Arc::new(call))).await?;
    serde_json::from_str(reply.get()).map(ToolResult).map_err(|_| Failure::internal("the agent answered no object"))
}

fn shown(reply: Result<ToolResult, Failure>, json: bool) -> Outcome {
    let failure = match reply {
        Ok(result) => {
            show_result(&result, json)?;
            return Ok(if result.is_error() { EXIT_FAILED } else { EXIT_ANSWERED });
        }
        Err(failure) => failure,
    };
    match json {
        true => show::json(&failure)?,
        false => show::complain(format_args!("{}: {failure}", failure.kind)),
    }
    Ok(match failure.kind {
        FailureKind::Blocked => EXIT_BLOCKED,
        FailureKind::NobodyToAsk => EXIT_INPUT_REQUIRED,
        _ => EXIT_FAILED,
    })
}
