//! NP3: the five recovery strategies and their common budget (T-B12).

use std::time::Duration;

use callboard_message::{ElicitationAnswer, Failure, FailureKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::{Act, Kit, decided, nobody, says, with_kit};
use crate::task::execution::STEP_ATTEMPTS_MAX;

fn away() -> Act {
    Act::Fail(Failure::unavailable("connection refused"))
}

/// Scripts a request for the peer `one`, with these recovery strategies.
fn to_one(kit: &Kit, strategies: impl IntoIterator<Item = Value>) {
    kit.decide(
        "decide_route",
        [decided(json!({ "remote": { "agent": "one" } }))],
    );
    kit.decide("decide_recovery", strategies.into_iter().map(decided));
}

/// Goal: retries repeat the same request under the same key after growing pauses. Method: a peer
/// that is unavailable twice; measure the time.
/// Rows: B-66, B-69.
#[test]
fn retry_same() {
    with_kit(async |kit| {
        to_one(kit, [json!("retry_same")]);
        let heard_by = kit.peer("one", [away(), away(), Act::Say("done")]);
        let began = Instant::now();
        let heard = kit.say("go", &nobody).await;
        assert_eq!(heard.text(), "done");
        // 500 ms and 1 s, each ±50 %.
        let took = began.elapsed();
        assert!(
            (Duration::from_millis(750)..Duration::from_millis(2_300)).contains(&took),
            "{took:?}"
        );
        let keys: Vec<String> = heard_by
            .lock()
            .unwrap()
            .iter()
            .map(|said| said.key())
            .collect();
        assert!(
            keys.len() == 3 && keys.iter().all(|key| *key == keys[0]),
            "{keys:?}"
        );
        let told: Vec<_> = heard
            .progress
            .iter()
            .filter(|line| line.contains(" by one failed"))
            .collect();
        assert_eq!(
            told[0],
            "Attempt 1 by one failed (TransientNetwork). Trying the step again"
        );
        assert!(told.iter().all(|line| !line.contains("refused")));
    });
}

/// Goal: a retry of a failure that the peer has ended is a new task there. Method: a failure other
/// than a network error.
/// Rows: B-66.
#[test]
fn settled_failures_are_other_tasks() {
    with_kit(async |kit| {
        to_one(kit, [json!("retry_same")]);
        let heard_by = kit.peer(
            "one",
            [Act::Fail(Failure::internal("no")), Act::Say("done")],
        );
        assert_eq!(kit.say("go", &nobody).await.text(), "done");
        let keys: Vec<String> = heard_by
            .lock()
            .unwrap()
            .iter()
            .map(|said| said.key())
            .collect();
        assert_eq!(keys[1], format!("{}/1", keys[0]));
    });
}

/// Goal: a retry uses modified parameters if the tool accepts them. Method: a tool call with a
/// missing parameter; a patch that still lacks it.
/// Rows: B-69.
#[test]
fn retry_modified() {
    with_kit(async |kit| {
        kit.decide(
            "decide_tool",
            [decided(
                json!({ "tool_name": "echo", "params": { "words": "x" } }),
            )],
        );
        kit.decide(
            "decide_recovery",
            [decided(
                json!({ "retry_modified": { "params": { "text": "mended" } } }),
            )],
        );
        assert_eq!(kit.say("go", &nobody).await.text(), "mended");
        assert_eq!(kit.asked("decide_recovery")[0]["class"], "ToolSyntax");
        kit.decide(
            "decide_recovery",
            [decided(
                json!({ "retry_modified": { "params": { "wrong": 1 } } }),
            )],
        );
        assert_eq!(
            kit.say("go", &nobody).await.failure().kind,
            FailureKind::InvalidInput
        );
    });
}

/// Goal: modified parameters change only what they name; for an agent they are a new text under a
/// new key. Method: a patch of one of two parameters, one that removes a parameter, and an agent
/// whose failure is final, or which may still be at work.
#[test]
fn retry_patched() {
    let text = "One. Two. Three.";
    for (params, patch) in [
        (
            json!({ "text": text, "sentences": 0 }),
            json!({ "sentences": 1 }),
        ),
        (
            json!({ "text": text, "sentences": 1, "words": 3 }),
            json!({ "words": null }),
        ),
    ] {
        with_kit(async |kit| {
            kit.decide("write_answer", [decided(json!("short"))]);
            kit.decide(
                "decide_tool",
                [decided(
                    json!({ "tool_name": "summarize", "params": params }),
                )],
            );
            kit.decide(
                "decide_recovery",
                [decided(json!({ "retry_modified": { "params": patch } }))],
            );
            assert_eq!(kit.say("go", &nobody).await.text(), "short", "{patch}");
            let asked = kit.asked("write_answer")[0]["request"].take();
            let asked = asked.as_str().unwrap();
            assert!(
                asked.contains(text) && asked.contains("at most 1 sentences"),
                "{asked}"
            );
        });
    }
    with_kit(async |kit| {
        to_one(
            kit,
            [json!({ "retry_modified": { "params": { "text": "go slowly" } } })],
        );
        let one = kit.peer(
            "one",
            [Act::Fail(Failure::internal("too fast")), Act::Say("done")],
        );
        assert_eq!(kit.say("go", &nobody).await.text(), "done");
        let one = one.lock().unwrap();
        assert_eq!(one[1].texts(), "go slowly");
        assert_eq!(one[1].key(), format!("{}/1", one[0].key()));
    });
    for kind in [FailureKind::TimedOut, FailureKind::Unavailable] {
        with_kit(async |kit| {
            to_one(
                kit,
                [json!({ "retry_modified": { "params": { "text": "go slowly" } } })],
            );
            let one = kit.peer(
                "one",
                [Act::Fail(Failure::new(kind, "no answer")), Act::Say("done")],
            );
            assert_eq!(kit.say("go", &nobody).await.failure().kind, kind);
            assert_eq!(one.lock().unwrap().len(), 1, "it may act twice");
        });
    }
}

/// Goal: an alternative is used by its exact name, and no target twice. Method: an agent, a tool;
/// one that isn't offered.
/// Rows: B-69.
#[test]
fn use_alternative() {
    with_kit(async |kit| {
        to_one(kit, [json!({ "use_alternative": { "which": "two" } })]);
        kit.peer("one", [away()]);
        let two = kit.peer("two", [Act::Say("by two")]);
        assert_eq!(kit.say("go", &nobody).await.text(), "by two");
        assert_eq!(two.lock().unwrap()[0].texts(), "go");
        assert_eq!(kit.asked("decide_recovery")[0]["agents"], json!(["two"]));

        to_one(kit, [json!({ "use_alternative": { "which": "echo" } })]);
        assert_eq!(kit.say("go", &nobody).await.text(), "go");

        for which in ["one", "tow"] {
            to_one(kit, [json!({ "use_alternative": { "which": which } })]);
            assert_eq!(
                kit.say("go", &nobody).await.failure().kind,
                FailureKind::Unavailable,
                "{which}"
            );
        }
    });
}

/// Goal: a person can add instructions or give up. Method: another word; `skip`; nobody to ask; a
/// second question.
/// Rows: B-69.
#[test]
fn ask_human() {
    with_kit(async |kit| {
        let help = || json!({ "ask_human": { "message": "What now?" } });
        to_one(kit, [help()]);
        let denied = || Act::Fail(Failure::denied("no key"));
        let one = kit.peer("one", [denied(), Act::Say("done")]);
        let heard = kit.say("go", &says("with this key")).await;
        assert_eq!(
            (heard.text(), heard.questions.len()),
            ("done".to_owned(), 1)
        );
        assert_eq!(
            heard.questions[0],
            ("recover-1".to_owned(), "What now?".to_owned())
        );
        assert_eq!(one.lock().unwrap()[1].texts(), "go\nwith this key");
        assert_eq!(kit.asked("decide_recovery")[0]["class"], "PermissionAuth");

        to_one(kit, [help()]);
        kit.peer("one", [denied()]);
        assert_eq!(
            kit.say("go", &says("skip")).await.failure().message,
            "no key"
        );
        assert_eq!(
            kit.say("go", &|_, _| Some(ElicitationAnswer::decline()))
                .await
                .failure()
                .message,
            "no key"
        );
        assert_eq!(kit.say("go", &nobody).await.failure().message, "no key");
        let heard = kit.say("go", &says("again")).await;
        assert_eq!(
            (heard.questions.len(), heard.failure().kind),
            (1, FailureKind::Denied)
        );
    });
}

/// Goal: giving up fails with the decider's reason. Method: a single strategy.
/// Rows: B-69.
#[test]
fn abandon() {
    with_kit(async |kit| {
        to_one(kit, [json!({ "abandon": { "reason": "it is of no use" } })]);
        kit.peer("one", [away()]);
        let heard = kit.say("go", &nobody).await;
        assert_eq!(
            (heard.failure().kind, &*heard.failure().message),
            (FailureKind::Unavailable, "it is of no use")
        );
    });
}

/// Goal: a request that the model's provider refuses is an error to recover from, not a rejection
/// of the user's request. Method: a refused key and a refused request (with the model's failure
/// data), and a decider that is refused itself.
#[test]
fn provider_refuses() {
    for (kind, data, class, ends) in [
        (
            "unavailable",
            json!({ "provider_refuses": "key" }),
            Some("PermissionAuth"),
            FailureKind::Unavailable,
        ),
        (
            "rejected",
            json!({ "provider_refuses": "request" }),
            Some("Unknown/Other"),
            FailureKind::Internal,
        ),
        ("rejected", Value::Null, None, FailureKind::Rejected),
    ] {
        with_kit(async |kit| {
            kit.decide(
                "decide_tool",
                [decided(
                    json!({ "tool_name": "llm", "params": { "text": "go" } }),
                )],
            );
            kit.decide(
                "write_answer",
                [json!({ "fails": { "kind": kind, "message": "no", "data": data } })],
            );
            assert_eq!(
                kit.say("go", &nobody).await.failure().kind,
                ends,
                "{kind} {data}"
            );
            let classes = kit.asked("decide_recovery");
            let first = classes
                .first()
                .map(|asked| asked["class"].as_str().unwrap());
            assert_eq!(first, class, "{kind} {data}");
        });
    }
}

/// Goal: the budget of attempts holds whatever is decided, and rejections aren't recovered from.
/// Method: a decider that never gives up; a peer that rejects.
#[test]
fn budgets() {
    with_kit(async |kit| {
        to_one(kit, [json!("retry_same")]);
        let one = kit.peer("one", [away()]);
        assert_eq!(
            kit.say("go", &nobody).await.failure().kind,
            FailureKind::Unavailable
        );
        assert_eq!(one.lock().unwrap().len(), STEP_ATTEMPTS_MAX as usize);
        // Three failures in a row; the fourth attempt is over the budget.
        let classes: Vec<Value> = kit
            .asked("decide_recovery")
            .iter()
            .map(|asked| asked["class"].clone())
            .collect();
        assert_eq!(
            classes,
            ["TransientNetwork", "TransientNetwork", "AgentUnavailable"]
        );

        for kind in [FailureKind::Rejected, FailureKind::Blocked] {
            kit.peer("one", [Act::Fail(Failure::new(kind, "no"))]);
            assert_eq!(kit.say("go", &nobody).await.failure().kind, kind);
        }
        assert_eq!(kit.asked("decide_recovery").len(), 3);
    });
    with_kit(async |kit| {
        let alternative = |which: &str| json!({ "use_alternative": { "which": which } });
        to_one(
            kit,
            [
                alternative("two"),
                alternative("three"),
                alternative("four"),
            ],
        );
        for id in ["one", "two", "three"] {
            kit.peer(id, [away()]);
        }
        let four = kit.peer("four", [Act::Say("by four")]);
        assert!(kit.say("go", &nobody).await.reply.is_err());
        assert!(four.lock().unwrap().is_empty());
    });
}
