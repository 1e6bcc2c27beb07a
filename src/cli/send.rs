//! `callboard send` and `callboard ask`: one message, one answer.

use std::sync::Arc;
use std::time::Duration;

use callboard_clinics::orchestrator::{AskClinics, Status};
use callboard_message::surface::Converse;
use callboard_message::{CallId, Content, Failure, FailureKind, Message, ToolResult};
use callboard_runtime::AgentRef;
use tokio::time::{Instant, timeout};

use super::mcp::show_result;
use super::mcp::terminal::{Terminal, ask_named, asks};
use super::repl::{Embedded, is_file};
use super::{
    AskArguments, CommandError, EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, EXIT_INPUT_REQUIRED,
    Outcome, a2a, interrupted, show, unless_interrupted,
};
use crate::clinics::{Clinics, ClinicsError};
use crate::config::Topology;
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
pub(super) async fn run(arguments: SendArguments) -> Outcome {
    if is_file(&arguments.target) {
        return shown(here(&arguments).await?, arguments.json);
    }
    let SendArguments {
        target,
        text,
        json,
        ask,
        timeout,
    } = arguments;
    let url = if target.contains("://") {
        target
    } else {
        format!("http://{target}")
    };
    a2a::send(&a2a::SendArguments::new(url, text, timeout, json, ask)).await
}

/// The agent of a file answers in this process.
async fn here(arguments: &SendArguments) -> Result<Result<ToolResult, Failure>, NodeError> {
    let embedded = Embedded::choose(Some(&arguments.target), None, None)?;
    let id = &embedded.declared()?.id;
    let node = embedded.node().await?;
    let Some(orchestrated) = node.orchestrator(id) else {
        node.shutdown().await;
        return Err(NodeError::NoOrchestrator {
            id: Some(id.clone()),
        });
    };
    let limit = Duration::from_secs(arguments.timeout);
    let reply = tokio::select! {
        reply = timeout(limit, ask_agent(&orchestrated.agent, arguments, limit)) => {
            reply.unwrap_or_else(|_| Err(Failure::timed_out(format!("not done in {limit:?}"))))
        }
        () = interrupted() => Err(Failure::cancelled("interrupted")),
    };
    node.shutdown().await;
    Ok(reply)
}

async fn ask_agent(
    agent: &AgentRef,
    arguments: &SendArguments,
    limit: Duration,
) -> Result<ToolResult, Failure> {
    let person = Terminal::new(asks(arguments.ask, arguments.json), true, Vec::new());
    let said = Converse::of([Content::text(&arguments.text)])
        .0
        .with("key", CallId::fresh().to_string());
    let reply = ask_named(
        agent,
        Converse::NAME,
        &said,
        Some(Arc::new(person)),
        Instant::now() + limit,
    )
    .await?;
    serde_json::from_str(reply.get())
        .map(ToolResult)
        .map_err(|_| Failure::internal("the agent answered no object"))
}

fn shown(reply: Result<ToolResult, Failure>, json: bool) -> Outcome {
    let failure = match reply {
        Ok(result) => {
            show_result(&result, json)?;
            return Ok(if result.is_error() {
                EXIT_FAILED
            } else {
                EXIT_ANSWERED
            });
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

/// Asks, prints, and says how it ended.
pub(super) async fn run_ask(
    AskArguments {
        query,
        topology,
        purpose,
        json,
    }: AskArguments,
) -> Outcome {
    // What can't be asked starts no clinic.
    AskClinics {
        query: query.clone(),
        purpose: purpose.clone(),
    }
    .check()
    .map_err(ClinicsError::from)?;
    let starting = async {
        match topology {
            Some(file) => Clinics::connect(Topology::read(&file)?),
            None => Clinics::start_examples().await,
        }
    };
    let told = |line: &str| {
        if !json {
            show::progress(line);
        }
    };
    let asking =
        async |clinics: &Clinics| Ok(clinics.ask(&query, purpose.as_deref(), told).await?);
    let answer = with_clinics(starting, asking).await?;
    match json {
        true => show::json(&answer),
        false => show::answer(&answer),
    }?;
    Ok(match answer.status() {
        Status::Answered => EXIT_ANSWERED,
        Status::Blocked => EXIT_BLOCKED,
        Status::Failed => EXIT_FAILED,
    })
}

/// Runs `work` with clinics, which have ended when this returns.
pub(super) async fn with_clinics<T>(
    starting: impl Future<Output = Result<Clinics, ClinicsError>>,
    work: impl AsyncFnOnce(&Clinics) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let clinics = unless_interrupted(async { Ok(starting.await?) }).await?;
    let outcome = unless_interrupted(work(&clinics)).await;
    // Whoever interrupts once more doesn't want to wait: then the clinics end by their lifelines.
    tokio::select! {
        () = clinics.shutdown() => {}
        () = interrupted() => {}
    }
    outcome
}
