//! Wire format of OpenAI's chat completions.

use serde_json::json;

use super::kit::{self, asked, at, events, gist, real, rich, said, sample, server, spawn, whole};
use crate::{ModelConfig, RemoteModelConfig};

const PIECES: [&str; 6] = [
    r#"{"id":"c1","model":"m-1-2026","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    r#"{"id":"c1","model":"m-1-2026","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#,
    r#"{"id":"c1","model":"m-1-2026","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}"#,
    r#"{"id":"c1","model":"m-1-2026","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"id":"c1","model":"m-1-2026","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#,
    "[DONE]",
];

/// Goal: a streamed answer is assembled, with its model, stop reason and tokens; the key is sent in
/// the header, to the API's path. Method: recorded pieces, and the request received by the server.
/// Rows: M-26.
#[test]
fn a_stream_is_an_answer() {
    real(async |system| {
        let server = server([events(&PIECES)]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(gist(&answer), ("Hello", "endTurn", "m-1-2026", (9, 2)));
        assert_eq!(answer["role"], "assistant");
        assert_eq!(answer["_meta"]["callboard/provider"], "openai");
        let body = asked(&server).await;
        assert_eq!(body["stream"], true);
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(
            (&body["model"], &body["max_completion_tokens"]),
            (&json!("m-1"), &json!(100))
        );
        let request = server.received_requests().await.unwrap().remove(0);
        assert_eq!(request.url.path(), "/v1/chat/completions");
        assert_eq!(
            request.headers["authorization"],
            format!("Bearer {}", kit::KEY)
        );
    });
}

/// Goal: images, tools, results and settings are encoded in the API's format. Method: a
/// conversation with all of them, snapshot.
#[test]
fn a_rich_conversation() {
    real(async |system| {
        let answer = json!({ "model": "m-1", "choices": [{ "message": { "content": "A cat." }, "finish_reason": "stop" }] });
        let server = server([whole(answer)]).await;
        let agent = spawn(
            system,
            ModelConfig::OpenaiCompatible(RemoteModelConfig {
                stream: false,
                ..at(&server)
            }),
        );
        sample(&agent, &rich()).await.unwrap();
        insta::assert_json_snapshot!(asked(&server).await);
    });
}

/// Goal: tool calls become blocks, streamed or whole, several at once. Method: recorded pieces, and
/// the same whole.
#[test]
fn uses_of_tools() {
    real(async |system| {
        let pieces = events(&[
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"look","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"zoom\""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":2}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"rest","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#,
            "[DONE]",
        ]);
        let call = |id, name, arguments| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        let calls = [
            call("call_a", "look", "{\"zoom\":2}"),
            call("call_b", "rest", ""),
        ];
        let at_once = whole(json!({ "choices": [{
            "message": { "content": null, "tool_calls": calls }, "finish_reason": "stop"
        }] }));
        let server = server([pieces, at_once]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        for _ in 0..2 {
            let answer = sample(&agent, &rich()).await.unwrap();
            assert_eq!(answer["stopReason"], "toolUse");
            let expected = json!([
                { "type": "tool_use", "id": "call_a", "name": "look", "input": { "zoom": 2 } },
                { "type": "tool_use", "id": "call_b", "name": "rest", "input": {} },
            ]);
            assert_eq!(answer["content"], expected);
        }
    });
}

/// Goal: every stop reason is mapped, here and in Anthropic's messages. Method: rows.
#[test]
fn reasons() {
    let chat =
        |reason| json!({ "choices": [{ "message": { "content": "a" }, "finish_reason": reason }] });
    let messages =
        |reason| json!({ "content": [{ "type": "text", "text": "a" }], "stop_reason": reason });
    real(async |system| {
        for (is_chat, reason, ours) in [
            (true, "stop", "endTurn"),
            (true, "length", "maxTokens"),
            (true, "content_filter", "contentFilter"),
            (true, "something_new", "other"),
            (false, "end_turn", "endTurn"),
            (false, "max_tokens", "maxTokens"),
            (false, "model_context_window_exceeded", "maxTokens"),
            (false, "refusal", "refusal"),
            (false, "pause_turn", "pauseTurn"),
            (false, "something_new", "other"),
        ] {
            let server = server([whole(if is_chat {
                chat(reason)
            } else {
                messages(reason)
            })])
            .await;
            let config = if is_chat {
                ModelConfig::Openai
            } else {
                ModelConfig::Anthropic
            };
            let answer = sample(&spawn(system, config(at(&server))), &said("Hi"))
                .await
                .unwrap();
            assert_eq!(answer["stopReason"], ours, "{reason}");
        }
    });
}

/// Goal: a tool input cut off at the token limit is dropped, with the stop reason. Method: half an
/// input.
#[test]
fn half_an_input_is_none() {
    real(async |system| {
        let half = |reason: &str| {
            let calls =
                json!([{ "id": "a", "function": { "name": "look", "arguments": "{\"zo" } }]);
            whole(
                json!({ "choices": [{ "message": { "content": "", "tool_calls": calls }, "finish_reason": reason }] }),
            )
        };
        let server = server([half("length"), half("tool_calls")]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(
            (&answer["stopReason"], &answer["content"]["text"]),
            (&json!("maxTokens"), &json!(""))
        );
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert!(
            failure
                .message
                .contains("the input of a tool use is no JSON object"),
            "{failure}"
        );
    });
}
