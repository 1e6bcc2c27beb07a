//! `callboard a2a`: an A2A client for people.

mod agent;
mod card;
mod send;
mod stream;
mod task;
mod words;

use std::path::PathBuf;

use callboard_a2a::outbound::{Binding, CALL_TIMEOUT_DEFAULT, Version};
use callboard_message::TaskState;
use clap::{Subcommand, ValueEnum};

use super::stopped::{self, Stopped};
use super::{interrupted, show};

#[derive(Debug, Subcommand)]
pub(super) enum A2aCommand {
    /// Show what an agent says about itself: its interfaces, its skills, who signed it.
    Card(CardArguments),
    /// Say something, and print what came of it. Exit code: 0 done, 2 usage, 3 blocked, 4 failed, 5 the agent asks.
    Send(SendArguments),
    /// Say something, and print what the agent says and makes as it comes. Exit codes as of `send`.
    Stream(SendArguments),
    /// Show a task. Exit codes as of `send`.
    Task(TaskArguments),
    /// List the tasks that are ours: id, state, conversation and time of the last change.
    List(ListArguments),
    /// End a task.
    Cancel(CancelArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct CardArguments {
    #[command(flatten)]
    agent: AgentArguments,
    /// A JSON Web Key Set: whether one of its keys signed the card. Exit code 4 if not.
    #[arg(long, value_name = "FILE")]
    verify: Option<PathBuf>,
    /// The card for those who are known.
    #[arg(long)]
    extended: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct SendArguments {
    #[command(flatten)]
    agent: AgentArguments,
    /// What to say.
    text: Option<String>,
    /// Which of its skills is meant.
    #[arg(long, value_name = "ID")]
    skill: Option<String>,
    /// A JSON value to send along.
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// A file to send along. May be repeated.
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The task to go on with.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// The conversation to go on with.
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    /// Read answers to the agent's questions from standard input even where that is no terminal.
    #[arg(long)]
    ask: bool,
    /// Don't wait for the end: the task can be looked at later.
    #[arg(long, conflicts_with = "ask")]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct TaskArguments {
    #[command(flatten)]
    agent: AgentArguments,
    /// The task.
    id: String,
    /// At most so many messages of what was said.
    #[arg(long, value_name = "N", default_value_t = 0)]
    history: u16,
    /// Go on printing what happens, until the task ends or the agent asks.
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    agent: AgentArguments,
    /// Of this conversation only.
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    /// In this state only, for example `working` or `input_required`.
    #[arg(long, value_name = "STATE", value_parser = words::state)]
    state: Option<TaskState>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u16,
}

#[derive(Debug, clap::Args)]
pub(super) struct CancelArguments {
    #[command(flatten)]
    agent: AgentArguments,
    /// The task.
    id: String,
}

#[derive(Debug, clap::Args)]
struct AgentArguments {
    /// Where the agent or its card is.
    #[arg(value_name = "URL")]
    url: String,
    /// Speak this version only; without it the newest that the agent speaks.
    #[arg(long, value_enum)]
    version: Option<VersionArgument>,
    /// Speak over this binding only.
    #[arg(long, value_enum)]
    binding: Option<BindingArgument>,
    /// A header for each request.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The variable that holds a bearer token.
    #[arg(long, value_name = "NAME")]
    bearer_env: Option<String>,
    /// How long it may take in all, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = CALL_TIMEOUT_DEFAULT.as_secs())]
    timeout: u64,
    /// Print JSON and nothing else, one object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum VersionArgument {
    #[value(name = "1.0")]
    V10,
    #[value(name = "0.3")]
    V03,
    #[value(name = "0.1")]
    V01,
}

impl From<VersionArgument> for Version {
    fn from(version: VersionArgument) -> Self {
        match version {
            VersionArgument::V10 => Self::V10,
            VersionArgument::V03 => Self::V03,
            VersionArgument::V01 => Self::V01,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BindingArgument {
    Jsonrpc,
    Http,
}

impl From<BindingArgument> for Binding {
    fn from(binding: BindingArgument) -> Self {
        match binding {
            BindingArgument::Jsonrpc => Self::JsonRpc,
            BindingArgument::Http => Self::HttpJson,
        }
    }
}

/// Runs a command; gives its exit code.
pub(super) fn run(command: &A2aCommand) -> u8 {
    stopped::run(async {
        match command {
            A2aCommand::Card(arguments) => card::run(arguments).await,
            A2aCommand::Send(arguments) => send::run(arguments).await,
            A2aCommand::Stream(arguments) => stream::run(arguments).await,
            A2aCommand::Task(arguments) => task::show(arguments).await,
            A2aCommand::List(arguments) => task::list(arguments).await,
            A2aCommand::Cancel(arguments) => task::cancel(arguments).await,
        }
    })
}
