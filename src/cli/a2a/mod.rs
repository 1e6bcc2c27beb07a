//! `callboard a2a`: an A2A client for people.

mod commands;

use std::path::PathBuf;
use std::time::Duration;

use callboard_a2a::outbound::{Auth, Binding, CALL_TIMEOUT_DEFAULT, Peer, RemoteOptions, Version};
use callboard_message::TaskState;
use callboard_rpc::Egress;
use clap::Subcommand;
use tokio::time::timeout;
use url::{Host, Url};

pub(super) use commands::send;

use super::arguments::{CredentialArguments, one_of};
use super::{CommandError, Outcome, unless_interrupted};

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

#[derive(Debug, Default, clap::Args)]
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
    #[arg(long, value_name = "STATE", value_parser = commands::state)]
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

#[derive(Debug, Default, clap::Args)]
struct AgentArguments {
    /// Where the agent or its card is.
    #[arg(value_name = "URL")]
    url: String,
    /// Speak this version only; without it the newest that the agent speaks.
    #[arg(long, value_parser = one_of([("1.0", Version::V10), ("0.3", Version::V03), ("0.1", Version::V01)]))]
    version: Option<Version>,
    /// Speak over this binding only.
    #[arg(long, value_parser = one_of([("jsonrpc", Binding::JsonRpc), ("http", Binding::HttpJson)]))]
    binding: Option<Binding>,
    #[command(flatten)]
    credentials: CredentialArguments,
    /// How long it may take in all, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = CALL_TIMEOUT_DEFAULT.as_secs())]
    timeout: u64,
    /// Print JSON and nothing else, one object a line.
    #[arg(long)]
    json: bool,
}

/// Runs a command.
pub(super) async fn run(command: A2aCommand) -> Outcome {
    match &command {
        A2aCommand::Card(arguments) => commands::card(arguments).await,
        A2aCommand::Send(arguments) => send(arguments).await,
        A2aCommand::Stream(arguments) => commands::stream(arguments).await,
        A2aCommand::Task(arguments) => commands::show_task(arguments).await,
        A2aCommand::List(arguments) => commands::list(arguments).await,
        A2aCommand::Cancel(arguments) => commands::cancel(arguments).await,
    }
}

impl SendArguments {
    /// Says a text to the agent at `url`.
    pub(super) fn new(url: String, text: String, timeout: u64, json: bool, ask: bool) -> Self {
        let agent = AgentArguments {
            url,
            timeout,
            json,
            ..AgentArguments::default()
        };
        Self {
            agent,
            text: Some(text),
            ask,
            ..Self::default()
        }
    }
}

impl AgentArguments {
    fn peer(&self) -> Result<Peer, CommandError> {
        let url: Url = self
            .url
            .parse()
            .map_err(|_| CommandError::usage("the agent's URL can't be read"))?;
        let mut options = RemoteOptions {
            call_timeout: Duration::from_secs(self.timeout),
            ..RemoteOptions::default()
        };
        if is_here(&url) {
            options.egress = Egress::public().with_loopback();
        }
        options.versions = self
            .version
            .map_or(options.versions, |version| vec![version]);
        options.bindings = self
            .binding
            .map_or(options.bindings, |binding| vec![binding]);
        let mut options = self.credentials.headers(options, RemoteOptions::header)?;
        if let Some(token) = self.credentials.bearer()? {
            options.auth = Auth::Bearer(token);
        }
        Ok(Peer::new(url, options)?)
    }

    /// Does `work` in the command's time, unless somebody interrupts; what has to be said after that is said.
    async fn within<T, E>(
        &self,
        work: impl AsyncFnOnce(&Peer) -> Result<T, E>,
    ) -> Result<T, CommandError>
    where
        CommandError: From<E>,
    {
        let (peer, limit) = (self.peer()?, Duration::from_secs(self.timeout));
        let outcome = unless_interrupted(async {
            let done = timeout(limit, work(&peer)).await;
            Ok(done.map_err(|_| CommandError::failed(format_args!("not done in {limit:?}")))??)
        });
        let outcome = outcome.await;
        peer.said_goodbye().await;
        outcome
    }
}

/// What a card on this machine names may be on it too.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
