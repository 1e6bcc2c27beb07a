//! Looking back: messages, and the log of who wrote to whom.

use std::time::SystemTime;

use callboard_message::Failure;
use callboard_message::mail::{
    AgentLogs, Direction, History, Logs, MAIL_HISTORY_DEFAULT, MAIL_HISTORY_MAX, MessageHistory, WATCH_SCOPE,
};
use callboard_message::time::read_rfc3339;
use callboard_runtime::{Cx, LetterFilter, MAIL_PAGE_MAX};

use super::Shared;
use super::who::denied_without;

/// Letters whose state one look goes through; what is beyond them is on the next page.
const LOOKED_MAX: usize = 1_000;
/// Rows of the log that a page has where nobody says.
const LOG_ROWS_DEFAULT: u32 = 100;

impl Shared {
    pub async fn history(&self, message: MessageHistory, cx: &Cx) -> Result<History, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        let limit = page(message.limit, MAIL_HISTORY_DEFAULT, MAIL_HISTORY_MAX)?;
        let direction = message.direction.unwrap_or(Direction::All);
        let filter = LetterFilter {
            of: Some(who.id.to_string()),
            sent: match direction {
                Direction::In => Some(false),
                Direction::Out => Some(true),
                Direction::All => None,
            },
            with: message.with,
            sender: message.from,
            topic: message.topic,
            thread: message.thread,
            text: message.text,
            since: time("since", message.since)?,
            until: time("until", message.until)?,
            // The store knows how far a letter has come with one recipient, not with the last of all.
            state: message.state.filter(|_| direction == Direction::In),
        };
        let (mut messages, mut after, mut looked) = (Vec::new(), message.after.unwrap_or(0), 0);
        loop {
            let (letters, next) = self.mail.history(filter.clone(), after, limit - messages.len()).await?;
            looked += letters.len();
            for (letter, copy) in letters {
                if self.is_past(&who, &letter).await? {
                    continue;
                }
                let state = match copy {
                    Some(copy) => copy.state,
                    None => self.least(&letter).await?,
                };
                if message.state.is_none_or(|wanted| wanted == state) {
                    messages.push(self.view(&who, &letter, state, false));
                }
            }
            match next {
                // Only what was left out here is made up for: the store's own pages are as they are.
                Some(next) if filter.state != message.state && messages.len() < limit && looked < LOOKED_MAX => {
                    after = next;
                }
                next => return Ok(History { messages, next }),
            }
        }
    }

    pub async fn logs(&self, message: AgentLogs, cx: &Cx) -> Result<Logs, Failure> {
        let who = self.who_looks(cx).await?;
        let limit = page(message.limit, LOG_ROWS_DEFAULT, MAIL_PAGE_MAX as u32)?;
        let of = match message.agent_id {
            Some(other) if other != *who.id && !who.watches => {
                return Err(denied_without(
                    WATCH_SCOPE,
                    "only whoever may watch all mail (mail.watch) sees the log of others",
                ));
            }
            Some(agent) => Some(agent),
            None if who.watches => None,
            None => Some(who.id.to_string()),
        };
        let logs = self.mail.logs(of.as_deref(), message.after.unwrap_or(0), limit).await?;
        Ok(Logs { logs })
    }
}

/// How many items a page has.
///
/// # Errors
/// `InvalidInput` for none, or more than `most`.
pub(super) fn page(limit: Option<u32>, default: u32, most: u32) -> Result<usize, Failure> {
    let limit = limit.unwrap_or(default);
    match (1..=most).contains(&limit) {
        true => Ok(limit as usize),
        false => Err(Failure::invalid(format!("`limit` must be 1 to {most}"))),
    }
}

fn time(name: &str, said: Option<String>) -> Result<Option<SystemTime>, Failure> {
    let read = |text: String| {
        read_rfc3339(&text).ok_or_else(|| Failure::invalid(format!("`{name}` must be a time as RFC 3339 has it")))
    };
    said.map(read).transpose()
}
