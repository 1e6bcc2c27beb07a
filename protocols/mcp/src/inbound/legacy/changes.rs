//! What the agent shows has changed: its sessions are told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_message::surface::Change;
use callboard_rpc::encode_notification;
use callboard_runtime::{Agent, AgentRef, Changed, Cx, Handlers, SyncHandler};

use super::session::Session;
use crate::inbound::options::InboundOptions;

/// The sessions of an endpoint, as far as they hear of changes.
pub(crate) struct LegacyState {
    sessions: Arc<Sessions>,
    /// Follows the agent, from the first session on.
    listener: OnceLock<AgentRef>,
}

#[derive(Default)]
struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    open: HashMap<u64, Weak<Session>>,
}

impl LegacyState {
    pub(crate) fn new(_options: &InboundOptions) -> Self {
        Self { sessions: Arc::default(), listener: OnceLock::new() }
    }

    /// Takes a session in. `agent` is followed from now on.
    pub(super) fn enter(&self, agent: &AgentRef, session: &Arc<Session>) -> u64 {
        self.listener.get_or_init(|| {
            let listener = agent.system().spawn(Listener { sessions: self.sessions.clone() });
            if let Some(recipient) = listener.recipient::<Changed>() {
                agent.follow(recipient);
            }
            listener
        });
        let mut table = self.sessions.table();
        table.last += 1;
        let number = table.last;
        table.open.insert(number, Arc::downgrade(session));
        number
    }

    pub(super) fn leave(&self, number: u64) {
        self.sessions.table().open.remove(&number);
    }
}

impl Drop for LegacyState {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get() {
            listener.stop();
        }
    }
}

impl Sessions {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears what the agent publishes.
struct Listener {
    sessions: Arc<Sessions>,
}

impl Agent for Listener {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Changed>();
    }
}

impl SyncHandler<Changed> for Listener {
    fn handle(&mut self, changed: Changed, _: &mut Cx) {
        let Some(notification) = notification(&changed.change) else { return };
        // Sessions are let go of outside the lock: the last handle to one takes it out of the table.
        let sessions: Vec<_> = self.sessions.table().open.values().filter_map(Weak::upgrade).collect();
        for session in sessions {
            session.changed(&changed.change, notification.clone());
        }
    }
}

/// What clients are told of a change.
fn notification(change: &Change) -> Option<Bytes> {
    let (method, params) = match change {
        Change::Tools => ("notifications/tools/list_changed", None),
        Change::Prompts => ("notifications/prompts/list_changed", None),
        Change::Resources => ("notifications/resources/list_changed", None),
        Change::Resource(uri) => ("notifications/resources/updated", Some(RawObject::new().with("uri", uri).to_raw())),
        _ => return None,
    };
    Some(encode_notification(method, params.as_deref()).into())
}
