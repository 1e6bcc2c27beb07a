//! The mailroom for agents of this process: a handle that says who asks.

use std::sync::Arc;

use callboard_message::mail::{
    BroadcastMessage, CheckInbox, GUARDIAN, GUARDIAN_SCOPE, Inbox, MAIL_MEMBERS_MAX, MailView, ReadMessage,
    ReplyMessage, SendMessage, Sent,
};
use callboard_message::{Failure, Message, Principal, PrincipalKind};
use callboard_runtime::{AgentRef, CallMeta};

use super::Mailroom;
use super::options::{MailroomError, check_id};

/// What one member asks of a mailroom. Whoever has it is that member: hand it to nobody else.
#[derive(derive_more::Debug, Clone)]
#[debug("Mailbox({})", self.id())]
pub struct Mailbox {
    mailroom: AgentRef,
    principal: Arc<Principal>,
}

impl Mailroom {
    /// The mailbox of an agent of this process. From then on nobody who shows a key is taken for it. `mailroom` is this
    /// mailroom, running.
    ///
    /// # Errors
    /// [`MailroomError::Id`], [`MailroomError::Reserved`], [`MailroomError::Taken`], [`MailroomError::TooManyMembers`].
    pub fn mailbox(&self, mailroom: &AgentRef, id: &str) -> Result<Mailbox, MailroomError> {
        check_id(id)?;
        let options = self.shared.options();
        let mut members = self.shared.members();
        let is_new = members.get(id).is_none();
        if is_new && members.len() >= MAIL_MEMBERS_MAX {
            return Err(MailroomError::TooManyMembers);
        }
        let member = members.entry(id, &options);
        if member.is_others(PrincipalKind::Agent) {
            return Err(MailroomError::Taken(id.to_owned()));
        }
        member.kind = Some(PrincipalKind::Agent);
        // It joins with its first word.
        member.has_left |= is_new;
        Ok(Mailbox { mailroom: mailroom.clone(), principal: Arc::new(Principal::agent(id)) })
    }

    /// The Guardian's mailbox.
    pub fn guardian(&self, mailroom: &AgentRef) -> Mailbox {
        let guardian = Principal { scopes: vec![GUARDIAN_SCOPE.to_owned()], ..Principal::agent(GUARDIAN) };
        Mailbox { mailroom: mailroom.clone(), principal: Arc::new(guardian) }
    }
}

impl Mailbox {
    /// Whose it is.
    pub fn id(&self) -> &str {
        &self.principal.id
    }

    /// Asks any of a mailroom's messages.
    ///
    /// # Errors
    /// The mailroom's, and where it is away.
    pub async fn ask<T, M>(&self, message: M) -> Result<T, Failure>
    where
        T: Send + 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let call = CallMeta::new(self.principal.clone());
        self.mailroom.ask(message).within_call(Some(Arc::new(call))).await.map_err(Failure::from)?
    }

    /// Says something to one agent.
    ///
    /// # Errors
    /// As [`Mailbox::ask`]. Whoever isn't there is told by [`Sent::success`].
    pub async fn send(&self, to: &str, message: &str) -> Result<Sent, Failure> {
        let to = Some(to.to_owned());
        self.ask(SendMessage { message: message.to_owned(), recipient_agent_id: to, ..SendMessage::default() }).await
    }

    /// Says something to all that it sees.
    ///
    /// # Errors
    /// As [`Mailbox::ask`].
    pub async fn broadcast(&self, message: &str) -> Result<Sent, Failure> {
        self.ask(BroadcastMessage { message: message.to_owned(), ..BroadcastMessage::default() }).await
    }

    /// Answers a message.
    ///
    /// # Errors
    /// As [`Mailbox::ask`]; `NotFound` where it isn't one of its own.
    pub async fn reply(&self, message_id: &str, message: &str) -> Result<Sent, Failure> {
        let (message_id, message) = (message_id.to_owned(), message.to_owned());
        self.ask(ReplyMessage { message_id, message, ..ReplyMessage::default() }).await
    }

    /// What it hasn't read; what is shown whole is read by that.
    ///
    /// # Errors
    /// As [`Mailbox::ask`].
    pub async fn check(&self) -> Result<Inbox, Failure> {
        self.ask(CheckInbox::default()).await
    }

    /// A message whole; it is read by that.
    ///
    /// # Errors
    /// As [`Mailbox::reply`].
    pub async fn read(&self, message_id: &str) -> Result<MailView, Failure> {
        self.ask(ReadMessage { message_id: message_id.to_owned(), ..ReadMessage::default() }).await
    }
}
