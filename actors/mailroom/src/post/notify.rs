//! Notification of a message's recipients, and the question that shows an urgent message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use callboard_message::mail::ReplyMessage;
use callboard_message::{
    Answer, CapabilityChange, ElicitationAction, Failure, LogLevel, LogMessage, Question,
};
use callboard_runtime::{MailMessage, PeerSession, ReceiptUpdate};
use serde_json::json;

use super::PostService;
use crate::inbox::priority;
use crate::members::Member;
use crate::members::identity::{MemberIdentity, inbox_uri};
use crate::members::queue::DeliveryQueue;
use crate::text::OutgoingMail;

/// Logger name in the log notifications that tell a session of new mail.
const LOGGER: &str = "mail";
/// Time in which a person has to answer the question that shows an urgent message. After it the
/// message stays unread in the inbox.
pub const URGENT_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Form field with the reply, in the answer to the question that shows an urgent message.
const REPLY_FIELD: &str = "reply";

/// A member to notify of new mail, with its notification channels.
pub(crate) struct NotificationTarget {
    id: Arc<str>,
    is_watched: bool,
    unread: i64,
    sessions: Vec<Arc<PeerSession>>,
    /// Flag that tells whether a question about an urgent message is open; `None` if the member
    /// doesn't want urgent messages as questions.
    open_question: Option<Arc<AtomicBool>>,
}

impl NotificationTarget {
    /// Returns the notification target of a member; `None` if the member has neither a live session
    /// nor a subscriber of its inbox.
    pub fn of(member: &mut Member) -> Option<Self> {
        let sessions = member.sessions().to_vec();
        let asks =
            (member.wants.ask_urgent && !sessions.is_empty()).then(|| member.is_asked.clone());
        let Member {
            id,
            is_watched,
            unread,
            ..
        } = member;
        let is_told = *is_watched || !sessions.is_empty();
        is_told.then(|| Self {
            id: id.clone(),
            is_watched: *is_watched,
            unread: *unread,
            sessions,
            open_question: asks,
        })
    }
}

impl PostService {
    /// Counts a new message as unread for each recipient and notifies them of it. Calls `hand` for
    /// each recipient that has a delivery queue, with the queue and the message.
    pub fn notify_recipients(
        self: &Arc<Self>,
        letter: &Arc<MailMessage>,
        hand: impl Fn(&DeliveryQueue, &Arc<OutgoingMail>),
    ) {
        let outgoing = Arc::new(OutgoingMail::new(letter.clone()));
        let mut targets = Vec::new();
        {
            let mut members = self.directory.members();
            for recipient in &letter.new.recipients {
                let Some(member) = members.get_mut(recipient) else {
                    continue;
                };
                member.unread += 1;
                if let Some(line) = &member.line {
                    hand(line, &outgoing);
                }
                targets.extend(NotificationTarget::of(member));
            }
        }
        for target in targets {
            self.notify_member(&outgoing, target);
        }
    }

    /// Notifies a member's sessions and inbox subscribers of a new message. The notification
    /// doesn't contain the text. If the member wants it, an urgent message is also shown as a
    /// question, with its text.
    pub fn notify_member(
        self: &Arc<Self>,
        outgoing: &Arc<OutgoingMail>,
        target: NotificationTarget,
    ) {
        if target.is_watched {
            self.directory
                .notify_changed(CapabilityChange::Resource(inbox_uri(&target.id)));
        }
        let new = &outgoing.letter.new;
        let data = json!({
            "message_id": new.id, "from": new.sender, "priority": priority(new), "unread": target.unread,
        });
        for session in &target.sessions {
            session
                .caller
                .log(LogMessage::new(LogLevel::Notice, LOGGER, data.clone()));
        }
        let can_answer =
            |session: &&Arc<PeerSession>| session.caller.capabilities().has_elicitation_form();
        if let Some(is_asked) = target.open_question.filter(|_| new.urgent)
            && let Some(session) = target.sessions.iter().rev().find(can_answer)
            // One question at a time: other messages wait in the inbox.
            && !is_asked.swap(true, SeqCst)
        {
            let (room, outgoing, session) = (self.clone(), outgoing.clone(), session.clone());
            tokio::spawn(async move {
                if let Err(failure) = room.ask_member(&target.id, &outgoing, &session).await {
                    callboard_message::log::debug!(member = &*target.id, kind = %failure.kind, "an urgent message wasn't answered");
                }
                is_asked.store(false, SeqCst);
            });
        }
    }

    /// Shows a message as a question to the client of a session, and posts the answer as a reply.
    /// If the person replies, accepts without a text, or declines, the message is marked as read.
    ///
    /// # Errors
    /// `Unavailable` if there is no answer within [`URGENT_ANSWER_TIMEOUT`]; failures of the client
    /// and the store.
    async fn ask_member(
        self: &Arc<Self>,
        id: &Arc<str>,
        outgoing: &OutgoingMail,
        session: &PeerSession,
    ) -> Result<(), Failure> {
        let schema = json!({
            "type": "object",
            "properties": { REPLY_FIELD: { "type": "string", "title": "Reply", "description": "May be left out." } },
        });
        let asking = session.caller.ask(Question::elicit(
            self.directory.display_text(outgoing, id),
            schema,
        ));
        let answer = tokio::select! {
            answer = tokio::time::timeout(URGENT_ANSWER_TIMEOUT, asking) => answer,
            () = session.closed.cancelled() => return Ok(()),
        };
        let Answer::Elicit(answer) =
            answer.unwrap_or_else(|_| Err(Failure::unavailable("no answer in time")))?
        else {
            return Ok(());
        };
        if answer.action() == ElicitationAction::Cancel {
            return Ok(());
        }
        self.inbox
            .update_receipts(id, &[outgoing.letter.number], ReceiptUpdate::Read)
            .await?;
        let reply = answer
            .content()
            .and_then(|content| content.get(REPLY_FIELD)?.as_str().map(str::to_owned));
        let reply = reply.filter(|reply| {
            answer.action() == ElicitationAction::Accept && !reply.trim().is_empty()
        });
        let Some(message) = reply else { return Ok(()) };
        let message_id = outgoing.letter.new.id.clone();
        let reply = ReplyMessage {
            message_id,
            message,
            ..ReplyMessage::default()
        };
        self.reply_as(&MemberIdentity::of_member(id), reply)
            .await
            .map(drop)
    }
}
