//! `[[server]]`, `[policy]` and `[routing]`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use callboard_agents::answering::{AnswerOptions, Caps, Routing, ServerGrants};
use callboard_agents::bundle::{Prefix, Separator};
use serde::Deserialize;

use super::Topology;
use super::upstream::UpstreamDeclaration;

/// A virtual server (`[[server]]`): a named selection, as one agent of this id.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDeclaration {
    /// Its name in the directory.
    pub id: String,
    /// The ids of the agents and upstreams behind it.
    pub members: Vec<String>,
    /// Patterns over the names of tools as they are shown; all where there are none.
    #[serde(default)]
    pub tools: Vec<String>,
    /// What it is for, in A2A's cards.
    pub description: Option<String>,
    /// Which names of tools say whose they are.
    #[serde(default)]
    pub prefix: Prefix,
    /// What stands between a member and a name of its own.
    #[serde(default)]
    pub separator: Separator,
}

/// What holds for every message that crosses a boundary (`[policy]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyDeclaration {
    /// Whether guardrail reads what crosses.
    pub guard: bool,
    /// Most requests a second of one client.
    pub per_client_per_second: Option<NonZeroU32>,
    /// Most calls a second of one tool, by its name as it is shown.
    pub per_tool_per_second: BTreeMap<String, NonZeroU32>,
}

/// Who answers what (`[routing]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingDeclaration {
    /// What a server asks of a model.
    pub sampling: Routing,
    /// What a server asks of a person.
    pub elicitation: Routing,
}

/// What bounds a server's asking for a model (`[upstream.sampling]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingDeclaration {
    /// Whether a person at the client must agree before anyone but the client answers.
    pub approval: bool,
    /// Whether it may itself be given what other servers ask a model.
    pub answers_sampling: bool,
    /// How much its questions may cost.
    pub caps: Caps,
}

impl Topology {
    /// Who answers, as the answering agents want it.
    pub fn answer_options(&self) -> AnswerOptions {
        AnswerOptions {
            sampling: self.routing.sampling.clone(),
            elicitation: self.routing.elicitation.clone(),
            servers: self.upstreams.iter().map(|upstream| (upstream.id.clone(), grants(upstream))).collect(),
            models: self.agents.iter().filter(|a| a.is_model()).map(|agent| agent.id().to_owned()).collect(),
        }
    }
}

fn grants(upstream: &UpstreamDeclaration) -> ServerGrants {
    ServerGrants {
        supports_sampling: upstream.supports_sampling,
        supports_elicitation: upstream.supports_elicitation,
        supports_roots: upstream.supports_roots,
        answers_sampling: upstream.sampling.answers_sampling,
        caps: upstream.sampling.caps.clone(),
        approval: upstream.sampling.approval,
    }
}
