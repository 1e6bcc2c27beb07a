//! Wire format of Ollama's API.

use callboard_message::FailureKind;
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::kit::{asked, at, gist, real, rich, said, sample, server, spawn, times_asked, whole};
use crate::{ModelConfig, RemoteModelConfig};

fn lines(lines: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(lines, "application/x-ndjson")
}

/// Goal: a streamed answer is assembled, with its tokens; no key is sent unless configured. Method:
/// recorded lines, the last one unterminated.
/// Rows: M-26.
#[test]
fn a_stream_is_an_answer() {
    real(async |system| {
        let server = server([lines(concat!(
            r#"{"model":"m-1","message":{"role":"assistant","content":"Hé"},"done":false}"#, "\n",
            r#"{"model":"m-1","message":{"role":"assistant","content":"llo"},"done":false}"#, "\n",
            r#"{"model":"m-1","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":2}"#,
        ))])
        .await;
        let agent = spawn(
            system,
            ModelConfig::Ollama(RemoteModelConfig {
                url: Some(server.uri()),
                ..at(&server)
            }),
        );
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(gist(&answer), ("Héllo", "endTurn", "m-1", (9, 2)));
        let request = server.received_requests().await.unwrap().remove(0);
        assert_eq!(request.url.path(), "/api/chat");
        assert!(!request.headers.contains_key("authorization"));
    });
}

/// Goal: images, tools, results and settings are encoded in the API's format. Method: a
/// conversation with all of them, snapshot.
#[test]
fn a_rich_conversation() {
    real(async |system| {
        let calls = json!([{ "function": { "name": "look", "arguments": { "zoom": 3 } } }]);
        let answer = json!({ "model": "m", "message": { "content": "", "tool_calls": calls }, "done": true, "done_reason": "stop" });
        let server = server([whole(answer)]).await;
        let agent = spawn(
            system,
            ModelConfig::Ollama(RemoteModelConfig {
                stream: false,
                ..at(&server)
            }),
        );
        let answer = sample(&agent, &rich()).await.unwrap();
        assert_eq!(answer["stopReason"], "toolUse");
        let expected =
            json!({ "type": "tool_use", "id": "call_1", "name": "look", "input": { "zoom": 3 } });
        assert_eq!(
            answer["content"], expected,
            "the id is one that the conversation hasn't had"
        );
        insta::assert_json_snapshot!(asked(&server).await);
    });
}

/// Goal: unsupported requests are rejected before the provider is contacted, and its errors are
/// reported without their text. Method: a required tool, audio, and an error of the server.
#[test]
fn what_it_cannot_do() {
    real(async |system| {
        let server = server([lines("{\"error\":\"model ran out of Hi\"}\n")]).await;
        let agent = spawn(system, ModelConfig::Ollama(at(&server)));
        let mut must = rich();
        must["toolChoice"] = json!({ "mode": "required" });
        let sound: Value = json!({ "messages": [{ "role": "user", "content":
            { "type": "audio", "data": "aGk=", "mimeType": "audio/wav" } }], "maxTokens": 9 });
        for request in [must, sound] {
            let failure = sample(&agent, &request).await.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Rejected, "{failure}");
        }
        assert_eq!(times_asked(&server).await, 0);
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(
            failure.message,
            "the model's provider ended its answer with an error"
        );
    });
}
