//! Connection pool of one bridge.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{CallerCapabilities, PrincipalKind, RawObject, SessionId};
use callboard_runtime::{Caller, PeerSession};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::outbound::{ConnectionParams, McpClientOptions, Upstream};

/// Owner of a connection, and the capabilities offered on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionKey {
    /// Connection for the calls of one client session.
    Session(SessionId, OfferedCapabilities),
    /// Connection for those calls of one principal that belong to no client session.
    Principal(PrincipalKind, String, OfferedCapabilities),
}

impl ConnectionKey {
    fn capabilities(&self) -> OfferedCapabilities {
        match self {
            Self::Session(_, offer) | Self::Principal(_, _, offer) => *offer,
        }
    }
}

/// Client session that owns a connection.
pub(crate) struct SessionOwner<'a> {
    pub session: &'a Arc<PeerSession>,
    /// Returns the caller that receives questions and notifications of the server that name none of
    /// the session's calls.
    pub caller: &'a (dyn Fn() -> Option<Arc<dyn Caller>> + Sync),
}

/// Connection of the pool. It connects on first use, and reconnects when it is used after a loss.
pub(crate) struct PooledConnection {
    pub upstream: Upstream,
    usage: Mutex<ConnectionUsage>,
    /// Task that closes the connection when the client session that owns it ends. `None` without
    /// such a session.
    _watch: Option<AbortOnDropHandle<()>>,
}

struct ConnectionUsage {
    users: usize,
    last: Instant,
}

impl PooledConnection {
    fn new(upstream: Upstream, watch: Option<AbortOnDropHandle<()>>) -> Arc<Self> {
        let usage = Mutex::new(ConnectionUsage {
            users: 0,
            last: Instant::now(),
        });
        Arc::new(Self {
            upstream,
            usage,
            _watch: watch,
        })
    }

    /// Returns the time since which the connection has been unused; `None` while it is in use.
    fn idle_since(&self) -> Option<Instant> {
        let usage = self.usage.lock();
        (usage.users == 0).then_some(usage.last)
    }
}

/// Right to use a connection of the pool, possibly together with other calls. Dropping the lease
/// returns the connection.
pub(crate) struct ConnectionLease {
    connection: Arc<PooledConnection>,
    pool: Arc<ConnectionPool>,
}

impl ConnectionLease {
    fn new(pool: &Arc<ConnectionPool>, connection: &Arc<PooledConnection>) -> Self {
        connection.usage.lock().users += 1;
        Self {
            connection: connection.clone(),
            pool: pool.clone(),
        }
    }

    pub fn upstream(&self) -> &Upstream {
        &self.connection.upstream
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        let mut usage = self.connection.usage.lock();
        usage.users = usage.users.saturating_sub(1);
        usage.last = Instant::now();
        let is_free = usage.users == 0;
        drop(usage);
        if is_free {
            self.pool.freed.notify_waiters();
        }
    }
}

/// All connections of one incarnation of a bridge.
pub(crate) struct ConnectionPool {
    connection_params: ConnectionParams,
    connections_max: usize,
    state: Mutex<PoolState>,
    /// Notified when a connection becomes idle or is closed.
    freed: Notify,
}

#[derive(Default)]
struct PoolState {
    /// Connection that receives change notifications, with the capabilities offered on it. Never
    /// evicted.
    primary: Option<(OfferedCapabilities, Arc<PooledConnection>)>,
    shared: HashMap<OfferedCapabilities, Arc<PooledConnection>>,
    owned: HashMap<ConnectionKey, Vec<Arc<PooledConnection>>>,
}

impl PoolState {
    fn len(&self) -> usize {
        self.shared.len() + self.owned.values().map(Vec::len).sum::<usize>()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<PooledConnection>> {
        self.shared.values().chain(self.owned.values().flatten())
    }

    fn remove(&mut self, is_removed: impl Fn(&Arc<PooledConnection>) -> bool) {
        self.shared.retain(|_, connection| !is_removed(connection));
        self.owned.retain(|_, connections| {
            connections.retain(|connection| !is_removed(connection));
            !connections.is_empty()
        });
    }

    /// Makes room for one more connection: if the pool is full, evicts the connection that has been
    /// idle longest. Returns false if the pool is full and all connections are in use.
    fn make_room(&mut self, connections_max: usize) -> bool {
        if self.len() < connections_max {
            return true;
        }
        let idle = self
            .all()
            .filter_map(|connection| Some((connection.idle_since()?, connection.clone())));
        let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) else {
            return false;
        };
        self.remove(|connection| Arc::ptr_eq(connection, &oldest));
        callboard_message::log::info!(connections_max, "evicted the longest idle connection");
        true
    }
}

impl ConnectionPool {
    /// Creates an empty pool. `connection_params` holds the parameters that all its connections share; at
    /// least one connection is allowed.
    pub fn new(connection_params: ConnectionParams, connections_max: usize) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self {
            connection_params,
            connections_max: connections_max.max(1),
            state,
            freed: Notify::new(),
        })
    }

    /// Leases the primary connection, which receives change notifications. Creates it with the
    /// capabilities of `offer` if there is none.
    pub fn lease_primary(
        self: &Arc<Self>,
        offer: impl FnOnce() -> OfferedCapabilities,
    ) -> ConnectionLease {
        let mut state = self.state.lock();
        let make = || {
            let offer = offer();
            (
                offer,
                PooledConnection::new(self.new_upstream(offer, true, None), None),
            )
        };
        let (_, primary) = state.primary.get_or_insert_with(make);
        ConnectionLease::new(self, primary)
    }

    /// Returns the primary connection, if it has been created.
    pub fn current_primary(&self) -> Option<Arc<PooledConnection>> {
        self.state
            .lock()
            .primary
            .as_ref()
            .map(|(_, primary)| primary.clone())
    }

    /// Leases a connection shared by all callers with the capabilities `offer`. Returns `None` if
    /// none becomes free within `wait`.
    pub async fn lease_shared(
        self: &Arc<Self>,
        offer: OfferedCapabilities,
        wait: Duration,
    ) -> Option<ConnectionLease> {
        self.lease_within(wait, |state| {
            let primary = state.primary.get_or_insert_with(|| {
                (
                    offer,
                    PooledConnection::new(self.new_upstream(offer, true, None), None),
                )
            });
            if primary.0 == offer {
                return Some(ConnectionLease::new(self, &primary.1));
            }
            if let Some(found) = state.shared.get(&offer) {
                return Some(ConnectionLease::new(self, found));
            }
            state.make_room(self.connections_max).then(|| {
                let made = PooledConnection::new(self.new_upstream(offer, false, None), None);
                state.shared.insert(offer, made.clone());
                ConnectionLease::new(self, &made)
            })
        })
        .await
    }

    /// Leases a connection owned by `key`, and creates one if needed. With `alone`, no other call
    /// may be using the connection. Returns `None` if none becomes free within `wait`.
    pub async fn lease_owned(
        self: &Arc<Self>,
        key: &ConnectionKey,
        alone: bool,
        owner: Option<SessionOwner<'_>>,
        wait: Duration,
    ) -> Option<ConnectionLease> {
        self.lease_within(wait, |state| {
            let found = state
                .owned
                .get(key)
                .into_iter()
                .flatten()
                .find(|c| !alone || c.idle_since().is_some());
            if let Some(found) = found {
                return Some(ConnectionLease::new(self, found));
            }
            state.make_room(self.connections_max).then(|| {
                let caller = owner.as_ref().and_then(|owner| (owner.caller)());
                let watch = owner
                    .as_ref()
                    .map(|owner| self.watch_session(owner.session, key));
                let made = PooledConnection::new(
                    self.new_upstream(key.capabilities(), false, caller),
                    watch,
                );
                state
                    .owned
                    .entry(key.clone())
                    .or_default()
                    .push(made.clone());
                ConnectionLease::new(self, &made)
            })
        })
        .await
    }

    /// Calls `take` until it returns a lease: at once, and again whenever a connection becomes
    /// free. Returns `None` after `wait`.
    async fn lease_within(
        &self,
        wait: Duration,
        take: impl Fn(&mut PoolState) -> Option<ConnectionLease>,
    ) -> Option<ConnectionLease> {
        let at_once = take(&mut self.state.lock());
        if at_once.is_some() {
            return at_once;
        }
        let deadline = Instant::now() + wait;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            let taken = take(&mut self.state.lock());
            if taken.is_some() {
                return taken;
            }
            tokio::time::timeout_at(deadline, freed).await.ok()?;
        }
    }

    fn new_upstream(
        &self,
        offer: OfferedCapabilities,
        is_primary: bool,
        only_caller: Option<Arc<dyn Caller>>,
    ) -> Upstream {
        let options = McpClientOptions {
            offered_capabilities: offer.to_abilities(),
            // Without offered capabilities no questions come, and only the primary connection needs
            // a stream for change notifications.
            listen: self.connection_params.options.listen
                && (is_primary || offer != OfferedCapabilities::NONE),
            only_caller,
            ..McpClientOptions::clone(&self.connection_params.options)
        };
        let change_publisher = self
            .connection_params
            .change_publisher
            .clone()
            .filter(|_| is_primary);
        Upstream::new(ConnectionParams {
            options: Arc::new(options),
            change_publisher,
            ..self.connection_params.clone()
        })
    }

    /// Starts a task that closes the connections of `key` when the client session `session` ends.
    /// Until then, the task notifies the server of each change of the session's roots.
    fn watch_session(
        self: &Arc<Self>,
        session: &Arc<PeerSession>,
        key: &ConnectionKey,
    ) -> AbortOnDropHandle<()> {
        let (over, key, pool) = (session.closed.clone(), key.clone(), Arc::downgrade(self));
        let mut roots_changed = session.roots_changed.subscribe();
        AbortOnDropHandle::new(self.connection_params.spawn(async move {
            let changes = async {
                while roots_changed.changed().await.is_ok() {
                    let Some(pool) = Weak::upgrade(&pool) else {
                        return;
                    };
                    let connections = pool
                        .state
                        .lock()
                        .owned
                        .get(&key)
                        .cloned()
                        .unwrap_or_default();
                    for connection in connections {
                        connection.upstream.notify_roots_changed().await;
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                () = over.cancelled() => {}
                () = changes => {}
            }
            if let Some(pool) = Weak::upgrade(&pool) {
                // Dropped outside the lock.
                let removed = pool.state.lock().owned.remove(&key);
                drop(removed);
                pool.freed.notify_waiters();
            }
        }))
    }

    /// Closes connections that have been unused for `idle_timeout`.
    pub fn close_idle(&self, idle_timeout: Duration) {
        let is_old = |c: &Arc<PooledConnection>| {
            c.idle_since()
                .is_some_and(|since| since.elapsed() >= idle_timeout)
        };
        let before = {
            let mut state = self.state.lock();
            let before = state.len();
            state.remove(is_old);
            before - state.len()
        };
        if before > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Returns true if any connection except the primary one is connected.
    pub fn has_connected(&self) -> bool {
        let all: Vec<_> = self.state.lock().all().cloned().collect();
        all.iter()
            .any(|connection| connection.upstream.current().is_some())
    }

    /// Returns the pool's state as JSON for the admin page: numbers of connections by use, and the
    /// limit.
    pub fn observe(&self) -> serde_json::Value {
        let state = self.state.lock();
        let in_use = state
            .all()
            .filter(|connection| connection.idle_since().is_none())
            .count();
        let primary = usize::from(state.primary.is_some());
        serde_json::json!({
            "shared": state.shared.len() + primary,
            "own": state.owned.values().map(Vec::len).sum::<usize>(),
            "in_use": in_use,
            "max": self.connections_max,
        })
    }
}

/// Set of the client capabilities that are offered to a server. A bit set, so that it can be part
/// of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct OfferedCapabilities(u8);

const SAMPLING: u8 = 1;
const SAMPLING_TOOLS: u8 = 1 << 1;
const SAMPLING_CONTEXT: u8 = 1 << 2;
const FORM: u8 = 1 << 3;
const URL: u8 = 1 << 4;
const ROOTS: u8 = 1 << 5;
const ROOTS_CHANGES: u8 = 1 << 6;

impl OfferedCapabilities {
    /// No capabilities: the caller can answer no questions.
    pub const NONE: Self = Self(0);

    pub fn from_abilities(abilities: &CallerCapabilities) -> Self {
        if abilities.0.is_empty() {
            return Self::NONE;
        }
        let sampling = abilities.0.object("sampling").unwrap_or_default();
        let bits = [
            (SAMPLING, abilities.has_sampling()),
            (SAMPLING_TOOLS, sampling.has("tools")),
            (SAMPLING_CONTEXT, sampling.has("context")),
            (FORM, abilities.has_elicitation_form()),
            (URL, abilities.has_elicitation_url()),
            (ROOTS, abilities.has_roots()),
            (ROOTS_CHANGES, abilities.has_roots_list_changed()),
        ];
        Self(
            bits.iter()
                .filter(|(_, has)| *has)
                .fold(0, |all, (bit, _)| all | bit),
        )
    }

    /// Converts the set to the `capabilities` object of MCP.
    fn to_abilities(self) -> CallerCapabilities {
        let of = |members: &[(u8, &str)]| {
            let has = members.iter().filter(|(bit, _)| self.has(*bit));
            has.fold(RawObject::new(), |all, (_, name)| {
                all.with(name, RawObject::new())
            })
        };
        let mut all = RawObject::new();
        if self.has(SAMPLING) {
            all.set(
                "sampling",
                of(&[(SAMPLING_TOOLS, "tools"), (SAMPLING_CONTEXT, "context")]),
            );
        }
        if self.has(FORM | URL) {
            all.set("elicitation", of(&[(FORM, "form"), (URL, "url")]));
        }
        if self.has(ROOTS) {
            let changes = RawObject::single("listChanged", true);
            all.set(
                "roots",
                if self.has(ROOTS_CHANGES) {
                    changes
                } else {
                    RawObject::new()
                },
            );
        }
        CallerCapabilities(all)
    }

    /// Returns true if roots are offered. The server may then ask for them and keep them while the
    /// connection exists.
    pub fn has_roots(self) -> bool {
        self.has(ROOTS)
    }

    /// Returns the set without roots, for connections shared by several clients: roots belong to
    /// one client.
    pub fn without_roots(self) -> Self {
        Self(self.0 & !(ROOTS | ROOTS_CHANGES))
    }

    /// Returns the set with `roots.listChanged` added if it contains roots.
    pub fn with_roots_changes(self) -> Self {
        if self.has_roots() {
            Self(self.0 | ROOTS_CHANGES)
        } else {
            self
        }
    }

    fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(json: &str) -> CallerCapabilities {
        CallerCapabilities(serde_json::from_str(json).unwrap())
    }

    /// Goal: the offered capabilities are those that can be answered, in one spelling. Method:
    /// capabilities in several spellings, converted both ways.
    #[test]
    fn abilities_have_one_spelling() {
        for (declared, offered) in [
            ("{}", "{}"),
            (r#"{"experimental":{"a":{}},"tasks":{}}"#, "{}"),
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{"form":{}}}"#),
            (
                r#"{"elicitation":{"url":{}}}"#,
                r#"{"elicitation":{"url":{}}}"#,
            ),
            (
                r#"{"roots":{"listChanged":true},"sampling":{"tools":{}}}"#,
                r#"{"sampling":{"tools":{}},"roots":{"listChanged":true}}"#,
            ),
            (r#"{"roots":{"listChanged":false}}"#, r#"{"roots":{}}"#),
            (
                r#"{"sampling":{"context":{},"new":1}}"#,
                r#"{"sampling":{"context":{}}}"#,
            ),
        ] {
            let offer = OfferedCapabilities::from_abilities(&abilities(declared));
            assert_eq!(offer.to_abilities().0.to_raw().get(), offered);
            assert_eq!(
                OfferedCapabilities::from_abilities(&offer.to_abilities()),
                offer
            );
        }
        assert_eq!(
            OfferedCapabilities::from_abilities(&CallerCapabilities::all()).to_abilities(),
            CallerCapabilities(CallerCapabilities::all().0)
        );
    }
}
