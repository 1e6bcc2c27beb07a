//! Pools of several models.

use std::time::Duration;

use callboard_message::FailureKind;
use callboard_runtime::{AgentRef, System, testkit};
use serde_json::{Value, json};

use super::kit::{open, said, sample};
use crate::{
    AskModel, ModelCard, ModelConfig, ModelPool, ModelScores, PoolMember, ScriptedAnswer,
    ScriptedConfig,
};

fn scripted(model: &str, scores: (f64, f64, f64), answer: ScriptedAnswer) -> ModelConfig {
    let (cost, speed, intelligence) = scores;
    let config = json!({ "provider": "scripted", "model": model, "answers": [{}],
        "scores": { "cost": cost, "speed": speed, "intelligence": intelligence } });
    match serde_json::from_value(config).unwrap() {
        ModelConfig::Scripted(config) => ModelConfig::Scripted(ScriptedConfig {
            answers: vec![answer],
            ..config
        }),
        other => other,
    }
}

/// Spawns a pool of these models, each under its model's name.
fn several(system: &System, configs: Vec<ModelConfig>, fallback: bool) -> AgentRef {
    let mut members = Vec::new();
    for (at, config) in configs.into_iter().enumerate() {
        let (name, model) = (format!("member{at}"), open(config));
        members.push(PoolMember::new(&name, model.card()));
        system
            .directory()
            .register(name, &system.spawn(model))
            .unwrap();
    }
    system.spawn(ModelPool::new(members, fallback).unwrap())
}

fn fails() -> ScriptedAnswer {
    ScriptedAnswer {
        fails: Some("it is away".to_owned()),
        ..ScriptedAnswer::default()
    }
}

/// Goal: hints match parts of names, in order and ignoring case; then priorities decide, then the
/// order of members. Method: rows.
/// Rows: M-60.
#[test]
fn the_caller_chooses() {
    let rows: [(Value, &str); 10] = [
        (json!({}), "gpt-4o"),
        (
            json!({ "hints": [{ "name": "sonnet" }] }),
            "claude-3-5-sonnet",
        ),
        (
            json!({ "hints": [{ "name": "CLAUDE" }] }),
            "claude-3-5-sonnet",
        ),
        (
            json!({ "hints": [{ "name": "gemini" }, { "name": "smol" }, { "name": "gpt" }] }),
            "smollm2",
        ),
        (json!({ "hints": [{ "name": "gemini" }] }), "gpt-4o"),
        (
            json!({ "hints": [{ "name": "member1" }] }),
            "claude-3-5-sonnet",
        ),
        (json!({ "costPriority": 1.0 }), "smollm2"),
        (
            json!({ "intelligencePriority": 0.9, "costPriority": 0.1 }),
            "claude-3-5-sonnet",
        ),
        (
            json!({ "hints": [{ "name": "4" }], "costPriority": 1.0 }),
            "gpt-4o",
        ),
        (
            json!({ "hints": "all wrong", "costPriority": "high" }),
            "gpt-4o",
        ),
    ];
    testkit::run_with_paused_time(async |system| {
        let answer = || ScriptedAnswer::text("a");
        let configs = vec![
            scripted("gpt-4o", (0.4, 0.6, 0.8), answer()),
            scripted("claude-3-5-sonnet", (0.3, 0.5, 0.9), answer()),
            scripted("smollm2", (1.0, 0.6, 0.1), answer()),
        ];
        let models = several(system, configs, true);
        for (preferences, chosen) in rows {
            let mut request = said("Hi");
            request["modelPreferences"] = preferences.clone();
            assert_eq!(
                sample(&models, &request).await.unwrap()["model"],
                chosen,
                "{preferences}"
            );
        }
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: if a member fails, the next is asked, and the failure of all is the last one. Method: two
/// failing members before one that answers; then only failing ones.
#[test]
fn the_next_one_answers() {
    testkit::run_with_paused_time(async |system| {
        let answers = ScriptedAnswer::text("I am here");
        let configs = vec![
            scripted("a", (0.0, 0.0, 0.0), fails()),
            scripted("b", (0.0, 0.0, 0.0), fails()),
            scripted("c", (0.0, 0.0, 0.0), answers),
        ];
        let models = several(system, configs, true);
        assert_eq!(
            sample(&models, &said("Hi")).await.unwrap()["content"]["text"],
            "I am here"
        );
        assert_eq!(
            models.ask(AskModel::new("Hi")).await.unwrap().unwrap(),
            "I am here"
        );
        let gone = ModelPool::new(
            vec![
                PoolMember::new("member0", ModelCard::default()),
                PoolMember::new("gone", ModelCard::default()),
            ],
            true,
        );
        let gone = system.spawn(gone.unwrap());
        let failure = sample(&gone, &said("Hi")).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert_eq!(
            failure.message,
            "no model of the pool answered; the last, `gone`, failed: the model isn't running"
        );
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: without fallback, or for an invalid request, no other member is asked. Method: a failing
/// member before one that answers, each way.
#[test]
fn no_other_is_asked_in_vain() {
    testkit::run_with_paused_time(async |system| {
        let configs = vec![
            scripted("a", (0.0, 0.0, 0.0), fails()),
            scripted("b", (0.0, 0.0, 0.0), ScriptedAnswer::text("b")),
        ];
        let models = several(system, configs, false);
        assert_eq!(
            sample(&models, &said("Hi")).await.unwrap_err().message,
            "it is away"
        );
        let members =
            ["member1", "member0"].map(|name| PoolMember::new(name, ModelCard::default()));
        let models = system.spawn(ModelPool::new(members.to_vec(), true).unwrap());
        let failure = sample(&models, &json!({ "messages": [], "maxTokens": 5 }))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.message),
            (FailureKind::InvalidInput, "`messages` is empty")
        );
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: invalid scores and members are rejected at start. Method: just beyond each bound.
#[test]
fn what_cannot_be_meant() {
    assert!(ModelPool::new(Vec::new(), true).is_err());
    let card = |cost| {
        ModelCard::new(
            "a",
            Vec::new(),
            ModelScores {
                cost,
                ..ModelScores::default()
            },
        )
    };
    assert!(card(0.0).is_ok() && card(1.0).is_ok());
    assert!(card(-0.01).is_err() && card(1.01).is_err() && card(f64::NAN).is_err());
}
