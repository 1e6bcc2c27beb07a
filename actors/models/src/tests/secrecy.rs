//! Secrecy of keys, prompts and answers.

use serde_json::json;
use tracing::level_filters::LevelFilter;
use wiremock::ResponseTemplate;

use super::kit::{KEY, at, open, real, said, sample, server};
use crate::recording::Recording;
use crate::{AskModel, ModelConfig, ScriptedAnswer};

/// Goal: keys, prompts and answers never appear in a log, an error or `Debug` output. Method: an
/// answer, a refusal that quotes everything and malformed bodies, all recorded at the finest level
/// and searched.
#[test]
fn nothing_is_told() {
    let recording = Recording::start(LevelFilter::TRACE);
    let mut told = String::new();
    real(async |system| {
        let quoted =
            json!({ "error": { "code": "Marta of Porto", "message": format!("{KEY} Marta") } });
        let refused = |status| ResponseTemplate::new(status).set_body_json(&quoted);
        let answer = json!({ "choices": [{ "message": { "content": "Vilanova" }, "finish_reason": "stop" }] });
        let broken = ResponseTemplate::new(200)
            .set_body_raw("data: {\"Marta\": Vilanova}\n\n", "text/event-stream");
        let answers = [
            ResponseTemplate::new(200).set_body_json(answer),
            refused(400),
            refused(500),
            refused(401),
            broken,
        ];
        let server = server(answers).await;
        let model = open(ModelConfig::Openai(at(&server)));
        told += &format!("{model:?} {:?}", at(&server));
        let agent = system.spawn(model);
        assert_eq!(
            sample(&agent, &said("Marta")).await.unwrap()["content"]["text"],
            "Vilanova"
        );
        for _ in 0..3 {
            told += &format!("{:?}", sample(&agent, &said("Marta")).await.unwrap_err());
        }
        told += &format!(
            "{:?} {:?}",
            AskModel::new("Marta"),
            ScriptedAnswer::text("Vilanova")
        );
        told += &agent.observe().await.to_string();
    });
    let log = recording.text();
    assert!(
        log.contains("answered") && log.contains("gave no answer"),
        "the operator is told: {log}"
    );
    for word in ["Marta", "Vilanova", "Porto", KEY] {
        assert!(!log.contains(word), "{word} in the log: {log}");
        assert!(!told.contains(word), "{word} in {told}");
    }
}
