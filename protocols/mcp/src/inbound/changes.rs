//! What an agent shows changes: whoever listens on its endpoint is told, over either era.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callboard_message::surface::{Subscribe, Unsubscribe};
use callboard_message::{Change, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::{Agent, AgentRef, CallMeta, Changed, Cx, Handlers, SyncHandler};

use super::surface::Surface;

/// Told of a change. Never waits.
type Callback = dyn Fn(&Change) + Send + Sync;

/// The changes of one agent, and who is told.
pub(crate) struct Changes(Arc<Hub>);

struct Hub {
    state: Mutex<State>,
}

struct State {
    agent: AgentRef,
    listeners: Vec<(u64, Arc<Callback>)>,
    next: u64,
    /// Follows the agent while anybody listens.
    follower: Option<AgentRef>,
    /// How many watch each resource.
    watched: HashMap<String, usize>,
}

impl Changes {
    pub(crate) fn of(agent: AgentRef) -> Self {
        let state = State { agent, listeners: Vec::new(), next: 0, follower: None, watched: HashMap::new() };
        Self(Arc::new(Hub { state: Mutex::new(state) }))
    }

    /// Another agent takes the place of the one that is followed and watched.
    pub(crate) fn replace(&self, agent: AgentRef) {
        let mut state = self.0.state();
        if let Some(follower) = &state.follower {
            state.agent.unfollow(follower.id());
            if let Some(recipient) = follower.recipient::<Changed>() {
                agent.follow(recipient);
            }
        }
        for uri in state.watched.keys() {
            // One that doesn't hear it tells of all changes, or of none.
            let _ = agent.try_tell(Subscribe(RawObject::new().with("uri", uri)));
        }
        state.agent = agent;
    }

    /// Tells all who listen.
    pub(crate) fn tell(&self, change: &Change) {
        self.0.tell(change);
    }

    /// Tells `callback` every change, until what this returns is dropped.
    pub(crate) fn listen(&self, callback: impl Fn(&Change) + Send + Sync + 'static) -> Listening {
        let mut state = self.0.state();
        state.next += 1;
        let number = state.next;
        state.listeners.push((number, Arc::new(callback)));
        if state.follower.is_none() {
            let follower = state.agent.system().spawn(Follower(self.0.clone()));
            if let Some(recipient) = follower.recipient::<Changed>() {
                state.agent.follow(recipient);
            }
            state.follower = Some(follower);
        }
        Listening { hub: self.0.clone(), number }
    }

    /// Counts a watcher of a resource, until what this returns is dropped. An agent that must know who is watched is
    /// told of the first and after the last.
    ///
    /// # Errors
    /// Where the agent refuses the first.
    pub(crate) async fn watch(&self, surface: &Surface, uri: &str, call: CallMeta) -> Result<Watching, RpcError> {
        if !self.0.state().watched.contains_key(uri) {
            // Of two that come first at once both ask: a second subscription changes nothing.
            surface.subscribe(uri, call).await?;
        }
        *self.0.state().watched.entry(uri.to_owned()).or_default() += 1;
        Ok(Watching { hub: self.0.clone(), uri: uri.to_owned() })
    }
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: &Change) {
        let listeners: Vec<_> = self.state().listeners.iter().map(|(_, callback)| callback.clone()).collect();
        listeners.iter().for_each(|callback| callback(change));
    }
}

/// Somebody who listens. Dropped, it ends.
#[must_use = "dropped, it ends"]
pub(crate) struct Listening {
    hub: Arc<Hub>,
    number: u64,
}

impl Listening {
    /// Its place among those who listen at the endpoint: no other has or had it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.listeners.retain(|(number, _)| *number != self.number);
        if state.listeners.is_empty()
            && let Some(follower) = state.follower.take()
        {
            state.agent.unfollow(follower.id());
            follower.stop();
        }
    }
}

/// Somebody who watches a resource. Dropped, it ends.
#[must_use = "dropped, it ends"]
pub(crate) struct Watching {
    hub: Arc<Hub>,
    uri: String,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        let Some(count) = state.watched.get_mut(&self.uri) else { return };
        *count -= 1;
        if *count == 0 {
            state.watched.remove(&self.uri);
            // One that doesn't hear it, or needn't, goes on telling of changes that nobody is told.
            let _ = state.agent.try_tell(Unsubscribe(RawObject::new().with("uri", &self.uri)));
        }
    }
}

/// Hands an agent's changes on.
struct Follower(Arc<Hub>);

impl Agent for Follower {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Changed>();
    }
}

impl SyncHandler<Changed> for Follower {
    fn handle(&mut self, message: Changed, _: &mut Cx) {
        self.0.tell(&message.change);
    }
}
