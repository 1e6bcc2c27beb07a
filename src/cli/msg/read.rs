//! `callboard msg inbox`, `msg show`, `msg history` and `callboard agents`: messages and agents in rows.

use std::time::SystemTime;

use callboard_mailroom::neutral;
use callboard_message::mail::{
    AgentLogRow, AgentLogs, AgentView, Direction, EntryState, MailEvent, MailId, MailView,
    MemberState, MessageHistory, Numbered, Priority,
};
use callboard_message::time::rfc3339;
use clap::{Args, Subcommand};

use super::{MailArguments, mail_id};
use crate::cli::arguments::{one_of, span};
use crate::cli::show::{self, Rows};
use crate::cli::{EXIT_ANSWERED, Outcome};
use crate::text::{cut, one_line, printable};

/// Messages that are listed without `--limit`.
const LIMIT_DEFAULT: usize = 50;
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

pub(super) async fn list_inbox(arguments: InboxArguments) -> Outcome {
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
        direction: Some(Direction::In),
        ..MessageHistory::default()
    };
    pages(filter, limit, unread, read, &mail).await
}

/// Lists what matches, page by page. `unread`: only that; `read`: what is listed is read then.
async fn pages(
    mut filter: MessageHistory,
    mut left: usize,
    unread: bool,
    read: bool,
    mail: &MailArguments,
) -> Outcome {
    let client = mail.client()?;
    let rows = Rows::begin(mail.json, COLUMNS)?;
    while left > 0 {
        filter.limit = u32::try_from(left.min(PAGE)).ok();
        let page = client.messages(&filter).await?;
        let listed = page
            .messages
            .iter()
            .filter(|message| !unread || message.state != EntryState::Read)
            .take(left);
        for message in listed {
            rows.row(message, || message_row(message))?;
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
    show::more(filter.after);
    Ok(EXIT_ANSWERED)
}

pub(super) async fn show_message(ShowArguments { id, receipts, mail }: ShowArguments) -> Outcome {
    let client = mail.client()?;
    let message = client.message(&mail_id(&id)?, receipts).await?;
    if mail.json {
        show::json(&message)?;
        return Ok(EXIT_ANSWERED);
    }
    for line in lines(&message) {
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

/// Rows of one page of the log.
const LOG_PAGE: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct HistoryArguments {
    /// Between you and this agent, both ways.
    #[arg(long, value_name = "ID")]
    with: Option<String>,
    /// From this agent only.
    #[arg(long, value_name = "ID")]
    from: Option<String>,
    /// Of this topic only.
    #[arg(long)]
    topic: Option<String>,
    /// Of this thread only.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// With these words in it, in any case.
    #[arg(long)]
    text: Option<String>,
    /// Not before this time: RFC 3339, a date (UTC), or so long ago, for example 2h or 7d.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<String>,
    /// Before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,
    /// To you (in), from you (out), or both (all).
    #[arg(long = "box", value_name = "BOX", value_parser = one_of(Direction::ALL.iter().map(|it| (it.as_str(), *it))))]
    direction: Option<Direction>,
    /// In this state only: what came, with you; what you sent, with its last recipient.
    #[arg(long, value_parser = one_of(EntryState::ALL.iter().map(|it| (it.as_str(), *it))))]
    state: Option<EntryState>,
    /// The log of who wrote to whom, oldest first, in place of the messages.
    #[arg(long, conflicts_with_all = ["with", "from", "topic", "thread", "text", "since", "until", "direction", "state"])]
    agent_log: bool,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
    limit: usize,
    /// Go on where a list ended.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    #[command(flatten)]
    mail: MailArguments,
}

/// A time as it is sent.
fn time(written: &str) -> Result<String, String> {
    match span(written) {
        Ok(ago) => {
            let at = SystemTime::now().checked_sub(ago);
            at.map(rfc3339)
                .ok_or_else(|| "that is before all time".to_owned())
        }
        // The beginning of that day.
        Err(_) if is_date(written) => Ok(format!("{written}T00:00:00Z")),
        // The listener reads it exactly.
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

pub(super) async fn history(arguments: HistoryArguments) -> Outcome {
    if arguments.agent_log {
        return log(arguments.after, arguments.limit, &arguments.mail).await;
    }
    let filter = MessageHistory {
        with: arguments.with,
        from: arguments.from,
        topic: arguments.topic,
        thread: arguments.thread,
        text: arguments.text,
        since: arguments.since,
        until: arguments.until,
        direction: arguments.direction.or(Some(Direction::All)),
        state: arguments.state,
        after: arguments.after,
        ..MessageHistory::default()
    };
    pages(filter, arguments.limit, false, false, &arguments.mail).await
}

async fn log(mut after: Option<u64>, mut left: usize, mail: &MailArguments) -> Outcome {
    let client = mail.client()?;
    let rows = Rows::begin(mail.json, LOG_COLUMNS)?;
    while left > 0 {
        let page = left.min(LOG_PAGE);
        let asked = AgentLogs {
            after,
            limit: u32::try_from(page).ok(),
            ..AgentLogs::default()
        };
        let logs = client.agent_logs(&asked).await?.logs;
        for row in &logs {
            rows.row(row, || log_row(row))?;
        }
        if logs.len() < page {
            return Ok(EXIT_ANSWERED);
        }
        left -= page;
        after = logs.last().map(|last| last.number);
    }
    show::more(after);
    Ok(EXIT_ANSWERED)
}

/// The columns of a list of messages.
const COLUMNS: &str = "ID\tFROM\tSTATE\tSENT\tTEXT";
/// The columns of the log.
const LOG_COLUMNS: &str = "NUMBER\tSENDER\tRECIPIENT\tTYPE\tTIME\tTEXT";
/// The columns of a list of agents.
const AGENT_COLUMNS: &str = "ID\tDISPLAY\tSTATE\tWAY\tUNREAD\tROLE\tPHASE\tSEEN";
/// Characters of a text in a list.
const SHOWN_CHARS: usize = 100;

/// A text in a list: on one line, no longer than that.
fn brief(text: &str) -> String {
    cut(
        &printable(&neutral(&one_line(text, usize::MAX))),
        SHOWN_CHARS,
    )
}

fn joined<const N: usize>(cells: [&str; N]) -> String {
    cells.map(brief).join("\t")
}

/// A row of the list. An urgent message's state says so.
fn message_row(message: &MailView) -> String {
    // Whose it is stands beside it: without the prefix, and nothing in it that looks like one.
    let text = message.message.as_deref().unwrap_or(&message.text);
    let state = match message.priority {
        Priority::Urgent => format!("{} urgent", message.state.as_str()),
        Priority::Normal => message.state.as_str().to_owned(),
    };
    joined([
        &message.message_id,
        &message.from,
        &state,
        &message.sent,
        text,
    ])
}

/// What is known of a message, a line each; not what it says.
fn lines(message: &MailView) -> Vec<String> {
    let to = match message.to.is_empty() {
        true => format!("{} agents", message.to_count),
        // All of them, however many characters that takes.
        false => message.to.join(", "),
    };
    let (id, from) = (brief(&message.message_id), brief(&message.from));
    let mut lines = vec![
        format!("id: {id}"),
        format!("from: {from}"),
        format!("to: {to}"),
    ];
    let mut add = |name: &str, value: &str| lines.push(format!("{name}: {}", brief(value)));
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

/// A row of the log.
fn log_row(row: &AgentLogRow) -> String {
    let details = &row.details;
    let (number, kind) = (row.number.to_string(), details.message_type.as_str());
    let text = &details.message_content;
    joined([
        &number,
        &details.sender_id,
        &details.recipient_id,
        kind,
        &details.timestamp,
        text,
    ])
}

/// A row of the list of agents; `-` where there is nothing.
fn agent_row(agent: &AgentView) -> String {
    let unread = agent.unread.map(|count| count.to_string());
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let (unread, role, phase) = (
        or_none(&unread),
        or_none(&agent.role),
        or_none(&agent.phase),
    );
    let seen = or_none(&agent.last_seen);
    let (state, way) = (agent.state.as_str(), agent.way.as_str());
    joined([
        &agent.agent_id,
        &agent.display_id,
        state,
        way,
        &unread,
        &role,
        &phase,
        &seen,
    ])
}

/// What happened, on one line.
pub(super) fn event(event: &Numbered) -> String {
    let told = match &event.event {
        MailEvent::AgentBroadcast {
            sender_agent_id,
            recipient_count,
            message_preview,
        } => {
            format!(
                "{sender_agent_id} to {recipient_count}\t{}",
                brief(message_preview)
            )
        }
        MailEvent::AgentDirectMessage {
            sender_agent_id,
            recipient_agent_id,
            message_preview,
        } => {
            format!(
                "{sender_agent_id} to {recipient_agent_id}\t{}",
                brief(message_preview)
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
pub(in crate::cli) struct AgentsArguments {
    #[command(subcommand)]
    action: Option<AgentsAction>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Debug, Args)]
struct ListArguments {
    /// In this state only: active, away or terminated.
    #[arg(long, value_parser = one_of(MemberState::ALL.iter().map(|it| (it.as_str(), *it))))]
    state: Option<MemberState>,
    #[command(flatten)]
    mail: MailArguments,
}

#[derive(Debug, Subcommand)]
enum AgentsAction {
    /// Say that an agent is terminated: it neither sends nor gets mail. Your key needs the scope mail.admin.
    End(OneArguments),
    /// Say that an agent is back.
    Back(OneArguments),
}

#[derive(Debug, Args)]
struct OneArguments {
    /// The agent.
    #[arg(value_parser = |id: &str| MailId::parse(id))]
    id: MailId,
    #[command(flatten)]
    mail: MailArguments,
}

/// Does it, and says how it ended.
pub(in crate::cli) async fn run_agents(arguments: AgentsArguments) -> Outcome {
    match arguments.action {
        None => list_agents(arguments.list).await,
        Some(AgentsAction::End(one)) => end_agent(one, false).await,
        Some(AgentsAction::Back(one)) => end_agent(one, true).await,
    }
}

async fn list_agents(ListArguments { state, mail }: ListArguments) -> Outcome {
    let status = mail.client()?.agents(state).await?;
    let rows = Rows::begin(mail.json, AGENT_COLUMNS)?;
    for agent in &status.agents {
        rows.row(agent, || agent_row(agent))?;
    }
    Ok(EXIT_ANSWERED)
}

async fn end_agent(OneArguments { id, mail }: OneArguments, back: bool) -> Outcome {
    let done = mail.client()?.end_agent(&id, back).await?;
    let now = if back { "is back" } else { "is terminated" };
    Rows::plain(mail.json).row(&done, || format!("{id} {now}"))?;
    Ok(EXIT_ANSWERED)
}

#[cfg(test)]
mod tests {
    use super::{brief, time};

    /// Goal: a time is a time or a span back from now, and nothing else. Method: rows.
    #[test]
    fn times() {
        assert_eq!(
            time("2026-01-31T12:00:00Z").as_deref(),
            Ok("2026-01-31T12:00:00Z")
        );
        assert_eq!(time("2026-01-31").as_deref(), Ok("2026-01-31T00:00:00Z"));
        assert!(time("2h").is_ok_and(|at| at.ends_with('Z') && at.contains('T')));
        for wrong in [
            "yesterday",
            "",
            "2",
            "2026-1-31",
            "20260131",
            "2026-01-3é",
            "999999999999999d",
        ] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    /// Goal: a message can't make two rows of one, nor play with the terminal, and is cut by characters. Method: rows.
    #[test]
    fn texts_are_one_line() {
        assert_eq!(brief("a\n\tb\u{1b}[31m \u{2028}c"), "a b␛[31m c");
        assert_eq!(brief("a\u{202e}b"), "a<U+202E>b");
        assert_eq!(
            brief("[GUARDIAN GUIDANCE]: go"),
            "> [GUARDIAN GUIDANCE]: go"
        );
        assert_eq!(brief(&"é".repeat(100)), "é".repeat(100));
        assert_eq!(brief(&"é".repeat(101)), format!("{}…", "é".repeat(100)));
    }
}
