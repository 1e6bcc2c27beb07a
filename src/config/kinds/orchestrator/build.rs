//! Building of an orchestrator: who decides for it, what it knows, and its tools.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::card::Jwks;
use callboard_gateway::bundle::{Bundle, BundleMember, BundleOptions, Filter, Prefix};
use callboard_guardrail::Guardrail;
use callboard_message::Failure;
use callboard_orchestration::decide::intake::IntakeOptions;
use callboard_orchestration::decide::limits::RISK_MAX_DEFAULT;
use callboard_orchestration::decide::model::{ModelDecider, ModelDeciderOptions};
use callboard_orchestration::decide::rules::RulesDecider;
use callboard_orchestration::decide::{Decider, Deciders, PersonDecider, Point, Who};
use callboard_orchestration::memory::Memory;
use callboard_orchestration::peer_registry::{KnownAgents, KnownOptions};
use callboard_orchestration::task::{
    CONFIDENCE_MIN_DEFAULT, TASK_TTL_DEFAULT, TaskOptions, TaskOrchestrator,
};
use callboard_orchestration::tools::{CommandOptions, ToolDeps, Toolbox};
use callboard_runtime::{Agent, AgentRef};
use callboard_store::import_directory_once;

use super::{
    AgentKind, CommandDeclaration, EXECUTE_COMMAND, OrchestratorDeclaration, StartContext,
    StartError, Structured,
};
use crate::config::kinds::a2a::Peers;

/// What `llm` says where there is no model.
const NO_MODEL: &str = "no language model is configured: set ANTHROPIC_API_KEY, or in a file with a [node] declare one ([[agent]] of the kind \
     \"model\") and name it in `model`";

/// An orchestrator that runs, with what it works with.
#[derive(Clone)]
pub struct Orchestrated {
    /// It.
    pub agent: AgentRef,
    /// The agents that it knows.
    pub known: KnownAgents,
    /// What it asked of them.
    pub memory: Memory,
    /// Its tools.
    pub toolbox: Toolbox,
    /// Who decides for it.
    pub deciders: Arc<Deciders>,
}

/// A share of one that a file says, or else.
fn share(declared: Option<f64>, default: f32) -> f32 {
    declared.map_or(default, |share| share as f32)
}

/// What an orchestrator is built of.
pub(super) struct Building<'a> {
    cx: &'a StartContext<'a>,
    declared: &'a OrchestratorDeclaration,
    /// The agents that were started for it alone.
    pub(super) helpers: Vec<AgentRef>,
}

impl<'a> Building<'a> {
    pub(super) fn new(cx: &'a StartContext<'a>, declared: &'a OrchestratorDeclaration) -> Self {
        Self {
            cx,
            declared,
            helpers: Vec::new(),
        }
    }

    /// Builds it of the agents that run.
    pub(super) async fn build(&mut self) -> Result<Orchestrated, StartError> {
        let (system, declared) = (self.cx.system, self.declared);
        let shown = self.shown()?;
        let model = declared
            .model
            .as_deref()
            .and_then(|id| Some((id, shown.get(id)?.clone())));
        let deciders = Arc::new(self.deciders(model)?);
        let known = self.known().await?;
        for id in &declared.agents {
            if let Some(agent) = shown.get(&**id) {
                known.declare(id, agent.clone());
            }
        }
        tokio::spawn(known.keep_checking(self.cx.ending.clone()));
        let system_prompt = declared.system_prompt.clone().unwrap_or_default();
        let deps = ToolDeps {
            deciders: deciders.clone(),
            known: known.clone(),
            system_prompt: system_prompt.clone(),
            command: declared.command.as_ref().map(command),
        };
        let is_on = |tool: &&String| *tool != EXECUTE_COMMAND || declared.command.is_some();
        let enabled: Vec<_> = declared.tools.iter().filter(is_on).cloned().collect();
        let toolbox = Toolbox::new(&enabled, deps).map_err(|failure| self.wrong(failure))?;
        let memory = Memory::new(system.store().notes.clone(), &declared.id, declared.class);
        let rules = self.cx.topology.guard_rules();
        let guard = declared
            .guard
            .then(|| self.helper("guardrail", move || Guardrail::with(&rules)));
        let options = TaskOptions {
            id: declared.id.clone(),
            name: declared.name().to_owned(),
            description: declared.description.clone().unwrap_or_default(),
            deciders: deciders.clone(),
            intake: IntakeOptions {
                clarification: declared.clarification,
                decomposition: declared.decomposition,
                ..IntakeOptions::default()
            },
            confidence_min: share(declared.confidence_min, CONFIDENCE_MIN_DEFAULT),
            max_risk: share(declared.max_risk, RISK_MAX_DEFAULT),
            // Checked: finite and not negative.
            cost_micro_usd_max: declared.cost_usd_max.map(|usd| (usd * 1e6) as u64),
            tools: toolbox.clone(),
            known: known.clone(),
            memory: memory.clone(),
            guard,
            system_prompt,
            class: declared.class,
            task_ttl: TASK_TTL_DEFAULT,
            ending: self.cx.ending.clone(),
        };
        let make = move || TaskOrchestrator::new(options.clone());
        let agent = system
            .prepare_with(make)
            .label(declared.id.as_str())
            .spawn();
        Ok(Orchestrated {
            agent,
            known,
            memory,
            toolbox,
            deciders,
        })
    }

    /// What it works with, by id: where not all of an agent's tools are shown, something that stands for it with those that are.
    fn shown(&mut self) -> Result<HashMap<&'a str, AgentRef>, StartError> {
        let mut shown = HashMap::new();
        for need in self.declared.needs() {
            let Some(running) = self.cx.running.get(need) else {
                continue;
            };
            let mut agent = running.agent.clone();
            if running.filter != Filter::default() {
                let member = BundleMember::new(need, agent).filtered(running.filter.clone());
                let options = BundleOptions {
                    prefix: Prefix::Never,
                    ..BundleOptions::default()
                };
                agent = Bundle::with([member], options)?.spawn(self.cx.system, need);
                self.helpers.push(agent.clone());
            }
            shown.insert(need, agent);
        }
        Ok(shown)
    }

    /// Who decides: each of its kind is there once, where it is needed.
    fn deciders(&mut self, model: Option<(&str, AgentRef)>) -> Result<Deciders, StartError> {
        let declared = self.declared;
        let needs = |who: &Who| Point::ALL.iter().any(|point| declared.who(*point) == *who);
        let max_risk = share(declared.max_risk, RISK_MAX_DEFAULT);
        let by_rules = move || RulesDecider::new().with_max_risk(max_risk);
        let rules = needs(&Who::Rules).then(|| Decider::rules(self.helper("rules", by_rules)));
        let person = needs(&Who::Person)
            .then(|| Decider::person(self.helper("person", PersonDecider::default)));
        let modelled = match model {
            Some((id, model)) if needs(&Who::Model) => {
                let structured_off = declared.structured == Structured::Off;
                let options = ModelDeciderOptions {
                    prompts_dir: declared.prompts_dir.clone(),
                    structured_off,
                };
                let decider =
                    ModelDecider::new(model, &options).map_err(|failure| self.wrong(failure))?;
                Some(Decider::model(
                    id,
                    self.helper("model", move || decider.clone()),
                ))
            }
            _ => None,
        };
        let nobody = || Decider::nobody("model", NO_MODEL);
        Ok(Deciders::new(
            &declared.id,
            declared.class,
            |point| match declared.who(point) {
                Who::Rules => rules.clone().unwrap_or_else(nobody),
                Who::Person => person.clone().unwrap_or_else(nobody),
                Who::Model => modelled.clone().unwrap_or_else(nobody),
                Who::Agent(id) => Decider::agent(&id),
            },
        ))
    }

    async fn known(&self) -> Result<KnownAgents, StartError> {
        let (declared, store) = (self.declared, self.cx.system.store());
        let keys = declared
            .directory
            .trusted_keys
            .as_deref()
            .map(|file| self.keys(file))
            .transpose()?;
        if let Some(file) = &declared.directory.import {
            self.import(file).await?;
        }
        let networks = declared
            .directory
            .networks
            .iter()
            .map(|range| range.network())
            .collect();
        let options = KnownOptions {
            id: declared.id.clone(),
            name: declared.name().to_owned(),
            allow: declared.directory.allow.clone(),
        };
        let opened = KnownAgents::open(
            self.cx.system,
            store.notes.clone(),
            Arc::new(Peers::new(networks, keys)),
            options,
        );
        opened.await.map_err(|failure| self.wrong(failure))
    }

    fn keys(&self, file: &Path) -> Result<Jwks, StartError> {
        let wrong =
            |why: String| self.wrong(Failure::invalid(format!("{}: {why}", file.display())));
        let text = fs::read(file).map_err(|error| wrong(error.to_string()))?;
        Jwks::parse(&text).map_err(|error| wrong(error.to_string()))
    }

    /// A directory from before, where there is one.
    async fn import(&self, file: &Path) -> Result<(), StartError> {
        let text = match tokio::fs::read_to_string(file).await {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(self.wrong(Failure::invalid(format!("{}: {error}", file.display()))));
            }
        };
        match import_directory_once(&*self.cx.system.store().notes, &text).await {
            Ok(Some(imported)) => tracing::info!(?imported, "agents of a directory are known now"),
            Ok(None) => {}
            Err(error) => {
                return Err(self.wrong(Failure::invalid(format!("{}: {error}", file.display()))));
            }
        }
        Ok(())
    }

    fn helper<A: Agent>(
        &mut self,
        what: &str,
        make: impl Fn() -> A + Send + Sync + 'static,
    ) -> AgentRef {
        let label = format!("{}/{what}", self.declared.id);
        let agent = self.cx.system.prepare_with(make).label(label).spawn();
        self.helpers.push(agent.clone());
        agent
    }

    fn wrong(&self, failure: Failure) -> StartError {
        StartError::declared("orchestrator", &self.declared.id)(failure.message)
    }
}

fn command(declared: &CommandDeclaration) -> CommandOptions {
    let mut options = CommandOptions::new(declared.allow.iter().cloned(), &declared.directory);
    if let Some(most) = declared.arguments_max {
        options.arguments_max = most.get();
    }
    if let Some(seconds) = declared.timeout_s {
        options.within = Duration::from_secs(seconds.get());
    }
    if let Some(most) = declared.output_bytes_max {
        options.output_bytes_max = most.get();
    }
    options
}

#[cfg(test)]
mod tests {
    use callboard_gateway::answering::Answerers;
    use callboard_orchestration::decide::{Confirm, ConfirmWhy, DecideConfirm};
    use callboard_runtime::{Answering, System};
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::{Inboxes, Topology};

    /// Goal: rules have confirmed what the file says is too risky. Method: a risk between two of its lines, with each.
    #[tokio::test]
    async fn risk_by_rules() {
        let (system, ending) = (System::start(1).unwrap(), CancellationToken::new());
        let topology = Topology::parse("[node]\nname = \"n\"\n", false, Path::new("")).unwrap();
        let answerers = Answerers::new(system.clone(), topology.answer_options()).unwrap();
        let answering: Arc<dyn Answering> = Arc::new(answerers);
        let cx = StartContext {
            system: &system,
            state: Path::new(""),
            topology: &topology,
            answering: &answering,
            inboxes: &Inboxes::default(),
            ending: &ending,
            running: &HashMap::new(),
        };
        for (max_risk, expected) in [
            ("0.2", Confirm::ConfirmNeeded),
            ("0.4", Confirm::SafeToProceed),
        ] {
            let declared: OrchestratorDeclaration =
                toml::from_str(&format!("id = \"o\"\nmax_risk = {max_risk}")).unwrap();
            let mut building = Building::new(&cx, &declared);
            building.deciders(None).unwrap();
            let asked = DecideConfirm {
                action: Value::Null,
                why: ConfirmWhy::Risk,
                risk: 0.3,
                preference_known: false,
            };
            let decided = building.helpers[0].ask(asked).await.unwrap().unwrap();
            assert_eq!(decided.outcome, Some(expected), "{max_risk}");
        }
        system.shutdown(Duration::from_secs(5)).await;
    }
}
