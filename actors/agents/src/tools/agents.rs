//! `list_agents`: who is known, in the formats of people, programs and other agents.

use callboard_message::RawObject;
use callboard_message::time::rfc3339;
use serde_json::value::{RawValue, to_raw_value};
use std::time::{Duration, UNIX_EPOCH};

use crate::known::{Known, KnownAgents};

/// Longest list, in bytes; how many were left out is told.
pub const LIST_BYTES_MAX: usize = 56 * 1024;
/// What an empty directory says.
const NOBODY: &str = "No agents found in the directory";

/// How agents are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Ids and names.
    Default,
    /// Ids.
    Simple,
    /// All that is known of them.
    Detailed,
    /// Who we are, and where those are that have an address.
    Exchange,
}

impl Format {
    pub(super) const ALL: [(&'static str, Self); 4] = [
        ("default", Self::Default),
        ("simple", Self::Simple),
        ("detailed", Self::Detailed),
        ("exchange", Self::Exchange),
    ];
}

/// Those that are known, by id.
pub(super) fn listed(known: &KnownAgents, format: Format) -> RawObject {
    let all = known.list();
    if format == Format::Exchange {
        let mut itself = RawObject::of("id", known.id()).with("name", known.name());
        if let Some(url) = known.url() {
            itself.set("url", url);
        }
        // How to reach the others is ours to know.
        let (agents, left_out) = some(all.iter().filter(|agent| !agent.url.is_empty()), format);
        return told(RawObject::of("self", itself), agents, left_out);
    }
    let count = RawObject::of("count", all.len());
    if all.is_empty() {
        return count.with("message", NOBODY);
    }
    let (agents, left_out) = some(all.iter(), format);
    told(count, agents, left_out)
}

fn told(begun: RawObject, agents: Vec<Box<RawValue>>, left_out: usize) -> RawObject {
    let all = begun.with("agents", agents);
    if left_out == 0 { all } else { all.with("left_out", left_out) }
}

/// As many as there is room for, and how many there isn't.
fn some<'a>(agents: impl Iterator<Item = &'a Known>, format: Format) -> (Vec<Box<RawValue>>, usize) {
    let (mut listed, mut bytes, mut left_out) = (Vec::new(), 0, 0);
    for agent in agents {
        let entry = entry(agent, format);
        bytes += entry.get().len() + 1;
        if bytes > LIST_BYTES_MAX {
            left_out += 1;
        } else {
            listed.push(entry);
        }
    }
    (listed, left_out)
}

fn entry(agent: &Known, format: Format) -> Box<RawValue> {
    let named = || RawObject::of("id", &agent.id).with("name", &agent.name);
    match format {
        Format::Simple => to_raw_value(&agent.id).unwrap_or_default(),
        Format::Default => named().to_raw(),
        Format::Exchange => named().with("url", &agent.url).to_raw(),
        Format::Detailed => {
            let mut entry = named().with("state", agent.state).with("learned", agent.learned);
            if !agent.url.is_empty() {
                entry.set("url", &agent.url);
            }
            if let Some(at) = UNIX_EPOCH.checked_add(Duration::from_millis(agent.seen_ms)).filter(|_| agent.seen_ms > 0)
            {
                entry.set("seen", rfc3339(at));
            }
            let skills: Vec<_> = agent.skills.iter().map(|skill| &skill.id).collect();
            entry.with("skills", skills).to_raw()
        }
    }
}
