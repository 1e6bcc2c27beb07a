//! What happened, for whoever may know it.

use callboard_message::Failure;
use callboard_message::mail::{
    EntryState, Events, MAIL_EVENTS_MAX, MAIL_PREVIEW_CHARS, MailEvent, MemberWay, Numbered, Priority, ReadEvents,
};
use callboard_runtime::{Cx, Letter, StoredEvent};

use super::Shared;
use super::history::page;
use super::who::Who;

impl Shared {
    pub async fn read_events(&self, message: ReadEvents, cx: &Cx) -> Result<Events, Failure> {
        let who = self.who_looks(cx).await?;
        let limit = page(message.limit, MAIL_EVENTS_MAX, MAIL_EVENTS_MAX)?;
        let after = message.after;
        // Before the page: what comes between is on the next one.
        let newest = self.mail.last_event().await?;
        let page = self.mail.events(after, limit).await?;
        let first = page.first().map_or(newest.saturating_add(1), |(number, _)| *number);
        let last = page.last().map_or(newest.max(after), |(number, _)| *number);
        let mut events = Vec::new();
        // Whoever begins at 0 wants what there is.
        if after > 0 && first > after + 1 {
            let event = MailEvent::Missed { from: after + 1, to: first - 1 };
            events.push(Numbered { sequence: first - 1, event });
        }
        for (sequence, stored) in page {
            let seen = self.seen(&who, stored);
            let wanted = seen
                .into_iter()
                .filter(|event| message.types.is_empty() || message.types.iter().any(|kind| kind == event.kind()));
            events.extend(wanted.map(|event| Numbered { sequence, event }));
        }
        Ok(Events { events, last, newest: newest.max(last) })
    }

    /// What `who` may know of an event.
    fn seen(&self, who: &Who, stored: StoredEvent) -> Vec<MailEvent> {
        let sees = |id: &str| who.watches || self.members().sees(&who.id, id);
        match stored {
            StoredEvent::Posted(letter) if who.watches || letter.new.concerns(&who.id) => {
                let known = self.members().known(who, &letter.new) as u64;
                vec![accepted(&letter, known), posted(&letter, known)]
            }
            StoredEvent::Posted(_) => Vec::new(),
            StoredEvent::Marked { id, sender, state, mut recipients, .. } => {
                if !who.watches && sender != *who.id {
                    recipients.retain(|recipient| **recipient == *who.id);
                }
                if recipients.is_empty() {
                    return Vec::new();
                }
                let (message_id, sender_agent_id, recipient_agent_ids) = (id, sender, recipients);
                vec![match state {
                    EntryState::Read => MailEvent::MessageRead { message_id, sender_agent_id, recipient_agent_ids },
                    _ => MailEvent::MessageDelivered { message_id, sender_agent_id, recipient_agent_ids },
                }]
            }
            StoredEvent::Joined(agent_id, way) if sees(&agent_id) => {
                let way = MemberWay::parse(&way).unwrap_or(MemberWay::None);
                vec![MailEvent::AgentJoined { agent_id, way }]
            }
            StoredEvent::Left(agent_id, reason) if sees(&agent_id) => vec![MailEvent::AgentLeft { agent_id, reason }],
            StoredEvent::Joined(..) | StoredEvent::Left(..) => Vec::new(),
        }
    }
}

/// To `known` recipients, as far as whoever is told may know.
fn accepted(letter: &Letter, known: u64) -> MailEvent {
    let new = &letter.new;
    MailEvent::MessageAccepted {
        message_id: new.id.clone(),
        thread: new.thread().to_owned(),
        sender_agent_id: new.sender.clone(),
        recipient_count: known,
        priority: if new.urgent { Priority::Urgent } else { Priority::Normal },
        topic: new.topic.clone(),
    }
}

fn posted(letter: &Letter, known: u64) -> MailEvent {
    let new = &letter.new;
    let (sender_agent_id, message_preview) = (new.sender.clone(), letter.preview(MAIL_PREVIEW_CHARS));
    match (new.audience.as_str(), new.recipients.as_slice()) {
        ("one", [to]) => {
            MailEvent::AgentDirectMessage { sender_agent_id, recipient_agent_id: to.clone(), message_preview }
        }
        _ => MailEvent::AgentBroadcast { sender_agent_id, recipient_count: known, message_preview },
    }
}
