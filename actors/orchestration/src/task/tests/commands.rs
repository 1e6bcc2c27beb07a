//! Programs: always confirmed, by whoever may run them, and never run twice.

use callboard_message::surface::CallTool;
use callboard_message::{ElicitAnswer, FailureKind, Principal};
use callboard_runtime::{OnRestart, TaskFilter};
use serde_json::json;

use super::kit::{decided, nobody, said, says, with_programs};
use crate::tools::{COMMAND_BYTES_MAX, COMMAND_INPUT_BYTES_MAX};

/// Goal: a program runs when its operator said yes, whoever decides otherwise, and is a task of which a restart makes no
/// second run. Method: the pipeline, a line, a tool; yes, no, nobody, a peer.
#[test]
fn confirmed_and_kept() {
    with_programs(async |kit| {
        // Not even whoever decides that nobody need be asked.
        kit.decide("decide_confirm", [decided(json!("safe_to_proceed"))]);
        let params = json!({ "command": ["echo", "hi"] });
        kit.decide(
            "decide_tool",
            [decided(
                json!({ "tool_name": "execute_command", "params": params }),
            )],
        );
        let line = format!(":tool execute_command {params}");
        let no = |_: &str, _: &str| Some(ElicitAnswer::accept(json!({ "confirm": false })));
        for text in ["run it", &*line] {
            let heard = kit.say(text, &says("")).await;
            assert!(heard.text().contains("hi"), "{text}");
            let (key, words) = &heard.questions[0];
            assert!(
                key.ends_with("confirm") && words.contains(r#"["echo","hi"]"#),
                "{key} {words}"
            );
            assert_eq!(
                kit.say(text, &no).await.failure().kind,
                FailureKind::Cancelled,
                "{text}"
            );
            assert_eq!(
                kit.say(text, &nobody).await.failure().kind,
                FailureKind::NobodyToAsk,
                "{text}"
            );
            let peer = kit
                .hear_of(Principal::agent("peer"), said(text, "", ""), &says("skip"))
                .await;
            assert_eq!(peer.failure().kind, FailureKind::Denied, "{text}");
            assert!(
                peer.questions
                    .iter()
                    .all(|(key, _)| !key.ends_with("confirm")),
                "{:?}",
                peer.questions
            );
        }
        let (tasks, _) = kit
            .system
            .store()
            .tasks
            .list(TaskFilter::default(), 0, 100)
            .await
            .unwrap();
        let steps: Vec<_> = tasks.iter().filter(|task| task.parent.is_some()).collect();
        assert!(steps.len() == 8 && steps.iter().all(|step| step.on_restart == OnRestart::Fail));

        let operator = Principal::local_operator;
        let by_name = || CallTool::new("execute_command", params.clone());
        assert!(
            kit.hear_of(operator(), by_name(), &says(""))
                .await
                .text()
                .contains("hi")
        );
        assert_eq!(
            kit.hear_of(operator(), by_name(), &no).await.failure().kind,
            FailureKind::Cancelled
        );
        let peer = kit
            .hear_of(Principal::agent("peer"), by_name(), &says(""))
            .await;
        assert_eq!(
            (peer.failure().kind, peer.questions.len()),
            (FailureKind::Denied, 0)
        );
        assert!(kit.asked("decide_confirm").is_empty());
    });
}

/// Goal: a command is run whole and as it was confirmed, or not at all. Method: commands in sentences, as one text from a model,
/// and by the tool's name; what `echo` says it was given.
#[test]
fn whole_or_not_at_all() {
    with_programs(async |kit| {
        let echo = async |command: serde_json::Value| {
            kit.hear_of(
                Principal::local_operator(),
                CallTool::new("execute_command", json!({ "command": command })),
                &says(""),
            )
            .await
        };
        let heard = echo(json!("echo 'x  y' \"a;b\" c\\ d")).await;
        assert_eq!(heard.text(), "x  y a;b c d\n");
        let (_, words) = &heard.questions[0];
        assert!(words.contains(r#"["echo","x  y","a;b","c d"]"#), "{words}");
        // Nobody is asked about what isn't run.
        for line in [
            "echo a; echo b",
            "echo a | echo b",
            "echo *",
            "echo $HOME",
            "echo `id`",
            "echo a\necho b",
            "echo 'a",
        ] {
            let heard = echo(json!(line)).await;
            let failure = heard.failure();
            assert_eq!(
                (failure.kind, heard.questions.len()),
                (FailureKind::InvalidInput, 0),
                "{line}"
            );
            assert!(failure.message.contains("no shell"), "{line}: {failure}");
        }
        // As one text, planned by whoever decides.
        let params = json!({ "command": "echo 'x  y'; echo z" });
        kit.decide(
            "decide_tool",
            [decided(
                json!({ "tool_name": "execute_command", "params": params }),
            )],
        );
        kit.decide("decide_recovery", [decided(json!("retry_same"))]);
        let heard = kit.say("run it", &says("skip")).await;
        assert!(
            heard
                .questions
                .iter()
                .all(|(key, _)| !key.ends_with("confirm")),
            "{:?}",
            heard.questions
        );
        let told = format!("{:?} {}", heard.questions, heard.failure());
        assert!(told.contains("no shell"), "{told}");
    });
}

/// Goal: who confirms a command is shown every word of it, and nothing that hides. Method: one as long as may be, and characters
/// that take no room or turn text around.
#[test]
fn all_words_are_shown() {
    with_programs(async |kit| {
        let end = "the-end";
        let long = "x".repeat(COMMAND_BYTES_MAX - "echo".len() - end.len());
        let call = CallTool::new("execute_command", json!({ "command": ["echo", long, end] }));
        let heard = kit
            .hear_of(Principal::local_operator(), call, &says(""))
            .await;
        let (_, words) = &heard.questions[0];
        assert!(
            words.contains(&long) && words.contains(end),
            "{} characters",
            words.len()
        );
        let params = json!({ "command": ["echo", long, end] });
        kit.decide(
            "decide_tool",
            [decided(
                json!({ "tool_name": "execute_command", "params": params }),
            )],
        );
        let heard = kit.say("run it", &says("")).await;
        let (_, words) = &heard.questions[0];
        assert!(
            words.contains(&long) && words.contains(end),
            "{} characters",
            words.len()
        );
        let call = CallTool::new(
            "execute_command",
            json!({ "command": ["echo", "a\u{202e}b\u{200b}\u{a0}c\u{9b}"] }),
        );
        let heard = kit
            .hear_of(Principal::local_operator(), call, &says(""))
            .await;
        let (_, words) = &heard.questions[0];
        assert!(
            words.contains(r"a\u{202e}b\u{200b}\u{a0}c\u{9b}"),
            "{words}"
        );
    });
}

/// Goal: who confirms a command is shown all of its input, and nothing that hides. Method: an input as long as may be, by the
/// tool's name and as planned, with its end and characters that take no room.
#[test]
fn all_of_the_input_is_shown() {
    with_programs(async |kit| {
        let end = "\u{200b}the-end";
        let input = "x".repeat(COMMAND_INPUT_BYTES_MAX - end.len()) + end;
        let params = json!({ "command": ["echo", "hi"], "stdin": input });
        let call = CallTool::new("execute_command", params.clone());
        let by_name = kit
            .hear_of(Principal::local_operator(), call, &says(""))
            .await;
        kit.decide(
            "decide_tool",
            [decided(
                json!({ "tool_name": "execute_command", "params": params }),
            )],
        );
        let planned = kit.say("run it", &says("")).await;
        let shown = format!(
            "{}{}",
            "x".repeat(COMMAND_INPUT_BYTES_MAX - end.len()),
            r"\u{200b}the-end"
        );
        for heard in [by_name, planned] {
            let (_, words) = &heard.questions[0];
            assert!(words.contains(&shown), "{} characters", words.len());
        }
    });
}

/// Goal: a program that failed isn't run again by itself. Method: one that isn't allowed, a decider that repeats.
#[test]
fn never_repeated() {
    with_programs(async |kit| {
        let params = json!({ "command": ["ghost"] });
        kit.decide(
            "decide_tool",
            [decided(
                json!({ "tool_name": "execute_command", "params": params }),
            )],
        );
        kit.decide("decide_recovery", [decided(json!("retry_same"))]);
        let heard = kit.say("run it", &says("skip")).await;
        let asked: Vec<&str> = heard
            .questions
            .iter()
            .map(|(key, _)| key.rsplit('.').next().unwrap())
            .collect();
        // Nobody confirms what isn't allowed.
        assert_eq!(asked, ["recover-1"]);
        assert!(heard.reply.is_err());
    });
}
