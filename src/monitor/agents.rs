//! Agents of a node, with the number of calls to each.

use std::collections::HashMap;

use callboard_runtime::{AgentSnapshot, AgentState, ExchangeKind};

use super::step::shown;
use super::view::AgentView;

/// Maximum number of agents whose calls are counted, by name. Calls of further ones aren't.
pub(super) const AGENTS_COUNTED_MAX: usize = 20_000;
/// Maximum number of agents in a list. Those of the topology come first; further ones are left out.
pub(crate) const AGENTS_SHOWN_MAX: usize = 1_000;

/// Calls of an agent since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CallCount {
    calls: u64,
    failures: u64,
}

/// Calls of an agent by the kind of the exchange.
#[derive(Debug, Clone, Copy, Default)]
struct CountsByKind {
    inbound: CallCount,
    outbound: CallCount,
    local: CallCount,
}

impl CountsByKind {
    /// Returns the calls of the agent, at least: a call that an upstream passes on under its own name counts once, and which
    /// of its outbound exchanges those are isn't known.
    fn total(&self) -> CallCount {
        let with_peers = |of: fn(&CallCount) -> u64| of(&self.inbound).max(of(&self.outbound));
        CallCount {
            calls: with_peers(|count| count.calls) + self.local.calls,
            failures: with_peers(|count| count.failures) + self.local.failures,
        }
    }
}

/// Number of calls by the agent's name.
#[derive(Default)]
pub(super) struct CallCounts {
    by_name: HashMap<Box<str>, CountsByKind>,
}

impl CallCounts {
    /// Counts exchanges as calls of their agent, if that has a name.
    pub fn record(&mut self, name: &str, kind: ExchangeKind, calls: u64, failed: bool) {
        if name.is_empty() {
            return;
        }
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= AGENTS_COUNTED_MAX {
                return;
            }
            self.by_name.insert(name.into(), CountsByKind::default());
        }
        let Some(known) = self.by_name.get_mut(name) else {
            return;
        };
        let count = match kind {
            ExchangeKind::Inbound => &mut known.inbound,
            ExchangeKind::Outbound => &mut known.outbound,
            ExchangeKind::Local => &mut known.local,
        };
        count.calls += calls;
        count.failures += if failed { calls } else { 0 };
    }

    /// Returns the counts of agents, in their order; 0 for one without a name or calls.
    pub fn of(&self, agents: &[AgentSnapshot]) -> Vec<CallCount> {
        let names = agents.iter().map(|agent| agent.name.as_deref());
        let known = names.map(|name| name.and_then(|name| self.by_name.get(name)));
        let counts = known.map(|known| known.map(CountsByKind::total));
        counts.map(Option::unwrap_or_default).collect()
    }

    /// Returns the number of names that are counted.
    #[cfg(test)]
    pub fn counted(&self) -> usize {
        self.by_name.len()
    }
}

/// Returns the view of an agent. `kinds` has the kinds in the topology by name.
pub(super) fn view(
    agent: AgentSnapshot,
    count: CallCount,
    kinds: &HashMap<String, String>,
) -> AgentView {
    let name = agent.name.as_deref();
    let kind = name.and_then(|name| kinds.get(name).map(String::as_str));
    AgentView {
        id: agent.id.to_string(),
        name: name.map(shown),
        kind: kind.unwrap_or(agent.kind).to_owned(),
        state: state_name(agent.state).to_owned(),
        mailbox: agent.mailbox_depth,
        mailbox_max: agent.mailbox_capacity,
        in_flight: agent.in_flight,
        handled: agent.handled,
        restarts: agent.restarts,
        last_error: agent.last_error.as_deref().map(shown),
        calls: count.calls,
        failures: count.failures,
        parent: None,
    }
}

/// Returns the first `max` agents in the order of a list: those of the topology by name, then others with a name, then those
/// without by id.
pub(super) fn first_sorted(
    agents: Vec<AgentSnapshot>,
    kinds: &HashMap<String, String>,
    max: usize,
) -> Vec<AgentSnapshot> {
    let rank = |agent: &AgentSnapshot| match &agent.name {
        Some(name) if kinds.contains_key(&**name) => 0_u8,
        Some(_) => 1,
        None => 2,
    };
    let ranked = agents.into_iter().map(|agent| (rank(&agent), agent));
    let mut ranked: Vec<(u8, AgentSnapshot)> = ranked.collect();
    let order = |(rank_a, a): &(u8, AgentSnapshot), (rank_b, b): &(u8, AgentSnapshot)| {
        (rank_a, &a.name, a.id).cmp(&(rank_b, &b.name, b.id))
    };
    if ranked.len() > max {
        // Cheaper than sorting those that are left out.
        ranked.select_nth_unstable_by(max, order);
        ranked.truncate(max);
    }
    ranked.sort_unstable_by(order);
    ranked.into_iter().map(|(_, agent)| agent).collect()
}

fn state_name(state: AgentState) -> &'static str {
    match state {
        AgentState::Starting => "starting",
        AgentState::Running => "running",
        AgentState::Restarting => "restarting",
        AgentState::Draining => "draining",
        AgentState::Ended => "ended",
    }
}
