//! Commands: always confirmed, only by permitted principals, and never run twice.

use callboard_message::capabilities::CallTool;
use callboard_message::{ElicitationAnswer, FailureKind, Principal};
use callboard_runtime::{OnRestart, TaskFilter};
use serde_json::json;

use super::kit::{decided, nobody, said, says, with_programs};
use crate::tools::{COMMAND_BYTES_MAX, COMMAND_INPUT_BYTES_MAX};

/// Goal: a command runs only after the operator's confirmation, regardless of the decider, as a
/// task that a restart doesn't repeat. Method: through the pipeline, a `:tool` line and the tool;
/// with yes, no, nobody to ask, and a peer.
#[test]
fn confirmed_and_kept() {
    with_programs(async |kit| {
        // The decider says that no confirmation is needed.
        kit.decide("decide_confirm", [decided(json!("safe_to_proceed"))]);
        let params = json!({ "command": ["echo", "hi"] });
        kit.decide(
            "decide_tool",
            [decided(
                json!({ "tool_name": "execute_command", "params": params }),
            )],
        );
        let line = format!(":tool execute_command {params}");
        let no = |_: &str, _: &str| Some(ElicitationAnswer::accept(json!({ "confirm": false })));
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
                FailureKind::NoResponder,
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

/// Goal: a command runs whole and as confirmed, or not at all. Method: commands in sentences, as a
/// single text from a model, and by the tool's name; compare the output of `echo`.
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
        // A rejected command isn't confirmed first.
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
        // As a single text from the decider.
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

/// Goal: the confirmation shows every word of a command, including hidden characters. Method: a
/// command of maximum length, and invisible and bidirectional characters.
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

/// Goal: the confirmation shows all of a command's input, including hidden characters. Method:
/// input of maximum length by the tool's name and through the pipeline, ending in invisible
/// characters.
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

/// Goal: a failed command isn't retried automatically. Method: a program that isn't allowed, with a
/// decider that always retries.
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
        // A program that isn't allowed isn't confirmed first.
        assert_eq!(asked, ["recover-1"]);
        assert!(heard.reply.is_err());
    });
}
