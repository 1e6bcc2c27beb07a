//! The mailroom: an agent that stores and delivers messages between agents.
//!
//! A message is accepted once it is stored, delivered once its recipient has it, and read once the
//! recipient confirms it; each state is recorded once. Callers are identified by their credentials.
//! Mail is delivered by [`DeliverMessage`](callboard_message::mail::DeliverMessage), or waits until
//! its recipient fetches it.

mod delivery;
#[cfg(test)]
mod frozen_tests;
mod inbox;
mod mailbox;
mod members;
mod options;
mod peer_nodes;
mod post;
mod receipts;
mod requests;
mod setup;
#[cfg(test)]
#[path = "../../../tests/kit/shape.rs"]
mod shape;
mod text;

use std::sync::Arc;

use callboard_message::Message;
use callboard_runtime::{Agent, AgentProfile, Context, Handlers, System};
use parking_lot::Mutex;
use serde_json::{Value, json};

use delivery::DeliveryService;
use inbox::InboxService;
use members::directory::MemberDirectory;
use peer_nodes::{PeerSync, PollPeers, RecountUnread};
use post::PostService;
use receipts::ReceiptWriter;
use requests::members::MemberService;
use requests::memory::MemoryService;
use requests::resources::ResourceService;
use setup::SetupService;

pub use delivery::conversation::{ANSWER_TIMEOUT, CONVERSATIONS_MAX, DELIVERY_TIMEOUT};
pub use inbox::{LISTED_TEXT_CHARS_MAX, RECEIPTS_MAX};
pub use mailbox::Mailbox;
pub use members::queue::QUEUE_MESSAGES_MAX;
pub use members::{MEMBER_SESSIONS_MAX, PRESENCE_TIMEOUT};
pub use options::{
    BROADCASTS_PER_MINUTE_DEFAULT, MESSAGES_PER_SECOND_DEFAULT, MailroomError, MailroomOptions,
    MemberDeclaration,
};
pub use peer_nodes::{PEER_POLL_INTERVAL, RECOUNT_INTERVAL, SHARED_RECOUNT_INTERVAL};
pub use post::notify::URGENT_ANSWER_TIMEOUT;
pub use setup::ReconfigureMailroom;
pub use text::neutralize;

/// Maximum number of concurrent requests of each message type that a mailroom handles.
pub const CALLS_AT_ONCE_MAX: u32 = 1_024;

/// Agent that accepts, stores and delivers messages between agents. Clones share one mailroom.
#[derive(derive_more::Debug, Clone)]
#[debug("Mailroom {{ members: {}, .. }}", services.directory.members().len())]
pub struct Mailroom {
    services: Arc<Services>,
}

/// Services of a mailroom. Each handles some of its requests.
struct Services {
    directory: Arc<MemberDirectory>,
    receipts: Arc<ReceiptWriter>,
    inbox: Arc<InboxService>,
    post: Arc<PostService>,
    members: Arc<MemberService>,
    memory: Arc<MemoryService>,
    resources: Arc<ResourceService>,
    peers: Arc<PeerSync>,
    setup: Arc<SetupService>,
}

impl Services {
    fn new(system: &System, options: &MailroomOptions) -> Self {
        let store = system.store();
        let mail = || store.mail.clone();
        let receipts = Arc::new(ReceiptWriter::open(system, &store.mail));
        let directory = Arc::new(MemberDirectory::new(store, receipts.clone(), options));
        let counts = Arc::downgrade(&directory);
        receipts.set_read_observer(move |reader| {
            if let Some(directory) = counts.upgrade() {
                directory.add_unread(reader, -1);
            }
        });
        let inbox = Arc::new(InboxService {
            mail: mail(),
            directory: directory.clone(),
            receipts: receipts.clone(),
        });
        let post = Arc::new(PostService {
            mail: mail(),
            directory: directory.clone(),
            inbox: inbox.clone(),
            receipts: receipts.clone(),
            events: system.node_events().clone(),
            own_messages: Mutex::default(),
        });
        let deliveries = Arc::new(DeliveryService {
            mail: mail(),
            directory: directory.clone(),
            post: post.clone(),
            receipts: receipts.clone(),
        });
        let members = Arc::new(MemberService {
            directory: directory.clone(),
            deliveries: deliveries.clone(),
        });
        let memory = Arc::new(MemoryService {
            kv: store.kv.clone(),
            directory: directory.clone(),
        });
        let resources = Arc::new(ResourceService {
            directory: directory.clone(),
            inbox: inbox.clone(),
            members: members.clone(),
            memory: memory.clone(),
        });
        let peers = Arc::new(PeerSync {
            mail: mail(),
            directory: directory.clone(),
            post: post.clone(),
            deliveries: deliveries.clone(),
            last_event: tokio::sync::Mutex::default(),
        });
        let setup = Arc::new(SetupService {
            mail: mail(),
            directory: directory.clone(),
            deliveries,
            peers: peers.clone(),
        });
        Self {
            directory,
            receipts,
            inbox,
            post,
            members,
            memory,
            resources,
            peers,
            setup,
        }
    }
}

/// Registers the handler of requests of the type `M`: `service` selects the service, and `handle`
/// is its method. At most [`CALLS_AT_ONCE_MAX`] requests of the type are handled at once.
fn serve<S, M, Fut>(
    on: &mut Handlers<Mailroom>,
    service: fn(&Services) -> &Arc<S>,
    handle: impl Fn(Arc<S>, M, Context) -> Fut + Send + Sync + 'static,
) where
    S: Send + Sync + 'static,
    M: Message,
    Fut: Future<Output = M::Reply> + Send + 'static,
{
    on.concurrent_with(
        CALLS_AT_ONCE_MAX,
        move |room: &mut Mailroom, message, cx| {
            handle(service(&room.services).clone(), message, cx)
        },
    );
}

impl Agent for Mailroom {
    fn handlers(on: &mut Handlers<Self>) {
        serve(on, |of| &of.post, PostService::broadcast);
        serve(on, |of| &of.post, PostService::send);
        serve(on, |of| &of.post, PostService::reply);
        serve(on, |of| &of.inbox, InboxService::check_inbox);
        serve(on, |of| &of.inbox, InboxService::read_message);
        serve(on, |of| &of.inbox, InboxService::history);
        serve(on, |of| &of.members, MemberService::agent_status);
        serve(on, |of| &of.members, MemberService::groups);
        serve(on, |of| &of.memory, MemoryService::save_memory);
        serve(on, |of| &of.memory, MemoryService::read_memory);
        serve(on, |of| &of.members, MemberService::preferences);
        serve(on, |of| &of.inbox, InboxService::fetch_mail);
        serve(on, |of| &of.inbox, InboxService::mark_read);
        serve(on, |of| &of.inbox, InboxService::read_events);
        serve(on, |of| &of.inbox, InboxService::logs);
        serve(on, |of| &of.members, MemberService::end_agent);
        serve(on, |of| &of.members, MemberService::join_mailroom);
        serve(on, |of| &of.members, MemberService::leave_mailroom);
        serve(on, |of| &of.resources, ResourceService::describe);
        serve(on, |of| &of.resources, ResourceService::list_resources);
        serve(on, |of| &of.resources, ResourceService::list_templates);
        serve(on, |of| &of.resources, ResourceService::read_resource);
        serve(on, |of| &of.resources, ResourceService::subscribe);
        serve(on, |of| &of.setup, SetupService::reconfigure);
        serve(on, |of| &of.peers, PeerSync::poll_peers);
        serve(on, |of| &of.peers, PeerSync::recount_unread);
    }

    fn profile() -> AgentProfile {
        // The agent's state is only a handle.
        AgentProfile::default()
            .cancel_safe()
            .mailbox_capacity(4 * CALLS_AT_ONCE_MAX)
    }

    fn started(&mut self, cx: &mut Context) {
        self.services.directory.set_context(cx);
        let is_shared = self.services.post.mail.is_shared();
        let recount = if is_shared {
            SHARED_RECOUNT_INTERVAL
        } else {
            RECOUNT_INTERVAL
        };
        cx.tell_every(recount, || RecountUnread);
        if is_shared {
            cx.tell_every(PEER_POLL_INTERVAL, || PollPeers);
        }
    }

    fn observe(&self) -> Value {
        let members = self.services.directory.members();
        let (ended, unread) = members.agents().fold((0, 0), |(ended, unread), member| {
            (ended + u64::from(member.is_ended), unread + member.unread)
        });
        json!({ "members": members.len(), "terminated": ended, "unread": unread })
    }
}

/// Former name of [`MemberDeclaration`].
#[deprecated(note = "renamed to `MemberDeclaration`")]
pub type Declared = MemberDeclaration;
