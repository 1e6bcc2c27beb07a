//! Who decides what follows a failure.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::agent::AgentId;
use crate::cell::{AnyCell, Control};
use crate::handle::AgentRef;
use crate::sync::Mutex;

/// How many restarts are borne: `restarts_max` in `within`. One more, and it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intensity {
    /// Restarts borne in that time.
    pub restarts_max: u32,
    /// The time that counts.
    pub within: Duration,
}

impl Default for Intensity {
    fn default() -> Self {
        Self {
            restarts_max: 5,
            within: Duration::from_secs(10),
        }
    }
}

/// How long to wait before a restart: doubled from one to the next, with jitter so that many don't come back at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Before the first restart.
    pub first: Duration,
    /// Never longer than this.
    pub max: Duration,
    /// Which share of the pause is random, from 0 to 1.
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
    /// No pause at all.
    pub const NONE: Self = Self {
        first: Duration::ZERO,
        max: Duration::ZERO,
        jitter: 0.0,
    };

    /// The pause before restart number `nth`, from 0.
    pub fn pause(&self, nth: u32) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(nth.min(31)).unwrap_or(u32::MAX))
            .min(self.max);
        let jitter = self.jitter.clamp(0.0, 1.0);
        doubled.mul_f64(1.0 - jitter * rand::random::<f64>())
    }
}

/// Why an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ExitReason {
    /// Someone stopped it, or it stopped itself.
    Stopped = 1,
    /// It failed more often than is borne, or nothing could make a fresh one.
    Failed,
    /// A sibling failed more often than is borne, and its supervisor gave up on all.
    Escalated,
    /// The system ended before it was done.
    Killed,
}

impl ExitReason {
    pub(crate) fn from_u8(exit: u8) -> Option<Self> {
        [Self::Stopped, Self::Failed, Self::Escalated, Self::Killed]
            .into_iter()
            .find(|why| *why as u8 == exit)
    }
}

/// Which agents start afresh when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Only the one that failed.
    OneForOne,
    /// All of them: they depend on one another.
    AllForOne,
}

pub(crate) enum Verdict {
    Restart(Duration),
    End,
}

/// Recent restarts.
#[derive(Debug, Default)]
pub(crate) struct History(VecDeque<Instant>);

impl History {
    pub(crate) fn judge(&mut self, borne: Intensity, backoff: &Backoff) -> Verdict {
        let now = Instant::now();
        while self
            .0
            .front()
            .is_some_and(|then| now.duration_since(*then) > borne.within)
        {
            self.0.pop_front();
        }
        let recent = self.0.len() as u32;
        if recent >= borne.restarts_max {
            return Verdict::End;
        }
        self.0.push_back(now);
        Verdict::Restart(backoff.pause(recent))
    }
}

/// Watches over a group of agents, and of other supervisors: a node of the supervision tree.
///
/// A failure counts against the group's [`Intensity`]. When that is used up the supervisor itself has failed: its parent
/// starts the whole group afresh, or fails in turn; without a parent the group ends.
#[derive(Clone)]
pub struct Supervisor(Arc<Node>);

struct Node {
    strategy: Strategy,
    borne: Intensity,
    backoff: Backoff,
    parent: Option<Supervisor>,
    history: Mutex<History>,
    agents: Mutex<Vec<Weak<dyn AnyCell>>>,
    groups: Mutex<Vec<Weak<Node>>>,
}

impl Supervisor {
    /// A supervisor without a parent.
    pub fn new(strategy: Strategy, borne: Intensity, backoff: Backoff) -> Self {
        Self::with_parent(strategy, borne, backoff, None)
    }

    /// A supervisor below this one.
    pub fn child(&self, strategy: Strategy, borne: Intensity, backoff: Backoff) -> Self {
        let child = Self::with_parent(strategy, borne, backoff, Some(self.clone()));
        self.0.groups.lock().push(Arc::downgrade(&child.0));
        child
    }

    fn with_parent(
        strategy: Strategy,
        borne: Intensity,
        backoff: Backoff,
        parent: Option<Supervisor>,
    ) -> Self {
        Self(Arc::new(Node {
            strategy,
            borne,
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

    /// What becomes of `failed`; its siblings learn theirs by a control message.
    pub(crate) fn judge(&self, failed: AgentId) -> Verdict {
        self.judge_below(failed, None)
    }

    /// The same, where the group `below` this one has failed with it.
    fn judge_below(&self, failed: AgentId, below: Option<&Self>) -> Verdict {
        let verdict = self.0.history.lock().judge(self.0.borne, &self.0.backoff);
        if let Verdict::Restart(pause) = verdict {
            let group = if self.0.strategy == Strategy::AllForOne {
                Some(self)
            } else {
                below
            };
            if let Some(group) = group {
                group.restart_all(failed, pause);
            }
            return verdict;
        }
        let verdict = self
            .0
            .parent
            .as_ref()
            .map_or(verdict, |parent| parent.judge_below(failed, Some(self)));
        if let Verdict::End = verdict {
            self.end_all(failed);
        }
        verdict
    }

    fn restart_all(&self, but: AgentId, pause: Duration) {
        let mut history = self.0.history.lock();
        // A group that its parent starts afresh starts counting afresh.
        if history.0.len() as u32 >= self.0.borne.restarts_max && self.0.parent.is_some() {
            history.0.clear();
        }
        drop(history);
        self.tell_others(but, &|| Control::Restart(pause));
        for group in self.groups() {
            *group.0.history.lock() = History::default();
        }
    }

    fn end_all(&self, but: AgentId) {
        callboard_message::log::error!("a supervisor gives up: more restarts than it bears");
        self.tell_others(but, &|| Control::Kill(ExitReason::Escalated));
    }

    /// Tells every other agent of this group and of the groups below.
    fn tell_others(&self, but: AgentId, control: &dyn Fn() -> Control) {
        let agents: Vec<_> = self
            .0
            .agents
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        agents
            .iter()
            .filter(|agent| agent.id() != but)
            .for_each(|agent| agent.control(control()));
        self.groups()
            .iter()
            .for_each(|group| group.tell_others(but, control));
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
