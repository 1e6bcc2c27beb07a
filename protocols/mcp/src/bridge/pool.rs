//! The connections of one bridge: which call goes by which.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Abilities, PrincipalKind, RawObject, SessionId};
use callboard_runtime::{Caller, PeerSession};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::outbound::{ClientOptions, Upstream, Wiring};

/// Whose a connection is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// One session's of a client.
    Session(SessionId, OfferedCapabilities),
    /// A principal's, for calls without a session.
    Principal(PrincipalKind, String, OfferedCapabilities),
}

impl Key {
    fn offer(&self) -> OfferedCapabilities {
        match self {
            Self::Session(_, offer) | Self::Principal(_, _, offer) => *offer,
        }
    }
}

/// The session that a connection is made for.
pub(crate) struct Owner<'a> {
    pub session: &'a Arc<PeerSession>,
    /// Whom to ask what belongs to none of its calls for sure.
    pub caller: &'a (dyn Fn() -> Option<Arc<dyn Caller>> + Sync),
}

/// One connection, to be made when it is first used, and again when it was lost.
pub(crate) struct Connection {
    pub upstream: Upstream,
    usage: Mutex<Usage>,
    /// Ends it with its session.
    _watch: Option<AbortOnDropHandle<()>>,
}

struct Usage {
    users: usize,
    last: Instant,
}

impl Connection {
    fn new(upstream: Upstream, watch: Option<AbortOnDropHandle<()>>) -> Arc<Self> {
        let usage = Mutex::new(Usage {
            users: 0,
            last: Instant::now(),
        });
        Arc::new(Self {
            upstream,
            usage,
            _watch: watch,
        })
    }

    /// Since when nobody uses it.
    fn idle_since(&self) -> Option<Instant> {
        let usage = self.usage.lock();
        (usage.users == 0).then_some(usage.last)
    }
}

/// A connection while it is used.
pub(crate) struct Lease {
    connection: Arc<Connection>,
    pool: Arc<Pool>,
}

impl Lease {
    fn of(pool: &Arc<Pool>, connection: &Arc<Connection>) -> Self {
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

impl Drop for Lease {
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

/// All connections of one incarnation.
pub(crate) struct Pool {
    wiring: Wiring,
    connections_max: usize,
    state: Mutex<State>,
    /// A connection is free, or gone.
    freed: Notify,
}

#[derive(Default)]
struct State {
    /// Hears of changes, and stays.
    lead: Option<(OfferedCapabilities, Arc<Connection>)>,
    shared: HashMap<OfferedCapabilities, Arc<Connection>>,
    own: HashMap<Key, Vec<Arc<Connection>>>,
}

impl State {
    fn len(&self) -> usize {
        self.shared.len() + self.own.values().map(Vec::len).sum::<usize>()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.shared.values().chain(self.own.values().flatten())
    }

    fn remove(&mut self, gone: impl Fn(&Arc<Connection>) -> bool) {
        self.shared.retain(|_, connection| !gone(connection));
        self.own.retain(|_, connections| {
            connections.retain(|connection| !gone(connection));
            !connections.is_empty()
        });
    }

    /// Makes room for one more; `false` where all are in use.
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
        callboard_message::log::info!(
            connections_max,
            "the connection that was idle longest makes room for another"
        );
        true
    }
}

impl Pool {
    /// `wiring`: what its connections have in common.
    pub fn new(wiring: Wiring, connections_max: usize) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self {
            wiring,
            connections_max: connections_max.max(1),
            state,
            freed: Notify::new(),
        })
    }

    /// The one that hears of changes: of whatever was offered when it was first needed.
    pub fn lead(self: &Arc<Self>, offer: impl FnOnce() -> OfferedCapabilities) -> Lease {
        let mut state = self.state.lock();
        let make = || {
            let offer = offer();
            (offer, Connection::new(self.make(offer, true, None), None))
        };
        let (_, lead) = state.lead.get_or_insert_with(make);
        Lease::of(self, lead)
    }

    /// The one that hears of changes, where there is one.
    pub fn current_lead(&self) -> Option<Arc<Connection>> {
        self.state
            .lock()
            .lead
            .as_ref()
            .map(|(_, lead)| lead.clone())
    }

    /// One that whoever can answer `offer` shares. `None`: not in `wait`.
    pub async fn shared(
        self: &Arc<Self>,
        offer: OfferedCapabilities,
        wait: Duration,
    ) -> Option<Lease> {
        self.sooner_or_later(wait, |state| {
            let lead = state.lead.get_or_insert_with(|| {
                (offer, Connection::new(self.make(offer, true, None), None))
            });
            if lead.0 == offer {
                return Some(Lease::of(self, &lead.1));
            }
            if let Some(found) = state.shared.get(&offer) {
                return Some(Lease::of(self, found));
            }
            state.make_room(self.connections_max).then(|| {
                let made = Connection::new(self.make(offer, false, None), None);
                state.shared.insert(offer, made.clone());
                Lease::of(self, &made)
            })
        })
        .await
    }

    /// One of `key`'s own; `alone`: that nobody else uses meanwhile. `None`: not in `wait`.
    pub async fn own(
        self: &Arc<Self>,
        key: &Key,
        alone: bool,
        owner: Option<Owner<'_>>,
        wait: Duration,
    ) -> Option<Lease> {
        self.sooner_or_later(wait, |state| {
            let found = state
                .own
                .get(key)
                .into_iter()
                .flatten()
                .find(|c| !alone || c.idle_since().is_some());
            if let Some(found) = found {
                return Some(Lease::of(self, found));
            }
            state.make_room(self.connections_max).then(|| {
                let caller = owner.as_ref().and_then(|owner| (owner.caller)());
                let watch = owner
                    .as_ref()
                    .map(|owner| self.ends_with(owner.session, key));
                let made = Connection::new(self.make(key.offer(), false, caller), watch);
                state.own.entry(key.clone()).or_default().push(made.clone());
                Lease::of(self, &made)
            })
        })
        .await
    }

    /// What `take` gives, now or when something has become free.
    async fn sooner_or_later(
        &self,
        wait: Duration,
        take: impl Fn(&mut State) -> Option<Lease>,
    ) -> Option<Lease> {
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

    fn make(
        &self,
        offer: OfferedCapabilities,
        is_lead: bool,
        only_caller: Option<Arc<dyn Caller>>,
    ) -> Upstream {
        let options = ClientOptions {
            offers: offer.abilities(),
            // Beside the lead's, only questions may come by a stream that is no request's.
            listen: self.wiring.options.listen
                && (is_lead || offer != OfferedCapabilities::NOTHING),
            only_caller,
            ..ClientOptions::clone(&self.wiring.options)
        };
        let news = self.wiring.news.clone().filter(|_| is_lead);
        Upstream::new(Wiring {
            options: Arc::new(options),
            news,
            ..self.wiring.clone()
        })
    }

    /// Ends the connection of `key` with `session`, and tells its server when the session's roots have changed.
    fn ends_with(self: &Arc<Self>, session: &Arc<PeerSession>, key: &Key) -> AbortOnDropHandle<()> {
        let (over, key, pool) = (session.over.clone(), key.clone(), Arc::downgrade(self));
        let mut roots_changed = session.roots_changed.subscribe();
        AbortOnDropHandle::new(self.wiring.spawn(async move {
            let changes = async {
                while roots_changed.changed().await.is_ok() {
                    let Some(pool) = Weak::upgrade(&pool) else {
                        return;
                    };
                    let connections = pool.state.lock().own.get(&key).cloned().unwrap_or_default();
                    for connection in connections {
                        connection.upstream.roots_changed().await;
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
                let gone = pool.state.lock().own.remove(&key);
                drop(gone);
                pool.freed.notify_waiters();
            }
        }))
    }

    /// Ends what nobody has used for `idle_timeout`.
    pub fn sweep(&self, idle_timeout: Duration) {
        let is_old = |c: &Arc<Connection>| {
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

    /// Whether any connection stands.
    pub fn is_up(&self) -> bool {
        let all: Vec<_> = self.state.lock().all().cloned().collect();
        all.iter()
            .any(|connection| connection.upstream.current().is_some())
    }

    /// What people see of it.
    pub fn observe(&self) -> serde_json::Value {
        let state = self.state.lock();
        let in_use = state
            .all()
            .filter(|connection| connection.idle_since().is_none())
            .count();
        let lead = usize::from(state.lead.is_some());
        serde_json::json!({
            "shared": state.shared.len() + lead,
            "own": state.own.values().map(Vec::len).sum::<usize>(),
            "in_use": in_use,
            "max": self.connections_max,
        })
    }
}

/// A set of abilities, small enough to be a key.
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
    /// Nothing can be answered.
    pub const NOTHING: Self = Self(0);

    pub fn of(abilities: &Abilities) -> Self {
        if abilities.0.is_empty() {
            return Self::NOTHING;
        }
        let sampling = abilities.0.object("sampling").unwrap_or_default();
        let bits = [
            (SAMPLING, abilities.sampling()),
            (SAMPLING_TOOLS, sampling.has("tools")),
            (SAMPLING_CONTEXT, sampling.has("context")),
            (FORM, abilities.elicitation_form()),
            (URL, abilities.elicitation_url()),
            (ROOTS, abilities.roots()),
            (ROOTS_CHANGES, abilities.roots_list_changed()),
        ];
        Self(
            bits.iter()
                .filter(|(_, has)| *has)
                .fold(0, |all, (bit, _)| all | bit),
        )
    }

    /// In MCP's words.
    fn abilities(self) -> Abilities {
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
            let changes = RawObject::of("listChanged", true);
            all.set(
                "roots",
                if self.has(ROOTS_CHANGES) {
                    changes
                } else {
                    RawObject::new()
                },
            );
        }
        Abilities(all)
    }

    /// Whether a server that is offered this may ask for roots, and keep them for as long as the connection stands.
    pub fn has_roots(self) -> bool {
        self.has(ROOTS)
    }

    /// What may be offered on a connection of several clients: all but roots, which are each client's own.
    pub fn without_roots(self) -> Self {
        Self(self.0 & !(ROOTS | ROOTS_CHANGES))
    }

    /// The same where changes of the roots, if there are any, are told.
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

    fn abilities(json: &str) -> Abilities {
        Abilities(serde_json::from_str(json).unwrap())
    }

    /// Goal: what is offered is what can be answered, in one spelling. Method: capabilities in several spellings, there
    /// and back.
    #[test]
    fn abilities_have_one_spelling() {
        for (told, offered) in [
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
            let offer = OfferedCapabilities::of(&abilities(told));
            assert_eq!(offer.abilities().0.to_raw().get(), offered);
            assert_eq!(OfferedCapabilities::of(&offer.abilities()), offer);
        }
        assert_eq!(
            OfferedCapabilities::of(&Abilities::all()).abilities(),
            Abilities(Abilities::all().0)
        );
    }
}
