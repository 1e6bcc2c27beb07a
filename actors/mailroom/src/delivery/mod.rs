//! Delivery of mail to members with a delivery agent.

pub(crate) mod conversation;
mod worker;

use std::sync::Arc;

use callboard_message::mail::{DeliverMessage, DisplayIds};
use callboard_message::time::format_rfc3339;
use callboard_runtime::{MailMessage, MailStore, System};

use crate::members::Member;
use crate::members::directory::MemberDirectory;
use crate::members::queue::{DeliveryQueue, QueueState};
use crate::post::PostService;
use crate::receipts::ReceiptWriter;
use crate::text::OutgoingMail;
use conversation::ConversationLimit;
use worker::DeliveryWorker;

/// Starts delivery queues, whose workers deliver mail to agents.
pub(crate) struct DeliveryService {
    pub mail: Arc<dyn MailStore>,
    pub directory: Arc<MemberDirectory>,
    pub post: Arc<PostService>,
    pub receipts: Arc<ReceiptWriter>,
}

impl DeliveryService {
    /// Starts a member's delivery queue if it has a delivery agent, no queue yet, and isn't
    /// terminated.
    pub fn open_queue(self: &Arc<Self>, system: &System, member: &mut Member) {
        if !member.is_ended
            && member.line.is_none()
            && let Some(way) = &member.takes
        {
            member.line = self.start_queue(system, &member.id, way);
        }
    }

    /// Starts the delivery queue of the member `id` to the agent named `way`. Its worker also
    /// delivers messages that were stored earlier. Returns `None` if the worker can't be started.
    fn start_queue(
        self: &Arc<Self>,
        system: &System,
        id: &Arc<str>,
        way: &str,
    ) -> Option<DeliveryQueue> {
        let queue = Arc::new(QueueState::default());
        let conversations = ConversationLimit::default();
        let way: Arc<str> = way.into();
        let make = {
            let (service, id, way, queue) = (self.clone(), id.clone(), way.clone(), queue.clone());
            move || {
                // Includes messages that an earlier worker was delivering.
                queue.lock_pending().has_stored = true;
                DeliveryWorker::new(
                    service.clone(),
                    id.clone(),
                    way.clone(),
                    queue.clone(),
                    conversations.clone(),
                )
            }
        };
        let worker = system
            .prepare_with(make)
            .label(format!("mail of {id}"))
            .spawn();
        DeliveryQueue::new(worker, queue, way)
    }

    /// Builds the delivery request of a message for one recipient.
    pub fn delivery_request(
        &self,
        outgoing: &OutgoingMail,
        to: &str,
        attempt: u32,
    ) -> DeliverMessage {
        // Computed outside the lock, because a long body takes a while.
        outgoing.neutral_body();
        let members = self.directory.members();
        let MailMessage {
            number,
            new,
            accepted,
            ..
        } = &*outgoing.letter;
        let shown = |id: &str| members.display_names.display(id).to_owned();
        DeliverMessage {
            message_id: new.id.clone(),
            number: *number,
            kind: new.kind,
            from: new.sender.clone(),
            to: to.to_owned(),
            thread: new.thread().to_owned(),
            reply_to: new.reply_to.clone(),
            topic: new.topic.clone(),
            urgent: new.urgent,
            sent: format_rfc3339(*accepted),
            attempt,
            text: members.format_text(outgoing, to),
            message: new.body.clone(),
            display: DisplayIds {
                from: shown(&new.sender),
                to: shown(to),
            },
        }
    }
}
