//! Plans: steps as tasks, final states, synthesis (NP4), confirmation (NP5).

use callboard_message::capabilities::Converse;
use callboard_message::{
    ARTIFACTS_SENT_META_KEY, ElicitationAnswer, Failure, FailureKind, TaskState,
};
use callboard_runtime::{TaskFilter, TaskId};
use serde_json::{Value, json};

use super::kit::{Act, Kit, decided, nobody, said, says, steps, with, with_kit};

/// Scripts a request that becomes a plan of these steps, each for the peer with the step's id.
fn planned(kit: &Kit, all: &[(&str, &str, &[&str])]) {
    kit.decide("decide_split", [decided(json!("yes"))]);
    kit.decide("make_steps", [steps(all)]);
    let routes = all
        .iter()
        .map(|(id, ..)| decided(json!({ "remote": { "agent": id } })));
    kit.decide("decide_route", routes);
}

fn synthesis(kit: &Kit, confidence: f64) {
    kit.decide(
        "synthesize",
        [decided(
            json!({ "final_answer": "together", "confidence": confidence }),
        )],
    );
}

/// Goal: independent steps run concurrently, dependent ones afterwards with the results; the answer
/// is the artifact `final_answer`. Method: two peers, and a third that depends on both.
/// Rows: B-64, B-65, B-73.
#[test]
fn steps_in_order() {
    with_kit(async |kit| {
        planned(
            kit,
            &[
                ("sun", "sunrise?", &[]),
                ("tide", "tide?", &[]),
                ("sum", "plan it", &["sun", "tide"]),
            ],
        );
        kit.peer("sun", [Act::Say("at 6:00")]);
        kit.peer("tide", [Act::Say("at 7:00")]);
        let sum = kit.peer("sum", [Act::Say("go at 6:30")]);
        let heard = kit.hear(said("plan my day", "k", "c"), &nobody).await;
        assert_eq!(
            (heard.text(), heard.artifacts.clone()),
            ("all together".into(), vec!["final_answer".to_owned()])
        );
        assert_eq!(
            sum.lock().unwrap()[0].texts(),
            "plan it\n\nResults of earlier steps:\n- sun: at 6:00\n- tide: at 7:00"
        );
        let reply = heard.reply.unwrap();
        assert_eq!(
            reply
                .0
                .object("_meta")
                .unwrap()
                .read::<bool>(ARTIFACTS_SENT_META_KEY),
            Some(true)
        );
        let told = reply.structured_content().unwrap();
        assert_eq!(
            (&told["confidence"], &told["steps"][2]["by"]),
            (&json!(0.9), &json!("sum"))
        );
        let run = TaskId::new(told["run"].as_str().unwrap()).unwrap();
        let filter = TaskFilter {
            parent: Some(run.clone()),
            ..TaskFilter::default()
        };
        let (children, _) = kit.system.store().tasks.list(filter, 0, 10).await.unwrap();
        assert_eq!(children.len(), 3);
        assert!(
            children
                .iter()
                .all(|child| child.extra.text("parent_id").as_deref() == Some(run.as_str()))
        );

        let sent = sum.lock().unwrap()[0].0.object("metadata").unwrap();
        assert_eq!(sent.text("parent_id").as_deref(), Some(run.as_str()));

        // A repetition under the same key is the same run.
        let again = kit.hear(said("plan my day", "k", "c"), &nobody).await;
        assert_eq!(
            (again.text(), sum.lock().unwrap().len()),
            ("all together".into(), 1)
        );
        assert_eq!(kit.asked("make_steps").len(), 1);
    });
}

/// Goal: a plan and what it delegates name the task that the request came from (B-65), and so does
/// a request to one agent. Method: a message that names its task, done in two steps and in one.
/// Rows: B-65.
#[test]
fn parent_of_a_delegated_request() {
    let of_task = |key: &str| {
        let Converse(body) = said("go", key, "c");
        Converse(body.with("task", "t-7"))
    };
    let parent = |sent: &Converse| sent.0.object("metadata").unwrap().text("parent_id");
    with_kit(async |kit| {
        kit.decide(
            "decide_split",
            [decided(json!("yes")), decided(json!("no"))],
        );
        kit.decide(
            "make_steps",
            [steps(&[("a", "do a", &[]), ("b", "do b", &[])])],
        );
        let routes = ["a", "b", "a"].map(|id| decided(json!({ "remote": { "agent": id } })));
        kit.decide("decide_route", routes);
        let a = kit.peer("a", [Act::Say("x")]);
        kit.peer("b", [Act::Say("y")]);
        let planned = kit.hear(of_task("1"), &nobody).await.reply.unwrap();
        let run = planned.structured_content().unwrap()["run"].clone();
        let root = TaskId::new(run.as_str().unwrap()).unwrap();
        let root = kit.system.store().tasks.get(&root).await.unwrap().unwrap();
        assert_eq!(root.parent_id(), Some(TaskId::new("t-7").unwrap()));
        kit.hear(of_task("2"), &nobody).await;
        kit.hear(said("go", "3", "c"), &nobody).await;
        let parents: Vec<_> = a.lock().unwrap().iter().map(parent).collect();
        assert_eq!(
            parents,
            [Some("t-7".to_owned()), Some("t-7".to_owned()), None]
        );
    });
}

/// Goal: the run's final state follows from its steps: some completed, all rejected, all failed.
/// Method: rows of peers.
/// Rows: B-52, B-65, B-79, X-31.
#[test]
fn roll_up() {
    let no = |kind| Act::Fail(Failure::new(kind, "no"));
    for (a, b, expect) in [
        (
            Act::Say("yes"),
            no(FailureKind::Internal),
            TaskState::Completed,
        ),
        (
            no(FailureKind::Rejected),
            no(FailureKind::Rejected),
            TaskState::Rejected,
        ),
        (
            no(FailureKind::Internal),
            no(FailureKind::Rejected),
            TaskState::Failed,
        ),
        (
            no(FailureKind::Cancelled),
            no(FailureKind::Cancelled),
            TaskState::Canceled,
        ),
    ] {
        with_kit(async |kit| {
            planned(kit, &[("a", "do a", &[]), ("b", "do b", &[])]);
            kit.peer("a", [a.clone()]);
            kit.peer("b", [b.clone()]);
            let heard = kit.say("both", &nobody).await;
            match expect {
                TaskState::Completed => {
                    let text = heard.text();
                    assert!(
                        text.starts_with("all together") && text.contains("b (failed)"),
                        "{text}"
                    );
                }
                TaskState::Rejected => assert_eq!(heard.failure().kind, FailureKind::Rejected),
                TaskState::Canceled => assert_eq!(heard.failure().kind, FailureKind::Cancelled),
                _ => {
                    let why = &heard.failure().message;
                    assert!(
                        why.contains("a failed: ") && why.contains("b rejected: no"),
                        "{why}"
                    );
                }
            }
            let asked = kit.asked("synthesize").len();
            assert_eq!(asked, usize::from(expect == TaskState::Completed));
        });
    }
}

/// Goal: a step that depends on a failed one is cancelled and named in the answer. Method: one of
/// two steps fails, and a third depends on it.
#[test]
fn needs_that_fail() {
    with_kit(async |kit| {
        planned(
            kit,
            &[
                ("a", "do a", &[]),
                ("b", "do b", &[]),
                ("c", "do c", &["b"]),
            ],
        );
        kit.peer("a", [Act::Say("yes")]);
        kit.peer("b", [Act::Fail(Failure::internal("no"))]);
        let c = kit.peer("c", [Act::Say("never")]);
        let text = kit.say("all", &nobody).await.text();
        assert!(text.contains("b (failed), c (canceled)"), "{text}");
        assert!(c.lock().unwrap().is_empty());
    });
}

/// Goal: a confidence below 0.40 needs confirmation, 0.40 doesn't (T-B13); "no" and nobody to ask
/// both decline. Method: rows.
/// Rows: B-74, X-32.
#[test]
fn confidence() {
    let first_line = "⚠️ Planned action needs your confirmation…";
    with_kit(async |kit| {
        for (confidence, questions) in [(0.39, 1), (0.40, 0)] {
            planned(kit, &[("a", "do a", &[]), ("b", "do b", &[])]);
            synthesis(kit, confidence);
            kit.peer("a", [Act::Say("x")]);
            kit.peer("b", [Act::Say("y")]);
            let heard = kit.say("both", &says("yes")).await;
            assert_eq!(
                (heard.text(), heard.questions.len()),
                ("together".into(), questions),
                "{confidence}"
            );
            assert_eq!(heard.artifacts, ["final_answer"]);
            if let Some((key, words)) = heard.questions.first() {
                assert_eq!(
                    (&**key, words.lines().next()),
                    ("confirm", Some(first_line))
                );
            }
        }
        planned(kit, &[("a", "do a", &[]), ("b", "do b", &[])]);
        synthesis(kit, 0.1);
        let no = |_: &str, _: &str| Some(ElicitationAnswer::accept(json!({ "confirm": false })));
        for (heard, kind) in [
            (kit.say("both", &no).await, FailureKind::Cancelled),
            (
                kit.say("both", &|_, _| Some(ElicitationAnswer::decline()))
                    .await,
                FailureKind::Cancelled,
            ),
            (kit.say("both", &nobody).await, FailureKind::NoResponder),
        ] {
            assert_eq!(heard.failure().kind, kind);
            assert!(heard.artifacts.is_empty());
        }
        kit.decide("decide_confirm", [decided(json!("safe_to_proceed"))]);
        assert_eq!(kit.say("both", &nobody).await.text(), "together");
    });
}

/// Goal: if NP4 is unclear, rules make the answer, and it is confirmed. Method: NP4 unclear.
#[test]
fn synthesis_falls_back() {
    with_kit(async |kit| {
        planned(kit, &[("a", "do a", &[]), ("b", "do b", &[])]);
        kit.decide("synthesize", [json!({ "outcome": null })]);
        kit.peer("a", [Act::Say("x")]);
        kit.peer("b", [Act::Say("y")]);
        let heard = kit.say("both", &says("yes")).await;
        assert_eq!((heard.text(), heard.questions.len()), ("x\n\ny".into(), 1));
    });
}

/// Goal: a step's question reaches the caller, and the answer the step. Method: a peer that asks
/// within a step.
/// Rows: X-31.
#[test]
fn questions_bubble_up() {
    with_kit(async |kit| {
        planned(kit, &[("a", "do a", &[]), ("b", "do b", &[])]);
        kit.peer("a", [Act::Ask("Which city?")]);
        kit.peer("b", [Act::Say("y")]);
        let heard = kit.say("both", &says("Rome")).await;
        assert_eq!(heard.text(), "all together");
        let (key, words) = &heard.questions[0];
        assert!(
            key.starts_with("a.") && words == "Which city? (step a)",
            "{key} {words}"
        );
        let results = &kit.asked("synthesize")[0]["results"];
        assert_eq!(results[0]["text"], "heard \"Rome\"");
    });
}

/// Goal: a plan above the cost limit is confirmed before any step runs. Method: decisions with
/// costs.
/// Rows: B-75.
#[test]
fn cost() {
    with(
        |options| options.cost_micro_usd_max = Some(1_000),
        async |kit| {
            planned(kit, &[("a", "do a", &[]), ("b", "do b", &[])]);
            let mut split = decided(json!("yes"));
            split["cost"] = json!({ "micro_usd": 900 });
            kit.decide("decide_split", [split]);
            let a = kit.peer("a", [Act::Say("x")]);
            kit.peer("b", [Act::Say("y")]);
            let heard = kit.say("both", &nobody).await;
            assert_eq!(heard.failure().kind, FailureKind::NoResponder);
            assert!(a.lock().unwrap().is_empty());
            let asked: Vec<Value> = kit.asked("decide_confirm");
            assert_eq!(asked[0]["why"], "cost");
            assert_eq!(kit.say("both", &says("yes")).await.text(), "all together");
        },
    );
}

/// Goal: a single action above the cost limit is confirmed, and a risky one once more for its risk.
/// Method: a tool and an agent behind expensive decisions, one of them risky; decisions below the
/// limit.
/// Rows: B-75.
#[test]
fn cost_of_one() {
    for (micro_usd, route, risky, expect) in [
        (2_000, json!("local"), false, ["confirm-cost"].as_slice()),
        (
            2_000,
            json!({ "remote": { "agent": "a" } }),
            false,
            &["confirm-cost"],
        ),
        (2_000, json!("local"), true, &["confirm-cost", "confirm"]),
        (500, json!("local"), false, &[]),
    ] {
        with(
            |options| {
                options.cost_micro_usd_max = Some(1_000);
                options.max_risk = if risky { -1.0 } else { 1.0 };
            },
            async |kit| {
                kit.peer("a", [Act::Say("x")]);
                let mut routed = decided(route.clone());
                routed["cost"] = json!({ "micro_usd": micro_usd });
                kit.decide("decide_route", [routed]);
                let heard = kit.hear(said("go", "k", "c"), &says("yes")).await;
                let keys: Vec<&str> = heard.questions.iter().map(|(key, _)| &**key).collect();
                assert!(
                    heard.reply.is_ok() && keys == expect,
                    "{micro_usd} {route} {keys:?}"
                );
            },
        );
    }
}

/// Goal: cancelling a request cancels its steps. Method: a call that is dropped while a peer hangs.
#[test]
fn cancelled() {
    with_kit(async |kit| {
        planned(kit, &[("a", "do a", &[]), ("b", "do b", &[])]);
        let a = kit.peer("a", [Act::Hang]);
        kit.peer("b", [Act::Say("y")]);
        let call = kit.agent.call(said("both", "k", "")).start();
        let hangs = async {
            while a.lock().unwrap().is_empty() {
                tokio::task::yield_now().await
            }
        };
        let mut call = call;
        tokio::select! { () = hangs => {}, () = async { while call.next().await.is_some() {} } => panic!("ended") }
        drop(call);
        let open = || async {
            let (all, _) = kit
                .system
                .store()
                .tasks
                .list(TaskFilter::default(), 0, 10)
                .await
                .unwrap();
            all.iter().filter(|task| !task.state.is_terminal()).count()
        };
        while open().await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let (all, _) = kit
            .system
            .store()
            .tasks
            .list(TaskFilter::default(), 0, 10)
            .await
            .unwrap();
        let canceled = all
            .iter()
            .filter(|task| task.state == TaskState::Canceled)
            .count();
        assert_eq!((all.len(), canceled), (3, 2));
    });
}
