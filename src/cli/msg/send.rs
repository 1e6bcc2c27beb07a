//! `callboard msg send` and `callboard msg broadcast`.

use std::time::Duration;

use callboard_message::mail::{BroadcastMessage, Priority, SendMessage, Sent};

use super::super::arguments::span;
use super::{EXIT_ANSWERED, MailArguments, Outcome, said, show};
use crate::cli::EXIT_BLOCKED;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct SendArguments {
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
pub(in crate::cli) struct BroadcastArguments {
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

pub(super) async fn send(arguments: &SendArguments) -> Outcome {
    let letter = &arguments.letter;
    let (one, several) = match arguments.to.contains(',') {
        false => (Some(arguments.to.clone()), Vec::new()),
        true => (None, arguments.to.split(',').map(|id| id.trim().to_owned()).collect()),
    };
    let message = SendMessage {
        message: said(&arguments.text)?,
        recipient_agent_id: one,
        recipient_agent_ids: several,
        topic: letter.topic.clone(),
        priority: letter.urgent.then_some(Priority::Urgent),
        reply_to: letter.reply_to.clone(),
        idempotency_key: letter.key.clone(),
        expires_in_s: letter.expires.map(|span| span.as_secs()),
        guidance: arguments.guidance.clone(),
        ..SendMessage::default()
    };
    told(&arguments.mail.client()?.send(&message).await?, arguments.mail.json)
}

pub(super) async fn broadcast(arguments: &BroadcastArguments) -> Outcome {
    let letter = &arguments.letter;
    let message = BroadcastMessage {
        message: said(&arguments.text)?,
        group: arguments.group.clone(),
        topic: letter.topic.clone(),
        priority: letter.urgent.then_some(Priority::Urgent),
        reply_to: letter.reply_to.clone(),
        idempotency_key: letter.key.clone(),
        expires_in_s: letter.expires.map(|span| span.as_secs()),
        ..BroadcastMessage::default()
    };
    told(&arguments.mail.client()?.broadcast(&message).await?, arguments.mail.json)
}

/// Says what became of it: what was accepted on standard output, its id apart.
fn told(sent: &Sent, json: bool) -> Outcome {
    let exit_code = if sent.success { EXIT_ANSWERED } else { EXIT_BLOCKED };
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
        show::complain(format_args!("full, so not for: {}", sent.refused.join(", ")));
    }
    Ok(exit_code)
}
