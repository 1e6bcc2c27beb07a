//! Decisions: validation, time limits, fallbacks and records, for any kind of decider.

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{DataClass, Failure, FailureKind, Principal, RawObject, TaskState};
use callboard_runtime::testkit::{ScriptStep, ScriptedAgent, run_with_paused_time};
use callboard_runtime::{
    Agent, AgentRef, AuditEntry, CallEvent, ConcurrentHandler, Context, Handlers, System,
};
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

use super::limits::*;
use super::*;
use crate::recording::Recording;

/// Request to have a route decided, as part of a call.
#[derive(Message)]
#[message(reply = DecisionResult<Route>, local)]
struct Go(DecideRoute);

struct Desk(Arc<Deciders>);

impl Agent for Desk {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Go>(16);
    }
}

impl ConcurrentHandler<Go> for Desk {
    fn handle(
        &mut self,
        Go(message): Go,
        cx: Context,
    ) -> impl Future<Output = DecisionResult<Route>> + Send + 'static {
        let deciders = self.0.clone();
        async move {
            deciders
                .decide(&cx, &RunId::of("desk", "ann", "c", "k"), message)
                .await
        }
    }
}

/// Builds a request with the agent `weather` in its routing context and secret text.
fn request() -> DecideRoute {
    let weather = PeerAgentView {
        id: "weather".to_owned(),
        name: "Weather".to_owned(),
        is_up: true,
        ..PeerAgentView::default()
    };
    let world = Arc::new(RoutingContext {
        tools: Vec::new(),
        agents: vec![weather],
    });
    DecideRoute {
        request: "s3cret".to_owned(),
        history: vec![Turn::user("s3cret")],
        world,
        slim: false,
    }
}

/// Returns the decision of `decider`, and the caller's progress messages.
async fn settled(system: &System, decider: &Decider) -> (DecisionResult<Route>, Vec<String>) {
    settled_by(system, std::slice::from_ref(decider)).await
}

/// Returns the decision of a chain of deciders, and the caller's progress messages.
async fn settled_by(system: &System, chain: &[Decider]) -> (DecisionResult<Route>, Vec<String>) {
    let deciders = Deciders::new("desk", DataClass::Personal, |_| chain.to_vec());
    let desk = system.spawn(Desk(Arc::new(deciders)));
    let mut call = desk
        .call(Go(request()))
        .principal(Principal::local_operator())
        .start();
    let mut heard = Vec::new();
    while let Some(event) = call.next().await {
        if let CallEvent::Progress(progress) = event {
            heard.extend(progress.message);
        }
    }
    (call.reply().await.unwrap(), heard)
}

fn scripted(system: &System, act: ScriptStep) -> AgentRef {
    system.spawn(ScriptedAgent::new([act]))
}

/// Goal: a clear, valid outcome is used; otherwise the fallback, with the reason on record. Method:
/// a remote decider (by id and JSON) that returns each of these, fails, hangs or is unavailable.
#[test]
fn a_decision_or_its_fallback() {
    let remote = |id: &str| json!({ "outcome": { "remote": { "agent": id } }, "confidence": 0.82, "why": "it rains" });
    let failed = |kind| Some(FallbackReason::Failed(kind));
    for (act, outcome, fallback) in [
        (ScriptStep::Reply(remote("weather")), "remote weather", None),
        (
            ScriptStep::Reply(json!({ "outcome": { "reject": { "reason": "no" } } })),
            "reject",
            None,
        ),
        (
            ScriptStep::Reply(json!({ "outcome": null, "confidence": 0.9 })),
            "local",
            Some(FallbackReason::Unclear),
        ),
        (
            ScriptStep::Reply(json!({ "why": "hm" })),
            "local",
            Some(FallbackReason::Unclear),
        ),
        (
            ScriptStep::Reply(remote("Weather")),
            "local",
            Some(FallbackReason::Unknown),
        ),
        (
            ScriptStep::Reply(json!({ "outcome": { "reject": { "reason": " " } } })),
            "local",
            Some(FallbackReason::Unknown),
        ),
        (
            ScriptStep::Reply(json!({ "outcome": "elsewhere" })),
            "local",
            failed(FailureKind::Internal),
        ),
        (
            ScriptStep::Fail(Failure::unavailable("away")),
            "local",
            failed(FailureKind::Unavailable),
        ),
        (ScriptStep::Hang, "local", Some(FallbackReason::TimedOut)),
    ] {
        let told = format!("{act:?}");
        run_with_paused_time(async |system| {
            let decider = Decider {
                label: "agent:d".to_owned(),
                ..Decider::rules(scripted(system, act))
            };
            let (settled, heard) = settled(system, &decider).await;
            assert_eq!(settled.outcome.unwrap().label(), outcome, "{told}");
            assert_eq!(settled.record.fallback, fallback, "{told}");
            assert_eq!(
                (settled.record.by.as_str(), settled.record.point),
                ("agent:d", DecisionPoint::Route)
            );
            assert_eq!(heard, [settled.record.to_string()]);
            system.shutdown(Duration::from_secs(1)).await;
        });
    }
}

/// Goal: the first decider of a chain whose decision can be used decides, within the same second
/// unless the one before it used up its own time limit; the record names those before it. Method:
/// deciders with each kind of unusable answer before a good one, in paused time.
#[test]
fn chains_of_deciders() {
    let good = || ScriptStep::Reply(json!({ "outcome": { "remote": { "agent": "weather" } } }));
    let unclear = ScriptStep::Reply(json!({ "why": "hm" }));
    let unknown = ScriptStep::Reply(json!({ "outcome": { "remote": { "agent": "moon" } } }));
    let garbage = ScriptStep::Reply(json!({ "outcome": 7 }));
    let away = ScriptStep::Fail(Failure::unavailable("away"));
    let failed = FallbackReason::Failed;
    for (act, why, seconds) in [
        (unclear.clone(), FallbackReason::Unclear, 0),
        (unknown, FallbackReason::Unknown, 0),
        (garbage, failed(FailureKind::Internal), 0),
        (away.clone(), failed(FailureKind::Unavailable), 0),
        (ScriptStep::Hang, FallbackReason::TimedOut, 2),
    ] {
        let told = format!("{act:?}");
        run_with_paused_time(async |system| {
            let model =
                Decider::model("m", scripted(system, act)).with_timeout(Duration::from_secs(2));
            let rules = Decider::rules(scripted(system, good()));
            let begun = tokio::time::Instant::now();
            let (settled, heard) = settled_by(system, &[model, rules]).await;
            assert_eq!(begun.elapsed().as_secs(), seconds, "{told}");
            let record = settled.record;
            assert_eq!(
                (&*record.outcome, &*record.by),
                ("remote weather", "rules"),
                "{told}"
            );
            let by = "model:m".to_owned();
            assert_eq!(record.skipped, [SkippedDecider { by, why }], "{told}");
            assert_eq!(record.fallback, None, "{told}");
            assert_eq!(heard, ["Routing to weather, confidence 0.70 (rules)"]);
            system.shutdown(Duration::from_secs(1)).await;
        });
    }
    run_with_paused_time(async |system| {
        let deciders = [unclear, away].map(|act| Decider::model("m", scripted(system, act)));
        let (settled, _) = settled_by(system, &deciders).await;
        let record = settled.record;
        assert_eq!((&*record.outcome, record.skipped.len()), ("local", 1));
        assert_eq!(record.fallback, Some(failed(FailureKind::Unavailable)));
        let (nobody, _) = settled_by(system, &[]).await;
        assert_eq!(nobody.record.fallback, Some(FallbackReason::Unclear));
        let (first, _) = settled_by(
            system,
            &[
                Decider::rules(scripted(system, good())),
                deciders[0].clone(),
            ],
        )
        .await;
        assert_eq!(
            (&*first.record.by, first.record.skipped.len()),
            ("rules", 0)
        );
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Goal: confidence is always from 0 to 1, and 0.7 if none is given. Method: values that may come
/// over the wire.
#[test]
fn confidence_is_a_share() {
    for (said, expect) in [
        (json!(0.5), 0.5),
        (json!(7), 1.0),
        (json!(-1), 0.0),
        (Value::Null, CONFIDENCE_DEFAULT),
    ] {
        run_with_paused_time(async |system| {
            let mut reply = json!({ "outcome": "local", "confidence": said });
            if said.is_null() {
                reply = json!({ "outcome": "local" });
            }
            let (settled, _) = settled(
                system,
                &Decider::rules(scripted(system, ScriptStep::Reply(reply))),
            )
            .await;
            assert_eq!(settled.record.confidence, expect, "{said}");
            system.shutdown(Duration::from_secs(1)).await;
        });
    }
}

/// Goal: a decider by id is looked up for each decision, and a missing decider is reported as
/// missing. Method: an unused id that is registered later; an unconfigured decider.
#[test]
fn deciders_by_id_and_empty_seats() {
    run_with_paused_time(async |system| {
        let decider = Decider::agent("elsewhere");
        let (nobody, _) = settled(system, &decider).await;
        assert_eq!(
            nobody.record.fallback,
            Some(FallbackReason::Failed(FailureKind::Unavailable))
        );
        let agent = scripted(
            system,
            ScriptStep::Reply(json!({ "outcome": { "remote": { "agent": "weather" } } })),
        );
        system.directory().register("elsewhere", &agent).unwrap();
        assert_eq!(
            settled(system, &decider).await.0.record.outcome,
            "remote weather"
        );
        let (empty, _) = settled(system, &Decider::unavailable("model", "no model is there")).await;
        let failure = empty.failure.unwrap();
        assert_eq!(
            (failure.kind, &*failure.message),
            (FailureKind::NoResponder, "no model is there")
        );
        system.shutdown(Duration::from_secs(1)).await;
    });
}

/// Goal: decisions and fallbacks are in the audit, the log and the counts, without any user text.
/// Method: an unavailable decider; inspect the log, the audit and the observed state.
/// Rows: B-80.
#[test]
fn records_hold_no_text() {
    let log = Recording::start(LevelFilter::DEBUG);
    run_with_paused_time(async |system| {
        let decider = Decider::rules(scripted(
            system,
            ScriptStep::Fail(Failure::unavailable("away")),
        ));
        let deciders = Arc::new(Deciders::uniform("desk", DataClass::Personal, &decider));
        let desk = system.spawn(Desk(deciders.clone()));
        let settled = desk.ask(Go(request())).await.unwrap();
        assert!(
            settled.record.inputs.hash.starts_with("hmac-sha256:"),
            "{:?}",
            settled.record
        );
        assert_eq!(
            deciders.observe()["route"],
            json!({ "by": "rules", "decided": 1, "skipped": 0, "fallbacks": 1 })
        );
        let shown = format!(
            "{settled:?} {:?} {:?}",
            request(),
            serde_json::to_string(&settled.record).unwrap()
        );
        assert!(!shown.contains("s3cret"), "{shown}");
        system.shutdown(Duration::from_secs(1)).await;
    });
    let log = log.text();
    assert!(
        log.contains("the fallback applies") && log.contains("decision") && !log.contains("s3cret"),
        "{log}"
    );
    // `callboard audit` filters by this name.
    assert_eq!(AuditEntry::new("decision").event, "decision");
}

fn step(id: &str, needs: &[&str]) -> StepDefinition {
    let depends_on = needs.iter().map(|need| (*need).to_owned()).collect();
    StepDefinition {
        id: id.to_owned(),
        input_message: "do".to_owned(),
        metadata: StepMetadata { depends_on },
    }
}

/// Goal: only valid steps form a plan, and they are put into dependency order. Method: each
/// mistake, each limit and one beyond.
/// Rows: B-63.
#[test]
fn plans_that_can_be_done() {
    let ids = |steps: Vec<StepDefinition>| {
        StepPlan::try_new(steps).map(|plan| {
            plan.steps()
                .iter()
                .map(|step| step.id.clone())
                .collect::<Vec<_>>()
        })
    };
    let five = ["a", "b", "c", "d", "e"].map(|id| step(id, &[])).to_vec();
    assert_eq!(ids(five.clone()).unwrap().len(), STEPS_MAX);
    let six = five.into_iter().chain([step("f", &[])]).collect();
    assert_eq!(
        ids(six),
        Err(StepPlanError::TooManySteps {
            count: 6,
            max: STEPS_MAX
        })
    );
    assert_eq!(ids(vec![]), Err(StepPlanError::Empty));
    assert_eq!(
        ids(vec![step("b", &["a"]), step("c", &[]), step("a", &[])]).unwrap(),
        ["c", "a", "b"]
    );
    assert_eq!(
        ids(vec![step("a", &["b"]), step("b", &["a"])]),
        Err(StepPlanError::Cycle { id: "a".into() })
    );
    assert_eq!(
        ids(vec![step("a", &["a"])]),
        Err(StepPlanError::Cycle { id: "a".into() })
    );
    assert_eq!(
        ids(vec![step("a", &["z"])]),
        Err(StepPlanError::UnknownDependency { id: "a".into() })
    );
    assert_eq!(
        ids(vec![step("a", &[]), step("a", &[])]),
        Err(StepPlanError::DuplicateId { id: "a".into() })
    );
    for bad in [
        "",
        "A",
        "a b",
        "a--b",
        "-a",
        "ä",
        &"a".repeat(STEP_ID_BYTES_MAX + 1),
    ] {
        assert_eq!(
            ids(vec![step(bad, &[])]),
            Err(StepPlanError::BadId { at: 1 }),
            "{bad}"
        );
    }
    assert!(is_step_id(&"a".repeat(STEP_ID_BYTES_MAX)) && is_step_id("find-the-2nd-city"));
    for (bytes, fits) in [
        (STEP_INPUT_BYTES_MAX, true),
        (STEP_INPUT_BYTES_MAX + 1, false),
        (0, false),
    ] {
        let step = StepDefinition {
            input_message: "x".repeat(bytes),
            ..step("a", &[])
        };
        assert_eq!(StepPlan::try_new(vec![step]).is_ok(), fits, "{bytes}");
    }
}

/// Goal: a plan has exactly the documented keys, also over the wire. Method: one more key at each
/// level.
/// Rows: B-62.
#[test]
fn plans_have_no_other_keys() {
    let read = |text: &str| serde_json::from_str::<StepPlan>(text).is_ok();
    let with = |step: &str, metadata: &str, plan: &str| {
        format!(
            r#"{{"steps":[{{"id":"a","input_message":"x"{step},"metadata":{{"depends_on":[]{metadata}}}}}]{plan}}}"#
        )
    };
    assert!(read(&with("", "", "")));
    for (step, metadata, plan) in [
        (r#","x":1"#, "", ""),
        ("", r#","x":1"#, ""),
        ("", "", r#","x":1"#),
    ] {
        assert!(!read(&with(step, metadata, plan)));
    }
    assert!(!read(r#"{"steps":[]}"#));
}

/// Goal: the fallbacks are the documented ones. Method: those of all decision points.
/// Rows: B-51.
#[test]
fn every_fallback() {
    let action = Action::Local {
        tool: "echo".to_owned(),
        params: RawObject::new(),
    };
    let recovery = DecideRecovery {
        task_id: "t".to_owned(),
        root_goal: "g".to_owned(),
        action,
        class: ErrorClass::Unknown,
        error: "no disk".to_owned(),
        attempts: 1,
        tools: vec!["llm".to_owned()],
        agents: Vec::new(),
        may_ask: true,
    };
    assert_eq!(recovery.fallback().unwrap().label(), "ask_human");
    assert!(!recovery.is_valid_outcome(&Recovery::UseAlternative {
        which: "echo".to_owned()
    }));
    let alone = DecideRecovery {
        may_ask: false,
        ..recovery
    };
    assert!(
        alone.fallback()
            == Some(Recovery::Abandon {
                reason: "no disk".to_owned()
            })
    );
    assert!(!alone.is_valid_outcome(&Recovery::AskHuman {
        message: "?".to_owned()
    }));
    let route = request();
    assert_eq!(route.fallback().unwrap().label(), "local");
    let tool = DecideTool {
        request: "r".to_owned(),
        history: Vec::new(),
        tools: Vec::new(),
        slim: false,
    };
    assert_eq!(tool.fallback().unwrap().label(), TOOL_LLM);
    let world = route.world.clone();
    let split = DecideSplit {
        request: "r".to_owned(),
        history: Vec::new(),
        world: world.clone(),
    };
    assert_eq!(split.fallback().unwrap().label(), "no");
    assert!(
        MakeSteps {
            request: "r".to_owned(),
            world
        }
        .fallback()
        .is_none()
    );
    let clarity = DecideClarity {
        history: Vec::new(),
        request: "r".to_owned(),
        world: Arc::default(),
    };
    assert_eq!(clarity.fallback().unwrap().label(), "clear");
    for (chars, fits) in [
        (QUESTION_CHARS_MAX, true),
        (QUESTION_CHARS_MAX + 1, false),
        (0, false),
    ] {
        assert_eq!(
            clarity.is_valid_outcome(&Clarity::NeedsClarify {
                question: "ä".repeat(chars)
            }),
            fits,
            "{chars}"
        );
    }
    let follow = DecideFollowUp {
        history: Vec::new(),
        reason: "?".to_owned(),
        message: "m".to_owned(),
    };
    assert_eq!(follow.fallback().unwrap().label(), "need_human_input");
    let answer = WriteAnswer {
        request: "r".to_owned(),
        history: Vec::new(),
        system_prompt: String::new(),
    };
    assert!(answer.fallback().is_none());
    let report = |state| StepReport {
        id: "a".to_owned(),
        goal: "g".to_owned(),
        by: "echo".to_owned(),
        state,
        text: "so".to_owned(),
        attempts: 1,
    };
    let results = vec![report(TaskState::Completed), report(TaskState::Failed)];
    let synthesis = Synthesize {
        goal: "g".to_owned(),
        results,
    }
    .fallback()
    .unwrap();
    assert!(
        synthesis.confidence < 0.4 && synthesis.final_answer.contains("failed"),
        "{synthesis:?}"
    );
    let confirm = DecideConfirm {
        action: json!({}),
        why: ConfirmReason::Risk,
        risk: 1.0,
        preference_known: false,
    };
    assert_eq!(confirm.fallback().unwrap().label(), "confirm_needed");
}

/// Goal: an answer of the combined decision is used only where answers are allowed, and within the
/// limit of a tool's result. Method: answers at and over the limit, a blank one; no instructions.
#[test]
fn answers_at_once_are_limited() {
    let allowed = DecideIntake {
        request: "r".to_owned(),
        history: Vec::new(),
        world: Arc::default(),
        may_clarify: false,
        may_split: false,
        answer_prompt: Some(String::new()),
    };
    let answer = |text: String| Intake::Answer { text };
    for (text, fits) in [
        ("x".repeat(TOOL_REPLY_BYTES_MAX), true),
        ("x".repeat(TOOL_REPLY_BYTES_MAX + 1), false),
        (" ".to_owned(), false),
    ] {
        let bytes = text.len();
        assert_eq!(allowed.is_valid_outcome(&answer(text)), fits, "{bytes}");
    }
    let forbidden = DecideIntake {
        answer_prompt: None,
        ..allowed
    };
    assert!(!forbidden.is_valid_outcome(&answer("so".to_owned())));
}

/// Goal: each failure has one class, or none if it must not be recovered from. Method: every kind.
/// Rows: B-67.
#[test]
fn classes_of_failures() {
    let class = |kind, run| classify_failure(&Failure::new(kind, "x"), run);
    use ErrorClass::*;
    for (kind, run, expect) in [
        (FailureKind::TimedOut, 9, Some(TransientNetwork)),
        (FailureKind::Overloaded, 9, Some(TransientNetwork)),
        (
            FailureKind::Unavailable,
            UNAVAILABLE_AFTER_FAILURES - 1,
            Some(TransientNetwork),
        ),
        (
            FailureKind::Unavailable,
            UNAVAILABLE_AFTER_FAILURES,
            Some(AgentUnavailable),
        ),
        (FailureKind::Denied, 1, Some(PermissionAuth)),
        (FailureKind::InvalidInput, 1, Some(ToolSyntax)),
        (FailureKind::NotFound, 1, Some(ToolSyntax)),
        (FailureKind::Internal, 1, Some(Unknown)),
        (FailureKind::Rejected, 1, None),
        (FailureKind::Blocked, 1, None),
        (FailureKind::Cancelled, 1, None),
        (FailureKind::NoResponder, 1, None),
    ] {
        assert_eq!(class(kind, run), expect, "{kind}");
    }
}

/// Goal: a run id is the same only for the same message, and lists of parts don't collide. Method:
/// each part changed, and moved.
#[test]
fn runs_have_one_name() {
    let run = RunId::of("a", "o", "c", "k");
    assert_eq!(run, RunId::of("a", "o", "c", "k"));
    for other in [
        ["b", "o", "c", "k"],
        ["a", "p", "c", "k"],
        ["a", "o", "d", "k"],
        ["a", "o", "c", "l"],
        ["ao", "", "c", "k"],
    ] {
        assert_ne!(run, RunId::of(other[0], other[1], other[2], other[3]));
    }
    assert_ne!(RunId::of("a", "o", "c", ""), RunId::of("a", "o", "c", ""));
    let is_id = |id: &RunId| {
        id.as_str()
            .strip_prefix("run-")
            .is_some_and(|hex| hex.len() == 32)
    };
    assert!(is_id(&run) && is_id(&RunId::random()));
}

/// Goal: a reason is cut between characters. Method: one character of two bytes more than fit.
#[test]
fn reasons_are_cut() {
    assert_eq!(
        DeciderReply::<u8>::unclear("ä".repeat(DECISION_REASON_CHARS_MAX + 1))
            .why
            .chars()
            .count(),
        DECISION_REASON_CHARS_MAX
    );
}
