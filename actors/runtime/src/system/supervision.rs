//! Supervision: restarts of failed agents, restart limits and backoff.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::agent::AgentId;
use crate::agent_cell::{AnyAgentCell, Control};
use crate::handle::AgentRef;
use crate::sync::Mutex;

/// Restart limit: at most `restarts_max` restarts within a time window. One more counts as a
/// failure of the agent or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartIntensity {
    /// Maximum number of restarts within the window.
    pub restarts_max: u32,
    /// Length of the time window.
    pub within: Duration,
}

impl Default for RestartIntensity {
    fn default() -> Self {
        Self {
            restarts_max: 5,
            within: Duration::from_secs(10),
        }
    }
}

/// Delay before restarts. It doubles with each recent restart. Jitter spreads the restarts of many
/// agents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Delay before the first restart.
    pub first: Duration,
    /// Maximum delay.
    pub max: Duration,
    /// Maximum share of the delay that jitter takes off at random, from 0 to 1.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(10),
            max: Duration::from_secs(5),
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// Backoff without any delay.
    pub const NONE: Self = Self {
        first: Duration::ZERO,
        max: Duration::ZERO,
        jitter: 0.0,
    };

    /// Returns the delay before restart number `nth`, counted from 0. The jitter shortens it at
    /// random.
    pub fn pause(&self, nth: u32) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(nth.min(31)).unwrap_or(u32::MAX))
            .min(self.max);
        let jitter = self.jitter.clamp(0.0, 1.0);
        doubled.mul_f64(1.0 - jitter * rand::random::<f64>())
    }
}

/// Reason for which an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ExitReason {
    /// Stopped on request, by itself or at an orderly shutdown.
    Stopped = 1,
    /// Failed more often than the restart limit allows, or has no factory.
    Failed,
    /// Ended by its supervisor, because another agent of the group exceeded the restart limit.
    Escalated,
    /// Killed, or the system shut down before the agent had finished.
    Killed,
}

impl ExitReason {
    pub(crate) fn from_u8(exit: u8) -> Option<Self> {
        [Self::Stopped, Self::Failed, Self::Escalated, Self::Killed]
            .into_iter()
            .find(|why| *why as u8 == exit)
    }
}

/// Strategy of a supervisor for the other agents of its group when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartStrategy {
    /// Restart only the failed agent.
    OneForOne,
    /// Restart all agents of the group, as they depend on one another.
    AllForOne,
}

pub(crate) enum RestartDecision {
    Restart(Duration),
    End,
}

/// Times of recent restarts, for the restart limit.
#[derive(Debug, Default)]
pub(crate) struct RestartHistory(VecDeque<Instant>);

impl RestartHistory {
    pub(crate) fn decide(
        &mut self,
        intensity: RestartIntensity,
        backoff: &Backoff,
    ) -> RestartDecision {
        let now = Instant::now();
        while self
            .0
            .front()
            .is_some_and(|then| now.duration_since(*then) > intensity.within)
        {
            self.0.pop_front();
        }
        let recent = self.0.len() as u32;
        if recent >= intensity.restarts_max {
            return RestartDecision::End;
        }
        self.0.push_back(now);
        RestartDecision::Restart(backoff.pause(recent))
    }
}

/// Supervisor of a group of agents and of other supervisors: a node of the supervision tree.
///
/// Failures count against the group's [`RestartIntensity`]. When that is exceeded, the supervisor
/// itself fails: its parent restarts the whole group or fails in turn. Without a parent, the group
/// ends.
#[derive(Clone)]
pub struct Supervisor(Arc<SupervisorNode>);

struct SupervisorNode {
    strategy: RestartStrategy,
    intensity: RestartIntensity,
    backoff: Backoff,
    parent: Option<Supervisor>,
    history: Mutex<RestartHistory>,
    agents: Mutex<Vec<Weak<dyn AnyAgentCell>>>,
    groups: Mutex<Vec<Weak<SupervisorNode>>>,
}

impl Supervisor {
    /// Creates a supervisor without a parent.
    pub fn new(strategy: RestartStrategy, intensity: RestartIntensity, backoff: Backoff) -> Self {
        Self::with_parent(strategy, intensity, backoff, None)
    }

    /// Creates a supervisor whose parent is this one.
    pub fn child(
        &self,
        strategy: RestartStrategy,
        intensity: RestartIntensity,
        backoff: Backoff,
    ) -> Self {
        let child = Self::with_parent(strategy, intensity, backoff, Some(self.clone()));
        self.0.groups.lock().push(Arc::downgrade(&child.0));
        child
    }

    fn with_parent(
        strategy: RestartStrategy,
        intensity: RestartIntensity,
        backoff: Backoff,
        parent: Option<Supervisor>,
    ) -> Self {
        Self(Arc::new(SupervisorNode {
            strategy,
            intensity,
            backoff,
            parent,
            history: Mutex::default(),
            agents: Mutex::default(),
            groups: Mutex::default(),
        }))
    }

    pub(crate) fn adopt(&self, agent: &AgentRef) {
        let mut agents = self.0.agents.lock();
        agents.retain(|a| a.strong_count() > 0);
        agents.push(Arc::downgrade(&agent.0));
    }

    /// Returns the decision about the failed agent. Other agents of the group get theirs as a
    /// control message.
    pub(crate) fn decide(&self, failed: AgentId) -> RestartDecision {
        self.decide_for_child(failed, None)
    }

    /// Returns the decision about the failed agent. `below` is the child group that failed with the
    /// agent, if any.
    fn decide_for_child(&self, failed: AgentId, below: Option<&Self>) -> RestartDecision {
        let verdict = self
            .0
            .history
            .lock()
            .decide(self.0.intensity, &self.0.backoff);
        if let RestartDecision::Restart(pause) = verdict {
            let group = if self.0.strategy == RestartStrategy::AllForOne {
                Some(self)
            } else {
                below
            };
            if let Some(group) = group {
                group.restart_all(failed, pause);
            }
            return verdict;
        }
        let verdict = self.0.parent.as_ref().map_or(verdict, |parent| {
            parent.decide_for_child(failed, Some(self))
        });
        if let RestartDecision::End = verdict {
            self.end_all(failed);
        }
        verdict
    }

    fn restart_all(&self, except: AgentId, pause: Duration) {
        let mut history = self.0.history.lock();
        // A group restarted by its parent starts counting again.
        if history.0.len() as u32 >= self.0.intensity.restarts_max && self.0.parent.is_some() {
            history.0.clear();
        }
        drop(history);
        self.control_others(except, &|| Control::Restart(pause));
        for group in self.groups() {
            *group.0.history.lock() = RestartHistory::default();
        }
    }

    fn end_all(&self, except: AgentId) {
        callboard_message::log::error!(
            "supervisor ends all its agents: too many restarts in a short time"
        );
        self.control_others(except, &|| Control::Kill(ExitReason::Escalated));
    }

    /// Sends a control message to every agent of this group and of the groups below it, except one.
    fn control_others(&self, except: AgentId, control: &dyn Fn() -> Control) {
        let agents: Vec<_> = self
            .0
            .agents
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        agents
            .iter()
            .filter(|agent| agent.id() != except)
            .for_each(|agent| agent.control(control()));
        self.groups()
            .iter()
            .for_each(|group| group.control_others(except, control));
    }

    fn groups(&self) -> Vec<Supervisor> {
        self.0
            .groups
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .map(Supervisor)
            .collect()
    }
}
