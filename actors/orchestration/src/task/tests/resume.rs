//! Restarts in the middle of a run, as far as a single process can simulate them; tests/it has real
//! ones.

use callboard_message::{Answer, FailureKind};
use callboard_runtime::CallEvent;
use serde_json::json;

use super::super::question_dedup::RUN_STORE_BYTES_MAX;
use super::kit::{Act, Kit, decided, nobody, said, says, steps, with, with_kit};

/// Goal: interrupted steps resume with the runner, completed ones aren't repeated, and nothing is
/// decided again. Method: the runner stops while one of two steps hangs; the call ends with the
/// node and is repeated.
#[test]
fn goes_on() {
    with_kit(async |kit| {
        kit.decide("decide_split", [decided(json!("yes"))]);
        kit.decide(
            "make_steps",
            [steps(&[("a", "do a", &[]), ("b", "do b", &[])])],
        );
        let routes = ["a", "b"].map(|id| decided(json!({ "remote": { "agent": id } })));
        kit.decide("decide_route", routes);
        let a = kit.peer("a", [Act::Say("x")]);
        let b = kit.peer("b", [Act::Hang, Act::Say("y")]);
        let mut call = kit.agent.call(said("both", "k", "c")).start();
        let under_way = async {
            while a.lock().unwrap().is_empty() || b.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        };
        tokio::select! { () = under_way => {}, () = async { while call.next().await.is_some() {} } => panic!("ended") }
        kit.ending.cancel();
        kit.stop_runner().await;
        call.cancel();
        assert_eq!(
            call.reply().await.unwrap().unwrap_err().kind,
            FailureKind::Unavailable
        );

        kit.start_runner();
        let heard = kit.hear(said("both", "k", "c"), &nobody).await;
        assert_eq!(heard.text(), "all together");
        assert_eq!((a.lock().unwrap().len(), b.lock().unwrap().len()), (1, 2));
        let keys: Vec<String> = b.lock().unwrap().iter().map(|said| said.key()).collect();
        assert_eq!(keys[0], keys[1]);
        assert_eq!(
            (kit.asked("make_steps").len(), kit.asked("synthesize").len()),
            (1, 1)
        );
    });
}

/// Goal: answered questions aren't repeated, and a finished synthesis isn't made again. Method: the
/// runner stops at the confirmation; an earlier step had asked too.
#[test]
fn asked_once() {
    with_kit(async |kit| {
        kit.decide("decide_split", [decided(json!("yes"))]);
        kit.decide(
            "make_steps",
            [steps(&[("a", "do a", &[]), ("b", "do b", &[])])],
        );
        let routes = ["a", "b"].map(|id| decided(json!({ "remote": { "agent": id } })));
        kit.decide("decide_route", routes);
        kit.decide(
            "synthesize",
            [decided(
                json!({ "final_answer": "together", "confidence": 0.35 }),
            )],
        );
        kit.peer("a", [Act::Ask("Which city?")]);
        kit.peer("b", [Act::Say("y")]);
        let person = says("Rome");
        // The confirmation stays unanswered until the restart.
        let mut call = kit.agent.call(said("both", "k", "c")).start();
        let unanswered = loop {
            let CallEvent::Question(mut pending) = call.next().await.expect("it ended") else {
                continue;
            };
            let key = pending.question.take_key().unwrap();
            if key == "confirm" {
                break pending;
            }
            pending.answer(Answer::Elicit(person(&key, "").unwrap()));
        };
        kit.ending.cancel();
        kit.stop_runner().await;
        drop((call, unanswered));

        // A new decision would need no confirmation.
        kit.decide("decide_confirm", [decided(json!("safe_to_proceed"))]);
        kit.start_runner();
        let heard = kit.hear(said("both", "k", "c"), &person).await;
        assert_eq!(heard.text(), "together");
        let keys: Vec<&str> = heard.questions.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["confirm"]);
        assert_eq!(
            (
                kit.asked("synthesize").len(),
                kit.asked("decide_confirm").len()
            ),
            (1, 1)
        );
    });
}

/// Sends a text and answers "Rome" to every question except the one under `key`, at which the
/// process ends.
async fn parked_at(kit: &Kit, text: &str, key: &str) {
    let (person, mut call) = (says("Rome"), kit.agent.call(said(text, "k", "c")).start());
    loop {
        let CallEvent::Question(mut pending) = call.next().await.expect("it ended") else {
            continue;
        };
        let asked = pending.question.take_key().unwrap();
        if asked.starts_with(key) {
            kit.ending.cancel();
            call.cancel();
            let _ = call.reply().await;
            return;
        }
        pending.answer(Answer::Elicit(person(&asked, "").unwrap()));
    }
}

/// Goal: a question before the plan is repeated verbatim after a restart, with the earlier answers,
/// whatever the deciders would decide now. Method: deciders that change their outcome during the
/// question: NP1 once and twice, NP5, an agent.
#[test]
fn asked_again_as_it_was() {
    let unsure = || json!({ "outcome": "local", "confidence": 0.2 });
    let which =
        |what: &str| decided(json!({ "needs_clarify": { "question": format!("Which {what}?") } }));
    for (key, expect, decided_anew) in [
        ("clarify", "go\nRome", ["decide_clarity"].as_slice()),
        ("clarify-2", "go\nRome\nRome", &["decide_clarity"]),
        (
            "confirm",
            "go\nRome",
            &["decide_clarity", "decide_route", "decide_confirm"],
        ),
        (
            "peer",
            "heard \"Rome\"",
            &["decide_clarity", "decide_route"],
        ),
    ] {
        with(
            |options| options.max_risk = if key == "confirm" { -1.0 } else { 1.0 },
            async |kit| {
                kit.decide("decide_clarity", [which("city"), which("street")]);
                match key {
                    "clarify-2" => kit.decide("decide_route", [unsure()]),
                    "peer" => kit.decide(
                        "decide_route",
                        [decided(json!({ "remote": { "agent": "one" } }))],
                    ),
                    _ => {}
                }
                kit.peer("one", [Act::Ask("Which street?")]);
                let asked_under = match key {
                    "peer" => "ask-",
                    key => key,
                };
                parked_at(kit, "go", asked_under).await;
                let before: Vec<usize> = decided_anew
                    .iter()
                    .map(|message| kit.asked(message).len())
                    .collect();

                kit.decide("decide_clarity", [decided(json!("clear"))]);
                kit.decide("decide_confirm", [decided(json!("safe_to_proceed"))]);
                kit.decide("decide_route", [decided(json!("local"))]);
                let heard = kit.hear(said("go", "k", "c"), &says("Rome")).await;
                assert_eq!(heard.text(), expect, "{key}");
                assert!(
                    heard.questions.len() == 1 && heard.questions[0].0.starts_with(asked_under),
                    "{key}"
                );
                let after: Vec<usize> = decided_anew
                    .iter()
                    .map(|message| kit.asked(message).len())
                    .collect();
                assert_eq!(after, before, "{key}");
            },
        );
    }
}

/// Goal: the decisions before a question are stored up to a limit; beyond it, the question is asked
/// anyway. Method: a request whose route just fits, and one that doesn't; a decider that would no
/// longer ask.
#[test]
fn kept_up_to_a_limit() {
    for (chars, asked_again) in [(RUN_STORE_BYTES_MAX / 8, 1), (RUN_STORE_BYTES_MAX / 4, 0)] {
        with(
            |options| (options.max_risk, options.intake.clarification) = (-1.0, false),
            async |kit| {
                // Each character has two bytes, and occurs in the request and in the tool's
                // parameters.
                let text = "é".repeat(chars);
                parked_at(kit, &text, "confirm").await;
                kit.decide("decide_confirm", [decided(json!("safe_to_proceed"))]);
                let heard = kit.hear(said(&text, "k", "c"), &says("Rome")).await;
                assert_eq!(
                    (heard.text(), heard.questions.len()),
                    (text, asked_again),
                    "{chars}"
                );
            },
        );
    }
}
