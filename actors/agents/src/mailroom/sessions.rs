//! Telling those who are here that they have mail, and putting what is urgent to them as a question.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use callboard_message::mail::{Priority, ReplyMessage};
use callboard_message::{Answer, Change, ElicitAction, Failure, Log, LogLevel, Question};
use callboard_runtime::{Mark, PeerSession};
use serde_json::json;

use super::Shared;
use super::hand_out::Handed;
use super::members::Member;
use super::who::Who;

/// What an agent's log lines about mail are told under.
const LOGGER: &str = "mail";
/// How long somebody may take to answer the question that an urgent message is.
pub const ASK_WITHIN: Duration = Duration::from_secs(60);
/// What is asked for where an urgent message is a question.
const REPLY: &str = "reply";

/// Who is told of new mail, and how.
pub(super) struct Told {
    id: Arc<str>,
    is_watched: bool,
    unread: i64,
    sessions: Vec<Arc<PeerSession>>,
    /// Where it wants urgent messages as questions: whether one is being asked.
    asks: Option<Arc<AtomicBool>>,
}

impl Told {
    /// How a member is told, if it is.
    pub fn of(member: &mut Member) -> Option<Self> {
        let sessions = member.sessions().to_vec();
        let asks = (member.wants.ask_urgent && !sessions.is_empty()).then(|| member.is_asked.clone());
        let Member { id, is_watched, unread, .. } = member;
        let is_told = *is_watched || !sessions.is_empty();
        is_told.then(|| Self { id: id.clone(), is_watched: *is_watched, unread: *unread, sessions, asks })
    }
}

/// The address of a member's inbox.
pub(super) fn inbox_uri(id: &str) -> String {
    format!("callboard://inbox/{id}")
}

impl Shared {
    /// Tells a member that it has mail. Not a word of what it says, but where it wants urgent messages as questions.
    pub fn tell_mail(self: &Arc<Self>, handed: &Arc<Handed>, told: Told) {
        if told.is_watched {
            self.changed(Change::Resource(inbox_uri(&told.id)));
        }
        let new = &handed.letter.new;
        let priority = if new.urgent { Priority::Urgent } else { Priority::Normal };
        for session in &told.sessions {
            let data = json!({
                "message_id": new.id, "from": new.sender, "priority": priority, "unread": told.unread,
            });
            session.caller.log(Log::new(LogLevel::Notice, LOGGER, data));
        }
        let can_answer = |session: &&Arc<PeerSession>| session.caller.abilities().elicitation_form();
        if let Some(is_asked) = told.asks.filter(|_| new.urgent)
            && let Some(session) = told.sessions.iter().rev().find(can_answer)
            // One at a time: what comes meanwhile waits in the inbox.
            && !is_asked.swap(true, SeqCst)
        {
            let (room, handed, session) = (self.clone(), handed.clone(), session.clone());
            tokio::spawn(async move {
                if let Err(failure) = room.put_to(&told.id, &handed, &session).await {
                    callboard_message::log::debug!(member = &*told.id, kind = %failure.kind, "an urgent message wasn't answered");
                }
                is_asked.store(false, SeqCst);
            });
        }
    }

    /// Puts a message to whoever is behind a session. Whoever answers, or declines to, has read it.
    async fn put_to(self: &Arc<Self>, id: &Arc<str>, handed: &Handed, session: &PeerSession) -> Result<(), Failure> {
        let schema = json!({
            "type": "object",
            "properties": { REPLY: { "type": "string", "title": "Reply", "description": "May be left out." } },
        });
        let asking = session.caller.ask(Question::elicit(self.text(handed, id), schema));
        let answer = tokio::select! {
            answer = tokio::time::timeout(ASK_WITHIN, asking) => answer,
            () = session.over.cancelled() => return Ok(()),
        };
        let Answer::Elicit(answer) = answer.unwrap_or_else(|_| Err(Failure::unavailable("no answer in time")))? else {
            return Ok(());
        };
        if answer.action() == ElicitAction::Cancel {
            return Ok(());
        }
        self.mark(id, &[handed.letter.number], Mark::Read).await?;
        let reply = answer.content().and_then(|content| content.get(REPLY)?.as_str().map(str::to_owned));
        let reply = reply.filter(|reply| answer.action() == ElicitAction::Accept && !reply.trim().is_empty());
        let Some(message) = reply else { return Ok(()) };
        let message_id = handed.letter.new.id.clone();
        let reply = ReplyMessage { message_id, message, ..ReplyMessage::default() };
        self.reply_by(&Who::member(id), reply).await.map(drop)
    }
}
