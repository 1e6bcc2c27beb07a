//! Requests to the model, and their repetition in simpler answer modes.

use std::time::Duration;

use callboard_message::capabilities::CreateMessage;
use callboard_message::{Failure, SamplingAnswer};
use callboard_runtime::testkit::{self, Probe};
use serde_json::{Value, json};

use super::kit::*;
use crate::decide::model::{ModelDecider, ModelDeciderOptions};
use crate::decide::*;

fn body(asked: &CreateMessage) -> Value {
    serde_json::from_str(asked.0.to_raw().get()).unwrap()
}

fn local() -> Result<SamplingAnswer, Failure> {
    Ok(SamplingAnswer::text("m", "LOCAL", Some("endTurn")))
}

/// Goal: the model gets the prompt, the data after the point's code and the request, and one
/// required tool whose schema lists the agents. Method: inspect the request.
#[test]
fn with_a_schema() {
    testkit::run_with_paused_time(async |system| {
        let (model, mut asked) = Probe::<CreateMessage>::spawn(system, |_| local());
        let settled = settle(system, &model, route()).await;
        assert_eq!(settled.record.outcome, "local");
        let body = body(&asked.recv().await.unwrap());
        assert_eq!(
            (&body["temperature"], &body["toolChoice"]["mode"]),
            (&json!(0), &json!("required"))
        );
        let schema = &body["tools"][0]["inputSchema"]["properties"];
        assert_eq!(schema["agent_id"]["enum"], json!(["weather", "travel"]));
        assert_eq!(
            schema["decision"]["enum"],
            json!(["LOCAL", "REMOTE", "REJECT"])
        );
        assert_eq!(body["messages"].as_array().unwrap().len(), 1);
        let turn = body["messages"][0]["content"]["text"].as_str().unwrap();
        assert!(
            turn.starts_with("[DP2] What is the weather in Porto?\n\n"),
            "{turn}"
        );
        assert!(
            turn.contains("- weather (Agent weather): The agent for weather."),
            "{turn}"
        );
        assert!(!body["systemPrompt"].as_str().unwrap().contains("Porto"));
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: the combined decision offers only what is allowed, and shows agents, tools and the schema of
/// each tool's parameters. Method: inspect the request with everything allowed, and with nothing.
#[test]
fn combined_choices() {
    testkit::run_with_paused_time(async |system| {
        let all = ["REJECT", "CLARIFY", "STEPS", "REMOTE", "ANSWER", "LOCAL"];
        let step = DecideIntake {
            may_clarify: false,
            may_split: false,
            answer_prompt: None,
            ..intake()
        };
        let few = ["REJECT", "REMOTE", "LOCAL"];
        for (message, words) in [(intake(), &all[..]), (step, &few[..])] {
            let (model, mut asked) = Probe::<CreateMessage>::spawn(system, |_| local());
            settle(system, &model, message).await;
            let body = body(&asked.recv().await.unwrap());
            let schema = &body["tools"][0]["inputSchema"]["properties"];
            assert_eq!(schema["decision"]["enum"], json!(words));
            assert_eq!(schema["tool_name"]["enum"], json!(["llm", "echo"]));
            let system_prompt = body["systemPrompt"].as_str().unwrap();
            for word in all {
                let is_offered = system_prompt.contains(&format!("- {word}: "));
                assert_eq!(is_offered, words.contains(&word), "{word}");
            }
            assert_eq!(system_prompt.contains("Be kind."), words.len() == all.len());
            let turn = body["messages"][0]["content"]["text"].as_str().unwrap();
            let tool = "- echo: Does echo.; about echo-tag; for example “echo this”; parameters: {";
            assert!(turn.contains(tool), "{turn}");
            assert!(turn.contains("- weather (Agent weather)"), "{turn}");
        }
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: a setting that the provider refuses isn't sent again: first the temperature, then the
/// schema; other failures aren't retried. Method: providers that refuse one, both, or are
/// unavailable; inspect the requests of two decisions.
#[test]
fn as_much_as_the_provider_takes() {
    testkit::run_with_paused_time(async |system| {
        const ALL: [&str; 2] = ["temperature", "tools"];
        let all: &'static [&'static str] = &ALL;
        for (refused, asked_with) in [
            (&[][..], &[all, all][..]),
            (&all[..1], &[all, &all[1..], &all[1..]]),
            (all, &[all, &all[1..], &[], &[]]),
        ] {
            let answer =
                move |asked: &CreateMessage| match refused.iter().any(|member| asked.0.has(member))
                {
                    true => Err(Failure::rejected("this model doesn't take that")),
                    false => local(),
                };
            let (model, mut seen) = Probe::<CreateMessage>::spawn(system, answer);
            let decider = decider(system, &model);
            for _ in 0..2 {
                let decided = decider.ask(route()).await.unwrap().unwrap();
                assert!(decided.outcome == Some(Route::Local));
            }
            for expected in asked_with {
                let asked = seen.try_recv().unwrap();
                let with: Vec<&str> = all
                    .iter()
                    .copied()
                    .filter(|member| asked.0.has(member))
                    .collect();
                assert_eq!(with, **expected, "refusing {refused:?}");
            }
            assert!(seen.try_recv().is_err(), "refusing {refused:?}");
        }
        let (away, mut asked) =
            Probe::<CreateMessage>::spawn(system, |_| Err(Failure::unavailable("away")));
        assert!(
            settle(system, &away, route())
                .await
                .record
                .fallback
                .is_some()
        );
        asked.try_recv().unwrap();
        assert!(asked.try_recv().is_err());
        let never = ModelDeciderOptions {
            without_schemas: true,
            ..ModelDeciderOptions::default()
        };
        let (model, mut asked) = Probe::<CreateMessage>::spawn(system, |_| local());
        let decider = system.spawn(ModelDecider::new(model, &never).unwrap());
        decider.ask(route()).await.unwrap().unwrap();
        assert!(!asked.try_recv().unwrap().0.has("tools"));
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: only answers (DP4) are streamed, and requested as text. Method: inspect the requests at
/// DP4 and at DP2.
#[test]
fn answers_are_streamed() {
    testkit::run_with_paused_time(async |system| {
        let (model, mut asked) = Probe::<CreateMessage>::spawn(system, |_| local());
        assert_eq!(
            settle(system, &model, answer()).await.outcome.as_deref(),
            Some("LOCAL")
        );
        let body_of_answer = body(&asked.try_recv().unwrap());
        assert_eq!(body_of_answer["_meta"], json!({ "callboard/stream": true }));
        assert!(body_of_answer.get("tools").is_none());
        settle(system, &model, route()).await;
        assert!(body(&asked.try_recv().unwrap()).get("_meta").is_none());
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: the request of every decision point begins with its code, so that a script can select it.
/// Method: the first line of each.
#[test]
fn codes() {
    async fn first_line<D: DecisionRequest + Sync>(
        system: &callboard_runtime::System,
        asked: D,
    ) -> String {
        let (model, mut seen) = Probe::<CreateMessage>::spawn(system, |_| local());
        settle(system, &model, asked).await;
        let body = body(&seen.try_recv().unwrap());
        body["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_owned()
    }
    testkit::run_with_paused_time(async |system| {
        assert_eq!(first_line(system, follow_up()).await, "[DP1] Porto");
        assert_eq!(
            first_line(system, intake()).await,
            format!("[DP0] {REQUEST}")
        );
        assert_eq!(
            first_line(system, clarity()).await,
            format!("[NP1] {REQUEST}")
        );
        assert_eq!(
            first_line(system, split()).await,
            format!("[NP2.A] {REQUEST}")
        );
        assert_eq!(
            first_line(system, steps()).await,
            format!("[NP2.B] {REQUEST}")
        );
        assert_eq!(
            first_line(system, route()).await,
            format!("[DP2] {REQUEST}")
        );
        assert_eq!(
            first_line(system, tool_choice()).await,
            format!("[DP3] {REQUEST}")
        );
        assert_eq!(
            first_line(system, answer()).await,
            format!("[DP4] {REQUEST}")
        );
        assert_eq!(
            first_line(system, recovery()).await,
            format!("[NP3] {REQUEST}")
        );
        assert_eq!(
            first_line(system, synthesis()).await,
            format!("[NP4] {REQUEST}")
        );
        assert_eq!(
            first_line(system, confirm()).await,
            "[NP5] {\"tool\":\"x\"}"
        );
        system.shutdown(Duration::from_secs(5)).await;
    });
}
