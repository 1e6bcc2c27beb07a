//! `callboard send`: one message, one answer.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::Converse;
use callboard_message::{CallId, Content, Failure, FailureKind, Message, Principal, ToolResult};
use callboard_runtime::{AgentRef, CallMeta, Caller};
use clap::Parser;
use tokio::time::{Instant, timeout};

use super::a2a;
use super::mcp::terminal::Terminal;
use super::repl::{Embedded, is_file};
use super::{
    Arguments, Command, EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, EXIT_INPUT_REQUIRED, EXIT_USAGE, interrupted,
    printable, show, told,
};
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
pub(super) fn run(arguments: &SendArguments) -> u8 {
    if !is_file(&arguments.target) {
        return elsewhere(arguments);
    }
    let answered = Embedded::choose(Some(&arguments.target), None, None)
        .and_then(|embedded| actix_web::rt::System::new().block_on(here(&embedded, arguments)));
    let reply = match answered {
        Ok(reply) => reply,
        Err(error) => {
            show::complain(&error);
            return if error.is_usage() { EXIT_USAGE } else { EXIT_FAILED };
        }
    };
    match shown(&reply, arguments.json) {
        Ok(()) => exit_code(&reply),
        Err(error) => {
            show::complain(format!("failed to write to standard output: {error}"));
            EXIT_FAILED
        }
    }
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
    let person: Arc<dyn Caller> = Arc::new(Terminal::without_folders(asks));
    let call = CallMeta::new(Arc::new(Principal::local_operator())).with_caller(person).until(Instant::now() + limit);
    let _gone = call.cancel.clone().drop_guard();
    let said = Converse::of([Content::text(&arguments.text)]).0.with("key", CallId::fresh().to_string());
    let reply = agent.ask_named(Converse::NAME, said.to_raw(), Some(Arc::new(call))).await?;
    serde_json::from_str(reply.get()).map(ToolResult).map_err(|_| Failure::internal("the agent answered no object"))
}

/// The same words by `callboard a2a send`.
fn elsewhere(SendArguments { target, text, json, ask, timeout }: &SendArguments) -> u8 {
    let url = if target.contains("://") { target.clone() } else { format!("http://{target}") };
    let mut line: Vec<OsString> = ["callboard", "a2a", "send"].map(OsString::from).to_vec();
    line.extend([format!("--timeout={timeout}").into()]);
    let switches = [("--json", json), ("--ask", ask)].into_iter().filter(|(_, is_on)| **is_on);
    line.extend(switches.map(|(name, _)| name.into()));
    line.extend(["--".into(), url.into(), text.into()]);
    match Arguments::try_parse_from(line).map(|arguments| arguments.command) {
        Ok(Command::A2a(command)) => a2a::run(&command),
        Ok(_) => EXIT_USAGE,
        Err(error) => {
            show::complain(error);
            EXIT_USAGE
        }
    }
}

fn shown(reply: &Result<ToolResult, Failure>, json: bool) -> std::io::Result<()> {
    match (reply, json) {
        (Ok(result), true) => show::line(result.0.to_raw().get()),
        (Err(failure), true) => show::line(&serde_json::to_string(failure)?),
        (Ok(result), false) if result.content().is_empty() => {
            result.structured_content().map_or(Ok(()), |value| show::line(&printable(&value.to_string())))
        }
        (Ok(result), false) => result.content().iter().try_for_each(|block| show::line(&printable(&told(block)))),
        (Err(failure), false) => {
            show::complain(printable(&format!("{}: {failure}", failure.kind)));
            Ok(())
        }
    }
}

fn exit_code(reply: &Result<ToolResult, Failure>) -> u8 {
    match reply {
        Ok(result) if result.is_error() => EXIT_FAILED,
        Ok(_) => EXIT_ANSWERED,
        Err(failure) => match failure.kind {
            FailureKind::Blocked => EXIT_BLOCKED,
            FailureKind::NobodyToAsk => EXIT_INPUT_REQUIRED,
            _ => EXIT_FAILED,
        },
    }
}
