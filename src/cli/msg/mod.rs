//! `callboard msg`: write to agents and read what they write.

pub(super) mod read;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use callboard_mail::ClientError;
use callboard_mail::client::{Client, Heard};
use callboard_message::mail::{
    BroadcastMessage, MAIL_BODY_BYTES_MAX, MailId, OPERATOR, Priority, SendMessage, Sent,
};
use clap::Subcommand;
use secrecy::SecretString;
use url::Url;

use super::arguments::span;
use super::show::{self, Rows};
use super::{CommandError, EXIT_ANSWERED, EXIT_BLOCKED, Outcome, interrupted};
use crate::config::{Speaks, Topology};

#[derive(Debug, Subcommand)]
pub(super) enum MsgCommand {
    /// Write to one agent, or to several. Prints what became of it, and the message's id on standard error. Exit code: 0
    /// accepted, 2 usage, 3 refused, 4 failed.
    Send(SendArguments),
    /// Write to all agents, or to a group. Exit codes as of `send`.
    Broadcast(BroadcastArguments),
    /// List messages to you, newest first: id, sender, state, time, and the beginning. They count as delivered.
    Inbox(read::InboxArguments),
    /// Show a message whole. Exit code 4 where there is none for you.
    Show(read::ShowArguments),
    /// List messages to you and from you, newest first.
    History(read::HistoryArguments),
    /// Print what happens to mail as it happens, a line each, until interrupted.
    Watch(WatchArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct WatchArguments {
    /// Begin with what happened after this number; 0 is all that is kept. Without it, from now on.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Of these types only, for example message_read. With commas between.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    #[command(flatten)]
    mail: MailArguments,
}

/// Where the mailroom is, and who asks.
#[derive(Debug, clap::Args)]
struct MailArguments {
    /// Where the mail listener is, for example http://127.0.0.1:8090.
    #[arg(
        long,
        env = "CALLBOARD_MAIL",
        value_name = "URL",
        required_unless_present = "topology"
    )]
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
    json: bool,
}

impl MailArguments {
    /// Whoever asks, at the listener; nothing was sent yet.
    ///
    /// # Errors
    /// The command line doesn't say who asks whom.
    fn client(&self) -> Result<Client, CommandError> {
        let key = std::env::var(&self.key_env)
            .ok()
            .filter(|key| !key.is_empty())
            .map(SecretString::from);
        let id = match (&self.agent, &key) {
            (Some(id), _) => id,
            (None, None) => OPERATOR,
            (None, Some(_)) => {
                return Err(CommandError::usage(
                    "who are you? Say --as ID: the name of your key",
                ));
            }
        };
        Ok(Client::new(self.base()?, key, &mail_id(id)?)?)
    }

    fn base(&self) -> Result<Url, CommandError> {
        let written = match &self.topology {
            // One of both is there.
            None => self.url.clone().unwrap_or_default(),
            Some(file) => {
                let topology = Topology::read(file)?;
                let mut of_mail = topology
                    .listeners
                    .iter()
                    .filter(|listener| listener.speaks() == Speaks::Mail);
                let (listener, more) = (of_mail.next(), of_mail.next());
                let missing = || CommandError::usage("the topology has no listener of mail");
                let bind = listener.ok_or_else(missing)?.bind;
                if more.is_some() || bind.port() == 0 {
                    return Err(CommandError::usage(
                        "the topology doesn't say where: say --url URL",
                    ));
                }
                let ip = if bind.ip().is_unspecified() {
                    Ipv4Addr::LOCALHOST.into()
                } else {
                    bind.ip()
                };
                format!("http://{}", SocketAddr::new(ip, bind.port()))
            }
        };
        Ok(Url::parse(&written).map_err(|_| ClientError::Address)?)
    }
}

/// An id of the command line.
fn mail_id(id: &str) -> Result<MailId, CommandError> {
    MailId::parse(id).map_err(|error| CommandError::usage(format_args!("{error}, not {id:?}")))
}

/// What is said: `-` is standard input, less the end of its last line.
fn said(text: String) -> Result<String, CommandError> {
    if text != "-" {
        return Ok(text);
    }
    let (mut read, most) = (String::new(), MAIL_BODY_BYTES_MAX as u64 + 2);
    let reading = std::io::stdin().lock().take(most).read_to_string(&mut read);
    reading.map_err(|error| {
        CommandError::usage(format_args!("failed to read standard input: {error}"))
    })?;
    let said = read.strip_suffix('\n').unwrap_or(&read);
    match said.len() > MAIL_BODY_BYTES_MAX {
        true => Err(CommandError::usage(format_args!(
            "a message has {MAIL_BODY_BYTES_MAX} bytes at most"
        ))),
        false => Ok(said.to_owned()),
    }
}

/// Runs a command.
pub(super) async fn run(command: MsgCommand) -> Outcome {
    match command {
        MsgCommand::Send(arguments) => send(arguments).await,
        MsgCommand::Broadcast(arguments) => broadcast(arguments).await,
        MsgCommand::Inbox(arguments) => read::list_inbox(arguments).await,
        MsgCommand::Show(arguments) => read::show_message(arguments).await,
        MsgCommand::History(arguments) => read::history(arguments).await,
        MsgCommand::Watch(arguments) => watch(arguments).await,
    }
}

/// Prints each event as it comes, until interrupted.
async fn watch(WatchArguments { after, types, mail }: WatchArguments) -> Outcome {
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    let mut events = mail.client()?.events(after, &types);
    let rows = Rows::plain(mail.json);
    let watching = async {
        events.ready().await?;
        loop {
            match events.next().await? {
                Heard::Event(event) => rows.row(&event, || read::event(&event))?,
                Heard::Broken(why) => {
                    tracing::warn!(%why, "the connection broke, and is made anew")
                }
                _ => {}
            }
        }
    };
    tokio::select! {
        failed = watching => failed,
        () = interrupted() => Ok(EXIT_ANSWERED),
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct SendArguments {
    /// Whom it is for: an agent's id, or several with commas between.
    #[arg(value_name = "TO[,TO…]")]
    to: String,
    /// What to say; `-` reads it from standard input.
    text: String,
    #[command(flatten)]
    letter: LetterArguments,
    /// The Guardian's alone: what its guidance is called, for example STUCK.
    #[arg(long, value_name = "LABEL")]
    guidance: Option<String>,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, clap::Args)]
pub(super) struct BroadcastArguments {
    /// What to say; `-` reads it from standard input.
    text: String,
    /// To this group only: group:NAME, role:NAME or phase:NAME.
    #[arg(long)]
    group: Option<String>,
    #[command(flatten)]
    letter: LetterArguments,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, clap::Args)]
struct LetterArguments {
    /// Before all that isn't urgent.
    #[arg(long)]
    urgent: bool,
    /// What it belongs to.
    #[arg(long)]
    topic: Option<String>,
    /// The message that it goes on with.
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,
    /// The same key again is the same message: it isn't sent twice.
    #[arg(long)]
    key: Option<String>,
    /// How long it is handed out, for example 2h or 7d.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    expires: Option<Duration>,
}

async fn send(
    SendArguments {
        to,
        text,
        letter,
        guidance,
        mail,
    }: SendArguments,
) -> Outcome {
    let (one, several) = match to.contains(',') {
        false => (Some(to), Vec::new()),
        true => (None, to.split(',').map(|id| id.trim().to_owned()).collect()),
    };
    let LetterArguments {
        urgent,
        topic,
        reply_to,
        key,
        expires,
    } = letter;
    let message = SendMessage {
        message: said(text)?,
        recipient_agent_id: one,
        recipient_agent_ids: several,
        topic,
        priority: urgent.then_some(Priority::Urgent),
        reply_to,
        idempotency_key: key,
        expires_in_s: expires.map(|span| span.as_secs()),
        guidance,
        ..SendMessage::default()
    };
    print_sent(&mail.client()?.send(&message).await?, mail.json)
}

async fn broadcast(
    BroadcastArguments {
        text,
        group,
        letter,
        mail,
    }: BroadcastArguments,
) -> Outcome {
    let LetterArguments {
        urgent,
        topic,
        reply_to,
        key,
        expires,
    } = letter;
    let message = BroadcastMessage {
        message: said(text)?,
        group,
        topic,
        priority: urgent.then_some(Priority::Urgent),
        reply_to,
        idempotency_key: key,
        expires_in_s: expires.map(|span| span.as_secs()),
        ..BroadcastMessage::default()
    };
    print_sent(&mail.client()?.broadcast(&message).await?, mail.json)
}

/// Says what became of it: what was accepted on standard output, its id apart.
fn print_sent(sent: &Sent, json: bool) -> Outcome {
    let exit_code = if sent.success {
        EXIT_ANSWERED
    } else {
        EXIT_BLOCKED
    };
    if json {
        show::json(sent)?;
        return Ok(exit_code);
    }
    if sent.success {
        show::line(&sent.message)?;
        sent.message_id.iter().for_each(show::aside);
    } else {
        show::complain(&sent.message);
    }
    if !sent.refused.is_empty() {
        show::complain(format_args!(
            "full, so not for: {}",
            sent.refused.join(", ")
        ));
    }
    Ok(exit_code)
}
