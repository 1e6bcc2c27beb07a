//! The command line: arguments, dispatch and exit codes.

mod a2a;
mod address;
mod agents;
mod approvals;
mod arguments;
mod ask;
mod audit;
mod audit_follow;
mod check;
mod completions;
mod connect;
mod demo;
mod doctor;
mod eval;
#[cfg(target_os = "linux")]
mod exec_child;
mod init;
mod keys;
mod mail;
mod mcp;
mod node_view;
mod output;
mod policy;
mod quotas;
mod repl;
mod schema;
mod serve;
mod store;
mod tasks;
mod tools;
mod top;

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callboard_a2a::outbound::{A2aClientError, RemoteOptionsError};
use callboard_mcp::outbound::auth::AuthError;
use callboard_message::{Failure, FailureKind};
use callboard_rpc::KeyError;
use callboard_runtime::{JournalError, TaskError};
use callboard_store::{DirectoryError, ExportError, StoreError};
use clap::{Parser, Subcommand};
use eval::EvalCaseError;

use crate::clinics::ClinicsError;
use crate::config::ConfigError;
use crate::node::{NodeError, error_with_sources};
use crate::repl::ProcessSignals;

/// Exit code: answered, or done.
pub const EXIT_ANSWERED: u8 = 0;
/// Exit code: the command line, or a file named on it, is wrong. The same as clap's own.
pub const EXIT_USAGE: u8 = 2;
/// Exit code: blocked by a guardrail or the verifier, refused by a mail listener or a console (HTTP 401, 403,
/// 422 or 429), or an audit chain that isn't intact.
pub const EXIT_BLOCKED: u8 = 3;
/// Exit code: failed.
pub const EXIT_FAILED: u8 = 4;
/// Exit code: an agent needs an answer that was not given. Its task can be continued.
pub const EXIT_INPUT_REQUIRED: u8 = 5;
/// Exit code of a question to the clinics: answered in part, for example because a clinic is down.
pub const EXIT_PARTIAL: u8 = 5;

/// Help about logs, which is shown once and not for each command.
const LOG_HELP: &str = "Logs go to standard error and never contain messages. The default of --log is `warn` for `serve` and `stdio`, else `error`; CALLBOARD_LOG sets another.";

/// An actor runtime for AI agents.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = LOG_HELP
)]
pub struct Arguments {
    /// Log filter for standard error, for example `info` or `callboard_runtime=debug`.
    #[arg(
        long,
        global = true,
        env = "CALLBOARD_LOG",
        hide_env = true,
        value_name = "FILTER",
        display_order = 900
    )]
    log: Option<String>,
    /// Write log lines as JSON.
    #[arg(long, global = true, display_order = 901)]
    log_json: bool,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Show the clinics at work: two clinics in processes of their own, one question answered and one blocked.
    Demo(demo::DemoArguments),
    /// Ask a question and wait for the answer: of the clinics, or with `--to` of any agent. Exit code: 0 answered, 2 usage,
    /// 3 blocked, 4 failed, 5 the agent needs an answer first.
    Ask(ask::AskArguments),
    /// Talk to an agent at a terminal or through a pipe: one of a topology file, a remote one, or a default one.
    Repl(repl::ReplArguments),
    /// List agents: those that a topology file declares, or those that are served at an address.
    Agents(agents::AgentsArguments),
    /// Send and read durable messages at a node's mail listener, and list its members.
    #[command(subcommand)]
    Mail(mail::MailCommand),
    /// Measure the quality of decisions with labelled lines: routing, the clinics, the verifier, the guardrail.
    #[command(subcommand)]
    Eval(eval::EvalCommand),
    /// Run the agents and listeners of a topology file until interrupted.
    Serve(ServeArguments),
    /// Report all errors and warnings in a topology file. Exit code: 0 none or warnings only, 2 errors.
    Check(CheckArguments),
    /// Write a first topology file, with the answers to three questions.
    Init(init::InitArguments),
    /// Check whether a node can run on this machine: file, addresses, keys, servers, store, clients. Exit code: 0 fine or
    /// warnings, 2 usage, 4 errors.
    Doctor(doctor::DoctorArguments),
    /// Connect Claude Code, Claude Desktop, Codex, VS Code or Cursor: write callboard into its configuration file, or remove it.
    Connect(connect::ConnectArguments),
    /// Print the JSON Schema of topology files, for editors.
    Schema,
    /// Print the script with which a shell completes commands and options.
    Completions(completions::CompletionsArguments),
    /// Write a manual page for each command into a folder.
    #[command(hide = true)]
    Man(completions::ManArguments),
    /// Inspect a remote A2A agent, send it messages, and follow its tasks.
    #[command(subcommand)]
    A2a(a2a::A2aCommand),
    /// Inspect an MCP server, or call one of its tools.
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// Serve the agents of a topology file to one MCP client over standard input and output.
    Stdio(StdioArguments),
    /// List, show and cancel tasks in a node's store, also while the node runs.
    #[command(subcommand)]
    Tasks(tasks::TasksCommand),
    /// Copy a node's store to a new file, also while the node runs. The copy is a store itself: to restore, use it as one.
    Backup(store::BackupArguments),
    /// Export the directory of agents of a node's store to a file, or import one.
    #[command(subcommand)]
    Directory(store::DirectoryCommand),
    /// Verify, show or export a node's audit log, also while the node runs.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Create, list and revoke API keys for clients.
    Keys(KeysArguments),
    /// Explain the rules about who may use what.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// List and approve the pinned tools of an upstream, also while the node runs.
    #[command(subcommand)]
    Tools(tools::ToolsCommand),
    /// List, approve and deny the uses of tools that wait for an approval, also while the node runs.
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// List what each principal has used of its quotas, also while the node runs.
    #[command(subcommand)]
    Quotas(quotas::QuotasCommand),
    /// Show a running node as it works, from its console: agents, calls, questions and upstreams.
    Top(top::TopArguments),
    /// Old name of `ask --to`.
    #[command(hide = true)]
    Send(ask::SendArguments),
    /// Old name of `mail`.
    #[command(subcommand, hide = true)]
    Msg(mail::MailCommand),
    /// Replace this process by a program that is killed when its parent ends.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    ExecChild(exec_child::ExecChildArguments),
}

#[derive(Debug, clap::Args)]
struct ServeArguments {
    /// Topology file (TOML or YAML), or `example:NAME` for one that comes with callboard.
    #[arg(value_name = "FILE")]
    topology: String,
    /// Folder for the agents' data. The default is the file's own folder; data of an example is
    /// deleted at the end.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Listen on free ports instead of the declared ones.
    #[arg(long)]
    free_ports: bool,
    /// Open the console at this address, for example 127.0.0.1:9090, in place of the declared one.
    #[arg(long, value_name = "ADDR", value_parser = crate::config::parse_socket_address)]
    console: Option<SocketAddr>,
    /// Stop when standard input closes, so that a child process does not outlive its parent.
    #[arg(long)]
    lifeline: bool,
}

#[derive(Debug, clap::Args)]
struct CheckArguments {
    /// Topology file (TOML or YAML).
    #[arg(value_name = "FILE")]
    topology: PathBuf,
    /// Print one JSON object and nothing else.
    #[arg(long)]
    json: bool,
    /// Connect to each upstream and report its MCP revision and number of tools, or the error. Exit
    /// code 4 if one is unreachable.
    #[arg(long)]
    connect: bool,
    /// Report warnings as errors, such as a missing program. Exit code 2 then.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, clap::Args)]
struct StdioArguments {
    /// Topology file (TOML or YAML), or `example:NAME` for one that comes with callboard. Its
    /// listeners stay closed.
    #[arg(value_name = "FILE")]
    topology: String,
    /// Agent to serve. May be repeated. Without it, all agents are served as one.
    #[arg(long, value_name = "ID")]
    agent: Vec<String>,
    /// Folder for the agents' data. The default is the file's own folder; data of an example is
    /// deleted at the end.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct KeysArguments {
    /// Key file. Without it, the one that the topology's listeners use.
    #[arg(long, value_name = "FILE", global = true)]
    keys: Option<PathBuf>,
    /// Topology file whose listeners name the key file.
    #[arg(long, value_name = "FILE", global = true)]
    topology: Option<PathBuf>,
    #[command(subcommand)]
    action: KeysAction,
}

#[derive(Debug, Subcommand)]
enum KeysAction {
    /// Create a key and print it. It can't be printed again.
    Add {
        /// Name of the key and of its bearer.
        name: String,
        /// Scope that the key grants, for example `patient.identity`. May be repeated.
        #[arg(long, value_name = "SCOPE")]
        scope: Vec<String>,
        /// Id of the only patient whose data the scopes `patient/hmcp:…` of the key open.
        #[arg(long, value_name = "ID")]
        patient: Option<String>,
        /// Date through whose end the key is valid (2026-12-31), or timestamp (2026-12-31T12:00:00Z).
        #[arg(long, value_name = "WHEN", value_parser = keys::parse_when)]
        expires: Option<u64>,
    },
    /// Create another key for the bearer of a key, with the same scopes, and print it. Both are
    /// valid until the first is revoked.
    Rotate {
        /// Name of the key to replace.
        name: String,
        /// Name of the new key.
        new_name: String,
        /// Date or timestamp until which the first key is valid.
        #[arg(long, value_name = "WHEN", value_parser = keys::parse_when)]
        until: Option<u64>,
        /// Date or timestamp until which the new key is valid.
        #[arg(long, value_name = "WHEN", value_parser = keys::parse_when)]
        expires: Option<u64>,
    },
    /// List names, states and scopes of the keys, never the keys themselves.
    List,
    /// Revoke a key.
    Revoke {
        /// Name of the key.
        name: String,
    },
}

/// Runs the launcher or the reaper of child processes if the command line is theirs. The launcher
/// replaces this process by a program. Returns the exit code of the reaper, or of a launcher that
/// failed; `None` for any other command line. It reads no environment variable, because they are
/// those of the program.
#[cfg(target_os = "linux")]
pub fn run_launcher() -> Option<ExitCode> {
    let words = || std::env::args_os().skip(1);
    if exec_child::is_reaper(words()) {
        return Some(ExitCode::from(exec_child::reap()));
    }
    let arguments = exec_child::ExecChildArguments::from_words(words())?;
    Some(ExitCode::from(exec_child::run(&arguments)))
}

/// Runs a command and returns its exit code.
pub fn run(arguments: Arguments) -> ExitCode {
    let log_default = if matches!(
        arguments.command,
        CliCommand::Serve(_) | CliCommand::Stdio(_)
    ) {
        "warn"
    } else {
        "error"
    };
    let log = arguments.log.as_deref().unwrap_or(log_default);
    if let Err(error) = crate::telemetry::start(log, arguments.log_json) {
        output::print_error(error);
        return ExitCode::from(EXIT_USAGE);
    }
    #[cfg(target_os = "linux")]
    exec_child::install_launcher();
    let done = actix_web::rt::System::new().block_on(dispatch(arguments.command));
    let code = done.unwrap_or_else(|error| {
        output::print_error(&error.message);
        error.exit_code
    });
    callboard_message::log::report_suppressed();
    ExitCode::from(code)
}

async fn dispatch(command: CliCommand) -> CommandResult {
    match command {
        CliCommand::Demo(arguments) => demo::run(arguments).await,
        CliCommand::Ask(arguments) => ask::run(arguments).await,
        CliCommand::Repl(arguments) => repl::run(arguments).await,
        CliCommand::Agents(arguments) => agents::run(arguments).await,
        CliCommand::Mail(command) => mail::run(command).await,
        CliCommand::Eval(command) => eval::run(command).await,
        CliCommand::Serve(arguments) => serve::run(arguments).await,
        CliCommand::Check(arguments) => check::run(arguments).await,
        CliCommand::Init(arguments) => init::run(arguments).await,
        CliCommand::Doctor(arguments) => doctor::run(arguments).await,
        CliCommand::Connect(arguments) => connect::run(arguments),
        CliCommand::Schema => schema::run(),
        CliCommand::Completions(arguments) => completions::run(&arguments),
        CliCommand::Man(arguments) => completions::run_man(&arguments),
        CliCommand::A2a(command) => a2a::run(command).await,
        CliCommand::Mcp(command) => mcp::run(command).await,
        CliCommand::Stdio(arguments) => serve::run_stdio(arguments).await,
        CliCommand::Tasks(command) => tasks::run(command).await,
        CliCommand::Backup(arguments) => store::backup(arguments).await,
        CliCommand::Directory(command) => store::run_directory(command).await,
        CliCommand::Audit(command) => audit::run(command).await,
        CliCommand::Keys(arguments) => keys::run(arguments),
        CliCommand::Policy(command) => policy::run(command),
        CliCommand::Tools(command) => tools::run(command).await,
        CliCommand::Approvals(command) => approvals::run(command).await,
        CliCommand::Quotas(command) => quotas::run(command).await,
        CliCommand::Top(arguments) => top::run(arguments).await,
        CliCommand::Send(arguments) => {
            print_renamed("send ADDRESS", "ask --to ADDRESS");
            ask::run_send(arguments).await
        }
        CliCommand::Msg(command) => {
            print_renamed("msg", "mail");
            mail::run(command).await
        }
        #[cfg(target_os = "linux")]
        CliCommand::ExecChild(arguments) => Ok(exec_child::run(&arguments)),
    }
}

/// Warns that a command has a new name.
fn print_renamed(old: &str, new: &str) {
    output::print_error(format_args!(
        "warning: `callboard {old}` is now `callboard {new}`; the next release drops the old name"
    ));
}

/// Runs `work` unless a signal interrupts it. Fails with "interrupted" then.
async fn run_until_interrupted<T>(
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::select! {
        outcome = work => outcome,
        () = wait_for_interrupt() => Err(CommandError::failed("interrupted")),
    }
}

/// Waits for SIGINT or SIGTERM. Signals count from the call on, before the future is polled. Must
/// be called within a tokio runtime.
fn wait_for_interrupt() -> impl Future<Output = ()> {
    let signals = ProcessSignals::listen()
        .inspect_err(|error| tracing::warn!(%error, "failed to listen for signals"))
        .ok();
    async {
        match signals {
            Some(mut signals) => drop(signals.next_signal().await),
            None => std::future::pending().await,
        }
    }
}

/// HTTP statuses with which a mail listener or a console refuses a request, in order: no valid key, not allowed,
/// invalid, rate limited.
const REFUSED_STATUSES: [u16; 4] = [401, 403, 422, 429];

/// Failure of a command, with its exit code.
#[derive(Debug)]
struct CommandError {
    message: String,
    exit_code: u8,
    /// Failure of a call to an agent, for output as JSON; `None` if the command failed otherwise.
    failure: Option<Box<Failure>>,
}

/// Exit code of a completed command, or its failure.
type CommandResult = Result<u8, CommandError>;

impl CommandError {
    /// Creates a usage error.
    fn usage(why: impl Display) -> Self {
        Self {
            exit_code: EXIT_USAGE,
            ..Self::failed(why)
        }
    }

    /// Creates a usage error about a file.
    fn file(path: &Path, why: impl Display) -> Self {
        Self::usage(format_args!("{}: {why}", path.display()))
    }

    fn failed(why: impl Display) -> Self {
        Self {
            message: why.to_string(),
            exit_code: EXIT_FAILED,
            failure: None,
        }
    }
}

/// Error type that becomes a [`CommandError`], with the exit code by [`Self::is_usage`].
trait ExitError: Display {
    /// Returns whether the command line, or a file named on it, is the cause (exit code
    /// [`EXIT_USAGE`]); otherwise the exit code is [`EXIT_FAILED`].
    fn is_usage(&self) -> bool {
        true
    }
}

impl<E: ExitError> From<E> for CommandError {
    fn from(error: E) -> Self {
        if error.is_usage() {
            Self::usage(error)
        } else {
            Self::failed(error)
        }
    }
}

impl ExitError for JournalError {
    fn is_usage(&self) -> bool {
        false
    }
}

impl ExitError for TaskError {
    fn is_usage(&self) -> bool {
        false
    }
}

impl ExitError for ConfigError {}
impl ExitError for callboard_mcp::outbound::McpClientError {}
impl ExitError for AuthError {}
impl ExitError for EvalCaseError {}
impl ExitError for RemoteOptionsError {}

impl ExitError for NodeError {
    fn is_usage(&self) -> bool {
        self.is_usage()
    }
}

impl ExitError for ClinicsError {
    fn is_usage(&self) -> bool {
        self.is_usage()
    }
}

impl ExitError for KeyError {
    fn is_usage(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::Random)
    }
}

impl ExitError for DirectoryError {
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
        let why = error_with_sources(&error);
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

impl From<callboard_mail::MailClientError> for CommandError {
    fn from(error: callboard_mail::MailClientError) -> Self {
        use callboard_mail::MailClientError;
        let exit_code = match &error {
            MailClientError::InvalidAddress | MailClientError::InvalidKey => EXIT_USAGE,
            MailClientError::Refused { status, .. } if REFUSED_STATUSES.contains(status) => {
                EXIT_BLOCKED
            }
            _ => EXIT_FAILED,
        };
        Self {
            exit_code,
            ..Self::failed(error)
        }
    }
}

impl From<A2aClientError> for CommandError {
    fn from(error: A2aClientError) -> Self {
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
        let message = format!("{}{code}", failure.message);
        Self {
            message,
            exit_code,
            failure: Some(Box::new(failure)),
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
