//! Who answers what upstream servers ask (`[routing.sampling]`, `[routing.elicitation]`).

use std::collections::BTreeMap;

use serde::Deserialize;

/// Who answers what (`[routing]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingDeclaration {
    /// What a server asks of a model.
    #[serde(default)]
    pub sampling: Option<Routing>,
    /// What a server asks of a person.
    #[serde(default)]
    pub elicitation: Option<Routing>,
}

/// Who answers one kind of question.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// For servers that have none of their own.
    #[serde(default)]
    pub default_strategy: Option<Strategy>,
    /// By the server that asks.
    #[serde(default)]
    pub server_strategies: BTreeMap<String, Strategy>,
    /// Who is tried, one after another: `client`, `models`, `model:ID`, `servers`, `server:ID`.
    #[serde(default)]
    pub order: Vec<String>,
    /// Whether models are tried where all else fails.
    #[serde(default)]
    pub fallback_to_magictunnel: bool,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// A model of this node.
    MagictunnelHandled,
    /// The client whose call caused the question.
    ClientForwarded,
    /// Another server.
    ExternalServer,
    /// The client, then the rest of the order.
    ClientFirst,
    /// A model of this node, then the rest of the order.
    MagictunnelFirst,
    /// All at once: the first answer counts.
    Parallel,
    /// In the order.
    Hybrid,
}

/// What bounds a server's asking for a model (`[upstream.sampling]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingDeclaration {
    /// Whether a person approves each request.
    #[serde(default)]
    pub approval: bool,
}
