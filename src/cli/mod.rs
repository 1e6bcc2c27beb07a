//! The command line: what can be asked for, and how each command ends.

mod a2a;
mod arguments;
mod audit;
mod check;
mod demo;
mod eval;
mod keys;
mod mcp;
mod msg;
mod repl;
mod send;
mod serve;
mod show;
mod store;
mod tasks;

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callboard_a2a::outbound::{PeerError, RemoteError};
use callboard_mcp::outbound::auth::AuthError;
use callboard_message::{Failure, FailureKind};
use callboard_rpc::KeyError;
use callboard_runtime::{JournalError, TaskError};
use callboard_store::{DirectoryError, ExportError, StoreError};
use clap::{Parser, Subcommand};
use eval::CaseError;

use crate::clinics::ClinicsError;
use crate::config::ConfigError;
use crate::node::{NodeError, in_full};
use crate::repl::Signals;

/// Answered.
pub const EXIT_ANSWERED: u8 = 0;
/// The command line or a file named on it is wrong. (clap's own code.)
pub const EXIT_USAGE: u8 = 2;
/// A guard or the verifier stopped it.
pub const EXIT_BLOCKED: u8 = 3;
/// It didn't work.
pub const EXIT_FAILED: u8 = 4;
/// An agent asks something, and nobody was there to answer: go on with its task.
pub const EXIT_INPUT_REQUIRED: u8 = 5;

/// An actor runtime for AI agents.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, arg_required_else_help = true)]
pub struct Arguments {
    /// What to log to standard error, for example `info` or `callboard_runtime=debug`. Never holds what agents say.
    /// Without it, warnings; of `ask` and `demo`, which tell what happens themselves, errors only.
    #[arg(long, global = true, env = "CALLBOARD_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// Log lines as JSON.
    #[arg(long, global = true)]
    log_json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the main job: two clinics as processes of their own, a question that is answered and one that is blocked.
    Demo(demo::DemoArguments),
    /// Ask the clinics a question. Exit code: 0 answered, 2 usage, 3 blocked, 4 failed.
    Ask(AskArguments),
    /// Talk to an agent at a terminal or through a pipe: the one of a file, one elsewhere, or one of its own.
    Repl(repl::ReplArguments),
    /// Say one thing to an agent, print what it answers and end. Exit code: 0 answered, 2 usage, 3 blocked, 4 failed, 5 it asks.
    Send(send::SendArguments),
    /// Measure how well decisions are made.
    #[command(subcommand)]
    Eval(eval::EvalCommand),
    /// Start what a topology file declares, until interrupted.
    Serve(ServeArguments),
    /// Find everything that is wrong with a topology file. Exit code: 0 nothing, or warnings only, 2 errors.
    Check(CheckArguments),
    /// Look at an A2A agent, talk to it, and follow its tasks.
    #[command(subcommand)]
    A2a(a2a::A2aCommand),
    /// Look at an MCP server, or use one of its tools.
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// Write to agents and read what they write, at a node's mail listener.
    #[command(subcommand)]
    Msg(msg::MsgCommand),
    /// See who has mail at a node's mail listener: state, way, mailbox.
    Agents(msg::read::AgentsArguments),
    /// Serve what a topology file declares to one MCP client over standard input and output.
    Stdio(StdioArguments),
    /// Look at what a node works on and has worked on, also beside it, or end it.
    #[command(subcommand)]
    Tasks(tasks::TasksCommand),
    /// Copy a node's store to a file, also while it runs. The file must not be there; it is a store itself: to restore, use it
    /// as one.
    Backup(store::FileArguments),
    /// Write the directory of agents that a node's store has to a file, or read one into it.
    #[command(subcommand)]
    Directory(store::DirectoryCommand),
    /// Check a node's audit, look into it or copy it, also beside the node.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Make, list and revoke the keys with which peers show who they are.
    Keys(KeysArguments),
}

#[derive(Debug, clap::Args)]
struct AskArguments {
    /// The question, in English or Portuguese.
    query: String,
    /// The host's file with the clinics to ask (TOML or YAML). Without it the example clinics are started and ended.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Why it is asked, for example `treatment`: clinics show identities for an allowed purpose only.
    #[arg(long)]
    purpose: Option<String>,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ServeArguments {
    /// The topology file (TOML or YAML), or `example:NAME` for one that comes with callboard.
    #[arg(value_name = "FILE")]
    topology: String,
    /// Where agents keep their data. Without it, beside the file; an example's is thrown away at the end.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Listen on free ports in place of those declared.
    #[arg(long)]
    free_ports: bool,
    /// End when standard input closes: a child of another process must not outlive it.
    #[arg(long)]
    lifeline: bool,
}

#[derive(Debug, clap::Args)]
struct CheckArguments {
    /// The topology file (TOML or YAML).
    #[arg(value_name = "FILE")]
    topology: PathBuf,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// Connect to each upstream, and say which revision it speaks and how many tools it has, or why not. Exit code 4 where
    /// one is away.
    #[arg(long)]
    connect: bool,
}

#[derive(Debug, clap::Args)]
struct StdioArguments {
    /// The topology file (TOML or YAML), or `example:NAME` for one that comes with callboard. Its listeners stay closed.
    #[arg(value_name = "FILE")]
    topology: String,
    /// Which of its agents; without it, all of them as one.
    #[arg(long, value_name = "ID")]
    agent: Vec<String>,
    /// Where agents keep their data. Without it, beside the file; an example's is thrown away at the end.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct KeysArguments {
    /// The key file. Without it, the one that the topology's listeners name.
    #[arg(long, value_name = "FILE", global = true)]
    keys: Option<PathBuf>,
    /// The topology file whose listeners name the key file.
    #[arg(long, value_name = "FILE", global = true)]
    topology: Option<PathBuf>,
    #[command(subcommand)]
    action: KeysAction,
}

#[derive(Debug, Subcommand)]
enum KeysAction {
    /// Make a key and show it, this once.
    Add {
        /// Names the key, and whoever has it.
        name: String,
        /// What its bearer may do, in the words of the agents, for example `patient.identity`. May be repeated.
        #[arg(long, value_name = "SCOPE")]
        scope: Vec<String>,
    },
    /// Show the keys' names, states and scopes, never the keys.
    List,
    /// Make a key count no more.
    Revoke {
        /// The key's name.
        name: String,
    },
}

/// Runs a command to its end.
pub fn run(arguments: Arguments) -> ExitCode {
    let log_default = if matches!(arguments.command, Command::Serve(_) | Command::Stdio(_)) {
        "warn"
    } else {
        "error"
    };
    let log = arguments.log.as_deref().unwrap_or(log_default);
    if let Err(error) = crate::telemetry::start(log, arguments.log_json) {
        show::complain(error);
        return ExitCode::from(EXIT_USAGE);
    }
    let done = actix_web::rt::System::new().block_on(act(arguments.command));
    let code = done.unwrap_or_else(|error| {
        show::complain(&error.message);
        error.exit_code
    });
    callboard_message::log::report_suppressed();
    ExitCode::from(code)
}

async fn act(command: Command) -> Outcome {
    match command {
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Ask(arguments) => send::run_ask(arguments).await,
        Command::Repl(arguments) => repl::run(arguments).await,
        Command::Send(arguments) => send::run(arguments).await,
        Command::Eval(command) => eval::run(command).await,
        Command::Serve(arguments) => serve::run(arguments).await,
        Command::Check(arguments) => check::run(arguments).await,
        Command::A2a(command) => a2a::run(command).await,
        Command::Mcp(command) => mcp::run(command).await,
        Command::Msg(command) => msg::run(command).await,
        Command::Agents(arguments) => msg::read::run_agents(arguments).await,
        Command::Stdio(arguments) => serve::stdio(arguments).await,
        Command::Tasks(command) => tasks::run(command).await,
        Command::Backup(arguments) => store::backup(arguments).await,
        Command::Directory(command) => store::directory(command).await,
        Command::Audit(command) => audit::run(command).await,
        Command::Keys(arguments) => keys::run(arguments),
    }
}

/// Does the work, unless the user or the system wants the process to end first.
async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::select! {
        outcome = work => outcome,
        () = interrupted() => Err(CommandError::failed("interrupted")),
    }
}

/// Ends when the user or the system wants the process to. Listens from the call on, also before it is awaited: within a
/// tokio runtime only.
fn interrupted() -> impl Future<Output = ()> {
    let signals = Signals::listen()
        .inspect_err(|error| tracing::warn!(%error, "failed to listen for signals"))
        .ok();
    async {
        match signals {
            Some(mut signals) => drop(signals.next().await),
            None => std::future::pending().await,
        }
    }
}

/// Statuses of a mail listener that are its verdict on what was asked: no key, not allowed, wrong, too often.
const REFUSED: [u16; 4] = [401, 403, 422, 429];

/// Why a command failed.
#[derive(Debug)]
struct CommandError {
    message: String,
    exit_code: u8,
}

/// Exit code of a command that came to its end.
type Outcome = Result<u8, CommandError>;

impl CommandError {
    /// The command line, or a file named there, is wrong.
    fn usage(why: impl Display) -> Self {
        Self {
            exit_code: EXIT_USAGE,
            ..Self::failed(why)
        }
    }

    /// A file named on the command line is wrong.
    fn file(path: &Path, why: impl Display) -> Self {
        Self::usage(format_args!("{}: {why}", path.display()))
    }

    fn failed(why: impl Display) -> Self {
        Self {
            message: why.to_string(),
            exit_code: EXIT_FAILED,
        }
    }
}

/// An error that ends a command.
trait Ends: Display {
    /// Whether the command line, or a file named there, is wrong.
    fn is_usage(&self) -> bool {
        true
    }
}

impl<E: Ends> From<E> for CommandError {
    fn from(error: E) -> Self {
        if error.is_usage() {
            Self::usage(error)
        } else {
            Self::failed(error)
        }
    }
}

impl Ends for JournalError {
    fn is_usage(&self) -> bool {
        false
    }
}

impl Ends for TaskError {
    fn is_usage(&self) -> bool {
        false
    }
}

impl Ends for ConfigError {}
impl Ends for callboard_mcp::outbound::ClientError {}
impl Ends for AuthError {}
impl Ends for CaseError {}
impl Ends for RemoteError {}

impl Ends for NodeError {
    fn is_usage(&self) -> bool {
        self.is_usage()
    }
}

impl Ends for ClinicsError {
    fn is_usage(&self) -> bool {
        self.is_usage()
    }
}

impl Ends for KeyError {
    fn is_usage(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::Random)
    }
}

impl Ends for DirectoryError {
    fn is_usage(&self) -> bool {
        !matches!(self, Self::Journal(_))
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::failed(format_args!("failed to write to standard output: {error}"))
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        let why = in_full(&error);
        if matches!(error, StoreError::Url(_)) {
            Self::usage(why)
        } else {
            Self::failed(why)
        }
    }
}

impl From<ExportError> for CommandError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => error.into(),
            ExportError::Io(error) => error.into(),
            other => Self::failed(other),
        }
    }
}

impl From<callboard_mail::ClientError> for CommandError {
    fn from(error: callboard_mail::ClientError) -> Self {
        use callboard_mail::ClientError;
        let exit_code = match &error {
            ClientError::Address | ClientError::Key => EXIT_USAGE,
            ClientError::Refused { status, .. } if REFUSED.contains(status) => EXIT_BLOCKED,
            _ => EXIT_FAILED,
        };
        Self {
            exit_code,
            ..Self::failed(error)
        }
    }
}

impl From<PeerError> for CommandError {
    fn from(error: PeerError) -> Self {
        Failure::from(error).into()
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        // The code of the protocol's own error, if there is one.
        let data = failure.data.as_ref();
        let code = data.and_then(|data| {
            data["rpc"]["code"]
                .as_i64()
                .or_else(|| data["a2aErrorCode"].as_i64())
        });
        let code = code
            .map(|code| format!(" (code {code})"))
            .unwrap_or_default();
        let exit_code = if failure.kind == FailureKind::Blocked {
            EXIT_BLOCKED
        } else {
            EXIT_FAILED
        };
        Self {
            exit_code,
            ..Self::failed(format_args!("{}{code}", failure.message))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    /// Goal: no command has two arguments of one name, or a rule that names none. Method: clap's own check of all of them.
    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
