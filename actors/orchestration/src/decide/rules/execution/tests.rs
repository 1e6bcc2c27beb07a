use callboard_message::{RawObject, TaskState};
use callboard_runtime::testkit::cpu_time;
use serde_json::json;

use super::*;

fn object(value: serde_json::Value) -> RawObject {
    serde_json::from_value(value).unwrap()
}

fn report(id: &str, by: &str, state: TaskState, text: &str) -> StepReport {
    StepReport {
        id: id.into(),
        goal: format!("do {id}"),
        by: by.into(),
        state,
        text: text.into(),
        attempts: 1,
    }
}

fn done(id: &str, text: &str) -> StepReport {
    report(id, &format!("{id}-agent"), TaskState::Completed, text)
}

fn together(results: Vec<StepReport>) -> Synthesis {
    synthesize(&Synthesize {
        goal: "plan a day".into(),
        results,
    })
    .outcome
    .unwrap()
}

fn failed(class: ErrorClass, attempts: u32) -> DecideRecovery {
    DecideRecovery {
        task_id: "run-1.a".into(),
        root_goal: "the weather in Porto".into(),
        action: Action::Remote {
            agent: "weather-one".into(),
            text: "What is the weather in Porto?".into(),
        },
        class,
        error: "the line is down".into(),
        attempts,
        tools: vec!["echo".into(), "llm".into()],
        agents: vec!["weather-one".into(), "travel".into(), "weather-two".into()],
        may_ask: true,
    }
}

fn local(error: &str, params: serde_json::Value) -> DecideRecovery {
    let action = Action::Local {
        tool: "summarize".into(),
        params: object(params),
    };
    DecideRecovery {
        action,
        error: error.into(),
        agents: vec![],
        ..failed(ErrorClass::ToolSyntax, 1)
    }
}

fn next(asked: &DecideRecovery) -> Recovery {
    decide_recovery(asked).outcome.unwrap()
}

fn to(which: &str) -> Recovery {
    Recovery::UseAlternative {
        which: which.into(),
    }
}

/// Goal: a reply to a remote agent's question is passed on unless it is empty or a question.
/// Method: rows.
#[test]
fn answers_that_will_do() {
    for (message, goes_on) in [
        ("Porto", true),
        ("", false),
        (" \u{200b}\n", false),
        ("which one?", false),
        ("no", true),
    ] {
        let asked = DecideFollowUp {
            history: vec![],
            reason: "Which city?".into(),
            message: message.into(),
        };
        let outcome = decide_follow_up(&asked).outcome.unwrap();
        assert_eq!(
            matches!(outcome, FollowUp::HandleDirectly),
            goes_on,
            "{message:?}"
        );
    }
}

/// Goal: a refused command is neither changed nor replaced by an answer: its reason is reported.
/// Method: with a person to ask, and without.
#[test]
fn a_refused_command_is_told() {
    let action = Action::Local {
        tool: EXECUTE_COMMAND.into(),
        params: object(json!({ "command": "touch a; touch b" })),
    };
    let error = "execute_command: `command` has `;`: there is no shell";
    let asked = DecideRecovery {
        action,
        ..local(error, json!({}))
    };
    let message = format!("execute_command failed: {error}. How should I go on?");
    assert_eq!(next(&asked), Recovery::AskHuman { message });
    let reason = error.to_owned();
    assert_eq!(
        next(&DecideRecovery {
            may_ask: false,
            ..asked
        }),
        Recovery::Abandon { reason }
    );
}

/// Goal: transient failures are retried three times, then rerouted: to the most similar agent, to
/// `llm`, to a person, then abandoned. Method: each class, with ever fewer alternatives.
#[test]
fn failures_and_what_follows() {
    use ErrorClass::{AgentUnavailable, PermissionAuth, TransientNetwork, Unknown};
    assert_eq!(next(&failed(TransientNetwork, 1)), Recovery::RetrySame);
    assert_eq!(next(&failed(TransientNetwork, 2)), Recovery::RetrySame);
    assert_eq!(next(&failed(TransientNetwork, 3)), to("weather-two"));
    assert_eq!(next(&failed(AgentUnavailable, 1)), to("weather-two"));
    assert_eq!(next(&failed(Unknown, 1)), to("weather-two"));
    let alone = |class, attempts| DecideRecovery {
        agents: vec!["weather-one".into()],
        ..failed(class, attempts)
    };
    assert_eq!(next(&alone(AgentUnavailable, 1)), to("llm"));
    let unfit = DecideRecovery {
        agents: vec!["bookkeeping".into()],
        ..failed(AgentUnavailable, 1)
    };
    assert_eq!(next(&unfit), to("llm"), "no word of its id fits");
    let bare = |class, attempts| DecideRecovery {
        tools: vec!["echo".into()],
        ..alone(class, attempts)
    };
    assert_eq!(next(&bare(AgentUnavailable, 1)), Recovery::RetrySame);
    assert!(matches!(
        next(&bare(AgentUnavailable, 2)),
        Recovery::AskHuman { .. }
    ));
    assert!(matches!(
        next(&bare(TransientNetwork, 3)),
        Recovery::AskHuman { .. }
    ));
    assert!(matches!(next(&bare(Unknown, 1)), Recovery::Abandon { .. }));
    let Recovery::AskHuman { message } = next(&failed(PermissionAuth, 1)) else {
        panic!("nobody was asked")
    };
    assert_eq!(
        message,
        "weather-one failed: the line is down. How should I go on?"
    );
    let nobody = DecideRecovery {
        may_ask: false,
        ..failed(PermissionAuth, 1)
    };
    assert_eq!(
        next(&nobody),
        Recovery::Abandon {
            reason: "the line is down".into()
        }
    );
}

/// Goal: parameters are corrected once, by the error message; then the answering tool is used.
/// Method: a missing member, an unknown one, an unnamed one, twice.
#[test]
fn parameters_are_mended_once() {
    let missing = local("`text` must be a string", json!({ "sentences": 2 }));
    let mended = json!({ "sentences": 2, "text": "the weather in Porto" });
    assert_eq!(
        next(&missing),
        Recovery::RetryModified {
            params: object(mended)
        }
    );
    let over = local(
        "unknown member `style`",
        json!({ "text": "a", "style": "b" }),
    );
    assert_eq!(
        next(&over),
        Recovery::RetryModified {
            params: object(json!({ "text": "a" }))
        }
    );
    assert_eq!(
        next(&local("that isn't it", json!({ "text": "a" }))),
        to("llm")
    );
    assert_eq!(
        next(&DecideRecovery {
            attempts: 2,
            ..missing
        }),
        to("llm")
    );
}

/// Goal: results are in order, and failed steps are named and counted. Method: two of three; all;
/// none.
/// Rows: B-70.
#[test]
fn partial_success_is_named() {
    let three = vec![
        done("one", "First."),
        report("two", "b", TaskState::Failed, "the line is down."),
        done("three", "Third."),
    ];
    let answer = together(three);
    assert_eq!(
        answer.final_answer,
        "First.\n\nThird.\n\n2 of 3 steps succeeded. Not done: do two (failed: the line is down)."
    );
    assert!((answer.confidence - 0.85 * 2.0 / 3.0).abs() < 1e-6);
    assert_eq!(answer.notes.as_deref(), Some("not done: two"));
    let all = together(vec![done("one", "First."), done("two", "Second.")]);
    assert_eq!(
        (&*all.final_answer, all.confidence, all.notes),
        ("First.\n\nSecond.", 0.85, None)
    );
    assert_eq!(
        together(vec![report("one", "a", TaskState::Canceled, "")]).confidence,
        0.0
    );
}

/// Goal: a conflict comes first, and lowers the confidence below the threshold. Method: two opening
/// hours; the same from one agent, told apart by step.
/// Rows: B-70.
#[test]
fn conflicts_stand_first() {
    let answer = together(vec![
        done("a", "The museum opens at 9:00."),
        done("b", "Sure. The museum opens at 10:00."),
    ]);
    let first = "The results conflict: a-agent says “The museum opens at 9:00”; b-agent says “The museum opens at 10:00”.";
    assert!(
        answer.final_answer.starts_with(first),
        "{}",
        answer.final_answer
    );
    assert!(
        answer.confidence < 0.4 && answer.confidence > 0.3,
        "{}",
        answer.confidence
    );
    assert_eq!(answer.notes.as_deref(), Some("conflict between a and b"));
    let same = |id: &str, text: &str| report(id, "museum", TaskState::Completed, text);
    let answer = together(vec![
        same("a", "The museum opens at 9."),
        same("b", "The museum opens at 10."),
    ]);
    assert!(
        answer
            .final_answer
            .starts_with("The results conflict: a says “"),
        "{}",
        answer.final_answer
    );
}

/// Goal: only contradictory statements are conflicts. Method: rows in two languages: numbers,
/// units, days, negation; and pairs that only look alike.
#[test]
fn what_conflicts_and_what_does_not() {
    for (one, other, conflict) in [
        (
            "The flight to Rome costs 120 euros.",
            "The flight to Rome costs 95 euros.",
            true,
        ),
        (
            "The bottle holds 2 km of wire.",
            "The bottle holds 2 mi of wire.",
            true,
        ),
        (
            "The meeting is on Monday at the office.",
            "The meeting is on Tuesday at the office.",
            true,
        ),
        (
            "The shop is open on Sundays.",
            "The shop isn't open on Sundays.",
            true,
        ),
        ("O museu abre às 9h.", "O museu abre às 10h.", true),
        ("A loja não aceita cartão.", "A loja aceita cartão.", true),
        (
            "It is 22 °C in Porto with sun.",
            "In Porto it is 22.0°C with sun.",
            false,
        ),
        (
            "Sunny in Porto, 22°C (72°F).",
            "Sunny in Porto, 22 °C.",
            false,
        ),
        (
            "The flight takes 2,5 hours.",
            "The flight takes 2.5 hours.",
            false,
        ),
        (
            "The city has 1,000 shops.",
            "The city has 1.000 shops.",
            false,
        ),
        (
            "The train to Lyon costs 40 euros.",
            "The hotel in Lyon costs 90 euros.",
            false,
        ),
        ("Call 555.", "The soup needs 20 minutes.", false),
        (
            "The museum opens at 9:00.",
            "The museum opens early.",
            false,
        ),
    ] {
        let answer = together(vec![done("a", one), done("b", other)]);
        assert_eq!(
            answer.final_answer.starts_with("The results conflict"),
            conflict,
            "{one} / {other}"
        );
    }
}

/// Goal: the time for long results is bounded. Method: the longest result of a report with letters
/// of four bytes, and with many sentences.
#[test]
fn long_results_are_bounded() {
    let long = "😀".repeat(4_096);
    let many = "The museum opens at 9. ".repeat(400);
    let begun = cpu_time();
    let results = (0..5).map(|step| {
        done(
            &format!("s{step}"),
            if step % 2 == 0 { &many } else { &long },
        )
    });
    assert!(
        !together(results.collect())
            .final_answer
            .starts_with("The results conflict")
    );
    let took = cpu_time() - begun;
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
}

/// Goal: a person is asked for risk above the limit, for cost, and for low confidence. Method: rows
/// at the limit.
/// Rows: B-75.
#[test]
fn whom_it_asks_first() {
    for (why, risk, preference_known, ask) in [
        (ConfirmReason::Risk, 0.5, false, false),
        (ConfirmReason::Risk, 0.51, false, true),
        (ConfirmReason::Risk, 0.9, true, true),
        (ConfirmReason::Confidence, 0.0, true, true),
        (ConfirmReason::Cost, 0.0, false, true),
        (ConfirmReason::Cost, 0.0, true, false),
    ] {
        let asked = DecideConfirm {
            action: json!({}),
            why,
            risk,
            preference_known,
        };
        assert_eq!(
            decide_confirm(&asked, 0.5).outcome.unwrap() == Confirm::ConfirmNeeded,
            ask,
            "{risk}"
        );
    }
}
