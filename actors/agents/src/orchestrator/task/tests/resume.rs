//! A process that ends in the midst of it, as far as one process can show: tests/it has the real one.

use callboard_message::{Answer, FailureKind};
use callboard_runtime::CallEvent;
use serde_json::json;

use super::kit::{Act, decided, nobody, said, says, steps, with};

/// Goal: steps that were under way go on when the runner is back, those that are done aren't done again, and nothing is
/// decided anew. Method: the runner stops while one of two hangs; the call ends with the node and is made again.
#[test]
fn goes_on() {
    with(
        |_| {},
        async |kit| {
            kit.decide("decide_split", [decided(json!("yes"))]);
            kit.decide("make_steps", [steps(&[("a", "do a", &[]), ("b", "do b", &[])])]);
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
            assert_eq!(call.reply().await.unwrap().unwrap_err().kind, FailureKind::Unavailable);

            kit.start_runner();
            let heard = kit.hear(said("both", "k", "c"), &nobody).await;
            assert_eq!(heard.text(), "all together");
            assert_eq!((a.lock().unwrap().len(), b.lock().unwrap().len()), (1, 2));
            let keys: Vec<String> = b.lock().unwrap().iter().map(|said| said.key()).collect();
            assert_eq!(keys[0], keys[1]);
            assert_eq!((kit.asked("make_steps").len(), kit.asked("synthesize").len()), (1, 1));
        },
    );
}

/// Goal: what was answered isn't asked again, and what was made one answer isn't made again. Method: the runner stops at the
/// confirmation; the step before it had asked too.
#[test]
fn asked_once() {
    with(
        |_| {},
        async |kit| {
            kit.decide("decide_split", [decided(json!("yes"))]);
            kit.decide("make_steps", [steps(&[("a", "do a", &[]), ("b", "do b", &[])])]);
            let routes = ["a", "b"].map(|id| decided(json!({ "remote": { "agent": id } })));
            kit.decide("decide_route", routes);
            kit.decide("synthesize", [decided(json!({ "final_answer": "together", "confidence": 0.35 }))]);
            kit.peer("a", [Act::Ask("Which city?")]);
            kit.peer("b", [Act::Say("y")]);
            let person = says("Rome");
            // Whoever is asked to confirm doesn't answer before the end.
            let mut call = kit.agent.call(said("both", "k", "c")).start();
            let unanswered = loop {
                let CallEvent::Question(mut pending) = call.next().await.expect("it ended") else { continue };
                let key = pending.question.take_key().unwrap();
                if key == "confirm" {
                    break pending;
                }
                pending.answer(Answer::Elicit(person(&key, "").unwrap()));
            };
            kit.ending.cancel();
            kit.stop_runner().await;
            drop((call, unanswered));

            kit.start_runner();
            let heard = kit.hear(said("both", "k", "c"), &person).await;
            assert_eq!(heard.text(), "together");
            let keys: Vec<&str> = heard.questions.iter().map(|(key, _)| &**key).collect();
            assert_eq!(keys, ["confirm"]);
            assert_eq!(kit.asked("synthesize").len(), 1);
        },
    );
}
