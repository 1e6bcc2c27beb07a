//! Requests that one combined decision (DP0) takes in, and the number of decisions that they need.
//! A model decider makes one request to its model for each decision.

use callboard_message::FailureKind;
use serde_json::{Value, json};

use super::kit::{
    Act, Kit, decided, nobody, says, steps, with_combined, with_combined_options, with_kit,
};

const SEPARATE: [&str; 4] = [
    "decide_clarity",
    "decide_split",
    "decide_route",
    "decide_tool",
];

fn remote(agent: &str) -> Value {
    decided(json!({ "remote": { "agent": agent } }))
}

fn tool(name: &str) -> Value {
    decided(json!({ "local": { "tool_name": name, "params": {} } }))
}

/// Returns the answer to a request, and the decisions that were requested for it.
async fn decisions(kit: &Kit, text: &str) -> (String, Vec<String>) {
    let before = kit.asked_all().len();
    let said = kit.say(text, &nobody).await.text();
    (said, kit.asked_all().split_off(before))
}

/// Goal: a request needs one decision where the points decided one by one need three to five.
/// Method: a request for an agent, for a tool, for a short and for a long answer, with both.
#[test]
fn decisions_of_a_request() {
    with_kit(async |kit| {
        kit.peer("weather", [Act::Say("sunny")]);
        kit.decide("decide_route", [remote("weather"), decided(json!("local"))]);
        let (said, asked) = decisions(kit, "the weather, please").await;
        assert_eq!(
            (&*said, &*asked),
            ("sunny", &SEPARATE.map(str::to_owned)[..3])
        );
        let (said, asked) = decisions(kit, "say this").await;
        assert_eq!((&*said, asked.len()), ("say this", 4));
        let llm = json!({ "tool_name": "llm", "params": {} });
        kit.decide("decide_tool", [decided(llm)]);
        let (said, asked) = decisions(kit, "why is the sky blue").await;
        assert_eq!((&*said, asked.len()), ("written: why is the sky blue", 5));
    });
    with_combined(async |kit| {
        kit.peer("weather", [Act::Say("sunny")]);
        let answer = decided(json!({ "answer": { "text": "It scatters." } }));
        kit.decide(
            "decide_intake",
            [remote("weather"), tool("echo"), answer, tool("llm")],
        );
        let (said, asked) = decisions(kit, "the weather, please").await;
        assert_eq!(
            (&*said, &*asked),
            ("sunny", &["decide_intake".to_owned()][..])
        );
        let (said, asked) = decisions(kit, "say this").await;
        assert_eq!((&*said, asked.len()), ("say this", 1));
        let (said, asked) = decisions(kit, "why is the sky blue").await;
        assert_eq!((&*said, asked.len()), ("It scatters.", 1));
        let (said, asked) = decisions(kit, "why is the sky blue, at length").await;
        assert_eq!(
            (&*said, asked.len()),
            ("written: why is the sky blue, at length", 2)
        );
    });
}

/// Goal: a result states the decision that it comes from, and keeps what else its `_meta` has.
/// Method: a request for an agent whose result has some, decided one by one and at once.
#[test]
fn results_state_the_decision() {
    let state = async |kit: &Kit| {
        kit.peer("weather", [Act::Show("sunny")]);
        let heard = kit.say("the weather, please", &nobody).await;
        let meta = heard.reply.unwrap().0.object("_meta").unwrap();
        assert_eq!(meta.object("a2a").unwrap().text("taskId").unwrap(), "t-1");
        let decision = meta.object("callboard/decision").unwrap();
        assert!(decision.text("run").unwrap().starts_with("run-"));
        let read = |name: &str| decision.read::<Value>(name).unwrap();
        ["outcome", "by", "confidence", "decisions"].map(read)
    };
    let expected = |decisions: u32| {
        [
            "remote weather".into(),
            "model:script".into(),
            json!(0.9),
            json!(decisions),
        ]
    };
    with_kit(async |kit| {
        kit.decide("decide_route", [remote("weather")]);
        assert_eq!(state(kit).await, expected(3));
    });
    with_combined(async |kit| {
        kit.decide("decide_intake", [remote("weather")]);
        assert_eq!(state(kit).await, expected(1));
    });
}

/// Goal: a plan needs one decision for the request, one a step, and the synthesis. Method: two
/// steps by agents, with the points one by one and at once.
#[test]
fn decisions_of_a_plan() {
    let plan = steps(&[("a", "the weather", &[]), ("b", "a hotel", &["a"])]);
    with_kit(async |kit| {
        kit.peer("weather", [Act::Say("sunny")]);
        kit.decide("decide_split", [decided(json!("yes"))]);
        kit.decide("make_steps", [plan.clone()]);
        kit.decide("decide_route", [remote("weather")]);
        let (said, asked) = decisions(kit, "weather, then a hotel").await;
        assert_eq!((&*said, asked.len()), ("all together", 6), "{asked:?}");
    });
    with_combined(async |kit| {
        kit.peer("weather", [Act::Say("sunny")]);
        let split = decided(json!({ "split": plan["outcome"] }));
        kit.decide("decide_intake", [split, remote("weather")]);
        let (said, asked) = decisions(kit, "weather, then a hotel").await;
        assert_eq!((&*said, asked.len()), ("all together", 4), "{asked:?}");
        let step = &kit.asked("decide_intake")[1];
        assert_eq!(
            (
                &step["may_clarify"],
                &step["may_split"],
                &step["answer_prompt"]
            ),
            (&json!(false), &json!(false), &Value::Null)
        );
    });
}

/// Goal: a combined decision may ask, reject, and be unsure. Method: each; the answer to the question
/// is in the next decision's request.
#[test]
fn questions_and_rejections() {
    with_combined(async |kit| {
        let question = json!({ "needs_clarify": { "question": "Which city?" } });
        kit.decide("decide_intake", [decided(question), tool("echo")]);
        let heard = kit.say("the weather", &says("Porto")).await;
        assert_eq!(
            (heard.text(), heard.questions.len()),
            ("the weather\nPorto".into(), 1)
        );
        let asked = kit.asked("decide_intake");
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0]["may_clarify"], json!(true));
        assert_eq!(asked[1]["may_clarify"], json!(false));

        let reject = json!({ "reject": { "reason": "I won't." } });
        kit.decide("decide_intake", [decided(reject)]);
        let refused = kit.say("do evil", &nobody).await;
        assert_eq!(
            (refused.failure().kind, &*refused.failure().message),
            (FailureKind::Rejected, "I won't.")
        );
        assert_eq!(kit.asked("decide_clarity").len(), 0);
    });
}

/// Goal: a combined decision that can't be used is replaced by the points one by one; a decider that
/// fails isn't asked for each of them again. Method: unclear, an unknown agent, a plan for a step, a
/// failure.
#[test]
fn unusable_combined_decisions() {
    for unusable in [
        json!({ "outcome": null }),
        remote("nowhere"),
        tool("hammer"),
    ] {
        with_combined(async |kit| {
            kit.decide("decide_intake", [unusable.clone()]);
            let (said, asked) = decisions(kit, "say this").await;
            assert_eq!((&*said, asked.len()), ("say this", 5), "{unusable}");
            assert_eq!(asked[1..], SEPARATE, "{unusable}");
        });
    }
    with_combined(async |kit| {
        let away = json!({ "fails": { "kind": "unavailable", "message": "away" } });
        kit.decide("decide_intake", [away]);
        let (said, asked) = decisions(kit, "say this").await;
        assert_eq!(said, "written: say this");
        assert_eq!(asked, ["decide_intake", "write_answer"]);
    });
}

/// Goal: an answer of the combined decision above the cost limit is confirmed, one within it isn't.
/// Method: costs at the limit and one above it, without a person and with one.
#[test]
fn cost_of_an_answer() {
    for (micro_usd, questions) in [(1_000, 0), (1_001, 1)] {
        with_combined_options(
            |options| options.cost_micro_usd_max = Some(1_000),
            async |kit| {
                let mut answer = decided(json!({ "answer": { "text": "It scatters." } }));
                answer["cost"] = json!({ "micro_usd": micro_usd });
                kit.decide("decide_intake", [answer]);
                let heard = kit.say("why is the sky blue", &nobody).await;
                assert_eq!(heard.reply.is_err(), questions == 1, "{micro_usd}");
                let heard = kit.say("why is the sky blue", &says("yes")).await;
                assert_eq!(
                    (heard.text(), heard.questions.len()),
                    ("It scatters.".into(), questions)
                );
            },
        );
    }
}
