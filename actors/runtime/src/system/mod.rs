//! Agent systems: start, spawning and shutdown.

pub(crate) mod directory;
pub(crate) mod supervision;

use std::any::{Any, TypeId};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::log;
use dashmap::DashMap;
use directory::{DeadLetters, Directory, EventBus};
use supervision::{ExitReason, Supervisor};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::agent::{Agent, AgentId, AgentProfile, AgentSnapshot};
use crate::agent_cell::{AgentCell, AgentStats, AgentType, Control, Factory};
use crate::handle::AgentRef;
use crate::mailbox::agent_slot::{AgentSlot, RunToken};
use crate::mailbox::queue::{Gate, Mailbox};
use crate::mailbox::scheduler::{ArbiterThreads, Scheduler};
use crate::node_events::NodeEvents;
use crate::policy::PolicyChain;
use crate::store::{AuditLog, Store, StoreAlreadySet};
use crate::sync::Mutex;
use crate::waiting_questions::WaitingQuestions;

/// Time limit at shutdown for killed agents to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Actor system: a set of agents that share a directory, an event bus, policies and stores. Clones
/// are handles to the same system; a process may have several systems.
///
/// Shut it down with [`System::shutdown`]. Dropping the last handle outside of agents kills the
/// agents that still run; with the testkit, that also fails the test.
#[derive(Clone)]
pub struct System {
    inner: Arc<SystemInner>,
    /// Guard that ends the system with its last outside handle. `None` in handles that agents hold.
    _guard: Option<Arc<SystemGuard>>,
}

struct SystemInner {
    hosts: Vec<Arc<Scheduler>>,
    next_host: AtomicUsize,
    next_id: AtomicU64,
    kinds: DashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    agents: DashMap<AgentId, AgentRef>,
    watches: DashMap<AgentId, Vec<Watcher>>,
    dead_letters: DeadLetters,
    directory: Directory,
    events: EventBus,
    node_events: Arc<NodeEvents>,
    waiting_questions: WaitingQuestions,
    policy: PolicyChain,
    /// Audit log, which also holds the system's stores.
    audit: AuditLog,
    draining: AtomicBool,
    is_shut_down: AtomicBool,
    settled: Notify,
    threads: Mutex<Option<ArbiterThreads>>,
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

/// Guard that kills the remaining agents when the last handle outside of agents is dropped.
struct SystemGuard {
    inner: Arc<SystemInner>,
    fails_test: bool,
}

/// Result of [`System::shutdown`]: how many agents finished their work and how many were killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Number of agents that ended without remaining work.
    pub drained: usize,
    /// Number of agents killed at the deadline. Their remaining messages became dead letters.
    pub killed: usize,
}

impl System {
    /// Starts a system with `arbiters` threads of its own (at least 1). Works in any context: plain
    /// tokio, actix-web or no runtime.
    ///
    /// # Errors
    /// The I/O error if the thread can't be spawned.
    pub fn start(arbiters: usize) -> io::Result<Self> {
        let hosts: Vec<_> = (0..arbiters.max(1))
            .map(|_| Arc::new(Scheduler::default()))
            .collect();
        let threads = ArbiterThreads::start(hosts.clone())?;
        let system = Self::with_hosts(hosts, false);
        *system.inner.threads.lock() = Some(threads);
        Ok(system)
    }

    /// Creates a system on the current arbiter. Its agents share this thread with other tasks.
    ///
    /// # Panics
    /// Outside of an actix system or a tokio `LocalSet`.
    pub fn on_current_arbiter() -> Self {
        Self::on_current_arbiter_checked(false)
    }

    pub(crate) fn on_current_arbiter_checked(fails_test: bool) -> Self {
        let host = Arc::new(Scheduler::default());
        host.start();
        Self::with_hosts(vec![host], fails_test)
    }

    fn with_hosts(hosts: Vec<Arc<Scheduler>>, fails_test: bool) -> Self {
        let node_events = Arc::<NodeEvents>::default();
        let inner = Arc::new(SystemInner {
            hosts,
            next_host: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            kinds: DashMap::new(),
            agents: DashMap::new(),
            watches: DashMap::new(),
            dead_letters: DeadLetters::default(),
            directory: Directory::default(),
            events: EventBus::default(),
            policy: PolicyChain::new(node_events.clone()),
            node_events,
            waiting_questions: WaitingQuestions::default(),
            audit: AuditLog::default(),
            draining: AtomicBool::new(false),
            is_shut_down: AtomicBool::new(false),
            settled: Notify::new(),
            threads: Mutex::new(None),
        });
        let guard = Some(Arc::new(SystemGuard {
            inner: inner.clone(),
            fails_test,
        }));
        Self {
            inner,
            _guard: guard,
        }
    }

    /// Spawns an agent without a factory. It ends after a panic, as no fresh instance can be
    /// created; see [`System::spawn_with`].
    pub fn spawn<A: Agent>(&self, agent: A) -> AgentRef {
        self.prepare(agent).spawn()
    }

    /// Spawns an agent created by `factory`, which is called again for each restart.
    pub fn spawn_with<A: Agent>(
        &self,
        factory: impl Fn() -> A + Send + Sync + 'static,
    ) -> AgentRef {
        self.prepare_with(factory).spawn()
    }

    /// Returns a builder for spawning `agent` with options.
    pub fn prepare<A: Agent>(&self, agent: A) -> SpawnBuilder<'_, A> {
        SpawnBuilder::new(self, Some(agent), None)
    }

    /// Returns a builder for spawning an agent created by `factory`, with options.
    pub fn prepare_with<A: Agent>(
        &self,
        factory: impl Fn() -> A + Send + Sync + 'static,
    ) -> SpawnBuilder<'_, A> {
        SpawnBuilder::new(self, None, Some(Arc::new(factory)))
    }

    /// Returns the directory of agents by name.
    pub fn directory(&self) -> &Directory {
        &self.inner.directory
    }

    /// Returns the dead letters of this system.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.inner.dead_letters
    }

    /// Returns the publish/subscribe bus of this system.
    pub fn events(&self) -> &EventBus {
        &self.inner.events
    }

    /// Returns the event stream of this system: exchanges, questions, refusals, and what happens to agents.
    pub fn node_events(&self) -> &Arc<NodeEvents> {
        &self.inner.node_events
    }

    /// Returns the questions of calls that wait for a person.
    pub fn waiting_questions(&self) -> &WaitingQuestions {
        &self.inner.waiting_questions
    }

    /// Returns the policies for messages between agents of this system and peers.
    pub fn policy(&self) -> &PolicyChain {
        &self.inner.policy
    }

    /// Returns the stores of this system: in-memory ones, unless [`System::set_store`] was called
    /// before the first use.
    pub fn store(&self) -> &Store {
        self.inner.audit.store()
    }

    /// Sets the stores. Call it once, before the first agent is spawned, on the tokio runtime that
    /// is to write queued audit entries.
    ///
    /// # Errors
    /// [`StoreAlreadySet`] if stores have been set or used already.
    pub fn set_store(&self, store: Store) -> Result<(), StoreAlreadySet> {
        self.inner.audit.set_store(store)
    }

    /// Returns the audit log of this system.
    pub fn audit(&self) -> &AuditLog {
        &self.inner.audit
    }

    /// Returns the state of all agents, ordered by id.
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

    /// Shuts the system down. Rejects messages from outside, and lets agents finish queued messages
    /// and those that they send one another. After the time `limit`, kills the remaining agents and
    /// waits at most 2 s for their end, then at most 2 s for that of the threads. Queued audit
    /// entries are stored last, in what is left of `limit`; the others are lost.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let deadline = Instant::now() + limit;
        self.inner.draining.store(true, SeqCst);
        self.inner
            .for_each_agent(|agent| agent.0.set_gate(Gate::AgentsOnly));
        let quiet = tokio::time::timeout_at(deadline, self.inner.wait_until_quiescent())
            .await
            .is_ok();
        let mut report = ShutdownReport {
            drained: 0,
            killed: 0,
        };
        self.inner.for_each_agent(|agent| {
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
        // A running synchronous handler delays the end of its agent.
        let _ = tokio::time::timeout(KILL_TIMEOUT, self.inner.wait_until_empty()).await;
        self.inner.stop_hosts().await;
        // Waits for an unavailable store only within the same limit.
        let kv = &self.store().kv;
        let _ = tokio::time::timeout_at(deadline, self.inner.policy.quotas().flush(kv)).await;
        let _ = tokio::time::timeout_at(deadline, self.inner.audit.flush()).await;
        report
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Relaxed)
    }

    /// Notifies a shutdown in progress that an agent has become idle.
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

    pub(crate) async fn wait_for_exit(&self, target: &AgentRef) -> ExitReason {
        let (done, ended) = oneshot::channel();
        self.add_watcher(target, Watcher::Future(done));
        ended.await.unwrap_or(ExitReason::Killed)
    }

    fn add_watcher(&self, target: &AgentRef, watcher: Watcher) {
        let gone: Vec<Watcher> = {
            let mut watchers = self.inner.watches.entry(target.id()).or_default();
            watchers.push(watcher);
            // Watchers that are gone are removed now and then, and dropped outside of the map's
            // lock.
            match watchers.len().is_power_of_two() {
                true => watchers
                    .extract_if(.., |watcher| watcher.is_gone())
                    .collect(),
                false => Vec::new(),
            }
        };
        drop(gone);
        // The agent may have ended in between; then no other code notifies this watcher.
        if let Some(why) = target.0.exit() {
            self.inner.notify_watchers(target.id(), why);
        }
    }

    pub(crate) fn agent_ended(&self, id: AgentId, why: ExitReason) {
        let ended = self.inner.agents.remove(&id);
        self.inner.directory.forget(id);
        self.inner.notify_watchers(id, why);
        self.note_settled();
        drop(ended);
    }
}

impl SystemInner {
    fn for_each_agent(&self, f: impl FnMut(&AgentRef)) {
        let agents: Vec<_> = self.agents.iter().map(|a| a.clone()).collect();
        agents.iter().for_each(f);
    }

    fn notify_watchers(&self, id: AgentId, why: ExitReason) {
        for watcher in self.watches.remove(&id).map(|(_, w)| w).unwrap_or_default() {
            match watcher {
                Watcher::Agent(agent) => agent.control(Control::Terminated(id, why)),
                Watcher::Future(done) => drop(done.send(why)),
            }
        }
    }

    /// Completes when no agent has work. The agents are checked one after another, and work may
    /// move to one that has been checked already. Therefore two passes have to see the same counts.
    async fn wait_until_quiescent(&self) {
        let mut before = None;
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            let (mut active, mut handled) = (false, 0);
            self.for_each_agent(|agent| {
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

    async fn wait_until_empty(&self) {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.agents.is_empty() {
                return;
            }
            settled.await;
        }
    }

    async fn stop_hosts(&self) {
        self.is_shut_down.store(true, SeqCst);
        self.hosts.iter().for_each(|host| host.stop());
        let threads = self.threads.lock().take();
        if let Some(threads) = threads {
            // A synchronous handler that never returns blocks its thread; don't wait for it.
            if tokio::time::timeout(KILL_TIMEOUT, threads.stop_and_join())
                .await
                .is_err()
            {
                log::error!(waited = ?KILL_TIMEOUT, "a synchronous handler still blocks its thread: shutdown doesn't wait longer");
            }
        }
    }
}

impl Drop for SystemGuard {
    fn drop(&mut self) {
        let alive = self.inner.agents.len();
        if self.inner.is_shut_down.load(SeqCst) {
            return;
        }
        self.inner
            .for_each_agent(|agent| agent.control(Control::Kill(ExitReason::Killed)));
        self.inner.hosts.iter().for_each(|host| host.stop());
        // The threads stop with it, whatever the agents do.
        drop(self.inner.threads.lock().take());
        if alive == 0 || std::thread::panicking() {
            return;
        }
        if self.fails_test {
            panic!("{alive} agents still run: did you call System::shutdown?");
        }
        log::warn!(
            alive,
            "system dropped with agents still running, which were killed: call `System::shutdown` first"
        );
    }
}

/// Builder for spawning an agent with options.
#[must_use = "nothing is spawned until `spawn`"]
pub struct SpawnBuilder<'a, A: Agent> {
    system: &'a System,
    agent: Option<A>,
    factory: Option<Factory<A>>,
    label: Option<Arc<str>>,
    profile: Option<AgentProfile>,
    arbiter: Option<usize>,
    supervisor: Option<Supervisor>,
}

impl<'a, A: Agent> SpawnBuilder<'a, A> {
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

    /// Sets the agent's name for display. To make the agent findable, see [`Directory::register`].
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets a profile in place of the type's default.
    pub fn profile(mut self, profile: AgentProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Sets the arbiter on which the agent runs, by index modulo the number of arbiters. By
    /// default, arbiters get agents in turn.
    pub fn on(mut self, arbiter: usize) -> Self {
        self.arbiter = Some(arbiter);
        self
    }

    /// Puts the agent under a supervisor, which decides about its restarts.
    pub fn under(mut self, supervisor: &Supervisor) -> Self {
        self.supervisor = Some(supervisor.clone());
        self
    }

    /// Spawns the agent and returns its handle. The agent starts asynchronously on its arbiter.
    pub fn spawn(self) -> AgentRef {
        let inner = &self.system.inner;
        let kind = agent_type::<A>(inner);
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
        let cell = Arc::new(AgentCell {
            id: AgentId(inner.next_id.fetch_add(1, Relaxed)),
            label: self.label,
            // Held by the agent, so it must not keep the system alive.
            system: System {
                inner: inner.clone(),
                _guard: None,
            },
            host: host.clone(),
            agent_type: kind,
            profile,
            factory: self.factory,
            supervisor: self.supervisor,
            mailbox,
            stats: AgentStats::default(),
            inline_handlers: OnceLock::new(),
            handler_shares: OnceLock::new(),
        });
        let body = AgentSlot::new(self.agent);
        let agent = AgentRef(cell.clone());
        if let Some(supervisor) = &cell.supervisor {
            supervisor.adopt(&agent);
        }
        inner.agents.insert(agent.id(), agent.clone());
        host.run(Box::new(RunToken { cell, slot: body }));
        agent
    }
}

fn agent_type<A: Agent>(inner: &SystemInner) -> Arc<AgentType<A>> {
    let known = inner.kinds.get(&TypeId::of::<A>()).map(|kind| kind.clone());
    if let Some(kind) = known.and_then(|kind| kind.downcast::<AgentType<A>>().ok()) {
        return kind;
    }
    let kind = Arc::new(AgentType::<A>::new());
    inner.kinds.insert(TypeId::of::<A>(), kind.clone());
    kind
}
