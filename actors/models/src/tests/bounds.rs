//! Limits that no other test file covers.

use std::time::Duration;

use callboard_message::FailureKind;
use callboard_runtime::testkit;
use serde_json::json;
use tokio::time::Instant;
use wiremock::ResponseTemplate;

use super::kit::{asked, at, real, rich, said, sample, server, spawn, times_asked, whole};
use crate::{MODEL_REQUEST_BYTES_MAX, MODEL_TOOL_USES_MAX, ModelConfig};

/// Goal: the number of tool calls in one answer is limited. Method: at the limit, and one more.
#[test]
fn uses_of_tools_in_one_answer() {
    real(async |system| {
        let uses = |count: usize| {
            let call = |at| json!({ "id": format!("c{at}"), "function": { "name": "a", "arguments": "{}" } });
            let calls: Vec<_> = (0..count).map(call).collect();
            whole(
                json!({ "choices": [{ "message": { "tool_calls": calls }, "finish_reason": "tool_calls" }] }),
            )
        };
        let server = server([uses(MODEL_TOOL_USES_MAX), uses(MODEL_TOOL_USES_MAX + 1)]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        let answer = sample(&agent, &said("Hi")).await.unwrap();
        assert_eq!(
            answer["content"].as_array().unwrap().len(),
            MODEL_TOOL_USES_MAX
        );
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(
            failure.message,
            "the model's answer is over its limit of bytes (`limits.answer_bytes_max`) or of tool uses"
        );
    });
}

/// Goal: a request over the size limit is rejected before the provider is contacted. Method: fill
/// the body up to the limit, then a byte more.
#[test]
fn the_body_of_a_request() {
    real(async |system| {
        let answer =
            json!({ "choices": [{ "message": { "content": "a" }, "finish_reason": "stop" }] });
        let server = server([whole(answer)]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        sample(&agent, &said("")).await.unwrap();
        let rest =
            MODEL_REQUEST_BYTES_MAX - server.received_requests().await.unwrap()[0].body.len();
        sample(&agent, &said(&"a".repeat(rest))).await.unwrap();
        let failure = sample(&agent, &said(&"a".repeat(rest + 1)))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.kind, failure.message),
            (
                FailureKind::Rejected,
                format!(
                    "the conversation has {} bytes as a request, more than {MODEL_REQUEST_BYTES_MAX}: shorten it",
                    MODEL_REQUEST_BYTES_MAX + 1
                )
            )
        );
        assert_eq!(times_asked(&server).await, 2);
    });
}

/// Goal: a provider's error response may have any size, because the status suffices. Method: one of
/// a megabyte.
#[test]
fn a_huge_error() {
    real(async |system| {
        let huge = json!({ "error": { "code": "odd", "message": "a".repeat(1024 * 1024) } });
        let server = server([ResponseTemplate::new(400).set_body_json(huge)]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(
            failure.message,
            "the model's provider refuses the request with status 400: check the model's settings"
        );
    });
}

/// Goal: concurrent calls at a model are limited, and further ones wait. Method: three calls of a
/// minute each, two at once.
#[test]
fn calls_at_once() {
    testkit::run_with_paused_time(async |system| {
        let config = json!({ "provider": "scripted", "answers": [{ "text": "a", "delay_ms": 60_000 }],
            "limits": { "calls_max": 2 } });
        let agent = spawn(system, serde_json::from_value(config).unwrap());
        let begun = Instant::now();
        let request = said("Hi");
        let both = async {
            tokio::try_join!(sample(&agent, &request), sample(&agent, &request))
                .map(|_| begun.elapsed())
        };
        let (two, third) = tokio::join!(both, async {
            sample(&agent, &request).await.map(|_| begun.elapsed())
        });
        assert_eq!(two.unwrap(), Duration::from_secs(60));
        assert_eq!(third.unwrap(), Duration::from_secs(120));
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: an image in a tool result reaches a model whose API accepts only text there. Method: it is
/// sent in a message after the result.
#[test]
fn a_picture_of_a_tool() {
    real(async |system| {
        let answer =
            json!({ "choices": [{ "message": { "content": "a" }, "finish_reason": "stop" }] });
        let server = server([whole(answer)]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        let mut request = rich();
        request["messages"][2]["content"]["content"] = json!([
            { "type": "text", "text": "a cat" },
            { "type": "image", "data": "aGk=", "mimeType": "image/png" },
        ]);
        sample(&agent, &request).await.unwrap();
        let messages = asked(&server).await["messages"].clone();
        assert_eq!(
            messages[3],
            json!({ "role": "tool", "tool_call_id": "t1", "content": "a cat" })
        );
        let picture =
            json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } });
        assert_eq!(messages[4], json!({ "role": "user", "content": [picture] }));
    });
}
