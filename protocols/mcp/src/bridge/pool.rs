//! Connection pool of one bridge.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{CallerCapabilities, PrincipalKind, RawObject, SessionId};
use callboard_runtime::{Caller, FairShare, PeerSession, ShareOwner};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::call_slots::PRINCIPAL_WAITERS_MAX;
use super::listed_tools::ListedTools;
use crate::outbound::{
    ConnectionParams, EXTENSION_CAPABILITIES, McpClientOptions, SessionLink, Upstream,
    UpstreamSession,
};

/// Minimum time for which a connection must have been unused before its principal, if it has its
/// share of them, can have it closed for another one. So nobody makes a node start processes faster
/// than half its share of `connections_max` a second. Fixed.
pub const CONNECTION_UNUSED_MIN: Duration = Duration::from_secs(2);
/// Interval at which a waiting request looks for a connection without having been woken. By then one may have
/// been unused for [`CONNECTION_UNUSED_MIN`]. Fixed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Owner of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionKey {
    /// Connection of one client session, for everything that the session requests.
    Session(SessionId),
    /// Connection of one principal, for what it requests outside sessions with these capabilities.
    Principal(PrincipalKind, String, OfferedCapabilities),
}

/// Client session that owns a connection.
pub(crate) struct SessionOwner {
    pub session: Arc<PeerSession>,
    /// Caller that receives the server's changes, and its questions and notifications that name none
    /// of the session's calls.
    pub caller: Arc<dyn Caller>,
    /// Number of agents that the session's request has passed through, itself included.
    pub hops: u16,
}

/// Connection of the pool. It connects on first use, and reconnects when it is used after a loss.
pub(crate) struct PooledConnection {
    pub upstream: Upstream,
    /// Principal that owns the connection, and its key in the pool; `None` for the connection of all callers.
    owner: Option<(ShareOwner, ConnectionKey)>,
    usage: Mutex<ConnectionUsage>,
    /// Tools that the server has listed on it.
    pub listed: ListedTools,
    /// Task that closes the connection when the client session that owns it ends. `None` without
    /// such a session.
    _watch: Option<AbortOnDropHandle<()>>,
}

struct ConnectionUsage {
    users: usize,
    last: Instant,
}

impl PooledConnection {
    fn new(
        upstream: Upstream,
        owner: Option<(ShareOwner, ConnectionKey)>,
        watch: Option<AbortOnDropHandle<()>>,
    ) -> Arc<Self> {
        let usage = Mutex::new(ConnectionUsage {
            users: 0,
            last: Instant::now(),
        });
        Arc::new(Self {
            upstream,
            owner,
            usage,
            listed: ListedTools::default(),
            _watch: watch,
        })
    }

    fn principal(&self) -> Option<&ShareOwner> {
        self.owner.as_ref().map(|(principal, _)| principal)
    }

    /// Returns the time since which the connection has been unused; `None` while it is in use.
    fn idle_since(&self) -> Option<Instant> {
        let usage = self.usage.lock();
        (usage.users == 0).then_some(usage.last)
    }

    /// Returns true if the connection is open or about to be opened. That of a client session stays
    /// in the pool while it is closed, because it knows the session's subscriptions.
    fn is_open(&self) -> bool {
        self.idle_since().is_none() || self.upstream.is_open()
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

    pub fn listed(&self) -> &ListedTools {
        &self.connection.listed
    }

    pub fn connection(&self) -> &Arc<PooledConnection> {
        &self.connection
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
            self.pool.state.lock().wake(self.connection.owner.as_ref());
        }
    }
}

/// All connections of one incarnation of a bridge.
pub(crate) struct ConnectionPool {
    connection_params: ConnectionParams,
    /// Rule by which principals share the connections.
    rule: FairShare,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Connection of all callers: to a server without sessions, or for requests that belong to no
    /// call. Never evicted, and not counted.
    shared: Option<Arc<PooledConnection>>,
    owned: HashMap<ConnectionKey, Vec<Arc<PooledConnection>>>,
    /// Requests that wait for a connection, by principal, in the order in which they came.
    waiting: HashMap<ShareOwner, VecDeque<Waiter>>,
}

/// Request that waits for a connection.
struct Waiter {
    key: ConnectionKey,
    /// Notified when the request should look for a connection again.
    freed: Arc<Notify>,
}

/// Place among the requests of a principal that wait for a connection. Dropping it frees the place.
struct WaitingPlace<'a> {
    pool: &'a ConnectionPool,
    principal: &'a ShareOwner,
    freed: Arc<Notify>,
}

impl<'a> WaitingPlace<'a> {
    /// Returns `None` if [`PRINCIPAL_WAITERS_MAX`] requests of the principal wait.
    fn take(
        pool: &'a ConnectionPool,
        state: &mut PoolState,
        principal: &'a ShareOwner,
        key: &ConnectionKey,
    ) -> Option<Self> {
        let waiting = state.waiting.entry(principal.clone()).or_default();
        if waiting.len() >= PRINCIPAL_WAITERS_MAX {
            return None;
        }
        let freed = Arc::new(Notify::new());
        waiting.push_back(Waiter {
            key: key.clone(),
            freed: freed.clone(),
        });
        Some(Self {
            pool,
            principal,
            freed,
        })
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        if let Some(waiting) = state.waiting.get_mut(self.principal) {
            waiting.retain(|waiter| !Arc::ptr_eq(&waiter.freed, &self.freed));
            // There may be room for the next one too, or it was woken in vain.
            match waiting.front() {
                Some(next) => next.freed.notify_one(),
                None => drop(state.waiting.remove(self.principal)),
            }
        }
    }
}

impl PoolState {
    /// Wakes waiting requests after a connection was freed or closed: the first request of each
    /// principal, and the first that waits for the connection of `freed` itself. A request that stops
    /// waiting wakes the next one of its principal, so that a crowd costs nothing.
    fn wake(&self, freed: Option<&(ShareOwner, ConnectionKey)>) {
        let first = self.waiting.values().filter_map(VecDeque::front);
        let same = freed.and_then(|(principal, key)| {
            let mut waiting = self.waiting.get(principal)?.iter();
            waiting.find(|waiter| waiter.key == *key)
        });
        first
            .chain(same)
            .for_each(|waiter| waiter.freed.notify_one());
    }

    fn owned(&self) -> impl Iterator<Item = (&ConnectionKey, &Arc<PooledConnection>)> {
        let each = |(key, all)| std::iter::repeat(key).zip(all);
        self.owned
            .iter()
            .flat_map(move |(key, all): (_, &Vec<_>)| each((key, all)))
    }

    fn open_connections(&self) -> usize {
        self.owned().filter(|(_, c)| c.is_open()).count()
    }

    /// Closes an idle connection.
    fn close(&mut self, key: &ConnectionKey, closed: &Arc<PooledConnection>) {
        match key {
            ConnectionKey::Session(_) => closed.upstream.disconnect(),
            _ => {
                if let Some(all) = self.owned.get_mut(key) {
                    all.retain(|connection| !Arc::ptr_eq(connection, closed));
                }
                self.owned.retain(|_, all| !all.is_empty());
            }
        }
    }

    /// Makes room for one more connection of `owner`: if the pool is full, closes the one that has
    /// been idle longest, those of principals beyond their share first. Returns false if `owner` may
    /// use no more, all connections are in use, or it would close one of its own that it has used
    /// within [`CONNECTION_UNUSED_MIN`] while it has its share.
    fn make_room(&mut self, rule: FairShare, owner: &ShareOwner) -> bool {
        let (mut used, mut own) = (0, 0);
        for (_, connection) in self.owned().filter(|(_, c)| c.idle_since().is_none()) {
            used += 1;
            own += usize::from(connection.principal() == Some(owner));
        }
        if rule.check(own, used).is_err() {
            return false;
        }
        let open: Vec<_> = self.owned().filter(|(_, c)| c.is_open()).collect();
        if open.len() < rule.max {
            return true;
        }
        let mut counts: HashMap<Option<&ShareOwner>, usize> = HashMap::new();
        for (_, connection) in &open {
            *counts.entry(connection.principal()).or_default() += 1;
        }
        let idle = open.iter().filter_map(|(key, c)| {
            let is_over = counts.get(&c.principal()).is_some_and(|n| *n > rule.share);
            Some(((!is_over, c.idle_since()?), *key, *c))
        });
        let Some((_, key, oldest)) = idle.min_by_key(|(rank, ..)| *rank) else {
            return false;
        };
        let own_open = counts.get(&Some(owner)).copied().unwrap_or_default();
        let is_recent = oldest
            .idle_since()
            .is_some_and(|since| since.elapsed() < CONNECTION_UNUSED_MIN);
        if is_recent && own_open >= rule.share && oldest.principal() == Some(owner) {
            return false;
        }
        let (key, oldest) = (key.clone(), oldest.clone());
        self.close(&key, &oldest);
        let connections_max = rule.max;
        callboard_message::log::info!(connections_max, "closed the longest idle connection");
        true
    }
}

impl ConnectionPool {
    /// Creates an empty pool. `connection_params` holds the parameters that all its connections share.
    pub fn new(connection_params: ConnectionParams, rule: FairShare) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self {
            connection_params,
            rule,
            state,
        })
    }

    /// Leases the connection of all callers. No capabilities are offered on it.
    pub fn lease_shared(self: &Arc<Self>) -> ConnectionLease {
        let mut state = self.state.lock();
        let make = || {
            PooledConnection::new(
                self.new_upstream(OfferedCapabilities::NONE, None),
                None,
                None,
            )
        };
        ConnectionLease::new(self, state.shared.get_or_insert_with(make))
    }

    /// Makes a connection that turned out to need no owner that of all callers, unless there is one.
    pub fn share(&self, lease: &ConnectionLease) {
        let mut state = self.state.lock();
        if state.shared.is_some() {
            return;
        }
        for all in state.owned.values_mut() {
            all.retain(|connection| !Arc::ptr_eq(connection, &lease.connection));
        }
        state.owned.retain(|_, all| !all.is_empty());
        state.shared = Some(lease.connection.clone());
    }

    /// Leases a connection owned by `key` of `principal`, and creates one if needed. `offer` returns the
    /// capabilities that are offered on a new one, and the client session that owns it, if any. With
    /// `alone`, no other call may be using the connection. Returns `None` if none becomes free within
    /// `wait`, or [`PRINCIPAL_WAITERS_MAX`] requests of the principal wait already.
    pub async fn lease_owned(
        self: &Arc<Self>,
        key: &ConnectionKey,
        principal: &ShareOwner,
        alone: bool,
        offer: &(dyn Fn() -> (OfferedCapabilities, Option<SessionOwner>) + Sync),
        wait: Duration,
    ) -> Option<ConnectionLease> {
        let take = |state: &mut PoolState| {
            let found = state
                .owned
                .get(key)
                .into_iter()
                .flatten()
                .find(|c| !alone || c.idle_since().is_some())
                .cloned();
            if let Some(found) = &found
                && found.is_open()
            {
                return Some(ConnectionLease::new(self, found));
            }
            if !state.make_room(self.rule, principal) {
                return None;
            }
            let leased = found.unwrap_or_else(|| {
                let (offer, owner) = offer();
                let owner = owner.as_ref();
                let watch = owner.map(|owner| self.watch_session(&owner.session, key));
                let upstream = self.new_upstream(offer, owner);
                let owner = Some((principal.clone(), key.clone()));
                let made = PooledConnection::new(upstream, owner, watch);
                let all = state.owned.entry(key.clone()).or_default();
                all.push(made.clone());
                made
            });
            Some(ConnectionLease::new(self, &leased))
        };
        let place = {
            let mut state = self.state.lock();
            let taken = take(&mut state);
            if taken.is_some() {
                return taken;
            }
            // Under the same lock, so that no connection is freed in between.
            WaitingPlace::take(self, &mut state, principal, key)?
        };
        let deadline = Instant::now() + wait;
        loop {
            let next = deadline.min(Instant::now() + LOOK_INTERVAL);
            // Over or notified: it looks again.
            let _ = tokio::time::timeout_at(next, place.freed.notified()).await;
            let taken = take(&mut self.state.lock());
            if taken.is_some() || Instant::now() >= deadline {
                return taken;
            }
        }
    }

    fn new_upstream(&self, offer: OfferedCapabilities, owner: Option<&SessionOwner>) -> Upstream {
        let mut offered_capabilities = offer.to_abilities();
        // A client's own extensions: for its session alone, and so in no key.
        let own = owner.map(|owner| owner.caller.capabilities());
        for name in EXTENSION_CAPABILITIES {
            let declared = own.as_ref().and_then(|own| own.0.get(name));
            if let Some(declared) = declared {
                offered_capabilities.0.set_raw(name, declared.to_owned());
            }
        }
        let options = McpClientOptions {
            offered_capabilities,
            only_caller: owner.map(|owner| owner.caller.clone()),
            ..McpClientOptions::clone(&self.connection_params.options)
        };
        let session = owner.map(|owner| SessionLink {
            caller: owner.caller.clone(),
            log_level: owner.session.log_level.subscribe(),
        });
        Upstream::new(ConnectionParams {
            options: Arc::new(options),
            changes: self.connection_params.changes.with_session(session),
            hops: owner.map_or(0, |owner| owner.hops),
            ..self.connection_params.clone()
        })
    }

    /// Starts a task that closes the connection of `key` when the client session `session` ends.
    /// Until then, the task passes changes of the session's roots and log level to the server.
    fn watch_session(
        self: &Arc<Self>,
        session: &Arc<PeerSession>,
        key: &ConnectionKey,
    ) -> AbortOnDropHandle<()> {
        let (over, key, pool) = (session.closed.clone(), key.clone(), Arc::downgrade(self));
        let mut roots_changed = session.roots_changed.subscribe();
        let mut log_level = session.log_level.subscribe();
        AbortOnDropHandle::new(self.connection_params.spawn(async move {
            let connections = || {
                let pool = Weak::upgrade(&pool)?;
                let state = pool.state.lock();
                state.owned.get(&key).cloned()
            };
            let roots = async {
                while roots_changed.changed().await.is_ok() {
                    for connection in connections().into_iter().flatten() {
                        connection.upstream.notify_roots_changed().await;
                    }
                }
                std::future::pending().await
            };
            let levels = async {
                while log_level.changed().await.is_ok() {
                    let level = *log_level.borrow_and_update();
                    for connection in connections().into_iter().flatten() {
                        if let Some(level) = level {
                            connection.upstream.set_log_level(level).await;
                        }
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                () = over.cancelled() => {}
                () = roots => {}
                () = levels => {}
            }
            if let Some(pool) = Weak::upgrade(&pool) {
                let mut state = pool.state.lock();
                let removed = state.owned.remove(&key);
                state.wake(None);
                // Dropped outside the lock.
                drop(state);
                drop(removed);
            }
        }))
    }

    /// Closes connections that have been unused for `idle_timeout`, except those with subscriptions.
    pub fn close_idle(&self, idle_timeout: Duration) {
        let is_old = |c: &Arc<PooledConnection>| {
            c.idle_since()
                .is_some_and(|since| since.elapsed() >= idle_timeout)
                && c.upstream.is_open()
                && !c.upstream.has_subscriptions()
        };
        let mut state = self.state.lock();
        let old: Vec<_> = state
            .owned()
            .filter(|(_, c)| is_old(c))
            .map(|(key, c)| (key.clone(), c.clone()))
            .collect();
        old.iter().for_each(|(key, c)| state.close(key, c));
        if !old.is_empty() {
            state.wake(None);
        }
    }

    /// Returns the server's session on an open connection, that of all callers first. Connections on which
    /// a client has declared extensions are left out: the server may describe itself otherwise to it.
    pub fn open_session(&self) -> Option<Arc<UpstreamSession>> {
        let state = self.state.lock();
        let owned = state.owned().map(|(_, connection)| connection);
        let mut all = state.shared.iter().chain(owned);
        all.find_map(|connection| {
            let offered = connection.upstream.offered_capabilities();
            let has_extension = |name: &&str| offered.0.has(name);
            match EXTENSION_CAPABILITIES.iter().any(has_extension) {
                true => None,
                false => connection.upstream.current(),
            }
        })
    }

    /// Returns all connections, the one of all callers first.
    pub fn all(&self) -> Vec<Arc<PooledConnection>> {
        let state = self.state.lock();
        let owned = state.owned().map(|(_, connection)| connection);
        state.shared.iter().chain(owned).cloned().collect()
    }

    /// Returns the pool's state as JSON for the admin page: numbers of connections by use and
    /// of requests that wait for one, and the limit.
    pub fn observe(&self) -> serde_json::Value {
        let state = self.state.lock();
        let in_use = state
            .owned()
            .filter(|(_, connection)| connection.idle_since().is_none())
            .count();
        serde_json::json!({
            "shared": usize::from(state.shared.is_some()),
            "own": state.open_connections(),
            "in_use": in_use,
            "waiting": state.waiting.values().map(VecDeque::len).sum::<usize>(),
            "max": self.rule.max,
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
    use callboard_message::Principal;
    use futures::FutureExt;

    use super::*;

    /// Goal: a freed connection wakes the first waiting request of each principal and the first that waits
    /// for that connection, and nobody else. Method: five requests of two principals; who has a permit.
    #[test]
    fn a_freed_connection_wakes_the_first() {
        let owner = |id: &str| ShareOwner::from(&Principal::agent(id));
        let key = |id: u8| {
            let offered = OfferedCapabilities(id);
            ConnectionKey::Principal(PrincipalKind::Agent, String::new(), offered)
        };
        let waiter = |id: u8| Waiter {
            key: key(id),
            freed: Arc::new(Notify::new()),
        };
        let mut state = PoolState::default();
        state
            .waiting
            .insert(owner("a"), [1, 2, 2].map(waiter).into());
        state.waiting.insert(owner("b"), [3, 2].map(waiter).into());
        let woken = |state: &PoolState, id: &str| -> Vec<bool> {
            let waiting = state.waiting[&owner(id)].iter();
            waiting
                .map(|waiter| waiter.freed.notified().now_or_never().is_some())
                .collect()
        };
        state.wake(None);
        assert_eq!(woken(&state, "a"), [true, false, false]);
        assert_eq!(woken(&state, "b"), [true, false]);
        state.wake(Some(&(owner("a"), key(2))));
        assert_eq!(woken(&state, "a"), [true, true, false]);
        assert_eq!(woken(&state, "b"), [true, false]);
    }

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
