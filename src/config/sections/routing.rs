//! Routing of upstreams' questions to clients, models and servers (`[routing]`).

use std::collections::HashSet;

use callboard_gateway::question_router::{AnswerRouting, AnswerStrategy, Answerer};
use schemars::JsonSchema;
use serde::Deserialize;

use super::SectionDeclaration;
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, ModelDeclaration, UpstreamDeclaration};

/// Routing of upstreams' questions (`[routing]`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingDeclaration {
    /// Routing of sampling requests, which a model answers.
    pub sampling: AnswerRouting,
    /// Routing of elicitations, which a person answers.
    pub elicitation: AnswerRouting,
}

impl SectionDeclaration for RoutingDeclaration {
    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        let mut checking = RoutingChecker { names, problems };
        for (name, kind) in [
            ("sampling", &self.sampling),
            ("elicitation", &self.elicitation),
        ] {
            if let Some(tree) = tree.get(name) {
                checking.check_strategies(kind, tree, name == "elicitation");
                checking.check_order(kind, tree, name == "elicitation");
            }
        }
    }
}

const PEOPLE_ONLY_MESSAGE: &str =
    "an elicitation is for a person and never answered by a model or server";

struct RoutingChecker<'a, 'n, 'p, 't> {
    names: &'a DeclaredNames<'n>,
    problems: &'p mut ProblemCollector<'t>,
}

impl RoutingChecker<'_, '_, '_, '_> {
    fn check_strategies(
        &mut self,
        routing: &AnswerRouting,
        tree: &ConfigTree,
        is_for_people: bool,
    ) {
        let has_models = self.names.has_unreadable()
            || self
                .names
                .agents_of_kind::<ModelDeclaration>()
                .next()
                .is_some();
        let default = (vec!["default_strategy"], routing.default_strategy);
        let by_server = routing
            .server_strategies
            .iter()
            .map(|(id, s)| (vec!["server_strategies", id], *s));
        for (path, strategy) in std::iter::once(default).chain(by_server) {
            let written = tree
                .at_path(&path)
                .and_then(ConfigTree::text)
                .map_or_else(|| strategy.to_string(), str::to_owned);
            if is_for_people && !strategy.asks_people_only() {
                let message = format!("{PEOPLE_ONLY_MESSAGE}: `{written}` can't be its strategy");
                let help = Some("write `client_forwarded`".to_owned());
                self.problems
                    .error_with(tree.span_at_path(&path), message, help);
            } else if !is_for_people && strategy == AnswerStrategy::Models && !has_models {
                let message = format!("`{written}`: no model is declared, so nobody answers");
                let help = Some("declare an [[agent]] of the kind `model`".to_owned());
                self.problems
                    .warning_with(tree.span_at_path(&path), message, help);
            }
        }
        let names = tree.get("server_strategies");
        let mut ids: Vec<_> = routing.server_strategies.keys().collect();
        ids.sort_unstable();
        for id in ids.into_iter().filter(|id| !self.names.is_unreadable(id)) {
            let Some(upstream) = self.names.agent_of_kind::<UpstreamDeclaration>(id) else {
                let span = names.and_then(|names| names.key_span(id));
                self.problems.unknown_name(
                    span,
                    format!("there is no upstream {id}"),
                    id,
                    self.names.upstream_ids(),
                );
                continue;
            };
            let (may_ask, key) = match is_for_people {
                true => (upstream.supports_elicitation, "supports_elicitation"),
                false => (upstream.supports_sampling, "supports_sampling"),
            };
            if !may_ask {
                let span = names.and_then(|names| names.key_span(id));
                self.problems.warning(
                    span,
                    format!("{id} may ask nothing of that kind: it has no `{key} = true`"),
                );
            }
        }
    }

    fn check_order(&mut self, routing: &AnswerRouting, tree: &ConfigTree, is_for_people: bool) {
        let mut seen = HashSet::new();
        for (at, answerer) in routing.order.iter().enumerate() {
            let span = tree.item_span("order", at);
            if !seen.insert(answerer) {
                self.problems.error(span, "this is in the order twice");
                continue;
            }
            match answerer {
                Answerer::Client => {}
                Answerer::Server(id) | Answerer::Model(id) if self.names.is_unreadable(id) => {}
                _ if is_for_people => self.problems.error(
                    span,
                    format!("{PEOPLE_ONLY_MESSAGE}: its order can only be [\"client\"]"),
                ),
                Answerer::Server(id) => match self.names.agent_of_kind::<UpstreamDeclaration>(id) {
                    None => {
                        self.problems.unknown_name(
                            span,
                            format!("there is no upstream {id}"),
                            id,
                            self.names.upstream_ids(),
                        );
                    }
                    Some(upstream) if !upstream.sampling.answers_sampling => {
                        let message = format!(
                            "{id} answers no samples: it has no `sampling.answers_sampling = true`"
                        );
                        self.problems.error(span, message);
                    }
                    Some(_) => {}
                },
                Answerer::Model(id) => {
                    let models = self
                        .names
                        .agents_of_kind::<ModelDeclaration>()
                        .map(|model| &*model.id);
                    self.names.check_model(id, models, span, self.problems);
                }
                Answerer::Models | Answerer::Servers => {}
            }
        }
    }
}
