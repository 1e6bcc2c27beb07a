//! `callboard mcp`: an MCP client for people.

mod call;
mod form;
mod list;
mod server;
pub(super) mod terminal;
pub(super) mod words;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use callboard_mcp::outbound::{CALL_TIMEOUT_DEFAULT, ClientError, Era, EraChoice};
use callboard_message::{Failure, FailureKind};
use clap::{Subcommand, ValueEnum};

use super::{EXIT_BLOCKED, EXIT_FAILED, EXIT_USAGE, interrupted, show};

#[derive(Debug, Subcommand)]
pub(super) enum McpCommand {
    /// Show what a server is and offers: its tools, resources and prompts.
    List(ListArguments),
    /// Use a tool. Exit code: 0 it answered, 2 usage, 3 blocked, 4 failed.
    Call(CallArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, clap::Args)]
pub(super) struct CallArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The tool.
    tool: String,
    /// An argument of the tool. Its value is text where the tool wants text, else JSON where it is some.
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    /// The tool's arguments as a JSON object; `--arg` goes before.
    #[arg(long, value_name = "JSON")]
    json_args: Option<String>,
    /// Read answers to the server's questions from standard input even where that is no terminal.
    #[arg(long)]
    ask: bool,
    /// A folder to lend to the server, where it asks for roots.
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ServerArguments {
    /// Where the server is: a URL (http, https, ws, wss), or a command that speaks over its pipes, in quotes: "npx -y SERVER".
    #[arg(value_name = "URL|COMMAND")]
    server: String,
    /// Which MCP: `legacy` begins with a handshake (2024-11-05 to 2025-11-25), `modern` is stateless (2026-07-28).
    #[arg(long, value_enum, default_value = "auto")]
    era: EraArgument,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// A header for each HTTP request.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The variable that holds a bearer token.
    #[arg(long, value_name = "NAME")]
    bearer_env: Option<String>,
    /// A variable that a command gets beside HOME, LANG, PATH, TMPDIR and USER; it gets no others.
    #[arg(long = "env", value_name = "NAME")]
    variables: Vec<String>,
    /// How long it may take in all, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = CALL_TIMEOUT_DEFAULT.as_secs())]
    timeout: u64,
    /// How long a connection may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    connect_timeout: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EraArgument {
    Auto,
    Legacy,
    Modern,
}

impl EraArgument {
    fn choice(self) -> EraChoice {
        match self {
            Self::Auto => EraChoice::Auto,
            Self::Legacy => EraChoice::Only(Era::Legacy),
            Self::Modern => EraChoice::Only(Era::Modern),
        }
    }
}

/// Why a command stopped before its end.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    /// Correct the command line.
    #[error("{0}")]
    Usage(String),
    /// The same.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// See what the server says.
    #[error("{}{}", .0.message, code_of(.0))]
    Failed(#[from] Failure),
    /// What there is to say can't be said: make room, or write elsewhere.
    #[error("failed to write to standard output: {0}")]
    Output(#[from] io::Error),
    /// The user or the system wanted it to.
    #[error("interrupted")]
    Interrupted,
    /// Give it more time.
    #[error("not done in {0:?}")]
    TimedOut(Duration),
}

/// The server's own code, where it sent one.
fn code_of(failure: &Failure) -> String {
    let code = failure.data.as_ref().and_then(|data| data["rpc"]["code"].as_i64());
    code.map(|code| format!(" (code {code})")).unwrap_or_default()
}

impl Stopped {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Client(_) => EXIT_USAGE,
            Self::Failed(failure) if failure.kind == FailureKind::Blocked => EXIT_BLOCKED,
            _ => EXIT_FAILED,
        }
    }
}

/// Runs a command, says why it stopped if it did, and gives its exit code.
pub(super) fn run(command: &McpCommand) -> u8 {
    let outcome = super::block_on(async {
        match command {
            McpCommand::List(arguments) => list::run(arguments).await,
            McpCommand::Call(arguments) => call::run(arguments).await,
        }
    });
    outcome.map_err(Stopped::Output).flatten().unwrap_or_else(|stopped| {
        show::complain(words::printable(&stopped.to_string()));
        stopped.exit_code()
    })
}

/// Does `work`, unless somebody interrupts; then the server is still taken leave of.
async fn unless_interrupted<T>(work: impl Future<Output = Result<T, Stopped>>) -> Result<T, Stopped> {
    tokio::select! {
        outcome = work => outcome,
        () = interrupted() => Err(Stopped::Interrupted),
    }
}
