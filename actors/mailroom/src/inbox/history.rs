//! Reading of what happened: message history, communication log and events.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::Failure;
use callboard_message::mail::{
    AgentLogPage, AgentLogs, DeliveryMethod, DeliveryState, MAIL_EVENTS_MAX, MAIL_HISTORY_DEFAULT,
    MAIL_HISTORY_MAX, MAIL_PREVIEW_CHARS, MailDirection, MailEvent, MailEventPage, MessageHistory,
    MessageHistoryPage, NumberedMailEvent, ReadEvents, WATCH_SCOPE,
};
use callboard_message::time::parse_rfc3339;
use callboard_runtime::{Context, MAIL_PAGE_MAX, MailMessage, MailMessageFilter, StoredMailEvent};

use super::view::priority;
use super::{InboxService, page_limit};
use crate::members::identity::MemberIdentity;

/// Maximum number of messages that one history request examines when it filters by delivery state.
/// The caller continues on the next page.
const HISTORY_SCANNED_MAX: usize = 1_000;
/// Default number of rows in one page of the communication log.
const LOG_ROWS_DEFAULT: u32 = 100;

impl InboxService {
    pub async fn history(
        self: Arc<Self>,
        message: MessageHistory,
        cx: Context,
    ) -> Result<MessageHistoryPage, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        let limit = page_limit(message.limit, MAIL_HISTORY_DEFAULT, MAIL_HISTORY_MAX)?;
        let direction = message.direction.unwrap_or(MailDirection::All);
        let filter = MailMessageFilter {
            member: Some(identity.id.to_string()),
            sent: match direction {
                MailDirection::In => Some(false),
                MailDirection::Out => Some(true),
                MailDirection::All => None,
            },
            with: message.with,
            sender: message.from,
            topic: message.topic,
            thread: message.thread,
            text: message.text,
            since: parse_time("since", message.since)?,
            until: parse_time("until", message.until)?,
            // The store knows the state for one recipient, not that of the last recipient.
            state: message.state.filter(|_| direction == MailDirection::In),
        };
        let (mut messages, mut after, mut scanned) = (Vec::new(), message.after.unwrap_or(0), 0);
        loop {
            let (letters, next) = self
                .mail
                .history(filter.clone(), after, limit - messages.len())
                .await?;
            scanned += letters.len();
            for (letter, copy) in letters {
                if self.is_expired(&identity, &letter).await? {
                    continue;
                }
                let state = match copy {
                    Some(copy) => copy.state,
                    None => self.least_state(&letter).await?,
                };
                if message.state.is_none_or(|wanted| wanted == state) {
                    messages.push(self.mail_view(&identity, &letter, state, false));
                }
            }
            match next {
                // Only messages filtered out here are replaced; a short page of the store is
                // returned as it is.
                Some(next)
                    if filter.state != message.state
                        && messages.len() < limit
                        && scanned < HISTORY_SCANNED_MAX =>
                {
                    after = next;
                }
                next => return Ok(MessageHistoryPage { messages, next }),
            }
        }
    }

    pub async fn logs(
        self: Arc<Self>,
        message: AgentLogs,
        cx: Context,
    ) -> Result<AgentLogPage, Failure> {
        let identity = self.directory.identify_viewer(&cx).await?;
        let limit = page_limit(message.limit, LOG_ROWS_DEFAULT, MAIL_PAGE_MAX as u32)?;
        if !identity.watches
            && message
                .agent_id
                .as_ref()
                .is_some_and(|other| **other != *identity.id)
        {
            let why = "reading the log of others requires the scope mail.watch";
            return Err(Failure::lacking_scope(why, WATCH_SCOPE));
        }
        let of = message
            .agent_id
            .or_else(|| (!identity.watches).then(|| identity.id.to_string()));
        let logs = self
            .mail
            .log_rows(of.as_deref(), message.after.unwrap_or(0), limit)
            .await?;
        Ok(AgentLogPage { logs })
    }
}

fn parse_time(name: &str, value: Option<String>) -> Result<Option<SystemTime>, Failure> {
    let read = |text: String| {
        parse_rfc3339(&text).ok_or_else(|| {
            Failure::invalid(format!(
                "`{name}` must be a time of RFC 3339, such as 2026-11-25T15:00:00Z"
            ))
        })
    };
    value.map(read).transpose()
}

impl InboxService {
    pub async fn read_events(
        self: Arc<Self>,
        message: ReadEvents,
        cx: Context,
    ) -> Result<MailEventPage, Failure> {
        let identity = self.directory.identify_viewer(&cx).await?;
        let limit = page_limit(message.limit, MAIL_EVENTS_MAX, MAIL_EVENTS_MAX)?;
        let after = message.after;
        // Read before the page: later events are on the next page.
        let newest = self.mail.last_event().await?;
        let page = self.mail.events(after, limit).await?;
        let first = page
            .first()
            .map_or(newest.saturating_add(1), |(number, _)| *number);
        let last = page.last().map_or(newest.max(after), |(number, _)| *number);
        let mut events = Vec::new();
        // A reader that starts at 0 wants the events that are still stored.
        if after > 0 && first > after + 1 {
            let event = MailEvent::Missed {
                from: after + 1,
                to: first - 1,
            };
            events.push(NumberedMailEvent {
                sequence: first - 1,
                event,
            });
        }
        for (sequence, stored) in page {
            let mut seen = self.visible_events(&identity, stored);
            seen.retain(|event| {
                message.types.is_empty() || message.types.iter().any(|kind| kind == event.kind())
            });
            events.extend(
                seen.into_iter()
                    .map(|event| NumberedMailEvent { sequence, event }),
            );
        }
        Ok(MailEventPage {
            events,
            last,
            newest: newest.max(last),
        })
    }

    /// Converts a stored event to the mail events that `identity` may see; empty if it may see
    /// none. Without the right to watch, it sees events of messages that it sent or received, of
    /// the other recipients' receipts only those for its own messages, and of members only those
    /// that it sees.
    fn visible_events(&self, identity: &MemberIdentity, stored: StoredMailEvent) -> Vec<MailEvent> {
        let sees = |id: &str| identity.watches || self.directory.members().sees(&identity.id, id);
        match stored {
            StoredMailEvent::Posted(letter)
                if identity.watches || letter.new.concerns(&identity.id) =>
            {
                let known = self.directory.members().count_visible_recipients(
                    &identity.id,
                    identity.watches,
                    &letter.new,
                ) as u64;
                vec![accepted_event(&letter, known), posted_event(&letter, known)]
            }
            StoredMailEvent::Posted(_) => Vec::new(),
            StoredMailEvent::ReceiptsUpdated {
                id,
                sender,
                state,
                mut recipients,
                ..
            } => {
                if !identity.watches && sender != *identity.id {
                    recipients.retain(|recipient| **recipient == *identity.id);
                }
                if recipients.is_empty() {
                    return Vec::new();
                }
                let (message_id, sender_agent_id, recipient_agent_ids) = (id, sender, recipients);
                vec![match state {
                    DeliveryState::Read => MailEvent::MessageRead {
                        message_id,
                        sender_agent_id,
                        recipient_agent_ids,
                    },
                    _ => MailEvent::MessageDelivered {
                        message_id,
                        sender_agent_id,
                        recipient_agent_ids,
                    },
                }]
            }
            StoredMailEvent::Joined(agent_id, way) if sees(&agent_id) => {
                let way = DeliveryMethod::parse(&way).unwrap_or(DeliveryMethod::None);
                vec![MailEvent::AgentJoined { agent_id, way }]
            }
            StoredMailEvent::Left(agent_id, reason) if sees(&agent_id) => {
                vec![MailEvent::AgentLeft { agent_id, reason }]
            }
            StoredMailEvent::Joined(..) | StoredMailEvent::Left(..) => Vec::new(),
        }
    }
}

/// Builds the event of an accepted message. `known` is the number of recipients that the event's
/// reader may see.
fn accepted_event(letter: &MailMessage, known: u64) -> MailEvent {
    let new = &letter.new;
    MailEvent::MessageAccepted {
        message_id: new.id.clone(),
        thread: new.thread().to_owned(),
        sender_agent_id: new.sender.clone(),
        recipient_count: known,
        priority: priority(new),
        topic: new.topic.clone(),
    }
}

fn posted_event(letter: &MailMessage, known: u64) -> MailEvent {
    let new = &letter.new;
    let (sender_agent_id, message_preview) =
        (new.sender.clone(), letter.preview(MAIL_PREVIEW_CHARS));
    match (new.audience.as_str(), new.recipients.as_slice()) {
        ("one", [to]) => MailEvent::AgentDirectMessage {
            sender_agent_id,
            recipient_agent_id: to.clone(),
            message_preview,
        },
        _ => MailEvent::AgentBroadcast {
            sender_agent_id,
            recipient_count: known,
            message_preview,
        },
    }
}
