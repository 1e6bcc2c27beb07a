//! `callboard ask`: one question, one answer. `callboard send` is its old name for `ask --to`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard_clinics::orchestrator::{AnswerStatus, AskClinics};
use callboard_message::capabilities::Converse;
use callboard_message::{CallId, Content, Failure, FailureKind, Message, ToolResult};
use callboard_runtime::AgentRef;
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::arguments::CredentialArguments;
use super::mcp::print_result;
use super::mcp::terminal::{TerminalCaller, ask_until, should_ask};
use super::repl::EmbeddedNode;
use super::{
    CommandError, CommandResult, EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, EXIT_INPUT_REQUIRED,
    EXIT_PARTIAL, a2a, output, run_until_interrupted, wait_for_interrupt,
};
use crate::clinics::{Clinics, ClinicsError};
use crate::config::Topology;
use crate::node::NodeError;

/// Default of `--timeout`, in seconds.
const TIMEOUT_DEFAULT_S: u64 = 300;
/// Error about credentials without an address.
const CREDENTIALS_MISPLACED: &str =
    "--key-env, --header and --ca are for an agent at an address: add --to URL";

#[derive(Debug, clap::Args)]
pub(super) struct AskArguments {
    /// Text of the question. The clinics read English and Portuguese.
    text: String,
    /// Address of the agent to ask: a topology file, `example:NAME`, a URL or HOST:PORT. Without it, the clinics are asked.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Orchestrator to ask. Needed with `--to FILE` if the file declares several.
    #[arg(long, value_name = "ID", requires = "to")]
    agent: Option<String>,
    /// Topology file of the host that asks the clinics. Without it, the example clinics are started and stopped.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    topology: Option<PathBuf>,
    /// Purpose of the question, for example `treatment`. Clinics disclose identities for allowed purposes only.
    #[arg(long, conflicts_with = "to")]
    purpose: Option<String>,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// With `--to`: read answers to the agent's questions from standard input even if that is no terminal.
    #[arg(long, requires = "to")]
    ask: bool,
    /// With `--to`: limit for the whole call, questions included. The default is 300.
    #[arg(long, value_name = "SECONDS", requires = "to", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    #[command(flatten)]
    credentials: CredentialArguments,
}

/// Arguments of `callboard send`, the old name of `callboard ask --to`.
#[derive(Debug, clap::Args)]
pub(super) struct SendArguments {
    /// Address of the agent: a topology file, `example:NAME`, a URL or HOST:PORT.
    #[arg(value_name = "ADDRESS")]
    to: String,
    /// Text of the message.
    text: String,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// Read answers to the agent's questions from standard input even if that is no terminal.
    #[arg(long)]
    ask: bool,
    /// Limit for the whole call, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_DEFAULT_S,
        value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

/// A question to one agent.
struct AgentQuestion {
    text: String,
    json: bool,
    ask: bool,
    timeout: Duration,
    /// Credentials for an agent at an address.
    credentials: CredentialArguments,
}

/// Runs `callboard ask`.
pub(super) async fn run(arguments: AskArguments) -> CommandResult {
    let AskArguments {
        text,
        to,
        agent,
        topology,
        purpose,
        json,
        ask,
        timeout,
        credentials,
    } = arguments;
    match to {
        Some(to) => {
            let timeout = Duration::from_secs(timeout.unwrap_or(TIMEOUT_DEFAULT_S));
            run_to_agent(
                &to,
                agent,
                AgentQuestion {
                    text,
                    json,
                    ask,
                    timeout,
                    credentials,
                },
            )
            .await
        }
        None if credentials.is_given() => Err(CommandError::usage(CREDENTIALS_MISPLACED)),
        None => run_clinics(text, topology, purpose, json).await,
    }
}

/// Runs `callboard send`.
pub(super) async fn run_send(
    SendArguments {
        to,
        text,
        json,
        ask,
        timeout,
    }: SendArguments,
) -> CommandResult {
    let timeout = Duration::from_secs(timeout);
    run_to_agent(
        &to,
        None,
        AgentQuestion {
            text,
            json,
            ask,
            timeout,
            credentials: CredentialArguments::default(),
        },
    )
    .await
}

async fn run_to_agent(to: &str, agent: Option<String>, question: AgentQuestion) -> CommandResult {
    match Address::parse(to)? {
        Address::File(_) if question.credentials.is_given() => {
            Err(CommandError::usage(CREDENTIALS_MISPLACED))
        }
        Address::File(file) => {
            let embedded = EmbeddedNode::resolve(Some(&file), agent, None)?;
            print_reply(
                ask_in_process(&embedded, &file, &question).await?,
                question.json,
            )
        }
        Address::Remote(_) if agent.is_some() => Err(CommandError::usage(
            "--agent is for files: write the agent's own address, for example URL/agents/ID",
        )),
        Address::Remote(typed) => {
            let AgentQuestion {
                text,
                json,
                ask,
                timeout,
                credentials,
            } = question;
            let url = Address::remote_url(&typed);
            let peer = a2a::PeerArguments::new(url, credentials, timeout.as_secs());
            a2a::send(&a2a::A2aSendArguments::new(peer, text, json, ask)).await
        }
    }
}

/// Starts the node of a topology file in this process, asks its orchestrator, and stops the node.
/// The inner result is the agent's reply or failure, also after the time limit or an interrupt.
///
/// # Errors
/// The outer error: the file's orchestrator isn't determined, or the node can't start.
async fn ask_in_process(
    embedded: &EmbeddedNode,
    file: &str,
    question: &AgentQuestion,
) -> Result<Result<ToolResult, Failure>, CommandError> {
    let id = &embedded.only_orchestrator(file)?.id;
    let node = embedded.start_node().await?;
    let Some(orchestrated) = node.orchestrator(id) else {
        node.shutdown().await;
        return Err(NodeError::NoOrchestrator {
            id: Some(id.clone()),
        }
        .into());
    };
    let limit = question.timeout;
    let reply = tokio::select! {
        reply = timeout(limit, ask_agent(&orchestrated.agent, question, limit)) => {
            reply.unwrap_or_else(|_| Err(Failure::timed_out(format!("not done within {limit:?}: try a longer --timeout"))))
        }
        () = wait_for_interrupt() => Err(Failure::cancelled("interrupted")),
    };
    node.shutdown().await;
    Ok(reply)
}

async fn ask_agent(
    agent: &AgentRef,
    question: &AgentQuestion,
    limit: Duration,
) -> Result<ToolResult, Failure> {
    let person = TerminalCaller::new(should_ask(question.ask, question.json), true, Vec::new());
    let said = Converse::from_content([Content::text(&question.text)])
        .0
        .with("key", CallId::generate().to_string());
    let reply = ask_until(
        agent,
        Converse::NAME,
        &said,
        Some(Arc::new(person)),
        Instant::now() + limit,
    )
    .await?;
    serde_json::from_str(reply.get())
        .map(ToolResult)
        .map_err(|_| {
            Failure::internal("the agent's reply is no JSON object: the agent has to be corrected")
        })
}

fn print_reply(reply: Result<ToolResult, Failure>, json: bool) -> CommandResult {
    let failure = match reply {
        Ok(result) => {
            print_result(&result, json)?;
            return Ok(if result.is_error() {
                EXIT_FAILED
            } else {
                EXIT_ANSWERED
            });
        }
        Err(failure) => failure,
    };
    match json {
        true => output::print_json(&failure)?,
        false => output::print_error(format_args!("{}: {failure}", failure.kind)),
    }
    Ok(match failure.kind {
        FailureKind::Blocked => EXIT_BLOCKED,
        FailureKind::NoResponder => EXIT_INPUT_REQUIRED,
        _ => EXIT_FAILED,
    })
}

async fn run_clinics(
    query: String,
    topology: Option<PathBuf>,
    purpose: Option<String>,
    json: bool,
) -> CommandResult {
    // An invalid question fails before clinics are started.
    AskClinics {
        query: query.clone(),
        purpose: purpose.clone(),
    }
    .validate()
    .map_err(ClinicsError::from)?;
    let starting = async {
        match topology {
            Some(file) => Clinics::connect(Topology::read(&file)?),
            None => Clinics::start_examples().await,
        }
    };
    let told = |line: &str| {
        if !json {
            output::print_progress(line);
        }
    };
    let asking =
        async |clinics: &Clinics| Ok(clinics.ask(&query, purpose.as_deref(), told).await?);
    let answer = with_clinics(starting, asking).await?;
    match json {
        true => output::print_json(&answer),
        false => output::print_answer(&answer),
    }?;
    Ok(match answer.status() {
        AnswerStatus::Answered => EXIT_ANSWERED,
        AnswerStatus::Partial => EXIT_PARTIAL,
        AnswerStatus::Blocked => EXIT_BLOCKED,
        AnswerStatus::Failed => EXIT_FAILED,
    })
}

/// Runs `work` with clinics, which have ended when this returns.
pub(super) async fn with_clinics<T>(
    starting: impl Future<Output = Result<Clinics, ClinicsError>>,
    work: impl AsyncFnOnce(&Clinics) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let clinics = run_until_interrupted(async { Ok(starting.await?) }).await?;
    let outcome = run_until_interrupted(work(&clinics)).await;
    // Whoever interrupts once more doesn't want to wait: then the clinics end by their lifelines.
    tokio::select! {
        () = clinics.shutdown() => {}
        () = wait_for_interrupt() => {}
    }
    outcome
}
