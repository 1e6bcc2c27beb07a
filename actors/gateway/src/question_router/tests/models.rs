//! Tests of the order of models by preferences.

use serde_json::json;

use super::super::*;

fn facts(name: &str, about: serde_json::Value) -> ModelProfile {
    ModelProfile::of(name, &serde_json::from_value(about).unwrap())
}

/// Goal: hints take precedence over priorities, priorities over the configured order. Method: three
/// models, questions that prefer each.
/// Rows: M-46, M-60.
#[test]
fn the_best_goes_first() {
    let models = [
        facts(
            "big",
            json!({ "serverInfo": { "name": "gpt-4" }, "model": { "scores": { "intelligence": 0.9 } } }),
        ),
        facts(
            "small",
            json!({ "model": { "names": ["claude-3-haiku"], "scores": { "cost": 1.0, "speed": 0.9 } } }),
        ),
        facts("local", json!({})),
    ];
    let first = |preferences: serde_json::Value| {
        let wanted = ModelPreferences::of(&serde_json::from_value(preferences).unwrap());
        let mut sorted: Vec<&ModelProfile> = models.iter().collect();
        sorted.sort_by(|a, b| wanted.compare(a, b));
        sorted[0].names[0].clone()
    };
    assert_eq!(first(json!({})), "big");
    assert_eq!(
        first(json!({ "hints": [{ "name": "Claude" }, { "name": "gpt-4" }] })),
        "small"
    );
    assert_eq!(
        first(json!({ "hints": [{ "name": "mistral" }, { "name": "local" }], "costPriority": 1 })),
        "local"
    );
    assert_eq!(
        first(
            json!({ "hints": [{ "name": "" }], "speedPriority": 0.4, "intelligencePriority": 0.3 })
        ),
        "small"
    );
    assert_eq!(
        first(json!({ "speedPriority": 0.1, "intelligencePriority": 1 })),
        "big"
    );
}
