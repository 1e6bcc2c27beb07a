//! Scripted and echo models.

use std::time::Duration;

use callboard_message::FailureKind;
use callboard_runtime::testkit;
use serde_json::json;

use super::kit::{gist, said, sample, spawn};
use crate::{AskModel, LanguageModel, ModelConfig};

fn config(toml: &str) -> ModelConfig {
    toml::from_str(toml).unwrap()
}

/// Goal: a script reproduces the model of the golden exchange T-M1, with tokens and names. Method:
/// its configuration as in a topology.
#[test]
fn the_golden_model() {
    testkit::run_with_paused_time(async |system| {
        let agent = spawn(
            system,
            config(
                r#"
                provider = "scripted"
                model = "gpt-4"
                named_provider = "openai"
                answers = [{ text = "Based on the dataset", usage = { input_tokens = 150, output_tokens = 75 } }]
                "#,
            ),
        );
        let answer = sample(&agent, &said("Analyze")).await.unwrap();
        let expected = json!({
            "role": "assistant",
            "content": { "type": "text", "text": "Based on the dataset" },
            "model": "gpt-4",
            "stopReason": "endTurn",
            "_meta": {
                "callboard/usage": { "inputTokens": 150, "outputTokens": 75 },
                "callboard/provider": "openai",
            },
        });
        assert_eq!(answer, expected);
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: conditional answers apply whenever they match, the others in sequence with the last
/// repeating; an answer may call a tool or fail. Method: a script with all of them.
#[test]
fn a_script_with_rules_and_turns() {
    testkit::run_with_paused_time(async |system| {
        let agent = spawn(
            system,
            config(
                r#"
                provider = "scripted"
                [[answers]]
                text = "first"
                [[answers]]
                when = "weather"
                tool = { name = "weather", input = { city = "Porto" } }
                [[answers]]
                when = "storm"
                fails = "the line is down"
                [[answers]]
                text = "then"
                stop_reason = "maxTokens"
                delay_ms = 60000
                "#,
            ),
        );
        let text = async |said_to_it: &str| {
            sample(&agent, &said(said_to_it)).await.unwrap()["content"]["text"].clone()
        };
        assert_eq!(text("a").await, "first");
        let used = sample(&agent, &said("the weather?")).await.unwrap();
        assert_eq!(used["stopReason"], "toolUse");
        let block = json!({ "type": "tool_use", "id": "call_0", "name": "weather", "input": { "city": "Porto" } });
        assert_eq!(used["content"], block);
        let failure = sample(&agent, &said("a storm?")).await.unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.message),
            (FailureKind::Unavailable, "the line is down")
        );
        assert_eq!(text("b").await, "then");
        let again = sample(&agent, &said("c")).await.unwrap();
        assert_eq!((gist(&again).0, gist(&again).1), ("then", "maxTokens"));
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: the echo repeats the last message; any model answers a plain prompt with plain text.
/// Method: both messages.
#[test]
fn an_echo_is_a_tool_too() {
    testkit::run_with_paused_time(async |system| {
        let agent = spawn(system, config("provider = \"echo\""));
        let answer = sample(&agent, &said("Hello?")).await.unwrap();
        assert_eq!(
            (gist(&answer).0, &answer["model"]),
            ("Hello?", &json!("echo"))
        );
        assert_eq!(
            agent.ask(AskModel::new("Hello!")).await.unwrap().unwrap(),
            "Hello!"
        );
        let by_name =
            serde_json::value::to_raw_value(&json!({ "prompt": "by name", "max_tokens": 9 }))
                .unwrap();
        assert_eq!(
            agent
                .ask_named("ask_model", by_name, None)
                .await
                .unwrap()
                .get(),
            "\"by name\""
        );
        let none = agent
            .ask(AskModel {
                max_tokens: Some(0),
                ..AskModel::new("Hi")
            })
            .await
            .unwrap();
        assert_eq!(none.unwrap_err().kind, FailureKind::InvalidInput);
        let tools: Vec<String> = agent
            .specs()
            .iter()
            .map(|spec| spec.name.to_string())
            .collect();
        assert!(
            tools.contains(&"ask_model".to_owned())
                && tools.contains(&"callboard.sample".to_owned()),
            "{tools:?}"
        );
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a configuration with an unknown key, or a script without an answer, is rejected. Method:
/// rows.
#[test]
fn configurations_that_are_wrong() {
    for toml in [
        "provider = \"nobody\"",
        "provider = \"echo\"\nkey = \"sk-1\"",
        "provider = \"openai\"",
        "provider = \"openai\"\nmodel = \"m\"\nkey = \"sk-1\"",
        "provider = \"openai\"\nmodel = \"m\"\nlimits = { token_max = 1 }",
    ] {
        assert!(toml::from_str::<ModelConfig>(toml).is_err(), "{toml}");
    }
    assert!(LanguageModel::open(config("provider = \"scripted\"\nanswers = []")).is_err());
}
