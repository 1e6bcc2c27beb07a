//! `callboard mail`: durable messages between the members of a mailroom.

mod read;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use callboard_mail::MailClientError;
use callboard_mail::client::{MailClient, MailStreamItem};
use callboard_message::mail::{
    BroadcastMessage, GUARDIAN_ID, MAIL_BODY_BYTES_MAX, MemberId, OPERATOR_ID, Priority,
    SendMessage, SendReceipt,
};
use clap::Subcommand;
use url::Url;

use super::arguments::{AuthorityArguments, parse_span, read_key};
use super::output::{self, RowPrinter};
use super::{CommandError, CommandResult, EXIT_ANSWERED, EXIT_BLOCKED, wait_for_interrupt};
use crate::config::{ServedProtocol, Topology, closest_name};

#[derive(Debug, Subcommand)]
pub(super) enum MailCommand {
    /// Send a message to one or several members. Prints the outcome, and the message's id on
    /// standard error. Exit code: 0 accepted, 2 usage, 3 refused, 4 failed.
    Send(MailSendArguments),
    /// Send a message to all members or to a group. Exit codes as for `send`.
    Broadcast(BroadcastArguments),
    /// List received messages, newest first: id, sender, state, time and first words. They then
    /// count as delivered.
    Inbox(read::InboxArguments),
    /// Show a whole message. Exit code 4 if there is none that you may see.
    Show(read::MailShowArguments),
    /// List received and sent messages, newest first.
    History(read::HistoryArguments),
    /// Print events of the mailroom as they happen, one a line, until interrupted.
    Watch(WatchArguments),
    /// List the members of the mailroom: state, delivery, unread messages. `end` and `back` terminate and restore one.
    Members(read::MembersArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct WatchArguments {
    /// First event is the one after this number; 0 is the oldest one stored. Without it, only new
    /// events.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Only events of these types, separated by commas, for example message_read.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    #[command(flatten)]
    mail: MailArguments,
}

/// Address of the mail listener, and credentials.
#[derive(Debug, clap::Args)]
struct MailArguments {
    /// URL of the mail listener, for example http://127.0.0.1:8090.
    #[arg(
        long,
        env = "CALLBOARD_MAIL",
        value_name = "URL",
        required_unless_present = "topology"
    )]
    url: Option<String>,
    /// Topology file with the mail listener, instead of a URL.
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Your member id: the name of your key, or `guardian` for the Guardian's key.
    #[arg(long = "as", env = "CALLBOARD_AGENT", value_name = "ID")]
    agent: Option<String>,
    /// Environment variable that holds your key. Without it, a key in CALLBOARD_KEY is sent.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    #[command(flatten)]
    authorities: AuthorityArguments,
    /// Print JSON and nothing else, one object a line.
    #[arg(long)]
    json: bool,
}

impl MailArguments {
    /// Returns a client for the listener. Sends nothing yet.
    ///
    /// # Errors
    /// Usage error if the address or the member id is missing or invalid, or if the variable of the key
    /// can't be used.
    fn mail_client(&self) -> Result<MailClient, CommandError> {
        // The address was given for this key, so it is sent to another machine too.
        let key = read_key(self.key_env.as_deref(), || true)?;
        let id = match (&self.agent, &key) {
            (Some(id), _) => id,
            (None, None) => OPERATOR_ID,
            (None, Some(_)) => {
                return Err(CommandError::usage(
                    "your member id is missing: add --as ID, the name of your key",
                ));
            }
        };
        let client = MailClient::new(self.base_url()?, key, &parse_mail_id(id)?)?;
        Ok(client.with_tls(self.authorities.client_tls()?)?)
    }

    fn base_url(&self) -> Result<Url, CommandError> {
        let written = match &self.topology {
            // Clap requires one of the two.
            None => self.url.clone().unwrap_or_default(),
            Some(file) => {
                let topology = Topology::read(file)?;
                let mut of_mail = topology
                    .listeners
                    .iter()
                    .filter(|listener| listener.served_protocol() == ServedProtocol::Mail);
                let (listener, more) = (of_mail.next(), of_mail.next());
                let missing = || {
                    CommandError::usage(
                        "the topology has no listener with `protocol = \"mail\"`: add one, or give --url URL",
                    )
                };
                let listener = listener.ok_or_else(missing)?;
                let bind = listener.bind;
                if more.is_some() || bind.port() == 0 {
                    return Err(CommandError::usage(
                        "the topology has several mail listeners, or one without a fixed port: add --url URL",
                    ));
                }
                let ip = if bind.ip().is_unspecified() {
                    Ipv4Addr::LOCALHOST.into()
                } else {
                    bind.ip()
                };
                listener.base_url(SocketAddr::new(ip, bind.port()))
            }
        };
        Ok(Url::parse(&written).map_err(|_| MailClientError::InvalidAddress)?)
    }
}

/// Parses a member or message id.
fn parse_mail_id(id: &str) -> Result<MemberId, CommandError> {
    MemberId::parse(id).map_err(|error| CommandError::usage(format_args!("{error}, not {id:?}")))
}

/// Returns the text of a message; for `-`, standard input without its last line break.
fn read_message_text(text: String) -> Result<String, CommandError> {
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
            "the message has more than {MAIL_BODY_BYTES_MAX} bytes: shorten it"
        ))),
        false => Ok(said.to_owned()),
    }
}

/// Runs `callboard mail`.
pub(super) async fn run(command: MailCommand) -> CommandResult {
    match command {
        MailCommand::Send(arguments) => send(arguments).await,
        MailCommand::Broadcast(arguments) => broadcast(arguments).await,
        MailCommand::Inbox(arguments) => read::list_inbox(arguments).await,
        MailCommand::Show(arguments) => read::show_message(arguments).await,
        MailCommand::History(arguments) => read::list_history(arguments).await,
        MailCommand::Watch(arguments) => watch_events(arguments).await,
        MailCommand::Members(arguments) => read::run_members(arguments).await,
    }
}

/// Prints events as they arrive, until interrupted.
async fn watch_events(WatchArguments { after, types, mail }: WatchArguments) -> CommandResult {
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    let mut events = mail.mail_client()?.events(after, &types);
    let rows = RowPrinter::with_heading(mail.json, read::EVENT_COLUMNS)?;
    let watching = async {
        events.ensure_connected().await?;
        loop {
            match events.next().await? {
                MailStreamItem::Event(event) => {
                    rows.print_row(&event, || read::event_row(&event))?
                }
                MailStreamItem::Disconnected(why) => {
                    tracing::warn!(%why, "the connection to the mailroom broke: reconnecting")
                }
                _ => {}
            }
        }
    };
    tokio::select! {
        failed = watching => failed,
        () = wait_for_interrupt() => Ok(EXIT_ANSWERED),
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct MailSendArguments {
    /// Id of the recipient, or several separated by commas.
    #[arg(value_name = "TO[,TO…]")]
    to: String,
    /// Text of the message; `-` reads it from standard input.
    text: String,
    #[command(flatten)]
    letter: MailMessageArguments,
    /// Label of a guidance, for example STUCK. For the Guardian only.
    #[arg(long, value_name = "LABEL")]
    guidance: Option<String>,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, clap::Args)]
pub(super) struct BroadcastArguments {
    /// Text of the message; `-` reads it from standard input.
    text: String,
    /// Only to this group: group:NAME, role:NAME or phase:NAME.
    #[arg(long)]
    group: Option<String>,
    #[command(flatten)]
    letter: MailMessageArguments,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, clap::Args)]
struct MailMessageArguments {
    /// Deliver before messages that are not urgent.
    #[arg(long)]
    urgent: bool,
    /// Topic of the message.
    #[arg(long)]
    topic: Option<String>,
    /// Message that this one answers.
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,
    /// Idempotency key: a second message with the same key is not sent again.
    #[arg(long)]
    key: Option<String>,
    /// Time after which it is no longer delivered, for example 2h or 7d.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    expires: Option<Duration>,
}

async fn send(
    MailSendArguments {
        to,
        text,
        letter,
        guidance,
        mail,
    }: MailSendArguments,
) -> CommandResult {
    let (one, several) = match to.contains(',') {
        false => (Some(to), Vec::new()),
        true => (None, to.split(',').map(|id| id.trim().to_owned()).collect()),
    };
    let MailMessageArguments {
        urgent,
        topic,
        reply_to,
        key,
        expires,
    } = letter;
    let message = SendMessage {
        message: read_message_text(text)?,
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
    let client = mail.mail_client()?;
    let sent = client.send(&message).await?;
    let exit_code = print_sent(&sent, mail.json)?;
    if !sent.success && !mail.json {
        print_recipient_advice(&client, &message, mail.agent.as_deref()).await;
    }
    Ok(exit_code)
}

/// Prints for each recipient of a refused message that the mailroom doesn't show to the sender the most
/// similar member that it shows, and how to list the members if there is none. Nothing is printed if it
/// can't be asked: the refusal is told already.
async fn print_recipient_advice(client: &MailClient, refused: &SendMessage, sender: Option<&str>) {
    let Ok(status) = client.agents(None).await else {
        return;
    };
    let ids = || status.agents.iter().map(|agent| &*agent.agent_id);
    // The Guardian and the operator are no members, and exist in each mailroom.
    let is_known = |id: &str| {
        [GUARDIAN_ID, OPERATOR_ID]
            .into_iter()
            .chain(ids())
            .any(|it| it == id)
    };
    let several = &refused.recipient_agent_ids;
    let recipients = refused.recipient_agent_id.iter().chain(several);
    let mut is_unlike = false;
    for recipient in recipients.filter(|recipient| !is_known(recipient)) {
        match closest_name(recipient, ids().filter(|id| Some(*id) != sender)) {
            Some(id) if several.len() > 1 => {
                output::print_note(format_args!("{recipient}: did you mean {id}?"))
            }
            Some(id) => output::print_note(format_args!("did you mean {id}?")),
            None => is_unlike = true,
        }
    }
    if is_unlike {
        output::print_note("`callboard mail members` lists the members");
    }
}

async fn broadcast(
    BroadcastArguments {
        text,
        group,
        letter,
        mail,
    }: BroadcastArguments,
) -> CommandResult {
    let MailMessageArguments {
        urgent,
        topic,
        reply_to,
        key,
        expires,
    } = letter;
    let message = BroadcastMessage {
        message: read_message_text(text)?,
        group,
        topic,
        priority: urgent.then_some(Priority::Urgent),
        reply_to,
        idempotency_key: key,
        expires_in_s: expires.map(|span| span.as_secs()),
        ..BroadcastMessage::default()
    };
    print_sent(&mail.mail_client()?.broadcast(&message).await?, mail.json)
}

/// Prints the outcome of sending, and returns the exit code: `EXIT_ANSWERED`, or `EXIT_BLOCKED` if
/// the message was refused. Success goes to standard output and the message's id to standard error.
/// A refusal, and members whose mailbox is full, go to standard error. With `json` the whole
/// receipt goes to standard output, and nothing else is printed.
fn print_sent(sent: &SendReceipt, json: bool) -> CommandResult {
    let exit_code = if sent.success {
        EXIT_ANSWERED
    } else {
        EXIT_BLOCKED
    };
    if json {
        output::print_json(sent)?;
        return Ok(exit_code);
    }
    if sent.success {
        output::print_line(&sent.message)?;
        sent.message_id.iter().for_each(output::print_note);
    } else {
        output::print_error(&sent.message);
    }
    if !sent.refused.is_empty() {
        output::print_error(format_args!(
            "not sent to these members, whose mailboxes are full: {}",
            sent.refused.join(", ")
        ));
    }
    Ok(exit_code)
}
