//! Wire format of OpenAI's responses API.

use serde_json::json;

use super::kit::{asked, at, events, gist, real, rich, said, sample, server, spawn, whole};
use crate::{ModelConfig, OpenaiApi, RemoteModelConfig};

const PIECES: [&str; 6] = [
    r#"{"type":"response.created","response":{"id":"r1","status":"in_progress","model":"m-1-2026","output":[]}}"#,
    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","role":"assistant","content":[]}}"#,
    r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hel"}"#,
    r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"lo"}"#,
    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}}"#,
    r#"{"type":"response.completed","response":{"id":"r1","status":"completed","model":"m-1-2026","output":[{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":9,"output_tokens":2}}}"#,
];

/// Goal: a streamed answer is assembled without repetition, with its model, stop reason and tokens.
/// Method: recorded pieces.
#[test]
fn a_stream_is_an_answer() {
    real(async |system| {
        let server = server([events(&PIECES)]).await;
        let agent = spawn(
            system,
            ModelConfig::Openai(RemoteModelConfig {
                api: OpenaiApi::Responses,
                ..at(&server)
            }),
        );
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(gist(&answer), ("Hello", "endTurn", "m-1-2026", (9, 2)));
        assert_eq!(
            server.received_requests().await.unwrap()[0].url.path(),
            "/v1/responses"
        );
    });
}

/// Goal: images, tools, results and settings are encoded in the API's format. Method: a
/// conversation with all of them, snapshot.
#[test]
fn a_rich_conversation() {
    real(async |system| {
        let output = json!([{ "type": "message", "content": [{ "type": "output_text", "text": "A cat.END and more" }] }]);
        let server = server([whole(
            json!({ "status": "completed", "model": "m", "output": output }),
        )])
        .await;
        let agent = spawn(
            system,
            ModelConfig::Openai(RemoteModelConfig {
                api: OpenaiApi::Responses,
                stream: false,
                ..at(&server)
            }),
        );
        let answer = sample(&agent, &rich()).await.unwrap();
        assert_eq!(
            answer["content"]["text"], "A cat.",
            "the API knows no stop sequences"
        );
        assert_eq!(answer["stopReason"], "stopSequence");
        insta::assert_json_snapshot!(asked(&server).await);
    });
}

/// Goal: tool calls become blocks; a cut-off, refused or failed answer is reported as such. Method:
/// recorded ends.
#[test]
fn uses_of_tools_and_other_ends() {
    real(async |system| {
        let tool = events(&[
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"call_a","name":"look","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"zoom\":"}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"2}"}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"call_a","name":"look","arguments":"{\"zoom\":2}"}}"#,
            r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
        ]);
        let cut = whole(
            json!({ "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" },
            "output": [{ "type": "message", "content": [{ "type": "output_text", "text": "Hal" }] }] }),
        );
        let refused = whole(json!({ "status": "completed",
            "output": [{ "type": "message", "content": [{ "type": "refusal", "refusal": "No." }] }] }));
        let failed = events(&[
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"invalid_prompt","message":"It says: Hi"}}}"#,
        ]);
        let server = server([tool, cut, refused, failed]).await;
        let agent = spawn(
            system,
            ModelConfig::Openai(RemoteModelConfig {
                api: OpenaiApi::Responses,
                ..at(&server)
            }),
        );
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(
            answer["content"],
            json!({ "type": "tool_use", "id": "call_a", "name": "look", "input": { "zoom": 2 } })
        );
        assert_eq!(answer["stopReason"], "toolUse");
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(
            (&answer["content"]["text"], &answer["stopReason"]),
            (&json!("Hal"), &json!("maxTokens"))
        );
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(
            (&answer["content"]["text"], &answer["stopReason"]),
            (&json!("No."), &json!("refusal"))
        );
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(
            failure.message,
            "the model's provider ended its answer with an error (its code: invalid_prompt)"
        );
    });
}
