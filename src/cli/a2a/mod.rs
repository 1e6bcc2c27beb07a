//! `callboard a2a`: an A2A client for the command line.

mod commands;

use std::path::PathBuf;
use std::time::Duration;

use callboard_a2a::outbound::{
    A2aClient, CALL_TIMEOUT_DEFAULT, ProtocolBinding, ProtocolVersion, RemoteAuth, RemoteOptions,
};
use callboard_message::TaskState;
use callboard_rpc::{EgressPolicy, is_loopback_host};
use clap::Subcommand;
use tokio::time::timeout;
use url::Url;

pub(super) use commands::send;

use super::arguments::{CredentialArguments, one_of_names};
use super::{CommandError, CommandResult, run_until_interrupted};

#[derive(Debug, Subcommand)]
pub(super) enum A2aCommand {
    /// Show the agent card: interfaces, skills and signature.
    Card(A2aCardArguments),
    /// Send a message and print the result. Exit code: 0 done, 2 usage, 3 blocked, 4 failed, 5
    /// input required.
    Send(A2aSendArguments),
    /// Send a message and print status and artifacts as they arrive. Exit codes as for `send`.
    Stream(A2aSendArguments),
    /// Show a task. Exit codes as for `send`.
    Task(A2aTaskArguments),
    /// List your tasks: id, state, context and time of the last change.
    List(A2aListArguments),
    /// Cancel a task.
    Cancel(A2aCancelArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct A2aCardArguments {
    #[command(flatten)]
    agent: PeerArguments,
    /// JSON Web Key Set for verifying the card's signature. Exit code 4 if no key matches.
    #[arg(long, value_name = "FILE")]
    verify: Option<PathBuf>,
    /// Fetch the extended card for authenticated clients.
    #[arg(long)]
    extended: bool,
}

#[derive(Debug, Default, clap::Args)]
pub(super) struct A2aSendArguments {
    #[command(flatten)]
    agent: PeerArguments,
    /// Text of the message.
    text: Option<String>,
    /// Skill that the message is for.
    #[arg(long, value_name = "ID")]
    skill: Option<String>,
    /// JSON value to send along.
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// File to send along. May be repeated.
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Task to continue.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Context (conversation) to continue.
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    /// Read answers to the agent's questions from standard input even if that is no terminal.
    #[arg(long)]
    ask: bool,
    /// Return as soon as the task is created. Follow it with `a2a task`.
    #[arg(long, conflicts_with = "ask")]
    no_wait: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct A2aTaskArguments {
    #[command(flatten)]
    agent: PeerArguments,
    /// Id of the task.
    id: String,
    /// Maximum number of messages of its history to show.
    #[arg(long, value_name = "N", default_value_t = 0)]
    history: u16,
    /// Print events until the task ends or needs input.
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct A2aListArguments {
    #[command(flatten)]
    agent: PeerArguments,
    /// Only tasks of this context (conversation).
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    /// Only tasks in this state, for example `working` or `input_required`.
    #[arg(long, value_name = "STATE", value_parser = commands::parse_state)]
    state: Option<TaskState>,
    /// Maximum number of tasks.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u16,
}

#[derive(Debug, clap::Args)]
pub(super) struct A2aCancelArguments {
    #[command(flatten)]
    agent: PeerArguments,
    /// Id of the task.
    id: String,
}

#[derive(Debug, Default, clap::Args)]
pub(super) struct PeerArguments {
    /// URL of the agent or its card.
    #[arg(value_name = "URL")]
    url: String,
    /// A2A version to use. The default is the newest that the agent supports.
    #[arg(long, value_parser = one_of_names([("1.0", ProtocolVersion::V10), ("0.3", ProtocolVersion::V03), ("0.1", ProtocolVersion::V01)]))]
    version: Option<ProtocolVersion>,
    /// Protocol binding to use.
    #[arg(long, value_parser = one_of_names([("jsonrpc", ProtocolBinding::JsonRpc), ("http", ProtocolBinding::HttpJson)]))]
    binding: Option<ProtocolBinding>,
    #[command(flatten)]
    credentials: CredentialArguments,
    /// Limit for the whole command, questions included.
    #[arg(long, value_name = "SECONDS", default_value_t = CALL_TIMEOUT_DEFAULT.as_secs())]
    timeout: u64,
    /// Print JSON and nothing else, one object a line.
    #[arg(long)]
    json: bool,
}

/// Runs `callboard a2a`.
pub(super) async fn run(command: A2aCommand) -> CommandResult {
    match &command {
        A2aCommand::Card(arguments) => commands::show_card(arguments).await,
        A2aCommand::Send(arguments) => send(arguments).await,
        A2aCommand::Stream(arguments) => commands::send_streaming(arguments).await,
        A2aCommand::Task(arguments) => commands::show_task(arguments).await,
        A2aCommand::List(arguments) => commands::list_tasks(arguments).await,
        A2aCommand::Cancel(arguments) => commands::cancel_task(arguments).await,
    }
}

impl A2aSendArguments {
    /// Returns the arguments for sending a text to an agent.
    pub(super) fn new(agent: PeerArguments, text: String, json: bool, ask: bool) -> Self {
        Self {
            agent: PeerArguments { json, ..agent },
            text: Some(text),
            ask,
            ..Self::default()
        }
    }
}

impl PeerArguments {
    /// Returns the arguments of a command about the agent at `url`.
    pub(super) fn new(url: String, credentials: CredentialArguments, timeout: u64) -> Self {
        Self {
            url,
            credentials,
            timeout,
            ..Self::default()
        }
    }

    fn connect_peer(&self) -> Result<A2aClient, CommandError> {
        let url: Url = self
            .url
            .parse()
            .map_err(|_| {
                CommandError::usage(
                    "the agent's URL can't be read: write it with its scheme, for example https://agent.example",
                )
            })?;
        let mut options = RemoteOptions {
            call_timeout: Duration::from_secs(self.timeout),
            tls: self.credentials.client_tls()?,
            ..RemoteOptions::default()
        };
        if is_loopback_host(&url) {
            options.egress = EgressPolicy::public_internet().with_loopback();
        }
        options.versions = self
            .version
            .map_or(options.versions, |version| vec![version]);
        options.bindings = self
            .binding
            .map_or(options.bindings, |binding| vec![binding]);
        let mut options = self
            .credentials
            .add_headers(options, RemoteOptions::with_header)?;
        if let Some(token) = self.credentials.bearer_token(Some(&url))? {
            options.auth = RemoteAuth::Bearer(token);
        }
        Ok(A2aClient::new(url, options)?)
    }

    /// Runs `work` with a client until the time limit or an interrupt, then waits for its last
    /// requests.
    pub(super) async fn run_with_peer<T, E>(
        &self,
        work: impl AsyncFnOnce(&A2aClient) -> Result<T, E>,
    ) -> Result<T, CommandError>
    where
        CommandError: From<E>,
    {
        let (peer, limit) = (self.connect_peer()?, Duration::from_secs(self.timeout));
        let outcome = run_until_interrupted(async {
            let done = timeout(limit, work(&peer)).await;
            Ok(done.map_err(|_| {
                CommandError::failed(format_args!(
                    "not done within {limit:?}: try a longer --timeout"
                ))
            })??)
        });
        let outcome = outcome.await;
        peer.drained().await;
        outcome
    }
}
