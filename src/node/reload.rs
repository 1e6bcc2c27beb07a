//! Reload: applies a changed topology file to a running node.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_rpc::FileVersion;
use callboard_runtime::AgentRef;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::agent_set::{drain_agents, running_bundle};
use super::console::NodeConsole;
use super::listen::{ListenerSockets, OpenListener, listener_at};
use super::listener_servers::RetiredServers;
use super::{Node, NodeError};
use crate::config::{RunningAgent, Topology};

/// Time for which replaced agents and listeners still accept work, for callers that looked them up
/// before.
pub const RELOAD_GRACE: Duration = Duration::from_secs(1);
/// Maximum time for running calls of replaced agents. Then they are dropped.
pub const RELOAD_DRAIN_MAX: Duration = Duration::from_secs(600);

/// Counts of a reload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Number of new or changed agents and upstreams.
    pub started: usize,
    /// Number of removed or replaced agents and upstreams. They finish their calls.
    pub ended: usize,
    /// Number of opened or changed listeners.
    pub opened: usize,
    /// Number of closed listeners.
    pub closed: usize,
}

/// Action for a declared listener.
enum ListenerPlan {
    /// Keep the open listener at this index.
    Keep(usize),
    /// Take over the socket of the open listener at this index.
    TakeOver(usize, ListenerSockets),
    /// Open a new listener.
    Open(ListenerSockets),
}

impl Node {
    /// Applies another topology. Sessions, running calls and unchanged listeners continue.
    /// Unchanged agents and upstreams keep running, with their connections.
    ///
    /// # Errors
    /// See [`NodeError`]. The previous topology stays in force.
    pub async fn reload(&mut self, topology: &Topology) -> Result<ReloadReport, NodeError> {
        if topology.fingerprints.store != self.store_fingerprint {
            return Err(NodeError::StoreChanged);
        }
        let plans = self.plan_listeners(topology)?;
        let answering = self.question_router.plan(topology)?;
        let planned = self.agents.plan(topology).await?;
        let mut done = ReloadReport {
            started: planned.started_ids.len(),
            ..ReloadReport::default()
        };
        if let Some(monitoring) = &self.monitoring {
            monitoring.update(topology);
        }
        let mut old = self.agents.apply(planned, topology).await?;
        done.ended = old.iter().filter(|running| !running.is_bundle).count();
        self.runner.start_if_needed(&self.system, topology);
        self.question_router.apply(answering);
        old.extend(self.policy.update(topology).map(RunningAgent::new));
        self.buffers
            .set_limits(super::policy::buffer_limits(topology));
        self.data_classes
            .iter()
            .for_each(|classes| classes.update(topology));

        let mut before: Vec<Option<OpenListener>> = std::mem::take(&mut self.listeners)
            .into_iter()
            .map(Some)
            .collect();
        let mut left = RetiredServers::default();
        for (at, plan) in plans.into_iter().enumerate() {
            match self
                .apply_listener_plan(plan, &mut before, topology, at, &mut left)
                .await
            {
                Ok((open, is_new)) => {
                    done.opened += usize::from(is_new);
                    self.listeners.push(open);
                }
                Err(failed) => {
                    let (kept, error) = *failed;
                    tracing::error!(%error, "failed to open a listener");
                    self.listeners.extend(kept);
                }
            }
        }
        for gone in before.into_iter().flatten() {
            done.closed += 1;
            left.bundles.extend(gone.bundle());
            self.retiring_tasks.spawn_local(gone.close());
        }
        self.publish_addresses(topology);
        match &self.console {
            Some(console) => console.update(self, topology),
            None => NodeConsole::warn_if_added(topology),
        }
        self.retire_replaced(left, old);
        Ok(done)
    }

    fn plan_listeners(&self, topology: &Topology) -> Result<Vec<ListenerPlan>, NodeError> {
        let mut taken = vec![false; self.listeners.len()];
        let mut plans = Vec::with_capacity(topology.listeners.len());
        for (at, listener) in topology.listeners.iter().enumerate() {
            Self::can_serve_listener(listener)?;
            let free = |wanted: &dyn Fn(&OpenListener) -> bool| {
                self.listeners
                    .iter()
                    .zip(&taken)
                    .position(|(open, taken)| !taken && wanted(open))
            };
            let same = free(&|open| open.matches_declaration(topology, at));
            let place = same.or_else(|| free(&|open| open.bind == listener.bind));
            if let Some(taken) = place.and_then(|place| taken.get_mut(place)) {
                *taken = true;
            }
            plans.push(
                match (
                    same,
                    place.zip(place.and_then(|place| self.listeners.get(place))),
                ) {
                    (Some(place), _) => ListenerPlan::Keep(place),
                    (None, Some((place, open))) => {
                        ListenerPlan::TakeOver(place, self.reuse_sockets(open, listener)?)
                    }
                    (None, None) => ListenerPlan::Open(self.bind_sockets(listener)?),
                },
            );
        }
        Ok(plans)
    }

    /// Opens or changes the listener of `plan`. Returns it, and whether it is a new one.
    ///
    /// # Errors
    /// With what went wrong, the listener that was there before: it stays open, with the access that it had.
    async fn apply_listener_plan(
        &self,
        plan: ListenerPlan,
        before: &mut [Option<OpenListener>],
        topology: &Topology,
        at: usize,
        left: &mut RetiredServers,
    ) -> Result<(OpenListener, bool), Box<(Option<OpenListener>, NodeError)>> {
        let new = |opened: Result<OpenListener, NodeError>| match opened {
            Ok(open) => Ok((open, true)),
            Err(error) => Err(Box::new((None, error))),
        };
        let mut take = |place: usize| before.get_mut(place).and_then(Option::take);
        let (open, sockets) = match plan {
            ListenerPlan::Open(sockets) => {
                return new(self.open_on_sockets(sockets, topology, at));
            }
            ListenerPlan::Keep(place) => (take(place), None),
            ListenerPlan::TakeOver(place, sockets) => (take(place), Some(sockets)),
        };
        let Some(mut open) = open else {
            return new(self.open_listener(topology, at));
        };
        if sockets.is_none() && !self.needs_restart(&open, topology, at) {
            return match self.update_listener(&mut open, topology, at, left) {
                Ok(()) => Ok((open, false)),
                Err(error) => Err(Box::new((Some(open), error))),
            };
        }
        let reopened = match sockets {
            Some(sockets) => Ok(sockets),
            None => listener_at(topology, at).and_then(|to| self.reuse_sockets(&open, to)),
        };
        let reopened = reopened.and_then(|sockets| self.open_on_sockets(sockets, topology, at));
        let other = match reopened {
            Ok(other) => other,
            Err(error) => return Err(Box::new((Some(open), error))),
        };
        left.bundles.extend(open.bundle());
        // A session that the old server accepted after this would be lost at its next request.
        open.stop_accepting().await;
        self.retiring_tasks
            .spawn_local(open.close_after(self.grace_period()));
        Ok((other, true))
    }

    /// Waits for [`RELOAD_GRACE`], or until the node shuts down.
    fn grace_period(&self) -> impl Future<Output = ()> + 'static {
        let ending = self.shutdown_token.clone();
        async move { drop(tokio::time::timeout(RELOAD_GRACE, ending.cancelled()).await) }
    }

    /// Ends replaced aggregates and agents after their running work, aggregates first.
    fn retire_replaced(&self, left: RetiredServers, old: Vec<RunningAgent>) {
        let RetiredServers {
            bundles,
            closers: servers,
        } = left;
        if bundles.is_empty() && old.is_empty() && servers.is_empty() {
            return;
        }
        let grace = self.grace_period();
        self.retiring_tasks.spawn_local(async move {
            grace.await;
            let (of_servers, old): (Vec<_>, Vec<_>) =
                old.into_iter().partition(|running| running.is_bundle);
            let bundles: Vec<_> = bundles
                .into_iter()
                .map(running_bundle)
                .chain(of_servers)
                .collect();
            let all: Vec<_> = bundles
                .iter()
                .chain(&old)
                .map(|running| running.agent.clone())
                .collect();
            let ended = async {
                drain_agents(bundles).await;
                drain_agents(old).await;
            };
            if tokio::time::timeout(RELOAD_DRAIN_MAX, ended).await.is_err() {
                all.iter().for_each(AgentRef::kill);
            }
            servers.into_iter().for_each(|end| end());
        });
    }
}

/// Interval at which the topology file is checked for changes.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time without changes before the file is read: editors write in several steps.
const DEBOUNCE_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of such delays for a file that changes all the time.
const DEBOUNCE_DELAYS_MAX: usize = 20;

/// Watches a topology file, and SIGHUP as a request to reload. The file is polled: a folder in which a
/// store is written too would report each write.
pub(crate) struct TopologyWatcher {
    path: PathBuf,
    last_version: Option<FileVersion>,
    last_content: Option<Vec<u8>>,
    hangup: Signal,
    polls: Interval,
}

impl TopologyWatcher {
    /// Begins with the current version of the file. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`NodeError::Io`] if the signal handler can't be installed.
    pub(crate) fn new(path: &Path) -> Result<Self, NodeError> {
        let hangup = signal(SignalKind::hangup())?;
        let mut polls = interval(FILE_POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            path: path.to_owned(),
            // Taken before the file is read, so that a change in between is detected later.
            last_version: FileVersion::of(path),
            last_content: fs::read(path).ok(),
            hangup,
            polls,
        })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for changed content or SIGHUP. Cancel safe.
    pub(crate) async fn wait_for_change(&mut self) {
        loop {
            let hung_up = tokio::select! {
                _ = self.hangup.recv() => true,
                _ = self.polls.tick() => false,
            };
            if hung_up {
                self.last_version = FileVersion::of(&self.path);
            } else if !self.is_changed().await {
                continue;
            }
            let now = fs::read(&self.path).ok();
            // A missing file is about to be replaced.
            let is_other = now.is_some() && now != self.last_content;
            if is_other {
                self.last_content = now;
            }
            if is_other || hung_up {
                return;
            }
        }
    }

    /// Returns whether the file has another version than when it was last read, and waits until that
    /// doesn't change any more.
    async fn is_changed(&mut self) -> bool {
        let mut version = FileVersion::of(&self.path);
        if version == self.last_version {
            return false;
        }
        for _ in 0..DEBOUNCE_DELAYS_MAX {
            sleep(DEBOUNCE_DELAY).await;
            let now = FileVersion::of(&self.path);
            if now == version {
                break;
            }
            version = now;
        }
        self.last_version = version;
        true
    }
}
