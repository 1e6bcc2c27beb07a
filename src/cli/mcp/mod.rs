//! `callboard mcp`: the server of the command line, and its orderly end.

pub(super) mod commands;
mod form;
pub(super) mod terminal;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::auth::StaticBearer;
use callboard_mcp::outbound::{
    CALL_TIMEOUT_DEFAULT, ChildCommand, ClientOptions, Endpoint, Era, EraChoice, McpClient, PAGES_MAX_DEFAULT,
};
use callboard_message::{Message, Principal, RawObject};
use callboard_runtime::{AgentRef, CallMeta, Caller, System};
use clap::Subcommand;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};

use super::arguments::{CredentialArguments, one_of};
use super::{CommandError, Outcome, show, unless_interrupted};
use crate::node::spawn;
pub(crate) use commands::{printable, told};
pub(crate) use form::{CANCEL, DECLINE, Form};

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
        McpCommand::List(arguments) => commands::list(arguments).await,
        McpCommand::Call(arguments) => commands::call(arguments).await,
    }
}

/// How long the server may take to end.
const END: Duration = Duration::from_secs(5);

/// The server, as an agent of a system of its own.
pub(super) struct Server {
    agent: AgentRef,
    system: System,
    client: McpClient,
    deadline: Instant,
    within: Duration,
    caller: Option<Arc<dyn Caller>>,
}

impl Server {
    /// Connects when it is first asked. The options' caller is told and asked by the server.
    pub(super) fn new(endpoint: Endpoint, options: ClientOptions, within: Duration) -> Result<Self, CommandError> {
        let caller = options.only_caller.clone();
        let client = McpClient::new(endpoint, options)?;
        let system = System::here();
        let agent = spawn(&system, "server", client.clone());
        Ok(Self { agent, system, client, deadline: Instant::now() + within, within, caller })
    }

    /// Asks by name, until the command's time is up, for an object.
    async fn ask<M: Message>(&self, params: RawObject) -> Result<RawObject, CommandError> {
        let mut call = CallMeta::new(Arc::new(Principal::local_operator())).until(self.deadline);
        if let Some(caller) = &self.caller {
            call = call.with_caller(caller.clone());
        }
        // Dropped, it takes the call back.
        let _cancel = call.cancel.clone().drop_guard();
        let asked = self.agent.ask_named(M::NAME, params.to_raw(), Some(Arc::new(call)));
        let answer = timeout_at(self.deadline, asked).await;
        let answer = answer.map_err(|_| CommandError::failed(format_args!("not done in {:?}", self.within)))??;
        RawObject::parse(&answer).map_err(|_| CommandError::failed("the server answered no object"))
    }

    /// The revision of MCP that was agreed on.
    pub(super) async fn revision(&self) -> String {
        self.agent.observe().await["revision"].as_str().unwrap_or_default().to_owned()
    }

    /// Every item of a list, page by page.
    pub(super) async fn list<M: Message>(&self, items: &str) -> Result<Vec<Box<RawValue>>, CommandError> {
        let (mut all, mut params) = (Vec::new(), RawObject::new());
        for _ in 0..PAGES_MAX_DEFAULT {
            let mut page = self.ask::<M>(params).await?;
            all.extend(page.read::<Vec<Box<RawValue>>>(items).unwrap_or_default());
            match page.remove("nextCursor").filter(|cursor| cursor.get() != "null") {
                Some(cursor) => {
                    params = RawObject::new();
                    params.set_raw("cursor", cursor);
                }
                None => return Ok(all),
            }
        }
        tracing::warn!(pages_max = PAGES_MAX_DEFAULT, "the list doesn't end");
        Ok(all)
    }

    /// Takes leave of the server: a session ends, a child too.
    pub(super) async fn end(self) {
        self.agent.stop();
        let ended = async {
            self.agent.ended().await;
            self.client.said_goodbye().await;
        };
        if timeout(END, ended).await.is_err() {
            tracing::warn!("the server doesn't end in time");
        }
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// The server of the command line.
fn connect(arguments: &ServerArguments, only_caller: Option<Arc<dyn Caller>>) -> Result<Server, CommandError> {
    let within = Duration::from_secs(arguments.timeout);
    let options = ClientOptions {
        era: arguments.era,
        offers: only_caller.as_ref().map(|caller| caller.abilities()).unwrap_or_default(),
        // Only for the questions that no call causes; nobody follows what changes.
        listen: only_caller.is_some(),
        only_caller,
        connect_timeout: Duration::from_secs(arguments.connect_timeout),
        call_timeout: within,
        ..ClientOptions::default()
    };
    let mut options = arguments.credentials.headers(options, ClientOptions::header)?;
    if let Some(token) = arguments.credentials.bearer()? {
        options.authorizer = Some(Arc::new(StaticBearer::new(&token)?));
    }
    Server::new(endpoint(arguments)?, options, within)
}

fn endpoint(arguments: &ServerArguments) -> Result<Endpoint, CommandError> {
    let is_url = ["http://", "https://", "ws://", "wss://"].iter().any(|scheme| arguments.server.starts_with(scheme));
    if is_url {
        return Ok(Endpoint::url(&arguments.server)?);
    }
    let mut words = shlex::split(&arguments.server).unwrap_or_default().into_iter();
    let program = words.next().ok_or_else(|| CommandError::usage("the server's command can't be read"))?;
    let mut command = ChildCommand::new(program, words);
    command.inherit.extend(arguments.variables.iter().cloned());
    Ok(Endpoint::Child(command))
}
