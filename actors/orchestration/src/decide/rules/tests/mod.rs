//! Test sentences of the rules; none of them is in the evaluation's files.

mod commands;
mod names;
mod parts;
mod refusals;
mod routes;
mod safety;
mod worlds;

use std::sync::Arc;

use callboard_message::RawObject;
use serde_json::json;

use super::RulesDecider;
use super::decider::RuleDecision;
use crate::decide::{
    Clarity, DecideClarity, DecideRoute, DecideSplit, DecideTool, DeciderReply, MakeSteps,
    PeerAgentView, Route, RoutingContext, SkillView, Split, StepPlan, ToolChoice, ToolView, Turn,
};

/// Rules decider with a method per decision point.
#[derive(Default)]
struct Rules(RulesDecider);

impl Rules {
    fn clarity(
        &mut self,
        request: &str,
        history: &[Turn],
        world: &Arc<RoutingContext>,
    ) -> DeciderReply<Clarity> {
        let (request, history, world) = (request.to_owned(), history.to_vec(), world.clone());
        DecideClarity {
            request,
            history,
            world,
        }
        .decide(&mut self.0)
        .unwrap()
    }

    fn split(&mut self, request: &str, world: &Arc<RoutingContext>) -> DeciderReply<Split> {
        let (request, world) = (request.to_owned(), world.clone());
        DecideSplit {
            request,
            history: Vec::new(),
            world,
        }
        .decide(&mut self.0)
        .unwrap()
    }

    fn steps(&mut self, request: &str, world: &Arc<RoutingContext>) -> DeciderReply<StepPlan> {
        MakeSteps {
            request: request.to_owned(),
            world: world.clone(),
        }
        .decide(&mut self.0)
        .unwrap()
    }

    fn route(
        &mut self,
        request: &str,
        history: &[Turn],
        world: &Arc<RoutingContext>,
    ) -> DeciderReply<Route> {
        let (request, history, world) = (request.to_owned(), history.to_vec(), world.clone());
        DecideRoute {
            request,
            history,
            world,
            slim: false,
        }
        .decide(&mut self.0)
        .unwrap()
    }

    fn tool(
        &mut self,
        request: &str,
        history: &[Turn],
        tools: &[ToolView],
    ) -> DeciderReply<ToolChoice> {
        let (request, history, tools) = (request.to_owned(), history.to_vec(), tools.to_vec());
        DecideTool {
            request,
            history,
            tools,
            slim: false,
        }
        .decide(&mut self.0)
        .unwrap()
    }
}

fn tool(name: &str) -> ToolView {
    let name = name.to_owned();
    ToolView {
        name,
        description: String::new(),
        tags: Vec::new(),
        examples: Vec::new(),
        params: json!({"type": "object"}),
        risk: Default::default(),
    }
}

fn agent(id: &str, name: &str, skills: &[(&str, &str, &[&str])]) -> PeerAgentView {
    let skill = |(name, description, tags): &(&str, &str, &[&str])| SkillView {
        id: name.to_lowercase(),
        name: (*name).to_owned(),
        description: (*description).to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..SkillView::default()
    };
    PeerAgentView {
        id: id.to_owned(),
        name: name.to_owned(),
        description: String::new(),
        skills: skills.iter().map(skill).collect(),
        is_up: true,
    }
}

/// Routing context with four agents and all tools.
fn world() -> Arc<RoutingContext> {
    let tools = [
        "echo",
        "llm",
        "summarize",
        "list_agents",
        "remember_agent",
        "execute_command",
        "human_input",
    ];
    Arc::new(RoutingContext {
        tools: tools.map(tool).to_vec(),
        agents: vec![
            agent(
                "sky",
                "Cloud Nine",
                &[("Forecast", "Weather for a place", &["weather", "forecast"])],
            ),
            agent(
                "trips",
                "Far Away",
                &[(
                    "Booking",
                    "Books flights and hotels",
                    &["travel", "flight", "hotel"],
                )],
            ),
            agent(
                "words",
                "Babel",
                &[(
                    "Translate",
                    "Puts text into another language",
                    &["translation"],
                )],
            ),
            agent(
                "lab",
                "Assay Lab",
                &[(
                    "Spectra",
                    "Reads chromatograms of samples",
                    &["chromatography", "assay"],
                )],
            ),
        ],
    })
}

/// Returns the outcome for a request: `clarify`, `decompose`, `reject`, an agent's id, or a tool's
/// name.
fn fate(request: &str) -> String {
    fate_after(request, &[])
}

fn fate_after(request: &str, history: &[Turn]) -> String {
    let (mut rules, world) = (Rules::default(), world());
    if matches!(
        rules.clarity(request, history, &world).outcome,
        Some(Clarity::NeedsClarify { .. })
    ) {
        return "clarify".to_owned();
    }
    if rules.split(request, &world).outcome == Some(Split::Yes) {
        return "decompose".to_owned();
    }
    match rules.route(request, history, &world).outcome {
        Some(Route::Remote { agent }) => agent,
        Some(Route::Reject { .. }) => "reject".to_owned(),
        Some(Route::Local) => rules
            .tool(request, history, &world.tools)
            .outcome
            .map_or("none".into(), |t| t.tool_name),
        None => "unclear".to_owned(),
    }
}

fn params(request: &str) -> RawObject {
    let DeciderReply { outcome, .. } = Rules::default().tool(request, &[], &world().tools);
    let ToolChoice { params, .. } = outcome.unwrap();
    params
}
