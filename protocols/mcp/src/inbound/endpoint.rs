use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callboard_message::capabilities::{SubscribeResource, UnsubscribeResource};
use callboard_message::{CapabilityChange, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::{
    Agent, AgentChanged, AgentRef, CallContext, Context, Handlers, SyncHandler,
};
use parking_lot::{Mutex, RwLock};

use super::agent_adapter::AgentAdapter;
use super::options::InboundOptions;

/// One agent served as an MCP server: the state shared by all transports and both eras.
pub(crate) struct AgentEndpoint {
    /// Adapter of the served agent; replaced when another agent is served.
    adapter: RwLock<Arc<AgentAdapter>>,
    pub options: Arc<InboundOptions>,
    pub changes: ChangeBroadcaster,
}

impl AgentEndpoint {
    pub fn new(agent: AgentRef, options: InboundOptions) -> Self {
        let options = Arc::new(options);
        Self {
            changes: ChangeBroadcaster::new(agent.clone()),
            adapter: RwLock::new(Arc::new(AgentAdapter::new(agent, options.clone()))),
            options,
        }
    }

    /// Returns the adapter of the agent that is served now. A request should keep it until its end,
    /// because another agent may be served later.
    pub fn adapter(&self) -> Arc<AgentAdapter> {
        self.adapter.read().clone()
    }

    /// Serves `agent` from now on, and notifies subscribers that its lists have changed.
    pub fn replace(&self, agent: AgentRef) {
        let adapter = Arc::new(AgentAdapter::new(agent.clone(), self.options.clone()));
        *self.adapter.write() = adapter;
        self.changes.replace(agent);
        [
            CapabilityChange::Tools,
            CapabilityChange::Prompts,
            CapabilityChange::Resources,
        ]
        .iter()
        .for_each(|change| notify_listeners(&self.changes.0, change));
    }

    /// Waits until the served agent has ended without being replaced.
    pub async fn agent_ended(&self) {
        loop {
            let adapter = self.adapter();
            adapter.agent.wait_for_exit().await;
            if Arc::ptr_eq(&adapter, &self.adapter()) {
                return;
            }
        }
    }
}

/// Number of the latest change subscription in this process. It is unique across endpoints, because
/// a session's subscription number identifies the session as owner of tasks.
static LAST_SUBSCRIPTION: AtomicU64 = AtomicU64::new(0);

/// Callback for a change. It must not block.
type ChangeCallback = dyn Fn(&CapabilityChange) + Send + Sync;

/// Distributor of one agent's changes (of its tools, prompts and resources) to subscribers.
pub(crate) struct ChangeBroadcaster(Arc<Mutex<BroadcastState>>);

struct BroadcastState {
    agent: AgentRef,
    listeners: Vec<(u64, Arc<ChangeCallback>)>,
    /// Actor that receives the agent's changes; `None` while there are no subscribers.
    follower: Option<AgentRef>,
    /// Subscriptions by resource URI.
    watched: HashMap<String, ResourceWatchers>,
}

/// Subscriptions to one resource.
#[derive(Default)]
struct ResourceWatchers {
    /// Number of subscriptions, including those that the agent hasn't confirmed yet.
    count: usize,
    /// True once the agent has accepted a subscription. It is then notified when the last
    /// subscription ends.
    is_agent_subscribed: bool,
}

impl ChangeBroadcaster {
    fn new(agent: AgentRef) -> Self {
        let state = BroadcastState {
            agent,
            listeners: Vec::new(),
            follower: None,
            watched: HashMap::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Moves subscriptions from the current agent to `agent`.
    fn replace(&self, agent: AgentRef) {
        let mut state = self.0.lock();
        if let Some(follower) = &state.follower {
            state.agent.unfollow(follower.id());
            if let Some(recipient) = follower.recipient::<AgentChanged>() {
                agent.follow(recipient);
            }
        }
        for (uri, _) in state
            .watched
            .iter()
            .filter(|(_, watched)| watched.is_agent_subscribed)
        {
            // An agent that doesn't handle the message reports all changes, or none.
            let _ = agent.try_tell(SubscribeResource(RawObject::single("uri", uri)));
        }
        state.agent = agent;
    }

    /// Calls `callback` for every change until the returned subscription is dropped.
    pub fn subscribe(
        &self,
        callback: impl Fn(&CapabilityChange) + Send + Sync + 'static,
    ) -> ChangeSubscription {
        let mut state = self.0.lock();
        let number = LAST_SUBSCRIPTION.fetch_add(1, Ordering::Relaxed) + 1;
        state.listeners.push((number, Arc::new(callback)));
        if state.follower.is_none() {
            let follower = state.agent.system().spawn(ChangeForwarder(self.0.clone()));
            if let Some(recipient) = follower.recipient::<AgentChanged>() {
                state.agent.follow(recipient);
            }
            state.follower = Some(follower);
        }
        ChangeSubscription {
            changes: self.0.clone(),
            number,
        }
    }

    /// Subscribes a principal to a resource until the returned subscription is dropped. An agent
    /// that handles subscriptions is asked about each principal, because some may lack access. It
    /// is notified after the last subscription has ended.
    ///
    /// # Errors
    /// The agent's refusal of this principal.
    pub async fn subscribe_resource(
        &self,
        adapter: &AgentAdapter,
        uri: &str,
        call: CallContext,
    ) -> Result<ResourceSubscription, RpcError> {
        // Counted before the agent is asked, so that another one that ends meanwhile isn't the
        // last.
        self.0
            .lock()
            .watched
            .entry(uri.to_owned())
            .or_default()
            .count += 1;
        let watching = ResourceSubscription {
            changes: self.0.clone(),
            uri: uri.to_owned(),
        };
        adapter.subscribe(uri, call).await?;
        if let Some(watched) = self.0.lock().watched.get_mut(uri) {
            watched.is_agent_subscribed = true;
        }
        Ok(watching)
    }
}

/// Calls the callbacks of all subscribers.
fn notify_listeners(changes: &Mutex<BroadcastState>, change: &CapabilityChange) {
    let listeners: Vec<_> = changes
        .lock()
        .listeners
        .iter()
        .map(|(_, callback)| callback.clone())
        .collect();
    listeners.iter().for_each(|callback| callback(change));
}

/// Subscription to all changes of an agent; ends when dropped.
#[must_use = "dropped, it ends"]
pub(crate) struct ChangeSubscription {
    changes: Arc<Mutex<BroadcastState>>,
    /// Number of the subscription, unique in this process.
    pub number: u64,
}

impl Drop for ChangeSubscription {
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

/// Subscription to one resource; ends when dropped.
#[must_use = "dropped, it ends"]
pub(crate) struct ResourceSubscription {
    changes: Arc<Mutex<BroadcastState>>,
    uri: String,
}

impl Drop for ResourceSubscription {
    fn drop(&mut self) {
        let mut state = self.changes.lock();
        let Some(watched) = state.watched.get_mut(&self.uri) else {
            return;
        };
        watched.count -= 1;
        if watched.count > 0 {
            return;
        }
        let agreed = watched.is_agent_subscribed;
        state.watched.remove(&self.uri);
        if agreed {
            // If it isn't delivered, the agent reports changes without subscribers, which does no
            // harm.
            let _ = state
                .agent
                .try_tell(UnsubscribeResource(RawObject::single("uri", &self.uri)));
        }
    }
}

/// Returns the MCP notification of a change: method and params. `None` if MCP has no notification
/// for it.
pub(crate) fn change_notification(change: &CapabilityChange) -> Option<(&'static str, RawObject)> {
    Some(match change {
        CapabilityChange::Tools => ("notifications/tools/list_changed", RawObject::new()),
        CapabilityChange::Prompts => ("notifications/prompts/list_changed", RawObject::new()),
        CapabilityChange::Resources => ("notifications/resources/list_changed", RawObject::new()),
        CapabilityChange::Resource(uri) => (
            "notifications/resources/updated",
            RawObject::single("uri", uri),
        ),
        _ => return None,
    })
}

/// Actor that forwards an agent's changes to the subscribers.
struct ChangeForwarder(Arc<Mutex<BroadcastState>>);

impl Agent for ChangeForwarder {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<AgentChanged>();
    }
}

impl SyncHandler<AgentChanged> for ChangeForwarder {
    fn handle(&mut self, message: AgentChanged, _: &mut Context) {
        notify_listeners(&self.0, &message.change);
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

    /// Messages that a test leaves unread.
    const HEARD_MAX: usize = 16;

    /// Agent that allows one principal to subscribe, and reports its messages.
    struct Private(Sender<String>);

    impl Agent for Private {
        fn handlers(on: &mut Handlers<Self>) {
            on.sync::<SubscribeResource>().sync::<UnsubscribeResource>();
        }
    }

    impl SyncHandler<SubscribeResource> for Private {
        fn handle(&mut self, _: SubscribeResource, cx: &mut Context) -> Result<RawObject, Failure> {
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

    impl SyncHandler<UnsubscribeResource> for Private {
        fn handle(
            &mut self,
            _: UnsubscribeResource,
            _: &mut Context,
        ) -> Result<RawObject, Failure> {
            let _ = self.0.try_send("leave".into());
            Ok(RawObject::new())
        }
    }

    async fn next(messages: &mut Receiver<String>) -> String {
        timeout(Duration::from_secs(10), messages.recv())
            .await
            .unwrap()
            .unwrap()
    }

    /// Goal: a subscription depends on the principal's own permission. Method: an agent that allows
    /// one principal; another subscribes before, during and after; the agent is asked each time,
    /// and notified once, after the last.
    #[tokio::test]
    async fn each_watcher_is_asked_for() {
        let system = System::start(1).unwrap();
        let (sender, mut messages) = channel(HEARD_MAX);
        let agent = system.spawn(Private(sender));
        let (surface, changes) = (
            AgentAdapter::new(agent.clone(), Arc::default()),
            ChangeBroadcaster::new(agent),
        );
        let watch = |who: &str| {
            changes.subscribe_resource(
                &surface,
                "a:b",
                CallContext::new(Arc::new(Principal::agent(who))),
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
            all.push(next(&mut messages).await);
        }
        assert_eq!(all, ["bob", "ada", "bob", "ada", "bob", "leave"]);
        system.shutdown(Duration::from_secs(10)).await;
    }
}
