//! Who answers what servers elsewhere ask (`[routing]`).

use std::collections::HashSet;

use callboard_gateway::answering::{Answerer, Routing, Strategy};
use serde::Deserialize;

use super::Section;
use crate::config::problem::Problems;
use crate::config::tree::Tree;
use crate::config::{ModelDeclaration, Names, UpstreamDeclaration};

/// Who answers what (`[routing]`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingDeclaration {
    /// What a server asks of a model.
    pub sampling: Routing,
    /// What a server asks of a person.
    pub elicitation: Routing,
}

impl Section for RoutingDeclaration {
    fn check(&self, tree: &Tree, names: &Names<'_>, problems: &mut Problems<'_>) {
        let mut checking = Checking { names, problems };
        for (name, kind) in [
            ("sampling", &self.sampling),
            ("elicitation", &self.elicitation),
        ] {
            if let Some(tree) = tree.get(name) {
                checking.strategies(kind, tree, name == "elicitation");
                checking.order(kind, tree, name == "elicitation");
            }
        }
    }
}

const FOR_PEOPLE: &str = "an elicitation is for a person and never answered by a model or server";

struct Checking<'a, 'n, 'p, 't> {
    names: &'a Names<'n>,
    problems: &'p mut Problems<'t>,
}

impl Checking<'_, '_, '_, '_> {
    fn strategies(&mut self, routing: &Routing, tree: &Tree, is_for_people: bool) {
        let has_models =
            !self.names.unread.is_empty() || self.names.all::<ModelDeclaration>().next().is_some();
        let default = (vec!["default_strategy"], routing.default_strategy);
        let by_server = routing
            .server_strategies
            .iter()
            .map(|(id, s)| (vec!["server_strategies", id], *s));
        for (path, strategy) in std::iter::once(default).chain(by_server) {
            if is_for_people && !strategy.asks_people_only() {
                let message = format!("{FOR_PEOPLE}: `{strategy}` can't be its strategy");
                let help = Some("write `client_forwarded`".to_owned());
                self.problems
                    .error_with(tree.place_at(&path), message, help);
            } else if !is_for_people && strategy == Strategy::MagictunnelHandled && !has_models {
                let message = format!("`{strategy}`: no model is declared, so nobody answers");
                let help = Some("declare an [[agent]] of the kind `model`".to_owned());
                self.problems
                    .warning_with(tree.place_at(&path), message, help);
            }
        }
        let names = tree.get("server_strategies");
        let mut ids: Vec<_> = routing.server_strategies.keys().collect();
        ids.sort_unstable();
        for id in ids
            .into_iter()
            .filter(|id| !self.names.unread.contains(&***id))
        {
            let Some(upstream) = self.names.agent::<UpstreamDeclaration>(id) else {
                let span = names.and_then(|names| names.key_span(id));
                self.problems.unknown(
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

    fn order(&mut self, routing: &Routing, tree: &Tree, is_for_people: bool) {
        let mut seen = HashSet::new();
        for (at, answerer) in routing.order.iter().enumerate() {
            let span = tree.item_place("order", at);
            if !seen.insert(answerer) {
                self.problems.error(span, "this is in the order twice");
                continue;
            }
            match answerer {
                Answerer::Client => {}
                Answerer::Server(id) | Answerer::Model(id) if self.names.unread.contains(&**id) => {
                }
                _ if is_for_people => self.problems.error(
                    span,
                    format!("{FOR_PEOPLE}: its order can only be [\"client\"]"),
                ),
                Answerer::Server(id) => match self.names.agent::<UpstreamDeclaration>(id) {
                    None => {
                        self.problems.unknown(
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
                    let models = self.names.all::<ModelDeclaration>().map(|model| &*model.id);
                    self.names.check_model(id, models, span, self.problems);
                }
                Answerer::Models | Answerer::Servers => {}
            }
        }
    }
}
