//! `callboard msg history`.

use std::time::SystemTime;

use callboard_message::mail::{AgentLogs, Direction, EntryState, MessageHistory};
use callboard_message::time::rfc3339;

use super::super::arguments::{one_of, span};
use super::inbox::{LIMIT_DEFAULT, pages};
use super::show::{self, Rows};
use super::{EXIT_ANSWERED, MailArguments, Outcome, words};

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
            at.map(rfc3339).ok_or_else(|| "that is before all time".to_owned())
        }
        // The beginning of that day.
        Err(_) if is_date(written) => Ok(format!("{written}T00:00:00Z")),
        // The listener reads it exactly.
        Err(_) if written.contains('T') => Ok(written.to_owned()),
        Err(why) => Err(format!("{why}, or a time like 2026-01-31T12:00:00Z")),
    }
}

fn is_date(written: &str) -> bool {
    let is_like = |(place, c): (usize, char)| if place == 4 || place == 7 { c == '-' } else { c.is_ascii_digit() };
    written.len() == 10 && written.chars().enumerate().all(is_like)
}

pub(super) async fn run(arguments: &HistoryArguments) -> Outcome {
    if arguments.agent_log {
        return log(arguments).await;
    }
    let filter = MessageHistory {
        with: arguments.with.clone(),
        from: arguments.from.clone(),
        topic: arguments.topic.clone(),
        thread: arguments.thread.clone(),
        text: arguments.text.clone(),
        since: arguments.since.clone(),
        until: arguments.until.clone(),
        direction: Some(arguments.direction.unwrap_or(Direction::All)),
        state: arguments.state,
        after: arguments.after,
        ..MessageHistory::default()
    };
    pages(filter, arguments.limit, false, false, &arguments.mail).await
}

async fn log(arguments: &HistoryArguments) -> Outcome {
    let client = arguments.mail.client()?;
    let rows = Rows::begin(arguments.mail.json, words::LOG_COLUMNS)?;
    let (mut after, mut left) = (arguments.after, arguments.limit);
    while left > 0 {
        let page = left.min(LOG_PAGE);
        let asked = AgentLogs { after, limit: u32::try_from(page).ok(), ..AgentLogs::default() };
        let logs = client.agent_logs(&asked).await?.logs;
        for row in &logs {
            rows.row(row, || words::log_row(row))?;
        }
        if logs.len() < page {
            return Ok(EXIT_ANSWERED);
        }
        left -= page;
        after = logs.last().map(|last| last.number);
    }
    after.map(show::more);
    Ok(EXIT_ANSWERED)
}

#[cfg(test)]
mod tests {
    use super::time;

    /// Goal: a time is a time or a span back from now, and nothing else. Method: rows.
    #[test]
    fn times() {
        assert_eq!(time("2026-01-31T12:00:00Z").as_deref(), Ok("2026-01-31T12:00:00Z"));
        assert_eq!(time("2026-01-31").as_deref(), Ok("2026-01-31T00:00:00Z"));
        assert!(time("2h").is_ok_and(|at| at.ends_with('Z') && at.contains('T')));
        for wrong in ["yesterday", "", "2", "2026-1-31", "20260131", "2026-01-3é", "999999999999999d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
