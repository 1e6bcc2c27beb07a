//! Construction of an orchestrator: deciders, memory, peers and tools.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::card::Jwks;
use callboard_gateway::aggregate::{
    AggregateAgent, AggregateMember, AggregateOptions, PrefixMode, ToolFilter,
};
use callboard_guardrail::Guardrail;
use callboard_message::Failure;
use callboard_models::{ModelConfig, ScriptedAnswer};
use callboard_orchestration::decide::embedding::{
    EmbeddingDecider, EmbeddingDeciderOptions, LEAD_MIN_DEFAULT, SIMILARITY_MIN_DEFAULT,
};
use callboard_orchestration::decide::intake::IntakeOptions;
use callboard_orchestration::decide::limits::RISK_MAX_DEFAULT;
use callboard_orchestration::decide::model::{ModelDecider, ModelDeciderOptions};
use callboard_orchestration::decide::rules::RulesDecider;
use callboard_orchestration::decide::{
    Decider, DeciderKind, Deciders, DecisionPoint, PersonDecider, TOOL_LLM,
};
use callboard_orchestration::memory::DelegatedRequestLog;
use callboard_orchestration::peer_registry::{PeerRegistry, PeerRegistryOptions};
use callboard_orchestration::task::{
    CONFIDENCE_MIN_DEFAULT, TASK_TTL_DEFAULT, TaskOrchestrator, TaskOrchestratorOptions,
};
use callboard_orchestration::tools::{CommandOptions, ToolDeps, Toolbox};
use callboard_runtime::{Agent, AgentRef};
use callboard_store::import_directory_once;

use super::deciders::{COMBINED_POINTS, DeciderEntry};
use super::{
    AgentDeclaration, CommandDeclaration, EXECUTE_COMMAND, OrchestratorDeclaration, StartContext,
    StartError, StructuredOutput,
};
use crate::config::ModelDeclaration;
use crate::config::kinds::a2a::PeerConnector;

/// Answer of the tool `llm` without a model.
const NO_MODEL_MESSAGE: &str = "no language model is configured: set ANTHROPIC_API_KEY, or in a file with a [node] declare one ([[agent]] of the kind \
     \"model\") and name it in `model`";

/// A running orchestrator with its parts.
#[derive(Clone)]
pub struct RunningOrchestrator {
    /// Agent of the orchestrator.
    pub agent: AgentRef,
    /// Registry of known peers.
    pub known: PeerRegistry,
    /// Log of requests delegated to peers.
    pub memory: DelegatedRequestLog,
    /// Tools of the orchestrator.
    pub toolbox: Toolbox,
    /// Deciders of the orchestrator, in order for each decision point.
    pub deciders: Arc<Deciders>,
}

/// Returns the declared share (0 to 1), or the default.
fn share_or(declared: Option<f64>, default: f32) -> f32 {
    declared.map_or(default, |share| share as f32)
}

/// Builder of an orchestrator.
pub(super) struct OrchestratorBuilder<'a> {
    cx: &'a StartContext<'a>,
    declared: &'a OrchestratorDeclaration,
    /// Helper agents that were spawned for this orchestrator only.
    pub(super) helpers: Vec<AgentRef>,
}

impl<'a> OrchestratorBuilder<'a> {
    pub(super) fn new(cx: &'a StartContext<'a>, declared: &'a OrchestratorDeclaration) -> Self {
        Self {
            cx,
            declared,
            helpers: Vec::new(),
        }
    }

    /// Builds the orchestrator from running agents.
    pub(super) async fn build(&mut self) -> Result<RunningOrchestrator, StartError> {
        let (system, declared) = (self.cx.system, self.declared);
        let shown = self.visible_agents()?;
        let deciders = Arc::new(self.build_deciders(&shown)?);
        let known = self.open_known_agents().await?;
        for id in &declared.agents {
            if let Some(agent) = shown.get(&**id) {
                known.declare(id, agent.clone());
            }
        }
        tokio::spawn(known.run_health_checks(self.cx.shutdown_token.clone()));
        let system_prompt = declared.system_prompt.clone().unwrap_or_default();
        let deps = ToolDeps {
            deciders: deciders.clone(),
            peer_registry: known.clone(),
            system_prompt: system_prompt.clone(),
            command: declared.command.as_ref().map(command_options),
        };
        let is_on = |tool: &&String| *tool != EXECUTE_COMMAND || declared.command.is_some();
        let enabled: Vec<_> = declared.tools.iter().filter(is_on).cloned().collect();
        let toolbox =
            Toolbox::new(&enabled, deps).map_err(|failure| self.declaration_error(failure))?;
        let memory =
            DelegatedRequestLog::new(system.store().kv.clone(), &declared.id, declared.class);
        let rules = self.cx.topology.guard_rules();
        let guard = declared
            .guard
            .then(|| self.spawn_helper("guardrail", move || Guardrail::with_rules(&rules)));
        let options = TaskOrchestratorOptions {
            id: declared.id.clone(),
            name: declared.name().to_owned(),
            description: declared.description.clone().unwrap_or_default(),
            deciders: deciders.clone(),
            intake: IntakeOptions {
                clarification: declared.clarification,
                decomposition: declared.decomposition,
                answer_prompt: self.may_answer_at_once().then(|| system_prompt.clone()),
                ..IntakeOptions::default()
            },
            confidence_min: share_or(declared.confidence_min, CONFIDENCE_MIN_DEFAULT),
            max_risk: share_or(declared.max_risk, RISK_MAX_DEFAULT),
            // The check has made sure that it is finite and not negative.
            cost_micro_usd_max: declared.cost_usd_max.map(|usd| (usd * 1e6) as u64),
            tools: toolbox.clone(),
            peer_registry: known.clone(),
            memory: memory.clone(),
            guard,
            system_prompt,
            class: declared.class,
            task_ttl: TASK_TTL_DEFAULT,
            shutdown: self.cx.shutdown_token.clone(),
        };
        let make = move || TaskOrchestrator::new(options.clone());
        let agent = system
            .prepare_with(make)
            .label(declared.id.as_str())
            .spawn();
        Ok(RunningOrchestrator {
            agent,
            known,
            memory,
            toolbox,
            deciders,
        })
    }

    /// Returns the agents that it may delegate to, by id. An agent with hidden tools is replaced by
    /// a filtering aggregate.
    fn visible_agents(&mut self) -> Result<HashMap<&'a str, AgentRef>, StartError> {
        let mut shown = HashMap::new();
        for need in self.declared.dependencies() {
            let Some(running) = self.cx.running_agents.get(need) else {
                continue;
            };
            let mut agent = running.agent.clone();
            if running.filter != ToolFilter::default() {
                let member = AggregateMember::new(need, agent).with_filter(running.filter.clone());
                let options = AggregateOptions {
                    prefix: PrefixMode::Never,
                    is_for_agents: true,
                    ..AggregateOptions::default()
                };
                agent =
                    AggregateAgent::with_options([member], options)?.spawn(self.cx.system, need);
                self.helpers.push(agent.clone());
            }
            shown.insert(need, agent);
        }
        Ok(shown)
    }

    /// Builds the deciders; each kind is created at most once, on demand.
    fn build_deciders(&mut self, shown: &HashMap<&str, AgentRef>) -> Result<Deciders, StartError> {
        let declared = self.declared;
        let needs = |who: &DeciderKind| {
            let all = DecisionPoint::ALL.iter();
            let mut entries = all.flat_map(|point| declared.deciders_at(*point));
            entries.any(|entry| entry.kind() == *who)
        };
        let max_risk = share_or(declared.max_risk, RISK_MAX_DEFAULT);
        let by_rules = move || RulesDecider::new().with_max_risk(max_risk);
        let rules = needs(&DeciderKind::Rules)
            .then(|| Decider::rules(self.spawn_helper("rules", by_rules)));
        let person = needs(&DeciderKind::Person)
            .then(|| Decider::person(self.spawn_helper("person", PersonDecider::default)));
        let modelled = match declared
            .model
            .as_deref()
            .and_then(|id| shown.get_key_value(id))
        {
            Some((id, model)) if needs(&DeciderKind::Model) => {
                let structured_off = declared.structured == StructuredOutput::Off;
                let options = ModelDeciderOptions {
                    prompts_dir: declared.prompts_dir.clone(),
                    without_schemas: structured_off,
                };
                let decider = ModelDecider::new(model.clone(), &options)
                    .map_err(|failure| self.declaration_error(failure))?;
                Some(Decider::model(
                    id,
                    self.spawn_helper("model", move || decider.clone()),
                ))
            }
            _ => None,
        };
        let embedded = needs(&DeciderKind::Embedding)
            .then(|| self.embedding_decider(shown))
            .flatten();
        let nobody = || Decider::unavailable("model", NO_MODEL_MESSAGE);
        let decider = |entry: DeciderEntry| {
            let decider = match entry.kind() {
                DeciderKind::Rules => rules.clone(),
                DeciderKind::Person => person.clone(),
                DeciderKind::Model => modelled.clone(),
                DeciderKind::Embedding => embedded.clone(),
                DeciderKind::Agent(id) => Some(Decider::agent(&id)),
            };
            let decider = decider.unwrap_or_else(nobody);
            match entry.timeout() {
                Some(timeout) => decider.with_timeout(timeout),
                None => decider,
            }
        };
        let one_by_one = !declared.decide.contains_key(DecisionPoint::Intake.as_str())
            && (self.has_own_prompts(&COMBINED_POINTS) || self.is_scripted_by_point());
        Ok(Deciders::new(
            &declared.id,
            declared.class,
            |point| match point == DecisionPoint::Intake && one_by_one {
                true => Vec::new(),
                false => declared
                    .deciders_at(point)
                    .into_iter()
                    .map(decider)
                    .collect(),
            },
        ))
    }

    /// Returns the decider by embeddings; `None` without embeddings.
    fn embedding_decider(&mut self, shown: &HashMap<&str, AgentRef>) -> Option<Decider> {
        let declared = self.declared.embedding.as_ref()?;
        let model = shown.get(&*declared.model)?.clone();
        let options = EmbeddingDeciderOptions {
            similarity_min: share_or(declared.similarity_min, SIMILARITY_MIN_DEFAULT),
            lead_min: share_or(declared.lead_min, LEAD_MIN_DEFAULT),
        };
        let decider = EmbeddingDecider::new(model, options);
        let agent = self.spawn_helper("embedding", move || decider.clone());
        Some(Decider::embedding(&declared.model, agent))
    }

    /// Whether the folder of prompts has one of these points.
    fn has_own_prompts(&self, points: &[DecisionPoint]) -> bool {
        self.declared.prompts_dir.as_ref().is_some_and(|folder| {
            let mut files = points
                .iter()
                .map(|point| folder.join(format!("{point}.md")));
            files.any(|file| file.exists())
        })
    }

    /// Whether the model is a script without an answer for the combined decision.
    fn is_scripted_by_point(&self) -> bool {
        let code = format!("[{}]", DecisionPoint::Intake.code());
        let is_combined = |answer: &ScriptedAnswer| {
            answer
                .when
                .as_ref()
                .is_some_and(|when| when.contains(&code))
        };
        let model = self.declared.model.as_deref();
        model
            .and_then(|id| self.cx.topology.agent_of_kind::<ModelDeclaration>(id))
            .is_some_and(|model| match &model.config {
                ModelConfig::Scripted(script) => !script.answers.iter().any(is_combined),
                _ => false,
            })
    }

    /// Whether the combined decision may answer requests: the model alone makes it, the tool `llm`
    /// is on, and neither `decide` nor a prompt says how answers are written.
    fn may_answer_at_once(&self) -> bool {
        let declared = self.declared;
        let intake = declared.deciders_at(DecisionPoint::Intake);
        intake
            .iter()
            .all(|entry| entry.kind() == DeciderKind::Model)
            && declared.tools.iter().any(|tool| tool == TOOL_LLM)
            && !declared.decide.contains_key(DecisionPoint::Answer.as_str())
            && !self.has_own_prompts(&[DecisionPoint::Answer])
    }

    async fn open_known_agents(&self) -> Result<PeerRegistry, StartError> {
        let (declared, store) = (self.declared, self.cx.system.store());
        let keys = declared
            .registry
            .trusted_keys
            .as_deref()
            .map(|file| self.read_trusted_keys(file))
            .transpose()?;
        if let Some(file) = &declared.registry.import {
            self.import_directory(file).await?;
        }
        let networks = declared
            .registry
            .networks
            .iter()
            .map(|range| range.network())
            .collect();
        let options = PeerRegistryOptions {
            id: declared.id.clone(),
            name: declared.name().to_owned(),
            allowed_origins: declared.registry.allow.clone(),
        };
        let opened = PeerRegistry::open(
            self.cx.system,
            store.kv.clone(),
            Arc::new(PeerConnector::new(networks, keys)),
            options,
        );
        opened
            .await
            .map_err(|failure| self.declaration_error(failure))
    }

    fn read_trusted_keys(&self, file: &Path) -> Result<Jwks, StartError> {
        let wrong = |why: String| {
            self.declaration_error(Failure::invalid(format!("{}: {why}", file.display())))
        };
        let text = fs::read(file).map_err(|error| wrong(error.to_string()))?;
        Jwks::parse(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Imports a directory file once, if it exists.
    async fn import_directory(&self, file: &Path) -> Result<(), StartError> {
        let text = match tokio::fs::read_to_string(file).await {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(self
                    .declaration_error(Failure::invalid(format!("{}: {error}", file.display()))));
            }
        };
        match import_directory_once(&*self.cx.system.store().kv, &text).await {
            Ok(Some(imported)) => tracing::info!(?imported, "imported an agent directory"),
            Ok(None) => {}
            Err(error) => {
                return Err(self
                    .declaration_error(Failure::invalid(format!("{}: {error}", file.display()))));
            }
        }
        Ok(())
    }

    fn spawn_helper<A: Agent>(
        &mut self,
        what: &str,
        make: impl Fn() -> A + Send + Sync + 'static,
    ) -> AgentRef {
        let label = format!("{}/{what}", self.declared.id);
        let agent = self.cx.system.prepare_with(make).label(label).spawn();
        self.helpers.push(agent.clone());
        agent
    }

    fn declaration_error(&self, failure: Failure) -> StartError {
        StartError::declaration_error("orchestrator", &self.declared.id)(failure.message)
    }
}

fn command_options(declared: &CommandDeclaration) -> CommandOptions {
    let mut options =
        CommandOptions::new(declared.allow.iter().cloned(), &declared.working_directory);
    if let Some(most) = declared.arguments_max {
        options.arguments_max = most.get();
    }
    if let Some(seconds) = declared.timeout_s {
        options.timeout = Duration::from_secs(seconds.get());
    }
    if let Some(most) = declared.output_bytes_max {
        options.output_bytes_max = most.get();
    }
    options
}

#[cfg(test)]
mod tests {
    use callboard_gateway::question_router::StrategyQuestionRouter;
    use callboard_orchestration::decide::{Confirm, ConfirmReason, DecideConfirm};
    use callboard_runtime::{QuestionRouter, System};
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::{PushInboxes, Topology};

    /// Runs `test` in the context of a node without agents.
    async fn with_context(test: impl AsyncFnOnce(&StartContext<'_>)) {
        let (system, ending) = (System::start(1).unwrap(), CancellationToken::new());
        let topology = Topology::parse("[node]\nname = \"n\"\n", false, Path::new("")).unwrap();
        let answerers =
            StrategyQuestionRouter::new(system.clone(), topology.answer_options()).unwrap();
        let answering: Arc<dyn QuestionRouter> = Arc::new(answerers);
        let cx = StartContext {
            system: &system,
            state: Path::new(""),
            topology: &topology,
            question_router: &answering,
            push_inboxes: &PushInboxes::default(),
            shutdown_token: &ending,
            running_agents: &HashMap::new(),
        };
        test(&cx).await;
        system.shutdown(Duration::from_secs(5)).await;
    }

    fn declared(more: &str) -> OrchestratorDeclaration {
        toml::from_str(&format!("id = \"o\"\n{more}")).unwrap()
    }

    /// Goal: rules have confirmed what the file says is too risky. Method: a risk between two of its lines, with each.
    #[tokio::test]
    async fn risk_by_rules() {
        with_context(async |cx| {
            for (max_risk, expected) in [
                ("0.2", Confirm::ConfirmNeeded),
                ("0.4", Confirm::SafeToProceed),
            ] {
                let declared = declared(&format!("max_risk = {max_risk}"));
                let mut building = OrchestratorBuilder::new(cx, &declared);
                building.build_deciders(&HashMap::new()).unwrap();
                let asked = DecideConfirm {
                    action: Value::Null,
                    why: ConfirmReason::Risk,
                    risk: 0.3,
                    preference_known: false,
                };
                let decided = building.helpers[0].ask(asked).await.unwrap().unwrap();
                assert_eq!(decided.outcome, Some(expected), "{max_risk}");
            }
        })
        .await;
    }

    /// Goal: only the model answers at once, and only where the tool `llm` could answer. Method: rows.
    #[tokio::test]
    async fn answers_at_once() {
        with_context(async |cx| {
            for (more, expected) in [
                ("", true),
                ("decide = { intake = \"model\" }", true),
                ("decide = { intake = \"weather\" }", false),
                ("decide = { intake = [\"model\", \"weather\"] }", false),
                ("decide = { answer = \"model\" }", false),
                ("tools = [\"echo\"]", false),
            ] {
                let declared = declared(&format!("model = \"m\"\n{more}"));
                let building = OrchestratorBuilder::new(cx, &declared);
                assert_eq!(building.may_answer_at_once(), expected, "{more}");
            }
        })
        .await;
    }
}
