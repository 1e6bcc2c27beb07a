use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Answer, ElicitationAnswer, Question, RawObject, TaskState};
use callboard_runtime::{CallEvent, testkit};
use serde_json::{Value, json};

use super::*;
use crate::decide::*;

/// Returns the decision for a person's answer, and the form. `None`: the person closes the form.
fn decided<D: DecisionRequest + Sync>(
    asked: D,
    content: Option<Value>,
) -> (DeciderReply<D::Outcome>, Option<Elicitation>) {
    testkit::run_with_paused_time(async |system| {
        let person = system.spawn(PersonDecider);
        let mut call = person.call(asked).start();
        let mut form = None;
        while let Some(event) = call.next().await {
            let CallEvent::Question(pending) = event else {
                continue;
            };
            let Question::Elicit(elicitation) = &pending.question else {
                panic!("no form")
            };
            form = Some(elicitation.clone());
            let answer = content
                .clone()
                .map_or_else(ElicitationAnswer::cancel, ElicitationAnswer::accept);
            pending.answer(Answer::Elicit(answer));
        }
        let decided = call.reply().await.unwrap().unwrap();
        system.shutdown(Duration::from_secs(5)).await;
        (decided, form)
    })
}

fn says<D: DecisionRequest + Sync>(asked: &D, content: Value, expected: D::Outcome) {
    let (decided, _) = decided(asked.clone(), Some(content.clone()));
    assert!(decided.outcome == Some(expected), "{} {content}", D::POINT);
    assert_eq!(decided.confidence, 1.0);
}

fn unclear<D: DecisionRequest + Sync>(asked: &D, content: Option<Value>) {
    let (decided, _) = decided(asked.clone(), content.clone());
    assert!(decided.outcome.is_none(), "{} {content:?}", D::POINT);
}

fn route() -> DecideRoute {
    let agent = |id: &str, is_up| PeerAgentView {
        id: id.into(),
        is_up,
        ..PeerAgentView::default()
    };
    let world = RoutingContext {
        agents: vec![agent("weather", true), agent("travel", false)],
        ..RoutingContext::default()
    };
    DecideRoute {
        request: "Rain?".into(),
        history: vec![],
        world: Arc::new(world),
        slim: false,
    }
}

fn object(value: Value) -> RawObject {
    serde_json::from_value(value).unwrap()
}

fn recovery() -> DecideRecovery {
    DecideRecovery {
        task_id: "t".into(),
        root_goal: "Rain?".into(),
        action: Action::Local {
            tool: "echo".into(),
            params: RawObject::new(),
        },
        class: ErrorClass::Unknown,
        error: "it broke".into(),
        attempts: 2,
        tools: vec!["llm".into()],
        agents: vec!["weather".into()],
        may_ask: true,
    }
}

/// Goal: the person chooses among this agent, reachable agents and rejection; the form shows the
/// request. Method: the form, each choice, and an invalid one.
#[test]
fn routes() {
    let (_, form) = decided(route(), None);
    let form = form.unwrap();
    assert_eq!(form.message(), "Who should do this?\n\nRain?");
    assert_eq!(
        form.schema().unwrap()["properties"]["who"]["enum"],
        json!(["local", "remote weather", "reject"])
    );
    let schema = form.0.object("requestedSchema").unwrap();
    let fields = schema.object("properties").unwrap();
    let names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["who", "reason"], "in the order of their questions");
    says(&route(), json!({ "who": "local" }), Route::Local);
    says(
        &route(),
        json!({ "who": "remote weather" }),
        Route::Remote {
            agent: "weather".into(),
        },
    );
    says(
        &route(),
        json!({ "who": "reject", "reason": "No." }),
        Route::Reject {
            reason: "No.".into(),
        },
    );
    says(
        &route(),
        json!({ "who": "reject" }),
        Route::Reject {
            reason: "It was rejected.".into(),
        },
    );
    unclear(&route(), Some(json!({ "who": "somebody" })));
    unclear(&route(), Some(json!({})));
    unclear(&route(), None);
}

/// Goal: a person isn't asked whether to be asked for confirmation. Method: no form appears.
#[test]
fn confirmations() {
    let asked = DecideConfirm {
        action: json!({}),
        why: ConfirmReason::Risk,
        risk: 0.9,
        preference_known: true,
    };
    let (decided, form) = decided(asked, None);
    assert!(decided.outcome == Some(Confirm::ConfirmNeeded) && form.is_none());
}

/// Goal: the form of every other decision point covers all its outcomes. Method: rows.
#[test]
fn other_points() {
    let follow_up = DecideFollowUp {
        history: vec![],
        reason: "Where?".into(),
        message: "There".into(),
    };
    says(
        &follow_up,
        json!({ "enough": true }),
        FollowUp::HandleDirectly,
    );
    let question = Some("Which there?".to_owned());
    says(
        &follow_up,
        json!({ "enough": false, "question": "Which there?" }),
        FollowUp::NeedHumanInput { question },
    );
    let clarity = DecideClarity {
        history: vec![],
        request: "Fix it".into(),
        world: Arc::default(),
    };
    says(&clarity, json!({ "clear": true }), Clarity::Clear);
    let question = "Fix what?".to_owned();
    says(
        &clarity,
        json!({ "clear": false, "question": "Fix what?" }),
        Clarity::NeedsClarify { question },
    );
    unclear(&clarity, Some(json!({ "clear": false })));
    let split = DecideSplit {
        request: "Rain?".into(),
        history: vec![],
        world: Arc::default(),
    };
    says(&split, json!({ "several": true }), Split::Yes);
    says(&split, json!({ "several": false }), Split::No);
    let tool = DecideTool {
        request: "Rain?".into(),
        history: vec![],
        tools: vec![],
        slim: false,
    };
    let choice = |params: Value| ToolChoice {
        tool_name: "echo".into(),
        params: object(params),
    };
    says(
        &tool,
        json!({ "tool": "echo" }),
        choice(json!({ "text": "Rain?" })),
    );
    says(
        &tool,
        json!({ "tool": "echo", "params": "{\"a\":1}" }),
        choice(json!({ "a": 1 })),
    );
    unclear(&tool, Some(json!({ "tool": "echo", "params": "a: 1" })));
    let answer = WriteAnswer {
        request: "Rain?".into(),
        history: vec![],
        system_prompt: String::new(),
    };
    says(&answer, json!({ "answer": " Yes. " }), "Yes.".to_owned());
    unclear(&answer, Some(json!({ "answer": "  " })));
    says(&recovery(), json!({ "next": "retry" }), Recovery::RetrySame);
    says(
        &recovery(),
        json!({ "next": "use weather" }),
        Recovery::UseAlternative {
            which: "weather".into(),
        },
    );
    let params = object(json!({ "text": "b" }));
    let modified = json!({ "next": "retry with other parameters", "more": "{\"text\":\"b\"}" });
    says(&recovery(), modified, Recovery::RetryModified { params });
    says(
        &recovery(),
        json!({ "next": "give up" }),
        Recovery::Abandon {
            reason: "it broke".into(),
        },
    );
    unclear(&recovery(), Some(json!({ "next": "pray" })));
    let report = StepReport {
        id: "a".into(),
        goal: "g".into(),
        by: "weather".into(),
        state: TaskState::Completed,
        text: "Rain.".into(),
        attempts: 1,
    };
    let synthesis = Synthesize {
        goal: "Rain?".into(),
        results: vec![report],
    };
    let answer = |confidence| Synthesis {
        final_answer: "Yes.".into(),
        confidence,
        notes: None,
    };
    says(
        &synthesis,
        json!({ "answer": "Yes.", "sure": 0.25 }),
        answer(0.25),
    );
    says(&synthesis, json!({ "answer": "Yes." }), answer(1.0));
}

/// Goal: a person writes one step per line, each dependent on the one before unless unchecked; too
/// many are rejected. Method: two, five, six lines.
#[test]
fn plans() {
    let asked = MakeSteps {
        request: "Rain and trains?".into(),
        world: Arc::default(),
    };
    let steps = |content: Value| {
        decided(asked.clone(), Some(content))
            .0
            .outcome
            .map(StepPlan::into_steps)
    };
    let two = steps(json!({ "steps": "look at the sky\n\n  find a train " })).unwrap();
    assert_eq!(
        (&*two[1].id, &*two[1].input_message),
        ("step-2", "find a train")
    );
    assert_eq!(two[1].metadata.depends_on, ["step-1"]);
    let apart = steps(json!({ "steps": "a\nb\nc\nd\ne", "in_order": false })).unwrap();
    assert!(apart.len() == 5 && apart.iter().all(|step| step.metadata.depends_on.is_empty()));
    assert!(steps(json!({ "steps": "a\nb\nc\nd\ne\nf" })).is_none());
}

/// Goal: equal questions have equal keys, so that a stored answer is found; different ones differ.
/// Method: ask twice, and another question.
#[test]
fn keys() {
    let key = |asked: DecideRoute| {
        let mut question = Question::Elicit(decided(asked, None).1.unwrap());
        question.take_key().unwrap()
    };
    let first = key(route());
    assert!(
        first.starts_with("decide-route-") && first.len() == 25,
        "{first}"
    );
    assert_eq!(key(route()), first);
    assert_ne!(
        key(DecideRoute {
            request: "Snow?".into(),
            ..route()
        }),
        first
    );
}

/// Goal: without anyone to ask, the decision is unclear and the fallback applies. Method: an ask
/// without a caller.
#[test]
fn nobody_to_ask() {
    testkit::run_with_paused_time(async |system| {
        let person = system.spawn(PersonDecider);
        let decided = person.ask(route()).await.unwrap().unwrap();
        assert!(
            decided.outcome.is_none() && decided.why.starts_with("nobody can answer the question"),
            "{}",
            decided.why
        );
        system.shutdown(Duration::from_secs(5)).await;
    });
}
