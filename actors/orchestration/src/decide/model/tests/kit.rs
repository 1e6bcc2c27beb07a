//! Scripted model, a model decider over it, and an agent that requests decisions as the pipeline
//! does.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{DataClass, Message, Speaker, TaskState};
use callboard_models::{LanguageModel, ModelConfig};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Context, Handlers, System, testkit};
use serde_json::{Value, json};

use crate::decide::model::{ModelDecider, ModelDeciderOptions};
use crate::decide::*;

/// Request to have one message decided.
struct Settle<D>(D);

impl<D: DecisionRequest> Message for Settle<D> {
    type Reply = DecisionResult<D::Outcome>;
    const NAME: &'static str = "settle";
}

/// Agent that requests decisions.
struct Desk<D>(Arc<Deciders>, std::marker::PhantomData<D>);

impl<D: DecisionRequest + Sync> Agent for Desk<D> {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Settle<D>>(8);
    }
}

impl<D: DecisionRequest + Sync> ConcurrentHandler<Settle<D>> for Desk<D> {
    fn handle(
        &mut self,
        Settle(message): Settle<D>,
        cx: Context,
    ) -> impl Future<Output = DecisionResult<D::Outcome>> + Send + 'static {
        let deciders = self.0.clone();
        async move { deciders.decide(&cx, &RunId::random(), message).await }
    }
}

/// Spawns a model with these scripted answers, as in a topology.
pub fn scripted(system: &System, answers: Value) -> AgentRef {
    let config = json!({ "provider": "scripted", "answers": answers });
    let config: ModelConfig = serde_json::from_value(config).unwrap();
    system.spawn(LanguageModel::open(config).unwrap())
}

pub fn decider(system: &System, model: &AgentRef) -> AgentRef {
    system.spawn(ModelDecider::new(model.clone(), &ModelDeciderOptions::default()).unwrap())
}

/// Returns the decision of a decider over `model`.
pub async fn settle<D: DecisionRequest + Sync>(
    system: &System,
    model: &AgentRef,
    asked: D,
) -> DecisionResult<D::Outcome> {
    let decider = Decider::model("m", decider(system, model));
    let deciders = Deciders::new("test", DataClass::Internal, |_| vec![decider.clone()]);
    let desk = system.spawn(Desk(Arc::new(deciders), std::marker::PhantomData::<D>));
    desk.ask(Settle(asked)).await.unwrap()
}

/// Returns the decision of a decider whose model gives this answer.
pub fn settled<D: DecisionRequest + Sync>(asked: D, answer: Value) -> DecisionResult<D::Outcome> {
    testkit::run_with_paused_time(async |system| {
        let model = scripted(system, json!([answer]));
        let settled = settle(system, &model, asked).await;
        system.shutdown(Duration::from_secs(5)).await;
        settled
    })
}

/// Checks one row: a model's answer and the expected outcome.
pub fn check<D: DecisionRequest + Sync>(asked: &D, answer: Value, expected: &D::Outcome) {
    let settled = settled(asked.clone(), answer.clone());
    let found = settled.record.fallback;
    assert_eq!(found, None, "{} {answer}", D::POINT);
    assert!(
        settled.outcome.as_ref() == Some(expected),
        "{} {answer} gave {}",
        D::POINT,
        settled.record.outcome
    );
}

/// Checks one row: an invalid answer and the reason for the fallback.
pub fn falls_back<D: DecisionRequest + Sync>(asked: &D, answer: Value, why: FallbackReason) {
    let settled = settled(asked.clone(), answer.clone());
    assert_eq!(
        settled.record.fallback,
        Some(why),
        "{} {answer} gave {}",
        D::POINT,
        settled.record.outcome
    );
    assert!(
        settled.outcome == asked.fallback(),
        "{} {answer} gave {}",
        D::POINT,
        settled.record.outcome
    );
    assert_eq!(settled.record.confidence, 0.0);
}

pub fn says(text: impl Into<String>) -> Value {
    json!({ "text": text.into() })
}

pub fn uses(input: Value) -> Value {
    json!({ "tool": { "name": "decide", "input": input } })
}

pub fn object(value: Value) -> callboard_message::RawObject {
    serde_json::from_value(value).unwrap()
}

pub const REQUEST: &str = "What is the weather in Porto?";

fn tool(name: &str) -> ToolView {
    let params = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    ToolView {
        name: name.into(),
        description: format!("Does {name}."),
        tags: vec![format!("{name}-tag")],
        examples: vec![format!("{name} this")],
        params,
        risk: Risk::Reads,
    }
}

pub fn agent(id: &str) -> PeerAgentView {
    let skill = SkillView {
        id: format!("{id}-skill"),
        name: format!("The {id} skill"),
        description: format!("Knows about {id}."),
        tags: vec![format!("{id}-tag")],
        examples: vec![format!("the {id}, please")],
        ..SkillView::default()
    };
    PeerAgentView {
        id: id.into(),
        name: format!("Agent {id}"),
        description: format!("The agent for {id}."),
        skills: vec![skill],
        is_up: true,
    }
}

pub fn world() -> Arc<RoutingContext> {
    Arc::new(RoutingContext {
        tools: vec![tool("llm"), tool("echo")],
        agents: vec![agent("weather"), agent("travel")],
    })
}

fn history() -> Vec<Turn> {
    vec![
        Turn {
            by: Speaker::User,
            text: "Hello".into(),
        },
        Turn {
            by: Speaker::Assistant,
            text: "What can I do?".into(),
        },
    ]
}

pub fn follow_up() -> DecideFollowUp {
    DecideFollowUp {
        history: history(),
        reason: "Which city?".into(),
        message: "Porto".into(),
    }
}

pub fn intake() -> DecideIntake {
    DecideIntake {
        request: REQUEST.into(),
        history: history(),
        world: world(),
        may_clarify: true,
        may_split: true,
        answer_prompt: Some("Be kind.".into()),
    }
}

pub fn clarity() -> DecideClarity {
    DecideClarity {
        history: history(),
        request: REQUEST.into(),
        world: Arc::default(),
    }
}

pub fn split() -> DecideSplit {
    DecideSplit {
        request: REQUEST.into(),
        history: history(),
        world: world(),
    }
}

pub fn steps() -> MakeSteps {
    MakeSteps {
        request: REQUEST.into(),
        world: world(),
    }
}

pub fn route() -> DecideRoute {
    DecideRoute {
        request: REQUEST.into(),
        history: history(),
        world: world(),
        slim: false,
    }
}

pub fn tool_choice() -> DecideTool {
    DecideTool {
        request: REQUEST.into(),
        history: history(),
        tools: world().tools.clone(),
        slim: false,
    }
}

pub fn answer() -> WriteAnswer {
    WriteAnswer {
        request: REQUEST.into(),
        history: history(),
        system_prompt: "You are kind.".into(),
    }
}

pub fn recovery() -> DecideRecovery {
    DecideRecovery {
        task_id: "run-1.a".into(),
        root_goal: REQUEST.into(),
        action: Action::Local {
            tool: "echo".into(),
            params: object(json!({ "text": "a" })),
        },
        class: ErrorClass::TransientNetwork,
        error: "the line is down".into(),
        attempts: 1,
        tools: vec!["llm".into()],
        agents: vec!["weather".into()],
        may_ask: true,
    }
}

pub fn synthesis() -> Synthesize {
    let report = |id: &str, state, text: &str| StepReport {
        id: id.into(),
        goal: format!("do {id}"),
        by: "weather".into(),
        state,
        text: text.into(),
        attempts: 1,
    };
    let results = vec![
        report("a", TaskState::Completed, "Sun."),
        report("b", TaskState::Failed, "down"),
    ];
    Synthesize {
        goal: REQUEST.into(),
        results,
    }
}

pub fn confirm() -> DecideConfirm {
    DecideConfirm {
        action: json!({ "tool": "x" }),
        why: ConfirmReason::Risk,
        risk: 0.9,
        preference_known: false,
    }
}
