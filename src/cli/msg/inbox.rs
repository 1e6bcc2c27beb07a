//! `callboard msg inbox` and `callboard msg show`.

use std::io::{IsTerminal, stdout};

use callboard_message::mail::{Direction, EntryState, MessageHistory};

use super::{DONE, MailArguments, MailFailure, mail_id, words};
use crate::cli::{printable, show};

/// Messages that are listed without `--limit`.
pub(super) const LIMIT_DEFAULT: usize = 50;
/// Messages of one page.
const PAGE: usize = 100;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct InboxArguments {
    /// From this agent only.
    #[arg(long, value_name = "ID")]
    from: Option<String>,
    /// Of this topic only.
    #[arg(long)]
    topic: Option<String>,
    /// Only what isn't read.
    #[arg(long)]
    unread: bool,
    /// Mark what is listed as read.
    #[arg(long)]
    read: bool,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
    limit: usize,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ShowArguments {
    /// The message.
    id: String,
    /// Show how far it has come with each recipient: to its sender only.
    #[arg(long)]
    receipts: bool,
    #[command(flatten)]
    mail: MailArguments,
}

pub(super) async fn list(arguments: &InboxArguments) -> Result<u8, MailFailure> {
    let filter = MessageHistory {
        from: arguments.from.clone(),
        topic: arguments.topic.clone(),
        direction: Some(Direction::In),
        ..MessageHistory::default()
    };
    let wanted = Wanted { filter, limit: arguments.limit, unread: arguments.unread, read: arguments.read };
    pages(wanted, &arguments.mail).await
}

/// Which messages are listed.
pub(super) struct Wanted {
    pub(super) filter: MessageHistory,
    pub(super) limit: usize,
    pub(super) unread: bool,
    pub(super) read: bool,
}

/// Lists messages page by page.
pub(super) async fn pages(wanted: Wanted, mail: &MailArguments) -> Result<u8, MailFailure> {
    let Wanted { mut filter, limit, unread, read } = wanted;
    let client = mail.client()?;
    if stdout().is_terminal() && !mail.json {
        show::heading(words::COLUMNS)?;
    }
    let mut left = limit;
    while left > 0 {
        filter.limit = u32::try_from(left.min(PAGE)).ok();
        let page = client.messages(&filter).await?;
        let listed = page.messages.iter().filter(|message| !unread || message.state != EntryState::Read).take(left);
        for message in listed {
            show::line(&if mail.json { words::as_json(message)? } else { words::row(message) })?;
            left -= 1;
            if read && message.state != EntryState::Read {
                client.mark_read(&mail_id(&message.message_id)?).await?;
            }
        }
        filter.after = page.next;
        if page.next.is_none() {
            return DONE;
        }
    }
    if let Some(after) = filter.after {
        show::aside(&format!("more: --after {after}"));
    }
    DONE
}

pub(super) async fn show(arguments: &ShowArguments) -> Result<u8, MailFailure> {
    let client = arguments.mail.client()?;
    let message = client.message(&mail_id(&arguments.id)?, arguments.receipts).await?;
    if arguments.mail.json {
        show::line(&words::as_json(&message)?)?;
        return DONE;
    }
    for line in words::lines(&message) {
        show::line(&line)?;
    }
    show::line("")?;
    // With whose it is before it, as every recipient has it; the body as it was sent is for programs (`--json`).
    show::line(&printable(&message.text))?;
    if message.cut {
        show::aside("it is longer: --json has all of it");
    }
    DONE
}
