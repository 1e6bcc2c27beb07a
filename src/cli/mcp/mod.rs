//! `callboard mcp`: an MCP client for people.

mod call;
mod form;
mod list;
pub(super) mod server;
pub(super) mod terminal;
pub(super) mod words;

use std::path::PathBuf;

use callboard_mcp::outbound::{CALL_TIMEOUT_DEFAULT, Era, EraChoice};
use clap::Subcommand;

use super::arguments::{CredentialArguments, one_of};
use super::{CommandError, Outcome, show, unless_interrupted};
pub(crate) use form::{CANCEL, DECLINE, Form};
pub(crate) use words::{printable, told};

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

const ERAS: [(&str, EraChoice); 3] =
    [("auto", EraChoice::Auto), ("legacy", EraChoice::Only(Era::Legacy)), ("modern", EraChoice::Only(Era::Modern))];

#[derive(Debug, clap::Args)]
struct ServerArguments {
    /// Where the server is: a URL (http, https, ws, wss), or a command that speaks over its pipes, in quotes: "npx -y SERVER".
    #[arg(value_name = "URL|COMMAND")]
    server: String,
    /// Which MCP: `legacy` begins with a handshake (2024-11-05 to 2025-11-25), `modern` is stateless (2026-07-28).
    #[arg(long, default_value = "auto", value_parser = one_of(ERAS))]
    era: EraChoice,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    credentials: CredentialArguments,
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

/// Runs a command.
pub(super) async fn run(command: &McpCommand) -> Outcome {
    match command {
        McpCommand::List(arguments) => list::run(arguments).await,
        McpCommand::Call(arguments) => call::run(arguments).await,
    }
}
