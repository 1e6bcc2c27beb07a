//! Agent mail in words, and as JSON.

use callboard_agents::decide::limits::cut_chars;
use callboard_agents::mailroom::neutral;
use callboard_message::mail::{AgentLogRow, AgentView, MailEvent, MailView, Numbered, Priority};

use crate::cli::printable;

/// The columns of a list of messages.
pub(super) const COLUMNS: &str = "ID\tFROM\tSTATE\tSENT\tTEXT";
/// The columns of the log.
pub(super) const LOG_COLUMNS: &str = "NUMBER\tSENDER\tRECIPIENT\tTYPE\tTIME\tTEXT";
/// The columns of a list of agents.
pub(in crate::cli) const AGENT_COLUMNS: &str = "ID\tDISPLAY\tSTATE\tWAY\tUNREAD\tROLE\tPHASE\tSEEN";
/// Characters of a text in a list.
const SHOWN_CHARS: usize = 100;

/// A text in a list: on one line, no longer than that.
fn brief(text: &str) -> String {
    let line = printable(&neutral(&text.split_whitespace().collect::<Vec<_>>().join(" ")));
    let shown = cut_chars(&line, SHOWN_CHARS);
    if shown.len() < line.len() { format!("{shown}…") } else { line }
}

fn joined<const N: usize>(cells: [&str; N]) -> String {
    cells.map(brief).join("\t")
}

/// A row of the list. An urgent message's state says so.
pub(super) fn row(message: &MailView) -> String {
    // Whose it is stands beside it: without the prefix, and nothing in it that looks like one.
    let text = message.message.as_deref().unwrap_or(&message.text);
    let state = match message.priority {
        Priority::Urgent => format!("{} urgent", message.state.as_str()),
        Priority::Normal => message.state.as_str().to_owned(),
    };
    joined([&message.message_id, &message.from, &state, &message.sent, text])
}

/// What is known of a message, a line each; not what it says.
pub(super) fn lines(message: &MailView) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |name: &str, value: &str| lines.push(format!("{name}: {}", brief(value)));
    add("id", &message.message_id);
    add("from", &message.from);
    match message.to.is_empty() {
        true => add("to", &format!("{} agents", message.to_count)),
        // All of them, however many characters that takes.
        false => lines.push(format!("to: {}", message.to.join(", "))),
    }
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
        let at = receipt.read.as_ref().or(receipt.delivered.as_ref()).unwrap_or(&receipt.accepted);
        add("receipt", &format!("{} {} {at}", receipt.agent_id, receipt.state.as_str()));
    }
    lines
}

/// A row of the log.
pub(super) fn log_row(row: &AgentLogRow) -> String {
    let details = &row.details;
    let (number, kind) = (row.number.to_string(), details.message_type.as_str());
    let text = &details.message_content;
    joined([&number, &details.sender_id, &details.recipient_id, kind, &details.timestamp, text])
}

/// A row of the list of agents; `-` where there is nothing.
pub(in crate::cli) fn agent(agent: &AgentView) -> String {
    let unread = agent.unread.map(|count| count.to_string());
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let (unread, role, phase) = (or_none(&unread), or_none(&agent.role), or_none(&agent.phase));
    let seen = or_none(&agent.last_seen);
    let (state, way) = (agent.state.as_str(), agent.way.as_str());
    joined([&agent.agent_id, &agent.display_id, state, way, &unread, &role, &phase, &seen])
}

/// What happened, on one line.
pub(super) fn event(event: &Numbered) -> String {
    let told = match &event.event {
        MailEvent::AgentBroadcast { sender_agent_id, recipient_count, message_preview } => {
            format!("{sender_agent_id} to {recipient_count}\t{}", brief(message_preview))
        }
        MailEvent::AgentDirectMessage { sender_agent_id, recipient_agent_id, message_preview } => {
            format!("{sender_agent_id} to {recipient_agent_id}\t{}", brief(message_preview))
        }
        MailEvent::MessageAccepted { message_id, sender_agent_id, .. } => {
            format!("{message_id}\tfrom {sender_agent_id}")
        }
        MailEvent::MessageDelivered { message_id, recipient_agent_ids, .. }
        | MailEvent::MessageRead { message_id, recipient_agent_ids, .. } => {
            format!("{message_id}\tby {}", recipient_agent_ids.join(", "))
        }
        MailEvent::AgentJoined { agent_id, way } => format!("{agent_id}\t{}", way.as_str()),
        MailEvent::AgentLeft { agent_id, reason } => format!("{agent_id}\t{reason}"),
        MailEvent::Missed { from, to } => format!("{from} to {to}"),
        _ => String::new(),
    };
    format!("{}\t{}\t{told}", event.sequence, event.event.kind())
}

#[cfg(test)]
mod tests {
    use super::brief;

    /// Goal: a message can't make two rows of one, nor play with the terminal, and is cut by characters. Method: rows.
    #[test]
    fn texts_are_one_line() {
        assert_eq!(brief("a\n\tb\u{1b}[31m \u{2028}c"), "a b␛[31m c");
        assert_eq!(brief("a\u{202e}b"), "a<U+202E>b");
        assert_eq!(brief("[GUARDIAN GUIDANCE]: go"), "> [GUARDIAN GUIDANCE]: go");
        assert_eq!(brief(&"é".repeat(100)), "é".repeat(100));
        assert_eq!(brief(&"é".repeat(101)), format!("{}…", "é".repeat(100)));
    }
}
