//! Invalid answers and unavailable models: the documented fallback applies at every decision point.

use std::time::Duration;

use callboard_message::FailureKind;
use callboard_runtime::{AgentState, testkit};
use serde_json::{Value, json};

use super::kit::*;
use crate::decide::model::{ANSWER_BYTES_MAX, DECISION_BYTES_MAX};
use crate::decide::*;

/// Checks all failures that any decision point can have. `good` is a valid answer object, `two` a
/// text with two answers.
fn every_trouble<D: DecisionRequest + Sync>(asked: &D, good: Value, two: &str) {
    let unclear = |answer| falls_back(asked, answer, FallbackReason::Unclear);
    let text = good.to_string();
    check_clear(asked, says(&*text));
    unclear(says(""));
    unclear(says(" \n\u{a0}"));
    unclear(says("I would rather talk about the sea."));
    unclear(says("{}"));
    unclear(says("[]"));
    unclear(says("{\"a\": 1}"));
    unclear(says(&text[..text.len() - 1]));
    unclear(says(format!(
        "{text}\nOr rather: {}",
        &text[..text.len() / 2]
    )));
    unclear(says("{".repeat(1_000)));
    unclear(says(format!("{{\"a\":{}", "[".repeat(10_000))));
    unclear(says(two));
    unclear(uses(json!({})));
    unclear(uses(json!({ "other": true })));
    unclear(json!({ "tool": { "name": "echo", "input": good } }));
    unclear(json!({ "text": text, "stop_reason": "maxTokens" }));
    unclear(json!({ "text": text, "stop_reason": "refusal" }));
    unclear(json!({ "text": text, "stop_reason": "contentFilter" }));
    let at_limit = format!("{text}{}", " ".repeat(DECISION_BYTES_MAX - text.len()));
    check_clear(asked, says(&*at_limit));
    unclear(says(at_limit + " "));
    // A repeated key counts as two answers.
    let (key, value) = good.as_object().unwrap().iter().next().unwrap();
    unclear(says(format!("{{\"{key}\": {value}, {}", &text[1..])));
    does_not_answer(asked);
}

/// Checks a model that fails, times out, or isn't there.
fn does_not_answer<D: DecisionRequest + Sync>(asked: &D) {
    falls_back(
        asked,
        json!({ "fails": "the line is down" }),
        FallbackReason::Failed(FailureKind::Unavailable),
    );
    falls_back(
        asked,
        json!({ "text": "LOCAL", "delay_ms": 31_000 }),
        FallbackReason::TimedOut,
    );
    testkit::run_with_paused_time(async |system| {
        let model = scripted(system, json!([says("LOCAL")]));
        model.stop();
        let has_ended = || model.snapshot().state == AgentState::Ended;
        testkit::eventually("the model is gone", Duration::from_secs(5), has_ended).await;
        let settled = settle(system, &model, asked.clone()).await;
        assert!(
            matches!(settled.record.fallback, Some(FallbackReason::Failed(_))),
            "{:?}",
            settled.record.fallback
        );
        assert!(settled.outcome == asked.fallback(), "{}", D::POINT);
        system.shutdown(Duration::from_secs(5)).await;
    });
}

fn check_clear<D: DecisionRequest + Sync>(asked: &D, answer: Value) {
    let settled = settled(asked.clone(), answer);
    assert_eq!(settled.record.fallback, None, "{}", D::POINT);
}

/// Goal: DP1 falls back to asking the user again. Method: every failure.
/// Rows: B-45.
#[test]
fn at_follow_up() {
    every_trouble(
        &follow_up(),
        json!({ "decision": "HANDLE_DIRECTLY" }),
        "HANDLE_DIRECTLY\nNEED_HUMAN_INPUT",
    );
    assert!(follow_up().fallback() == Some(FollowUp::NeedHumanInput { question: None }));
}

/// Goal: NP1 falls back to a clear request, so that NP2 follows (T-B8). Method: every failure, an
/// overlong question, an empty one.
/// Rows: B-46.
#[test]
fn at_clarity() {
    every_trouble(
        &clarity(),
        json!({ "clarity": "CLEAR" }),
        "CLARITY: CLEAR\nCLARITY: NEEDS_CLARIFY\nQUESTION: Which?",
    );
    falls_back(
        &clarity(),
        uses(json!({ "clarity": "NEEDS_CLARIFY" })),
        FallbackReason::Unclear,
    );
    falls_back(
        &clarity(),
        says("CLARITY: NEEDS_CLARIFY"),
        FallbackReason::Unclear,
    );
    falls_back(&clarity(), says("CLARITY: MAYBE"), FallbackReason::Unclear);
    let asks = |chars| uses(json!({ "clarity": "NEEDS_CLARIFY", "question": "é".repeat(chars) }));
    check_clear(&clarity(), asks(240));
    falls_back(&clarity(), asks(241), FallbackReason::Unknown);
    assert!(clarity().fallback() == Some(Clarity::Clear));
}

/// Goal: NP2.A falls back to one step. Method: every failure.
/// Rows: B-47.
#[test]
fn at_split() {
    every_trouble(
        &split(),
        json!({ "should_decompose": "YES" }),
        "SHOULD_DECOMPOSE: YES\nSHOULD_DECOMPOSE: NO",
    );
    falls_back(
        &split(),
        says("SHOULD_DECOMPOSE: YES|NO"),
        FallbackReason::Unclear,
    );
    assert!(split().fallback() == Some(Split::No));
}

/// Goal: NP2.B has no fallback: without a plan, DP2 follows. Method: every failure.
/// Rows: B-47.
#[test]
fn at_plan() {
    let step =
        |id: &str| json!({ "id": id, "input_message": "do", "metadata": { "depends_on": [] } });
    let two = format!("{}\nor\n{}", json!([step("a")]), json!([step("b")]));
    every_trouble(&steps(), json!({ "steps": [step("a")] }), &two);
    assert!(steps().fallback().is_none());
}

/// Goal: DP2 falls back to this agent. Method: every failure, and answers of two kinds at once.
/// Rows: B-48.
#[test]
fn at_route() {
    every_trouble(
        &route(),
        json!({ "decision": "REJECT", "reason": "No." }),
        "LOCAL\nREMOTE: weather",
    );
    for two in [
        "REMOTE: weather\nREMOTE: travel",
        "{\"decision\": \"LOCAL\"}\nREMOTE: weather",
        "LOCAL\nREJECT: no",
    ] {
        falls_back(&route(), says(two), FallbackReason::Unclear);
    }
    falls_back(
        &route(),
        says("LOCAL or REMOTE, whatever you like"),
        FallbackReason::Unclear,
    );
    assert!(route().fallback() == Some(Route::Local));
}

/// Goal: DP3 falls back to `llm`. Method: every failure.
/// Rows: B-49.
#[test]
fn at_tool() {
    let two = "{\"tool_name\": \"echo\", \"params\": {}} {\"tool_name\": \"llm\", \"params\": {}}";
    every_trouble(
        &tool_choice(),
        json!({ "tool_name": "echo", "params": {} }),
        two,
    );
}

/// Goal: DP4 has no fallback and returns the failure. Method: an empty answer, a refusal, one over
/// the limit, an unavailable model.
/// Rows: B-50.
#[test]
fn at_answer() {
    for said in [
        says(""),
        says(" \n"),
        json!({ "text": "I won't.", "stop_reason": "refusal" }),
    ] {
        falls_back(&answer(), said, FallbackReason::Unclear);
    }
    check_clear(&answer(), says("a".repeat(ANSWER_BYTES_MAX)));
    falls_back(
        &answer(),
        says("a".repeat(ANSWER_BYTES_MAX + 1)),
        FallbackReason::Unclear,
    );
    does_not_answer(&answer());
    let failed = settled(answer(), json!({ "fails": "the line is down" }));
    assert_eq!(failed.failure.unwrap().message, "the line is down");
}

/// Goal: NP3 falls back to a person, or gives up with the error if nobody can be asked. Method:
/// every failure, both ways.
#[test]
fn at_recovery() {
    every_trouble(
        &recovery(),
        json!({ "strategy": "RETRY_SAME", "params": {} }),
        "RETRY_SAME\nABANDON \"no\"",
    );
    let nobody = DecideRecovery {
        may_ask: false,
        ..recovery()
    };
    falls_back(&nobody, says("?"), FallbackReason::Unclear);
    assert!(
        nobody.fallback()
            == Some(Recovery::Abandon {
                reason: "the line is down".into()
            })
    );
    assert!(matches!(
        recovery().fallback(),
        Some(Recovery::AskHuman { .. })
    ));
}

/// Goal: NP4 falls back to the synthesis by rules. Method: every failure.
#[test]
fn at_synthesis() {
    let said = |text: &str| json!({ "final_answer": text, "confidence": 0.9 });
    every_trouble(
        &synthesis(),
        said("Sun."),
        &format!("{} {}", said("Sun."), said("Rain.")),
    );
}

/// Goal: NP5 falls back to asking for confirmation. Method: every failure.
#[test]
fn at_confirm() {
    let two = "CONFIRMATION: CONFIRM_NEEDED\nCONFIRMATION: SAFE_TO_PROCEED";
    every_trouble(
        &confirm(),
        json!({ "confirmation": "SAFE_TO_PROCEED" }),
        two,
    );
    falls_back(
        &confirm(),
        says("CONFIRMATION: CONFIRM_NEEDED|SAFE_TO_PROCEED"),
        FallbackReason::Unclear,
    );
    assert!(confirm().fallback() == Some(Confirm::ConfirmNeeded));
}
