//! `callboard msg`: agent mail for people and scripts. (`callboard agents` speaks to the same listener.)

mod history;
mod inbox;
mod send;
mod watch;
pub(super) mod words;

use std::io::{self, Read};
use std::path::PathBuf;

use callboard_mail::ClientError;
use callboard_mail::client::Client;
use callboard_message::mail::{MAIL_BODY_BYTES_MAX, MailId, OPERATOR};
use clap::Subcommand;
use secrecy::SecretString;
use url::Url;

use super::{EXIT_ANSWERED, EXIT_BLOCKED, EXIT_FAILED, EXIT_USAGE, printable, show};
use crate::config::{ConfigError, Speaks, Topology};

/// Statuses of a listener that refuses whoever asks, or what it asks just now.
const REFUSED: [u16; 4] = [401, 403, 422, 429];

#[derive(Debug, Subcommand)]
pub(super) enum MsgCommand {
    /// Write to one agent, or to several. Prints what became of it, and the message's id on standard error. Exit code: 0
    /// accepted, 2 usage, 3 refused, 4 failed.
    Send(send::SendArguments),
    /// Write to all agents, or to a group. Exit codes as of `send`.
    Broadcast(send::BroadcastArguments),
    /// List messages to you, newest first: id, sender, state, time, and the beginning. They count as delivered.
    Inbox(inbox::InboxArguments),
    /// Show a message whole. Exit code 4 where there is none for you.
    Show(inbox::ShowArguments),
    /// List messages to you and from you, newest first.
    History(history::HistoryArguments),
    /// Print what happens to mail as it happens, a line each, until interrupted.
    Watch(watch::WatchArguments),
}

/// Where the mailroom is, and who asks.
#[derive(Debug, clap::Args)]
pub(super) struct MailArguments {
    /// Where the mail listener is, for example http://127.0.0.1:8090.
    #[arg(long, env = "CALLBOARD_MAIL", value_name = "URL", required_unless_present = "topology")]
    url: Option<String>,
    /// The topology file whose mail listener is meant, in place of a URL.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Your own id: the name of your key, or `guardian` where it is the Guardian's.
    #[arg(long = "as", env = "CALLBOARD_AGENT", value_name = "ID")]
    agent: Option<String>,
    /// The variable that holds your key.
    #[arg(long, value_name = "NAME", default_value = "CALLBOARD_KEY")]
    key_env: String,
    /// Print JSON and nothing else, one object a line.
    #[arg(long)]
    pub(super) json: bool,
}

/// Why a command stopped before its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum MailFailure {
    /// Correct the command line.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// See what the listener says.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("failed to write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl MailFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Config(_) | Self::Client(ClientError::Address | ClientError::Key) => EXIT_USAGE,
            Self::Client(ClientError::Refused { status, .. }) if REFUSED.contains(status) => EXIT_BLOCKED,
            Self::Client(_) | Self::Output(_) => EXIT_FAILED,
        }
    }
}

impl MailArguments {
    /// Whoever asks, at the listener; nothing was sent yet.
    ///
    /// # Errors
    /// The command line doesn't say who asks whom.
    pub(super) fn client(&self) -> Result<Client, MailFailure> {
        let key = std::env::var(&self.key_env).ok().filter(|key| !key.is_empty()).map(SecretString::from);
        let id = match (&self.agent, &key) {
            (Some(id), _) => id,
            (None, None) => OPERATOR,
            (None, Some(_)) => return Err(MailFailure::Usage("who are you? Say --as ID: the name of your key".into())),
        };
        Ok(Client::new(self.base()?, key, &mail_id(id)?)?)
    }

    fn base(&self) -> Result<Url, MailFailure> {
        let written = match (&self.url, &self.topology) {
            (Some(url), None) => url.clone(),
            (_, Some(file)) => {
                let topology = Topology::read(file)?;
                let mut of_mail = topology.listeners.iter().filter(|listener| listener.speaks() == Speaks::Mail);
                let (listener, more) = (of_mail.next(), of_mail.next());
                let missing = || MailFailure::Usage("the topology has no listener of mail".into());
                let bind = listener.ok_or_else(missing)?.bind;
                if more.is_some() || bind.port() == 0 {
                    return Err(MailFailure::Usage("the topology doesn't say where: say --url URL".into()));
                }
                let host = if bind.ip().is_unspecified() { "127.0.0.1".to_owned() } else { bind.ip().to_string() };
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                format!("http://{host}:{}", bind.port())
            }
            (None, None) => return Err(MailFailure::Usage("where is the mail listener? Say --url URL".into())),
        };
        Url::parse(&written).map_err(|_| ClientError::Address.into())
    }
}

/// An id of the command line.
fn mail_id(id: &str) -> Result<MailId, MailFailure> {
    MailId::parse(id).map_err(|error| MailFailure::Usage(format!("{error}, not {id:?}")))
}

/// What is said: `-` is standard input, less the end of its last line.
fn said(text: &str) -> Result<String, MailFailure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let (mut read, most) = (String::new(), MAIL_BODY_BYTES_MAX as u64 + 2);
    let reading = io::stdin().lock().take(most).read_to_string(&mut read);
    reading.map_err(|error| MailFailure::Usage(format!("failed to read standard input: {error}")))?;
    let said = read.strip_suffix('\n').unwrap_or(&read);
    match said.len() > MAIL_BODY_BYTES_MAX {
        true => Err(MailFailure::Usage(format!("a message has {MAIL_BODY_BYTES_MAX} bytes at most"))),
        false => Ok(said.to_owned()),
    }
}

/// Runs a command; gives its exit code.
pub(super) fn run(command: &MsgCommand) -> u8 {
    finished(async {
        match command {
            MsgCommand::Send(arguments) => send::send(arguments).await,
            MsgCommand::Broadcast(arguments) => send::broadcast(arguments).await,
            MsgCommand::Inbox(arguments) => inbox::list(arguments).await,
            MsgCommand::Show(arguments) => inbox::show(arguments).await,
            MsgCommand::History(arguments) => history::run(arguments).await,
            MsgCommand::Watch(arguments) => watch::run(arguments).await,
        }
    })
}

/// Runs a command, says why it stopped if it did, and gives its exit code.
pub(super) fn finished(command: impl Future<Output = Result<u8, MailFailure>>) -> u8 {
    super::block_on(command).map_err(MailFailure::Output).flatten().unwrap_or_else(|stopped| {
        show::complain(printable(&stopped.to_string()));
        stopped.exit_code()
    })
}

/// How a command ends that was done.
const DONE: Result<u8, MailFailure> = Ok(EXIT_ANSWERED);
