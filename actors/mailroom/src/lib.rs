//! The mailroom: agents that write to each other.
//!
//! A message is accepted once it is kept, delivered once its recipient has it, read once that says so; each provably and once.
//! Whoever asks is who its credential says. Mail goes out by ways ([`Deliver`](callboard_message::mail::Deliver)), or
//! waits until it is asked for.

mod accept;
mod agents;
mod conversation_delivery;
mod delivery;
#[cfg(test)]
mod frozen_tests;
mod groups;
mod inbox;
mod limit;
mod member_identity;
mod members;
mod options;
mod peer_nodes;
mod post;
mod receipt_writer;
mod resources;
mod setup;
#[cfg(test)]
#[path = "../../../tests/kit/shape.rs"]
mod shape;
mod text;

use std::sync::Arc;

use callboard_message::mail::{
    AgentLogs, AgentStatus, AgentView, BroadcastMessage, CheckInbox, Done, EndAgent, Events,
    FetchMail, Fetched, GetAgentStatus, Groups, History, Inbox, Join, Leave, ListGroups, Logs,
    MailPreferences, MailView, MarkRead, MessageHistory, Preferences, ReadEvents, ReadMessage,
    ReplyMessage, SaveMemory, Saved, SendMessage, Sent,
};
use callboard_message::surface::{
    About, Describe, ListResourceTemplates, ListResources, ReadResource, ReadResourceResult,
    Subscribe,
};
use callboard_message::{Change, Failure, RawObject};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Mail, Notes, Profile};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use members::Members;
use peer_nodes::{Count, Elsewhere, Look};
use receipt_writer::Marks;

pub use agents::Mailbox;
pub use conversation_delivery::{ANSWER_WITHIN, DELIVER_WITHIN, TALKS_AT_ONCE_MAX};
pub use delivery::LINE_LETTERS_MAX;
pub use inbox::{RECEIPTS_MAX, SHOWN_CHARS_MAX};
pub use members::{SEEN_FOR, SESSIONS_MAX};
pub use options::{
    BROADCASTS_A_MINUTE_DEFAULT, Declared, MESSAGES_A_SECOND_DEFAULT, MailroomError,
    MailroomOptions,
};
pub use peer_nodes::{COUNT_EVERY, COUNT_SHARED_EVERY, LOOK_EVERY};
pub use resources::ASK_WITHIN;
pub use setup::Declare;
pub use text::neutral;

/// Messages of each kind that a mailroom works on at once.
pub const ASKED_AT_ONCE_MAX: u32 = 1_024;

/// The agent that takes messages and hands them out. Clones are the same mailroom.
#[derive(derive_more::Debug, Clone)]
#[debug("Mailroom {{ members: {}, .. }}", shared.members().len())]
pub struct Mailroom {
    shared: Arc<Shared>,
}

/// What all its handlers share.
struct Shared {
    mail: Arc<dyn Mail>,
    notes: Arc<dyn Notes>,
    options: Mutex<Arc<MailroomOptions>>,
    members: Mutex<Members>,
    /// Held while it is kept who a member is.
    joining: tokio::sync::Mutex<()>,
    marks: Marks,
    /// The mailroom's own surroundings, once it runs.
    stage: Mutex<Option<Cx>>,
    elsewhere: Elsewhere,
}

impl Shared {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock()
    }

    fn options(&self) -> Arc<MailroomOptions> {
        self.options.lock().clone()
    }

    /// Tells whoever follows the mailroom.
    fn changed(&self, change: Change) {
        if let Some(stage) = &*self.stage.lock() {
            stage.changed(change);
        }
    }
}

macro_rules! answers {
    ($($message:ty => $reply:ty: $with:ident;)*) => {
        impl Agent for Mailroom {
            fn handlers(on: &mut Handlers<Self>) {
                $(on.concurrent::<$message>(ASKED_AT_ONCE_MAX);)*
            }

            fn profile() -> Profile {
                // Its state is a handle.
                Profile::default().cancel_safe().mailbox_capacity(4 * ASKED_AT_ONCE_MAX)
            }

            fn started(&mut self, cx: &mut Cx) {
                *self.shared.stage.lock() = Some(cx.clone());
                let is_shared = self.shared.mail.is_shared();
                cx.tell_every(if is_shared { COUNT_SHARED_EVERY } else { COUNT_EVERY }, || Count);
                if is_shared {
                    cx.tell_every(LOOK_EVERY, || Look);
                }
            }

            fn observe(&self) -> Value {
                let members = self.shared.members();
                let (ended, unread) = members.agents().fold((0, 0), |(ended, unread), member| {
                    (ended + u64::from(member.is_ended), unread + member.unread)
                });
                json!({ "members": members.len(), "terminated": ended, "unread": unread })
            }
        }

        $(impl ConcurrentHandler<$message> for Mailroom {
            fn handle(
                &mut self,
                message: $message,
                cx: Cx,
            ) -> impl Future<Output = Result<$reply, Failure>> + Send + 'static {
                let shared = self.shared.clone();
                async move { shared.$with(message, &cx).await }
            }
        })*
    };
}

answers! {
    BroadcastMessage => Sent: broadcast;
    SendMessage => Sent: send;
    ReplyMessage => Sent: reply;
    CheckInbox => Inbox: check;
    ReadMessage => MailView: read;
    MessageHistory => History: history;
    GetAgentStatus => AgentStatus: status;
    ListGroups => Groups: groups;
    SaveMemory => Saved: save_memory;
    MailPreferences => Preferences: preferences;
    FetchMail => Fetched: fetch;
    MarkRead => Done: mark_read;
    ReadEvents => Events: read_events;
    AgentLogs => Logs: logs;
    EndAgent => Done: end;
    Join => AgentView: come;
    Leave => Done: go;
    Describe => About: describe;
    ListResources => RawObject: list_resources;
    ListResourceTemplates => RawObject: list_templates;
    ReadResource => ReadResourceResult: read_resource;
    Subscribe => RawObject: subscribe;
    Declare => (): declare;
    Look => (): look_elsewhere;
    Count => (): count;
}
