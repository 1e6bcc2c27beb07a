//! The mailroom: an agent that stores and delivers messages between agents.
//!
//! A message is accepted once it is stored, delivered once its recipient has it, and read once the
//! recipient confirms it; each state is recorded once. Callers are identified by their credentials.
//! Mail is delivered by [`DeliverMessage`](callboard_message::mail::DeliverMessage), or waits until
//! its recipient fetches it.

mod accept;
mod agents;
mod conversation_delivery;
mod delivery;
#[cfg(test)]
mod frozen_tests;
mod groups;
mod inbox;
mod member_identity;
mod members;
mod options;
mod peer_nodes;
mod post;
mod rate_limit;
mod receipt_writer;
mod resources;
mod setup;
#[cfg(test)]
#[path = "../../../tests/kit/shape.rs"]
mod shape;
mod text;

use std::sync::Arc;

use callboard_message::capabilities::{
    DescribeAgent, DescribeAgentResult, ListResourceTemplates, ListResources, ReadResource,
    ReadResourceResult, SubscribeResource,
};
use callboard_message::mail::{
    AgentLogPage, AgentLogs, AgentStatus, AgentView, BroadcastMessage, CheckInbox, EndAgent,
    FetchMail, FetchedMail, GetAgentStatus, GroupList, Inbox, JoinMailroom, LeaveMailroom,
    ListGroups, MailAck, MailEventPage, MailPreferences, MailView, MarkRead, MessageHistory,
    MessageHistoryPage, Preferences, ReadEvents, ReadMessage, ReplyMessage, SaveMemory,
    SavedMemory, SendMessage, SendReceipt,
};
use callboard_message::{CapabilityChange, Failure, RawObject};
use callboard_runtime::{
    Agent, AgentProfile, ConcurrentHandler, Context, Handlers, KvStore, MailStore,
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use members::Members;
use peer_nodes::{PeerEventCursor, PollPeers, RecountUnread};
use receipt_writer::ReceiptWriter;

pub use agents::Mailbox;
pub use conversation_delivery::{ANSWER_TIMEOUT, CONVERSATIONS_MAX, DELIVERY_TIMEOUT};
pub use delivery::QUEUE_MESSAGES_MAX;
pub use inbox::{LISTED_TEXT_CHARS_MAX, RECEIPTS_MAX};
pub use members::{MEMBER_SESSIONS_MAX, PRESENCE_TIMEOUT};
pub use options::{
    BROADCASTS_PER_MINUTE_DEFAULT, MESSAGES_PER_SECOND_DEFAULT, MailroomError, MailroomOptions,
    MemberDeclaration,
};
pub use peer_nodes::{PEER_POLL_INTERVAL, RECOUNT_INTERVAL, SHARED_RECOUNT_INTERVAL};
pub use resources::URGENT_ANSWER_TIMEOUT;
pub use setup::ReconfigureMailroom;
pub use text::neutralize;

/// Maximum number of concurrent requests of each message type that a mailroom handles.
pub const CALLS_AT_ONCE_MAX: u32 = 1_024;

/// Agent that accepts, stores and delivers messages between agents. Clones share one mailroom.
#[derive(derive_more::Debug, Clone)]
#[debug("Mailroom {{ members: {}, .. }}", shared.members().len())]
pub struct Mailroom {
    shared: Arc<MailroomState>,
}

/// State shared by all handlers.
struct MailroomState {
    mail: Arc<dyn MailStore>,
    kv: Arc<dyn KvStore>,
    options: Mutex<Arc<MailroomOptions>>,
    members: Mutex<Members>,
    /// Lock held while a caller becomes a member, or a stored member record is changed.
    join_lock: tokio::sync::Mutex<()>,
    receipts: ReceiptWriter,
    /// Context of the mailroom's agent, once it runs.
    context: Mutex<Option<Context>>,
    peer_events: PeerEventCursor,
}

impl MailroomState {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock()
    }

    fn options(&self) -> Arc<MailroomOptions> {
        self.options.lock().clone()
    }

    /// Notifies agents that follow the mailroom of a change of its tools or resources.
    fn notify_changed(&self, change: CapabilityChange) {
        if let Some(stage) = &*self.context.lock() {
            stage.notify_changed(change);
        }
    }
}

macro_rules! answers {
    ($($message:ty => $reply:ty: $with:ident;)*) => {
        impl Agent for Mailroom {
            fn handlers(on: &mut Handlers<Self>) {
                $(on.concurrent::<$message>(CALLS_AT_ONCE_MAX);)*
            }

            fn profile() -> AgentProfile {
                // The agent's state is only a handle.
                AgentProfile::default().cancel_safe().mailbox_capacity(4 * CALLS_AT_ONCE_MAX)
            }

            fn started(&mut self, cx: &mut Context) {
                *self.shared.context.lock() = Some(cx.clone());
                let is_shared = self.shared.mail.is_shared();
                cx.tell_every(if is_shared { SHARED_RECOUNT_INTERVAL } else { RECOUNT_INTERVAL }, || RecountUnread);
                if is_shared {
                    cx.tell_every(PEER_POLL_INTERVAL, || PollPeers);
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
                cx: Context,
            ) -> impl Future<Output = Result<$reply, Failure>> + Send + 'static {
                let shared = self.shared.clone();
                async move { shared.$with(message, &cx).await }
            }
        })*
    };
}

answers! {
    BroadcastMessage => SendReceipt: broadcast;
    SendMessage => SendReceipt: send;
    ReplyMessage => SendReceipt: reply;
    CheckInbox => Inbox: check_inbox;
    ReadMessage => MailView: read_message;
    MessageHistory => MessageHistoryPage: history;
    GetAgentStatus => AgentStatus: agent_status;
    ListGroups => GroupList: groups;
    SaveMemory => SavedMemory: save_memory;
    MailPreferences => Preferences: preferences;
    FetchMail => FetchedMail: fetch_mail;
    MarkRead => MailAck: mark_read;
    ReadEvents => MailEventPage: read_events;
    AgentLogs => AgentLogPage: logs;
    EndAgent => MailAck: end_agent;
    JoinMailroom => AgentView: join_mailroom;
    LeaveMailroom => MailAck: leave_mailroom;
    DescribeAgent => DescribeAgentResult: describe;
    ListResources => RawObject: list_resources;
    ListResourceTemplates => RawObject: list_templates;
    ReadResource => ReadResourceResult: read_resource;
    SubscribeResource => RawObject: subscribe;
    ReconfigureMailroom => (): reconfigure;
    PollPeers => (): poll_peers;
    RecountUnread => (): recount_unread;
}

/// Former name of [`MemberDeclaration`].
#[deprecated(note = "renamed to `MemberDeclaration`")]
pub type Declared = MemberDeclaration;
