//! Who answers what upstream servers ask (`[routing.sampling]`, `[routing.elicitation]`, `[upstream.sampling]`).

use callboard_agents::answering::{AnswerOptions, Caps, Routing, ServerGrants};
use serde::Deserialize;

use super::Topology;
use super::upstream::UpstreamDeclaration;

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
