//! `callboard mail inbox`, `show`, `history` and `members`: messages and members in rows.

use std::time::SystemTime;

use callboard_mailroom::neutralize;
use callboard_message::mail::{
    AgentLogRow, AgentLogs, AgentView, DeliveryState, MailDirection, MailEvent, MailView, MemberId,
    MemberState, MessageHistory, NumberedMailEvent, Priority,
};
use callboard_message::time::format_rfc3339;
use clap::{Args, Subcommand};

use super::{MailArguments, parse_mail_id};
use crate::cli::arguments::{one_of_names, parse_span};
use crate::cli::output::{self, RowPrinter};
use crate::cli::{CommandResult, EXIT_ANSWERED};
use crate::text::{one_line, strip_control_chars, truncate_chars};

/// Default of `--limit`.
const LIST_LIMIT_DEFAULT: usize = 50;
/// Maximum messages per page.
const PAGE_MESSAGES_MAX: usize = 100;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct InboxArguments {
    /// Only messages from this member.
    #[arg(long, value_name = "ID")]
    from: Option<String>,
    /// Only messages of this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only unread messages.
    #[arg(long)]
    unread: bool,
    /// Mark the listed messages as read.
    #[arg(long)]
    read: bool,
    /// Maximum number of messages.
    #[arg(long, value_name = "N", default_value_t = LIST_LIMIT_DEFAULT)]
    limit: usize,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct MailShowArguments {
    /// Id of the message.
    id: String,
    /// Show its delivery state for each recipient. For the sender only.
    #[arg(long)]
    receipts: bool,
    #[command(flatten)]
    mail: MailArguments,
}

pub(super) async fn list_inbox(arguments: InboxArguments) -> CommandResult {
    let InboxArguments {
        from,
        topic,
        unread,
        read,
        limit,
        mail,
    } = arguments;
    let filter = MessageHistory {
        from,
        topic,
        direction: Some(MailDirection::In),
        ..MessageHistory::default()
    };
    list_pages(filter, limit, unread, read, &mail).await
}

/// Lists at most `left` messages that match `filter`, page by page. With `unread` only unread ones
/// are listed; with `read` the listed ones are marked as read. If more may match, the option that
/// continues is printed at the end.
async fn list_pages(
    mut filter: MessageHistory,
    mut left: usize,
    unread: bool,
    read: bool,
    mail: &MailArguments,
) -> CommandResult {
    let client = mail.mail_client()?;
    let rows = RowPrinter::with_heading(mail.json, MESSAGE_COLUMNS)?;
    while left > 0 {
        filter.limit = u32::try_from(left.min(PAGE_MESSAGES_MAX)).ok();
        let page = client.messages(&filter).await?;
        let listed = page
            .messages
            .iter()
            .filter(|message| !unread || message.state != DeliveryState::Read)
            .take(left);
        for message in listed {
            rows.print_row(message, || message_row(message))?;
            left -= 1;
            if read && message.state != DeliveryState::Read {
                client
                    .mark_read(&parse_mail_id(&message.message_id)?)
                    .await?;
            }
        }
        filter.after = page.next;
        if page.next.is_none() {
            return Ok(EXIT_ANSWERED);
        }
    }
    output::print_next_page(filter.after);
    Ok(EXIT_ANSWERED)
}

pub(super) async fn show_message(
    MailShowArguments { id, receipts, mail }: MailShowArguments,
) -> CommandResult {
    let client = mail.mail_client()?;
    let message = client.message(&parse_mail_id(&id)?, receipts).await?;
    if mail.json {
        output::print_json(&message)?;
        return Ok(EXIT_ANSWERED);
    }
    for line in header_lines(&message) {
        output::print_line(line)?;
    }
    output::print_line("")?;
    // Recipients get the text with the sender's prefix. `--json` prints the body as it was sent.
    output::print_line(&message.text)?;
    if message.cut {
        output::print_note("it is longer: --json has all of it");
    }
    Ok(EXIT_ANSWERED)
}

/// Maximum log rows per page.
const LOG_PAGE_ROWS_MAX: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct HistoryArguments {
    /// Only messages between you and this member, in both directions.
    #[arg(long, value_name = "ID")]
    with: Option<String>,
    /// Only messages from this member.
    #[arg(long, value_name = "ID")]
    from: Option<String>,
    /// Only messages of this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only messages of this thread.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Only messages that contain this text, ignoring case.
    #[arg(long)]
    text: Option<String>,
    /// Only messages from this time on: RFC 3339, a date (UTC), or an age such as 2h or 7d.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<String>,
    /// Only messages before this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<String>,
    /// Received messages (in), sent messages (out), or both (all).
    #[arg(long = "box", value_name = "BOX", value_parser = one_of_names(MailDirection::ALL.iter().map(|it| (it.as_str(), *it))))]
    direction: Option<MailDirection>,
    /// Only messages in this state: with you for received ones, with the last recipient for sent
    /// ones.
    #[arg(long, value_parser = one_of_names(DeliveryState::ALL.iter().map(|it| (it.as_str(), *it))))]
    state: Option<DeliveryState>,
    /// Show the log of all messages, oldest first, instead of the messages.
    #[arg(long, conflicts_with_all = ["with", "from", "topic", "thread", "text", "since", "until", "direction", "state"])]
    agent_log: bool,
    /// Maximum number of rows.
    #[arg(long, value_name = "N", default_value_t = LIST_LIMIT_DEFAULT)]
    limit: usize,
    /// Continue after this number, from the end of the previous list.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    #[command(flatten)]
    mail: MailArguments,
}

/// Converts a time to RFC 3339. Accepts ages and dates.
fn parse_time(written: &str) -> Result<String, String> {
    match parse_span(written) {
        Ok(ago) => {
            let at = SystemTime::now().checked_sub(ago);
            at.map(format_rfc3339)
                .ok_or_else(|| "that is too long ago".to_owned())
        }
        // Midnight at the start of that day.
        Err(_) if is_date(written) => Ok(format!("{written}T00:00:00Z")),
        // The listener parses it.
        Err(_) if written.contains('T') => Ok(written.to_owned()),
        Err(why) => Err(format!("{why}, or a time like 2026-01-31T12:00:00Z")),
    }
}

fn is_date(written: &str) -> bool {
    let is_like = |(place, c): (usize, char)| {
        if place == 4 || place == 7 {
            c == '-'
        } else {
            c.is_ascii_digit()
        }
    };
    written.len() == 10 && written.chars().enumerate().all(is_like)
}

pub(super) async fn list_history(arguments: HistoryArguments) -> CommandResult {
    if arguments.agent_log {
        return list_agent_log(arguments.after, arguments.limit, &arguments.mail).await;
    }
    let filter = MessageHistory {
        with: arguments.with,
        from: arguments.from,
        topic: arguments.topic,
        thread: arguments.thread,
        text: arguments.text,
        since: arguments.since,
        until: arguments.until,
        direction: arguments.direction.or(Some(MailDirection::All)),
        state: arguments.state,
        after: arguments.after,
        ..MessageHistory::default()
    };
    list_pages(filter, arguments.limit, false, false, &arguments.mail).await
}

async fn list_agent_log(
    mut after: Option<u64>,
    mut left: usize,
    mail: &MailArguments,
) -> CommandResult {
    let client = mail.mail_client()?;
    let rows = RowPrinter::with_heading(mail.json, LOG_COLUMNS)?;
    while left > 0 {
        let page = left.min(LOG_PAGE_ROWS_MAX);
        let asked = AgentLogs {
            after,
            limit: u32::try_from(page).ok(),
            ..AgentLogs::default()
        };
        let logs = client.agent_logs(&asked).await?.logs;
        for row in &logs {
            rows.print_row(row, || log_row(row))?;
        }
        if logs.len() < page {
            return Ok(EXIT_ANSWERED);
        }
        left -= page;
        after = logs.last().map(|last| last.number);
    }
    output::print_next_page(after);
    Ok(EXIT_ANSWERED)
}

/// Columns of the list of messages.
const MESSAGE_COLUMNS: &str = "ID\tFROM\tSTATE\tSENT\tTEXT";
/// Columns of the log.
const LOG_COLUMNS: &str = "NUMBER\tSENDER\tRECIPIENT\tTYPE\tTIME\tTEXT";
/// Columns of the events.
pub(super) const EVENT_COLUMNS: &str = "NUMBER\tEVENT\tDETAILS";
/// Columns of the list of members.
const MEMBER_COLUMNS: &str = "ID\tDISPLAY\tSTATE\tDELIVERY\tUNREAD\tROLE\tPHASE\tSEEN\tTROUBLE";
/// Maximum characters of a table cell.
const CELL_CHARS_MAX: usize = 100;

/// Formats a text as one table cell: one line, without control characters, at most
/// [`CELL_CHARS_MAX`] characters.
fn cell_text(text: &str) -> String {
    truncate_chars(
        &strip_control_chars(&neutralize(&one_line(text, usize::MAX))),
        CELL_CHARS_MAX,
    )
}

fn join_cells<const N: usize>(cells: [&str; N]) -> String {
    cells.map(cell_text).join("\t")
}

/// Formats a row of the list of messages. The state of an urgent message is followed by `urgent`.
fn message_row(message: &MailView) -> String {
    // The sender has a column of its own, so the text is shown without the prefix.
    let text = message.message.as_deref().unwrap_or(&message.text);
    let state = match message.priority {
        Priority::Urgent => format!("{} urgent", message.state.as_str()),
        Priority::Normal => message.state.as_str().to_owned(),
    };
    join_cells([
        &message.message_id,
        &message.from,
        &state,
        &message.sent,
        text,
    ])
}

/// Returns the header lines of a message.
fn header_lines(message: &MailView) -> Vec<String> {
    let to = match message.to.is_empty() {
        true => format!("{} agents", message.to_count),
        // All recipients, without a limit of characters.
        false => message.to.join(", "),
    };
    let (id, from) = (cell_text(&message.message_id), cell_text(&message.from));
    let mut lines = vec![
        format!("id: {id}"),
        format!("from: {from}"),
        format!("to: {to}"),
    ];
    let mut add = |name: &str, value: &str| lines.push(format!("{name}: {}", cell_text(value)));
    add("kind", message.kind.as_str());
    add("thread", &message.thread);
    message.reply_to.iter().for_each(|id| add("reply_to", id));
    message.topic.iter().for_each(|topic| add("topic", topic));
    add("priority", message.priority.as_str());
    add("sent", &message.sent);
    add("expires", &message.expires);
    add("state", message.state.as_str());
    for receipt in message.receipts.iter().flatten() {
        let at = receipt
            .read
            .as_ref()
            .or(receipt.delivered.as_ref())
            .unwrap_or(&receipt.accepted);
        add(
            "receipt",
            &format!("{} {} {at}", receipt.agent_id, receipt.state.as_str()),
        );
    }
    lines
}

/// Formats a row of the log.
fn log_row(row: &AgentLogRow) -> String {
    let details = &row.details;
    let (number, kind) = (row.number.to_string(), details.message_type.as_str());
    let text = &details.message_content;
    join_cells([
        &number,
        &details.sender_id,
        &details.recipient_id,
        kind,
        &details.timestamp,
        text,
    ])
}

/// Formats a row of the list of members; `-` stands for an absent value.
fn member_row(agent: &AgentView) -> String {
    let unread = agent.unread.map(|count| count.to_string());
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let (unread, role, phase) = (
        or_none(&unread),
        or_none(&agent.role),
        or_none(&agent.phase),
    );
    let (seen, trouble) = (or_none(&agent.last_seen), or_none(&agent.trouble));
    let (state, delivery) = (agent.state.as_str(), agent.way.as_str());
    join_cells([
        &agent.agent_id,
        &agent.display_id,
        state,
        delivery,
        &unread,
        &role,
        &phase,
        &seen,
        &trouble,
    ])
}

/// Formats an event as one line.
pub(super) fn event_row(event: &NumberedMailEvent) -> String {
    let told = match &event.event {
        MailEvent::AgentBroadcast {
            sender_agent_id,
            recipient_count,
            message_preview,
        } => {
            format!(
                "{sender_agent_id} to {recipient_count}\t{}",
                cell_text(message_preview)
            )
        }
        MailEvent::AgentDirectMessage {
            sender_agent_id,
            recipient_agent_id,
            message_preview,
        } => {
            format!(
                "{sender_agent_id} to {recipient_agent_id}\t{}",
                cell_text(message_preview)
            )
        }
        MailEvent::MessageAccepted {
            message_id,
            sender_agent_id,
            ..
        } => {
            format!("{message_id}\tfrom {sender_agent_id}")
        }
        MailEvent::MessageDelivered {
            message_id,
            recipient_agent_ids,
            ..
        }
        | MailEvent::MessageRead {
            message_id,
            recipient_agent_ids,
            ..
        } => {
            format!("{message_id}\tby {}", recipient_agent_ids.join(", "))
        }
        MailEvent::AgentJoined { agent_id, way } => format!("{agent_id}\t{}", way.as_str()),
        MailEvent::AgentLeft { agent_id, reason } => format!("{agent_id}\t{reason}"),
        MailEvent::Missed { from, to } => format!("{from} to {to}"),
        _ => String::new(),
    };
    format!("{}\t{}\t{told}", event.sequence, event.event.kind())
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(in crate::cli) struct MembersArguments {
    #[command(subcommand)]
    action: Option<MembersAction>,
    #[command(flatten)]
    list: MemberListArguments,
}

#[derive(Debug, Args)]
struct MemberListArguments {
    /// Only members in this state.
    #[arg(long, value_parser = one_of_names(MemberState::ALL.iter().map(|it| (it.as_str(), *it))))]
    state: Option<MemberState>,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, Subcommand)]
enum MembersAction {
    /// Terminate a member: it can neither send nor receive mail. Your key needs the scope mail.admin.
    End(MemberIdArguments),
    /// Restore a terminated member.
    Back(MemberIdArguments),
}

#[derive(Debug, Args)]
struct MemberIdArguments {
    /// Id of the member.
    #[arg(value_parser = |id: &str| MemberId::parse(id))]
    id: MemberId,
    #[command(flatten)]
    mail: MailArguments,
}

/// Runs `callboard mail members`.
pub(super) async fn run_members(arguments: MembersArguments) -> CommandResult {
    match arguments.action {
        None => list_members(arguments.list).await,
        Some(MembersAction::End(one)) => set_member_ended(one, false).await,
        Some(MembersAction::Back(one)) => set_member_ended(one, true).await,
    }
}

async fn list_members(MemberListArguments { state, mail }: MemberListArguments) -> CommandResult {
    let status = mail.mail_client()?.agents(state).await?;
    let rows = RowPrinter::with_heading(mail.json, MEMBER_COLUMNS)?;
    for agent in &status.agents {
        rows.print_row(agent, || member_row(agent))?;
    }
    Ok(EXIT_ANSWERED)
}

async fn set_member_ended(
    MemberIdArguments { id, mail }: MemberIdArguments,
    back: bool,
) -> CommandResult {
    let done = mail.mail_client()?.end_agent(&id, back).await?;
    let now = if back { "is back" } else { "is terminated" };
    RowPrinter::without_heading(mail.json).print_row(&done, || format!("{id} {now}"))?;
    Ok(EXIT_ANSWERED)
}

#[cfg(test)]
mod tests {
    use super::{cell_text, parse_time};

    /// Goal: a time is a time or a span back from now, and nothing else. Method: rows.
    #[test]
    fn times() {
        assert_eq!(
            parse_time("2026-01-31T12:00:00Z").as_deref(),
            Ok("2026-01-31T12:00:00Z")
        );
        assert_eq!(
            parse_time("2026-01-31").as_deref(),
            Ok("2026-01-31T00:00:00Z")
        );
        assert!(parse_time("2h").is_ok_and(|at| at.ends_with('Z') && at.contains('T')));
        for wrong in [
            "yesterday",
            "",
            "2",
            "2026-1-31",
            "20260131",
            "2026-01-3é",
            "999999999999999d",
        ] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    /// Goal: a message can't make two rows of one, nor play with the terminal, and is cut by characters. Method: rows.
    #[test]
    fn texts_are_one_line() {
        assert_eq!(cell_text("a\n\tb\u{1b}[31m \u{2028}c"), "a b␛[31m c");
        assert_eq!(cell_text("a\u{202e}b"), "a<U+202E>b");
        assert_eq!(
            cell_text("[GUARDIAN GUIDANCE]: go"),
            "> [GUARDIAN GUIDANCE]: go"
        );
        assert_eq!(cell_text(&"é".repeat(100)), "é".repeat(100));
        assert_eq!(cell_text(&"é".repeat(101)), format!("{}…", "é".repeat(100)));
    }
}
