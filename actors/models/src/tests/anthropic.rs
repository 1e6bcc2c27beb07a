//! Wire format of Anthropic's messages API.

use serde_json::json;

use super::kit::{
    self, asked, at, events, gist, real, rich, said, sample, server, spawn, times_asked, whole,
};
use crate::{ModelConfig, RemoteModelConfig};

const PIECES: [&str; 8] = [
    r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m-1-2026","content":[],"stop_reason":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":1,"cache_read_input_tokens":2,"output_tokens":1}}}"#,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"ping"}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}}"#,
    r#"{"type":"message_stop"}"#,
];

/// Goal: a streamed answer is assembled, with cached tokens counted. Method: recorded pieces.
/// Rows: M-26.
#[test]
fn a_stream_is_an_answer() {
    real(async |system| {
        let server = server([events(&PIECES)]).await;
        let agent = spawn(system, ModelConfig::Anthropic(at(&server)));
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(gist(&answer), ("Hello", "endTurn", "m-1-2026", (10, 5)));
        assert_eq!(answer["_meta"]["callboard/provider"], "anthropic");
        let request = server.received_requests().await.unwrap().remove(0);
        assert_eq!(request.url.path(), "/v1/messages");
        assert_eq!(request.headers["x-api-key"], kit::KEY);
        assert_eq!(request.headers["anthropic-version"], "2023-06-01");
        assert!(!request.headers.contains_key("authorization"));
    });
}

/// Goal: images, tools, results and settings are encoded in the API's format. Method: a
/// conversation with all of them, snapshot.
#[test]
fn a_rich_conversation() {
    real(async |system| {
        let answer = json!({ "model": "m", "content": [{ "type": "text", "text": "A cat." }], "stop_reason": "stop_sequence" });
        let server = server([whole(answer)]).await;
        let agent = spawn(
            system,
            ModelConfig::Anthropic(RemoteModelConfig {
                stream: false,
                ..at(&server)
            }),
        );
        assert_eq!(
            sample(&agent, &rich()).await.unwrap()["stopReason"],
            "stopSequence"
        );
        insta::assert_json_snapshot!(asked(&server).await);
    });
}

/// Goal: tool calls become blocks beside the text, streamed or whole. Method: recorded pieces, and
/// the same whole.
#[test]
fn uses_of_tools() {
    real(async |system| {
        let pieces = events(&[
            r#"{"type":"message_start","message":{"model":"m","content":[],"usage":{"input_tokens":7,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I look."}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"zoom\": 2"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let at_once = whole(
            json!({ "model": "m", "stop_reason": "tool_use", "usage": { "input_tokens": 7, "output_tokens": 9 },
            "content": [
                { "type": "text", "text": "I look." },
                { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "zoom": 2 } },
            ] }),
        );
        let server = server([pieces, at_once]).await;
        let agent = spawn(system, ModelConfig::Anthropic(at(&server)));
        for _ in 0..2 {
            let answer = sample(&agent, &rich()).await.unwrap();
            assert_eq!(answer["stopReason"], "toolUse");
            let expected = json!([
                { "type": "text", "text": "I look." },
                { "type": "tool_use", "id": "toolu_1", "name": "look", "input": { "zoom": 2 } },
            ]);
            assert_eq!(answer["content"], expected);
        }
    });
}

/// Goal: an overload error within a stream is retried, other errors aren't. Method: each, then an
/// answer.
#[test]
fn an_error_in_the_middle() {
    real(async |system| {
        let overloaded =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let wrong =
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"You said: Hi"}}"#;
        let first = [PIECES[0], PIECES[3], overloaded];
        let server = server([events(&first), events(&PIECES), events(&[wrong])]).await;
        let agent = spawn(system, ModelConfig::Anthropic(at(&server)));
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(
            answer["content"]["text"], "Hello",
            "nothing of the first try is in it"
        );
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(
            failure.message,
            "the model's provider ended its answer with an error (its code: invalid_request_error)"
        );
        assert_eq!(times_asked(&server).await, 3);
    });
}
