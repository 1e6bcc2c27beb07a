//! Agents of a node, with the number of calls to each.

use std::collections::HashMap;

use callboard_runtime::{AgentSnapshot, AgentState, ExchangeEnd};

use super::calls::shown;
use super::names;
use super::view::AgentView;

/// Maximum number of agents whose calls are counted, by name. Calls of further ones aren't.
pub(super) const AGENTS_COUNTED_MAX: usize = 20_000;
/// Maximum number of agents in a list. Those of the topology come first; further ones are left out.
pub(crate) const AGENTS_SHOWN_MAX: usize = 1_000;

/// Calls of an agent since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CallCount {
    calls: u64,
    failures: u64,
}

/// Number of calls by the agent's name.
#[derive(Default)]
pub(super) struct CallCounts {
    by_name: HashMap<Box<str>, CallCount>,
}

impl CallCounts {
    /// Counts an exchange as a call of its agent, if that has a name.
    pub fn record(&mut self, end: &ExchangeEnd) {
        let name = &end.exchange.agent;
        if name.is_empty() {
            return;
        }
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= AGENTS_COUNTED_MAX {
                return;
            }
            self.by_name.insert(name.clone(), CallCount::default());
        }
        if let Some(count) = self.by_name.get_mut(name) {
            let failed = names::error_type(end.failure, end.is_tool_error).is_some();
            count.calls += 1;
            count.failures += u64::from(failed);
        }
    }

    /// Returns the number of names that are counted.
    #[cfg(test)]
    pub fn counted(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the views of agents: those of the topology by name, then others with a name, then those without by id; at
    /// most [`AGENTS_SHOWN_MAX`]. `kinds` has the kinds in the topology by name.
    pub fn views(
        &self,
        mut agents: Vec<AgentSnapshot>,
        kinds: &HashMap<String, String>,
    ) -> Vec<AgentView> {
        sort(&mut agents, kinds);
        agents.truncate(AGENTS_SHOWN_MAX);
        let views = agents.into_iter().map(|agent| self.view(agent, kinds));
        views.collect()
    }

    fn view(&self, agent: AgentSnapshot, kinds: &HashMap<String, String>) -> AgentView {
        let name = agent.name.as_deref();
        let count = name.and_then(|name| self.by_name.get(name));
        let count = count.copied().unwrap_or_default();
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
}

/// Sorts agents: those of the topology first, then those with a name; by name, then id.
pub(super) fn sort(agents: &mut [AgentSnapshot], kinds: &HashMap<String, String>) {
    let rank = |agent: &AgentSnapshot| match &agent.name {
        Some(name) if kinds.contains_key(name) => 0,
        Some(_) => 1,
        None => 2,
    };
    agents.sort_by(|a, b| (rank(a), &a.name, a.id).cmp(&(rank(b), &b.name, b.id)));
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
