//! Mailboxes for agents of the process.

use std::sync::Arc;

use callboard_message::mail::{
    BroadcastMessage, CheckInbox, GUARDIAN_ID, GUARDIAN_SCOPE, Inbox, MAIL_MEMBERS_MAX, MailView,
    ReadMessage, ReplyMessage, SendMessage, SendReceipt,
};
use callboard_message::{Failure, Message, Principal, PrincipalKind};
use callboard_runtime::{AgentRef, CallContext};

use crate::Mailroom;
use crate::options::{MailroomError, check_id};

/// Mailroom client that sends and receives as one member. Its holder acts under the member's
/// identity, so it must not be passed to other agents.
#[derive(derive_more::Debug, Clone)]
#[debug("Mailbox({})", self.id())]
pub struct Mailbox {
    mailroom: AgentRef,
    principal: Arc<Principal>,
}

impl Mailroom {
    /// Returns the mailbox of an agent of this process. From then on, API keys can't claim the id
    /// `id`. `mailroom` must be the running agent of this mailroom.
    ///
    /// # Errors
    /// [`MailroomError::InvalidId`], [`MailroomError::ReservedId`], [`MailroomError::IdTaken`],
    /// [`MailroomError::TooManyMembers`].
    pub fn mailbox(&self, mailroom: &AgentRef, id: &str) -> Result<Mailbox, MailroomError> {
        check_id(id)?;
        let options = self.services.directory.options();
        let mut members = self.services.directory.members();
        let is_new = members.get(id).is_none();
        if is_new && members.len() >= MAIL_MEMBERS_MAX {
            return Err(MailroomError::TooManyMembers);
        }
        let member = members.entry(id, &options);
        if member.is_claimed_by_other(PrincipalKind::Agent) {
            return Err(MailroomError::IdTaken(id.to_owned()));
        }
        member.kind = Some(PrincipalKind::Agent);
        // A new member joins with its first request.
        member.has_left |= is_new;
        Ok(Mailbox {
            mailroom: mailroom.clone(),
            principal: Arc::new(Principal::agent(id)),
        })
    }

    /// Returns the Guardian's mailbox. `mailroom` must be the running agent of this mailroom.
    pub fn guardian(&self, mailroom: &AgentRef) -> Mailbox {
        let guardian = Principal {
            scopes: vec![GUARDIAN_SCOPE.to_owned()],
            ..Principal::agent(GUARDIAN_ID)
        };
        Mailbox {
            mailroom: mailroom.clone(),
            principal: Arc::new(guardian),
        }
    }
}

impl Mailbox {
    /// Returns the agent id of the mailbox's member.
    pub fn id(&self) -> &str {
        &self.principal.id
    }

    /// Sends any request to the mailroom.
    ///
    /// # Errors
    /// Returns the failure of the mailroom, or `Unavailable` if it isn't running.
    pub async fn ask<T, M>(&self, message: M) -> Result<T, Failure>
    where
        T: Send + 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let call = CallContext::new(self.principal.clone());
        self.mailroom
            .ask(message)
            .within_call(Some(Arc::new(call)))
            .await
            .map_err(Failure::from)?
    }

    /// Sends a message to one agent.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`]. An unreachable recipient is not an error, but reported by
    /// [`SendReceipt::success`].
    pub async fn send(&self, to: &str, message: &str) -> Result<SendReceipt, Failure> {
        let to = Some(to.to_owned());
        self.ask(SendMessage {
            message: message.to_owned(),
            recipient_agent_id: to,
            ..SendMessage::default()
        })
        .await
    }

    /// Sends a message to all agents that the member can see.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`].
    pub async fn broadcast(&self, message: &str) -> Result<SendReceipt, Failure> {
        self.ask(BroadcastMessage {
            message: message.to_owned(),
            ..BroadcastMessage::default()
        })
        .await
    }

    /// Replies to the sender of a message.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`], and with `NotFound` if the message neither comes from the
    /// member nor is for it.
    pub async fn reply(&self, message_id: &str, message: &str) -> Result<SendReceipt, Failure> {
        let (message_id, message) = (message_id.to_owned(), message.to_owned());
        self.ask(ReplyMessage {
            message_id,
            message,
            ..ReplyMessage::default()
        })
        .await
    }

    /// Returns the member's unread messages, urgent ones first, at most
    /// [`MAIL_INBOX_DEFAULT`](callboard_message::mail::MAIL_INBOX_DEFAULT). Messages that are
    /// returned in full are marked as read; long texts are truncated, and [`Mailbox::read`] returns
    /// them whole.
    ///
    /// # Errors
    /// Fails like [`Mailbox::ask`].
    pub async fn check(&self) -> Result<Inbox, Failure> {
        self.ask(CheckInbox::default()).await
    }

    /// Returns a message in full and marks it as read.
    ///
    /// # Errors
    /// Fails like [`Mailbox::reply`].
    pub async fn read(&self, message_id: &str) -> Result<MailView, Failure> {
        self.ask(ReadMessage {
            message_id: message_id.to_owned(),
            ..ReadMessage::default()
        })
        .await
    }
}
