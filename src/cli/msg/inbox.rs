//! `callboard msg inbox` and `callboard msg show`.

use callboard_message::mail::{Direction, EntryState, MessageHistory};

use super::show::{self, Rows};
use super::{EXIT_ANSWERED, MailArguments, Outcome, mail_id, words};

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

pub(super) async fn list(arguments: &InboxArguments) -> Outcome {
    let InboxArguments { from, topic, unread, read, limit, mail } = arguments;
    let filter = MessageHistory {
        from: from.clone(),
        topic: topic.clone(),
        direction: Some(Direction::In),
        ..MessageHistory::default()
    };
    pages(filter, *limit, *unread, *read, mail).await
}

/// Lists what matches, page by page. `unread`: only that; `read`: what is listed is read then.
pub(super) async fn pages(
    mut filter: MessageHistory,
    limit: usize,
    unread: bool,
    read: bool,
    mail: &MailArguments,
) -> Outcome {
    let client = mail.client()?;
    let rows = Rows::begin(mail.json, words::COLUMNS)?;
    let mut left = limit;
    while left > 0 {
        filter.limit = u32::try_from(left.min(PAGE)).ok();
        let page = client.messages(&filter).await?;
        let listed = page.messages.iter().filter(|message| !unread || message.state != EntryState::Read).take(left);
        for message in listed {
            rows.row(message, || words::row(message))?;
            left -= 1;
            if read && message.state != EntryState::Read {
                client.mark_read(&mail_id(&message.message_id)?).await?;
            }
        }
        filter.after = page.next;
        if page.next.is_none() {
            return Ok(EXIT_ANSWERED);
        }
    }
    filter.after.map(show::more);
    Ok(EXIT_ANSWERED)
}

pub(super) async fn show(arguments: &ShowArguments) -> Outcome {
    let client = arguments.mail.client()?;
    let message = client.message(&mail_id(&arguments.id)?, arguments.receipts).await?;
    if arguments.mail.json {
        show::json(&message)?;
        return Ok(EXIT_ANSWERED);
    }
    for line in words::lines(&message) {
        show::line(line)?;
    }
    show::line("")?;
    // With whose it is before it, as every recipient has it; the body as it was sent is for programs (`--json`).
    show::line(&message.text)?;
    if message.cut {
        show::aside("it is longer: --json has all of it");
    }
    Ok(EXIT_ANSWERED)
}
