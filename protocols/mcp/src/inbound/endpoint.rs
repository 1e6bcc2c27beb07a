use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callboard_message::surface::{Subscribe, Unsubscribe};
use callboard_message::{Change, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::{Agent, AgentRef, CallMeta, Changed, Cx, Handlers, SyncHandler};
use parking_lot::{Mutex, RwLock};

use super::agent_adapter::AgentAdapter;
use super::options::InboundOptions;

/// One agent as an MCP server: what all transports and both eras of it share.
pub(crate) struct Endpoint {
    /// The agent, as MCP sees it. Another may take its place.
    adapter: RwLock<Arc<AgentAdapter>>,
    /// How it is served.
    pub options: Arc<InboundOptions>,
    /// Who is told what changes.
    pub changes: Changes,
}

impl Endpoint {
    pub fn new(agent: AgentRef, options: InboundOptions) -> Self {
        let options = Arc::new(options);
        Self {
            changes: Changes::of(agent.clone()),
            adapter: RwLock::new(Arc::new(AgentAdapter::new(agent, options.clone()))),
            options,
        }
    }

    /// Who is served now. What a request began with it goes on with.
    pub fn adapter(&self) -> Arc<AgentAdapter> {
        self.adapter.read().clone()
    }

    /// Serves `agent` from now on, and tells whoever listens that its lists are others.
    pub fn replace(&self, agent: AgentRef) {
        let adapter = Arc::new(AgentAdapter::new(agent.clone(), self.options.clone()));
        *self.adapter.write() = adapter;
        self.changes.replace(agent);
        [Change::Tools, Change::Prompts, Change::Resources]
            .iter()
            .for_each(|change| tell(&self.changes.0, change));
    }

    /// Ends when the agent has ended and no other took its place.
    pub async fn agent_ended(&self) {
        loop {
            let adapter = self.adapter();
            adapter.agent.ended().await;
            if Arc::ptr_eq(&adapter, &self.adapter()) {
                return;
            }
        }
    }
}

/// The number of whoever began to listen last, at any endpoint: of several that serve one agent, in turn or at once, sessions
/// own tasks by it.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Told of a change. Never waits.
type Callback = dyn Fn(&Change) + Send + Sync;

/// The changes of one agent, and who is told.
pub(crate) struct Changes(Arc<Mutex<State>>);

struct State {
    agent: AgentRef,
    listeners: Vec<(u64, Arc<Callback>)>,
    /// Follows the agent while anybody listens.
    follower: Option<AgentRef>,
    /// Who watches each resource.
    watched: HashMap<String, Watched>,
}

/// Those who watch a resource.
#[derive(Default)]
struct Watched {
    /// How many, those included whom the agent is still asked about.
    count: usize,
    /// Whether the agent agreed to one of them, so that it must hear when the last is gone.
    agreed: bool,
}

impl Changes {
    fn of(agent: AgentRef) -> Self {
        let state = State {
            agent,
            listeners: Vec::new(),
            follower: None,
            watched: HashMap::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Another agent takes the place of the one that is followed and watched.
    fn replace(&self, agent: AgentRef) {
        let mut state = self.0.lock();
        if let Some(follower) = &state.follower {
            state.agent.unfollow(follower.id());
            if let Some(recipient) = follower.recipient::<Changed>() {
                agent.follow(recipient);
            }
        }
        for (uri, _) in state.watched.iter().filter(|(_, watched)| watched.agreed) {
            // One that doesn't hear it tells of all changes, or of none.
            let _ = agent.try_tell(Subscribe(RawObject::of("uri", uri)));
        }
        state.agent = agent;
    }

    /// Tells `callback` every change, until what this returns is dropped.
    pub fn listen(&self, callback: impl Fn(&Change) + Send + Sync + 'static) -> Listening {
        let mut state = self.0.lock();
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        state.listeners.push((number, Arc::new(callback)));
        if state.follower.is_none() {
            let follower = state.agent.system().spawn(Follower(self.0.clone()));
            if let Some(recipient) = follower.recipient::<Changed>() {
                state.agent.follow(recipient);
            }
            state.follower = Some(follower);
        }
        Listening {
            changes: self.0.clone(),
            number,
        }
    }

    /// Counts a watcher of a resource, until what this returns is dropped. An agent that must know who is watched is
    /// asked for each, as each is a principal of its own and not all may watch; it is told after the last.
    ///
    /// # Errors
    /// Where the agent refuses this one.
    pub async fn watch(
        &self,
        adapter: &AgentAdapter,
        uri: &str,
        call: CallMeta,
    ) -> Result<Watching, RpcError> {
        // Counted before it is asked: another that leaves meanwhile isn't the last.
        self.0
            .lock()
            .watched
            .entry(uri.to_owned())
            .or_default()
            .count += 1;
        let watching = Watching {
            changes: self.0.clone(),
            uri: uri.to_owned(),
        };
        adapter.subscribe(uri, call).await?;
        if let Some(watched) = self.0.lock().watched.get_mut(uri) {
            watched.agreed = true;
        }
        Ok(watching)
    }
}

/// Tells all who listen.
fn tell(changes: &Mutex<State>, change: &Change) {
    let listeners: Vec<_> = changes
        .lock()
        .listeners
        .iter()
        .map(|(_, callback)| callback.clone())
        .collect();
    listeners.iter().for_each(|callback| callback(change));
}

/// Somebody who listens. Dropped, it ends.
#[must_use = "dropped, it ends"]
pub(crate) struct Listening {
    changes: Arc<Mutex<State>>,
    /// Its place among those who listen in this process: no other has or had it.
    pub number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut state = self.changes.lock();
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
    changes: Arc<Mutex<State>>,
    uri: String,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut state = self.changes.lock();
        let Some(watched) = state.watched.get_mut(&self.uri) else {
            return;
        };
        watched.count -= 1;
        if watched.count > 0 {
            return;
        }
        let agreed = watched.agreed;
        state.watched.remove(&self.uri);
        if agreed {
            // One that doesn't hear it, or needn't, goes on telling of changes that nobody is told.
            let _ = state
                .agent
                .try_tell(Unsubscribe(RawObject::of("uri", &self.uri)));
        }
    }
}

/// The notification of a change, and its params; `None` where MCP has none.
pub(crate) fn change_notification(change: &Change) -> Option<(&'static str, RawObject)> {
    Some(match change {
        Change::Tools => ("notifications/tools/list_changed", RawObject::new()),
        Change::Prompts => ("notifications/prompts/list_changed", RawObject::new()),
        Change::Resources => ("notifications/resources/list_changed", RawObject::new()),
        Change::Resource(uri) => ("notifications/resources/updated", RawObject::of("uri", uri)),
        _ => return None,
    })
}

/// Hands an agent's changes on.
struct Follower(Arc<Mutex<State>>);

impl Agent for Follower {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Changed>();
    }
}

impl SyncHandler<Changed> for Follower {
    fn handle(&mut self, message: Changed, _: &mut Cx) {
        tell(&self.0, &message.change);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use callboard_message::{Failure, Principal};
    use callboard_runtime::System;
    use tokio::sync::mpsc::{Receiver, Sender, channel};
    use tokio::time::timeout;

    use super::*;

    /// What a test leaves unread.
    const HEARD_MAX: usize = 16;

    /// Lets one principal watch, and tells what it is asked and told.
    struct Private(Sender<String>);

    impl Agent for Private {
        fn handlers(on: &mut Handlers<Self>) {
            on.sync::<Subscribe>().sync::<Unsubscribe>();
        }
    }

    impl SyncHandler<Subscribe> for Private {
        fn handle(&mut self, _: Subscribe, cx: &mut Cx) -> Result<RawObject, Failure> {
            let who = cx.principal().id.clone();
            let may = who == "ada";
            let _ = self.0.try_send(who);
            if may {
                Ok(RawObject::new())
            } else {
                Err(Failure::not_found("none"))
            }
        }
    }

    impl SyncHandler<Unsubscribe> for Private {
        fn handle(&mut self, _: Unsubscribe, _: &mut Cx) -> Result<RawObject, Failure> {
            let _ = self.0.try_send("leave".into());
            Ok(RawObject::new())
        }
    }

    async fn next(heard: &mut Receiver<String>) -> String {
        timeout(Duration::from_secs(10), heard.recv())
            .await
            .unwrap()
            .unwrap()
    }

    /// Goal: nobody watches because somebody else may. Method: an agent that lets one principal watch; another comes before
    /// it, while it watches and after it; the agent hears of each, and of the end once, after the last.
    #[tokio::test]
    async fn each_watcher_is_asked_for() {
        let system = System::start(1).unwrap();
        let (sender, mut heard) = channel(HEARD_MAX);
        let agent = system.spawn(Private(sender));
        let (surface, changes) = (
            AgentAdapter::new(agent.clone(), Arc::default()),
            Changes::of(agent),
        );
        let watch = |who: &str| {
            changes.watch(
                &surface,
                "a:b",
                CallMeta::new(Arc::new(Principal::agent(who))),
            )
        };
        assert!(watch("bob").await.is_err());
        let first = watch("ada").await.unwrap();
        assert!(watch("bob").await.is_err());
        let second = watch("ada").await.unwrap();
        drop(first);
        assert!(watch("bob").await.is_err());
        drop(second);
        let mut all = Vec::new();
        while all.last().is_none_or(|last| last != "leave") {
            all.push(next(&mut heard).await);
        }
        assert_eq!(all, ["bob", "ada", "bob", "ada", "bob", "leave"]);
        system.shutdown(Duration::from_secs(10)).await;
    }
}
