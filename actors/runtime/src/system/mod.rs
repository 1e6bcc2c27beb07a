//! The system as a value, spawning, and draining.

pub(crate) mod directory;
pub(crate) mod supervision;

use std::any::{Any, TypeId};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::log;
use dashmap::DashMap;
use directory::{DeadLetters, Directory, Events};
use supervision::{ExitReason, Supervisor};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::agent::{Agent, AgentId, AgentSnapshot, Profile};
use crate::cell::{Cell, Control, Factory, Kind, Stats};
use crate::handle::AgentRef;
use crate::mailbox::body::{Body, Runner};
use crate::mailbox::host::{Host, Threads};
use crate::mailbox::queue::{Gate, Mailbox};
use crate::policy::PolicyChain;
use crate::store::{AuditLog, Store, StoreIsSet};
use crate::sync::Mutex;

/// How long agents that were killed may take to let go of their thread.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// Agents that live together: a value, not a global. Clones are the same system.
///
/// A system that was started has to be shut down: dropping its last handle while agents still run ends them without
/// ceremony, and in a test it fails that test.
#[derive(Clone)]
pub struct System {
    inner: Arc<Inner>,
    /// Handles outside of the agents; `None` in those that agents hold.
    _guard: Option<Arc<Guard>>,
}

struct Inner {
    hosts: Vec<Arc<Host>>,
    next_host: AtomicUsize,
    next_id: AtomicU64,
    kinds: DashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    agents: DashMap<AgentId, AgentRef>,
    watches: DashMap<AgentId, Vec<Watcher>>,
    dead_letters: DeadLetters,
    directory: Directory,
    events: Events,
    policy: PolicyChain,
    /// Knows the store too.
    audit: AuditLog,
    draining: AtomicBool,
    down: AtomicBool,
    settled: Notify,
    threads: Mutex<Option<Threads>>,
}

enum Watcher {
    Agent(AgentRef),
    Future(oneshot::Sender<ExitReason>),
}

impl Watcher {
    fn is_gone(&self) -> bool {
        match self {
            Self::Agent(agent) => agent.0.exit().is_some(),
            Self::Future(done) => done.is_closed(),
        }
    }
}

/// Sees the last outside handle go.
struct Guard {
    inner: Arc<Inner>,
    fails_test: bool,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Agents that ended with nothing left to do.
    pub drained: usize,
    /// Agents that were stopped with work left at the deadline; it became dead letters.
    pub killed: usize,
}

impl System {
    /// A system on threads of its own, `arbiters` of them (at least 1), from any context: plain tokio, actix-web, or none.
    ///
    /// # Errors
    /// Where the operating system gives no thread.
    pub fn start(arbiters: usize) -> io::Result<Self> {
        let hosts: Vec<_> = (0..arbiters.max(1))
            .map(|_| Arc::new(Host::default()))
            .collect();
        let threads = Threads::start(hosts.clone())?;
        let system = Self::with(hosts, false);
        *system.inner.threads.lock() = Some(threads);
        Ok(system)
    }

    /// A system on the current arbiter. Its agents run beside whatever else runs on this thread.
    ///
    /// # Panics
    /// Outside of an actix system or a tokio `LocalSet`.
    pub fn here() -> Self {
        Self::here_checked(false)
    }

    pub(crate) fn here_checked(fails_test: bool) -> Self {
        let host = Arc::new(Host::default());
        host.start();
        Self::with(vec![host], fails_test)
    }

    fn with(hosts: Vec<Arc<Host>>, fails_test: bool) -> Self {
        let inner = Arc::new(Inner {
            hosts,
            next_host: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            kinds: DashMap::new(),
            agents: DashMap::new(),
            watches: DashMap::new(),
            dead_letters: DeadLetters::default(),
            directory: Directory::default(),
            events: Events::default(),
            policy: PolicyChain::default(),
            audit: AuditLog::default(),
            draining: AtomicBool::new(false),
            down: AtomicBool::new(false),
            settled: Notify::new(),
            threads: Mutex::new(None),
        });
        let guard = Some(Arc::new(Guard {
            inner: inner.clone(),
            fails_test,
        }));
        Self {
            inner,
            _guard: guard,
        }
    }

    /// Spawns an agent. After a panic it ends, for nothing could make a fresh one: see [`System::spawn_with`].
    pub fn spawn<A: Agent>(&self, agent: A) -> AgentRef {
        self.prepare(agent).spawn()
    }

    /// Spawns an agent that `factory` makes, now and after each failure.
    pub fn spawn_with<A: Agent>(
        &self,
        factory: impl Fn() -> A + Send + Sync + 'static,
    ) -> AgentRef {
        self.prepare_with(factory).spawn()
    }

    /// As [`System::spawn`], with choices.
    pub fn prepare<A: Agent>(&self, agent: A) -> Spawn<'_, A> {
        Spawn::new(self, Some(agent), None)
    }

    /// As [`System::spawn_with`], with choices.
    pub fn prepare_with<A: Agent>(
        &self,
        factory: impl Fn() -> A + Send + Sync + 'static,
    ) -> Spawn<'_, A> {
        Spawn::new(self, None, Some(Arc::new(factory)))
    }

    /// Which agents exist and who may see them.
    pub fn directory(&self) -> &Directory {
        &self.inner.directory
    }

    /// What could not be delivered.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.inner.dead_letters
    }

    /// Streams of events by topic.
    pub fn events(&self) -> &Events {
        &self.inner.events
    }

    /// What every message that crosses a boundary passes.
    pub fn policy(&self) -> &PolicyChain {
        &self.inner.policy
    }

    /// Where what must last is kept: in memory, unless [`System::keep_in`] said otherwise before the first use.
    pub fn store(&self) -> &Store {
        self.inner.audit.store()
    }

    /// Chooses the store, once: before the first agent, from the runtime that shall keep what the audit has waiting.
    ///
    /// # Errors
    /// Where one was chosen, or used, already.
    pub fn keep_in(&self, store: Store) -> Result<(), StoreIsSet> {
        self.inner.audit.keep_in(store)
    }

    /// The way into the audit.
    pub fn audit(&self) -> &AuditLog {
        &self.inner.audit
    }

    /// Every agent, as people see it, by id.
    pub fn snapshot(&self) -> Vec<AgentSnapshot> {
        let mut agents: Vec<_> = self
            .inner
            .agents
            .iter()
            .map(|agent| agent.snapshot())
            .collect();
        agents.sort_by_key(|a| a.id);
        agents
    }

    /// Stops accepting from outside, lets the agents work off what they have and send one another, until `limit`; then
    /// ends what is left. What the audit has waiting is kept, within the same limit.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let deadline = Instant::now() + limit;
        self.inner.draining.store(true, SeqCst);
        self.inner.each(|agent| agent.0.set_gate(Gate::AgentsOnly));
        let quiet = tokio::time::timeout_at(deadline, self.inner.quiet())
            .await
            .is_ok();
        let mut report = ShutdownReport {
            drained: 0,
            killed: 0,
        };
        self.inner.each(|agent| {
            let busy = !quiet && agent.0.depth_and_activity().1;
            *(if busy {
                &mut report.killed
            } else {
                &mut report.drained
            }) += 1;
            agent.control(Control::Kill(if busy {
                ExitReason::Killed
            } else {
                ExitReason::Stopped
            }));
        });
        // An agent in the middle of a synchronous handler ends when that does.
        let _ = tokio::time::timeout(KILL_WAIT, self.inner.empty()).await;
        self.inner.take_down().await;
        // A store that is away is waited for as long as agents would have been.
        let _ = tokio::time::timeout_at(deadline, self.inner.audit.flush()).await;
        report
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Relaxed)
    }

    /// An agent came to rest while the system drains.
    pub(crate) fn note_settled(&self) {
        self.inner.settled.notify_waiters();
    }

    pub(crate) fn watch(&self, target: &AgentRef, watcher: AgentRef) {
        self.add_watcher(target, Watcher::Agent(watcher));
    }

    pub(crate) fn unwatch(&self, watcher: AgentId, target: AgentId) {
        if let Some(mut watchers) = self.inner.watches.get_mut(&target) {
            watchers.retain(|w| !matches!(w, Watcher::Agent(agent) if agent.id() == watcher));
        }
    }

    pub(crate) async fn ended_of(&self, target: &AgentRef) -> ExitReason {
        let (done, ended) = oneshot::channel();
        self.add_watcher(target, Watcher::Future(done));
        ended.await.unwrap_or(ExitReason::Killed)
    }

    fn add_watcher(&self, target: &AgentRef, watcher: Watcher) {
        let gone: Vec<Watcher> = {
            let mut watchers = self.inner.watches.entry(target.id()).or_default();
            watchers.push(watcher);
            // Now and then those that care no more are let go, after the map's lock.
            match watchers.len().is_power_of_two() {
                true => watchers
                    .extract_if(.., |watcher| watcher.is_gone())
                    .collect(),
                false => Vec::new(),
            }
        };
        drop(gone);
        // It may have ended in between; then nobody else will tell.
        if let Some(why) = target.0.exit() {
            self.inner.tell_watchers(target.id(), why);
        }
    }

    pub(crate) fn ended(&self, id: AgentId, why: ExitReason) {
        let ended = self.inner.agents.remove(&id);
        self.inner.directory.forget(id);
        self.inner.tell_watchers(id, why);
        self.note_settled();
        drop(ended);
    }
}

impl Inner {
    fn each(&self, f: impl FnMut(&AgentRef)) {
        let agents: Vec<_> = self.agents.iter().map(|a| a.clone()).collect();
        agents.iter().for_each(f);
    }

    fn tell_watchers(&self, id: AgentId, why: ExitReason) {
        for watcher in self.watches.remove(&id).map(|(_, w)| w).unwrap_or_default() {
            match watcher {
                Watcher::Agent(agent) => agent.control(Control::Terminated(id, why)),
                Watcher::Future(done) => drop(done.send(why)),
            }
        }
    }

    /// Ends when no agent has anything to do. One look isn't enough: while it goes from agent to agent, work may move behind
    /// its back. Two looks that see the same counts saw the truth.
    async fn quiet(&self) {
        let mut before = None;
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            let (mut active, mut handled) = (false, 0);
            self.each(|agent| {
                active |= agent.0.depth_and_activity().1;
                handled += agent.snapshot().handled;
            });
            if active {
                before = None;
                settled.await;
            } else if before == Some(handled) {
                return;
            } else {
                before = Some(handled);
            }
        }
    }

    async fn empty(&self) {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.agents.is_empty() {
                return;
            }
            settled.await;
        }
    }

    async fn take_down(&self) {
        self.down.store(true, SeqCst);
        self.hosts.iter().for_each(|host| host.stop());
        let threads = self.threads.lock().take();
        if let Some(threads) = threads {
            // A synchronous handler that never returns keeps its thread: that can't be helped, and is no reason to wait.
            if tokio::time::timeout(KILL_WAIT, threads.ended())
                .await
                .is_err()
            {
                log::error!("an agent blocks its thread, which is left to it");
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let alive = self.inner.agents.len();
        if self.inner.down.load(SeqCst) {
            return;
        }
        self.inner
            .each(|agent| agent.control(Control::Kill(ExitReason::Killed)));
        self.inner.hosts.iter().for_each(|host| host.stop());
        // Its threads end with it, whatever the agents do.
        drop(self.inner.threads.lock().take());
        if alive == 0 || std::thread::panicking() {
            return;
        }
        if self.fails_test {
            panic!("{alive} agents still run: did you call System::shutdown?");
        }
        log::warn!(alive, "system dropped with agents still running");
    }
}

/// Choices for a new agent.
#[must_use = "nothing is spawned until `spawn`"]
pub struct Spawn<'a, A: Agent> {
    system: &'a System,
    agent: Option<A>,
    factory: Option<Factory<A>>,
    label: Option<Arc<str>>,
    profile: Option<Profile>,
    arbiter: Option<usize>,
    supervisor: Option<Supervisor>,
}

impl<'a, A: Agent> Spawn<'a, A> {
    pub(crate) fn new(system: &'a System, agent: Option<A>, factory: Option<Factory<A>>) -> Self {
        Self {
            system,
            agent,
            factory,
            label: None,
            profile: None,
            arbiter: None,
            supervisor: None,
        }
    }

    /// A name for people. For others to find it, see [`Directory::register`].
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Another profile than its type's.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// A certain arbiter, modulo their number; by default they take turns.
    pub fn on(mut self, arbiter: usize) -> Self {
        self.arbiter = Some(arbiter);
        self
    }

    /// Below this supervisor.
    pub fn under(mut self, supervisor: &Supervisor) -> Self {
        self.supervisor = Some(supervisor.clone());
        self
    }

    /// Spawns it. It starts soon, on its arbiter.
    pub fn spawn(self) -> AgentRef {
        let inner = &self.system.inner;
        let kind = kind::<A>(inner);
        let profile = self.profile.map_or_else(|| kind.profile.clone(), Arc::new);
        let at = self
            .arbiter
            .unwrap_or_else(|| inner.next_host.fetch_add(1, Relaxed))
            % inner.hosts.len();
        let host = inner.hosts[at].clone();
        let mailbox = Mailbox::new(profile.mailbox_capacity);
        if inner.draining.load(SeqCst) {
            mailbox.set_gate(Gate::AgentsOnly);
        }
        let cell = Arc::new(Cell {
            id: AgentId(inner.next_id.fetch_add(1, Relaxed)),
            label: self.label,
            // For an agent to hold: it doesn't keep the system up.
            system: System {
                inner: inner.clone(),
                _guard: None,
            },
            host: host.clone(),
            kind,
            profile,
            factory: self.factory,
            supervisor: self.supervisor,
            mailbox,
            stats: Stats::default(),
            asides: OnceLock::new(),
        });
        let body = Body::new(self.agent);
        let agent = AgentRef(cell.clone());
        if let Some(supervisor) = &cell.supervisor {
            supervisor.adopt(&agent);
        }
        inner.agents.insert(agent.id(), agent.clone());
        host.run(Box::new(Runner { cell, body }));
        agent
    }
}

fn kind<A: Agent>(inner: &Inner) -> Arc<Kind<A>> {
    let known = inner.kinds.get(&TypeId::of::<A>()).map(|kind| kind.clone());
    if let Some(kind) = known.and_then(|kind| kind.downcast::<Kind<A>>().ok()) {
        return kind;
    }
    let kind = Arc::new(Kind::<A>::new());
    inner.kinds.insert(TypeId::of::<A>(), kind.clone());
    kind
}
