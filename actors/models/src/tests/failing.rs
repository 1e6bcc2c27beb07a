//! Failures of providers.

use std::time::{Duration, Instant};

use callboard_message::FailureKind;
use serde_json::json;
use wiremock::ResponseTemplate;

use super::kit::{at, events, real, said, sample, server, spawn, times_asked, whole};
use crate::{ModelConfig, ModelLimits, ModelRetries, RefusedPart, RemoteModelConfig};

fn hello() -> ResponseTemplate {
    whole(json!({ "choices": [{ "message": { "content": "Hello" }, "finish_reason": "stop" }] }))
}

/// Goal: a rate limit is waited out for as long as the provider demands. Method: 429 with a pause
/// of a second, then an answer.
#[test]
fn a_limit_is_waited_out() {
    real(async |system| {
        let limited = ResponseTemplate::new(429).insert_header("retry-after", "1");
        let server = server([limited, hello()]).await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        let began = Instant::now();
        assert_eq!(
            sample(&agent, &said("Hi")).await.unwrap()["content"]["text"],
            "Hello"
        );
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert_eq!(times_asked(&server).await, 2);
    });
}

/// Goal: a pause beyond the call's deadline isn't begun. Method: a pause longer than the remaining
/// time.
#[test]
fn no_wait_past_the_deadline() {
    real(async |system| {
        let server = server([ResponseTemplate::new(429).insert_header("retry-after", "20")]).await;
        let retries = ModelRetries {
            pause_ms_max: 60_000,
            ..ModelRetries::default()
        };
        let agent = spawn(
            system,
            ModelConfig::Openai(RemoteModelConfig {
                retries,
                ..at(&server)
            }),
        );
        let message = super::kit::params(&said("Hi"));
        let began = Instant::now();
        let reply = agent
            .call(message)
            .within(Duration::from_secs(10))
            .start()
            .reply()
            .await
            .unwrap();
        assert_eq!(reply.unwrap_err().kind, FailureKind::Overloaded);
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(times_asked(&server).await, 1);
    });
}

/// Goal: each error status has a failure kind, is retried only if that may help, and its text is
/// never quoted. Method: rows of status, code, kind and attempts.
#[test]
fn refusals() {
    use FailureKind::{NotFound, Overloaded, Rejected, Unavailable};
    let rows = [
        (400, "context_length_exceeded", Rejected, 1),
        (401, "invalid_api_key", Unavailable, 1),
        (403, "", Unavailable, 1),
        (404, "model_not_found", NotFound, 1),
        (408, "", Unavailable, 3),
        (413, "", Rejected, 1),
        (429, "rate_limit_exceeded", Overloaded, 3),
        (429, "insufficient_quota", Overloaded, 1),
        (500, "", Unavailable, 3),
        (501, "", Unavailable, 1),
        (503, "", Unavailable, 3),
        (529, "overloaded_error", Unavailable, 3),
        (302, "", Unavailable, 1),
    ];
    real(async |system| {
        for (status, code, kind, tries) in rows {
            let error =
                json!({ "error": { "code": code, "message": "you said: the secret of Hi" } });
            let answer = ResponseTemplate::new(status)
                .insert_header("location", "http://127.0.0.1:9/")
                .set_body_json(error);
            let server = server([answer]).await;
            let agent = spawn(system, ModelConfig::Openai(at(&server)));
            let failure = sample(&agent, &said("Hi")).await.unwrap_err();
            assert_eq!(failure.kind, kind, "{status} {code}: {failure}");
            let refused = match status {
                401 | 403 => Some(RefusedPart::Key),
                400 | 413 => Some(RefusedPart::Request),
                _ => None,
            };
            assert_eq!(
                RefusedPart::from_failure(&failure),
                refused,
                "{status} {code}"
            );
            assert!(
                !failure.message.contains("secret") && failure.message.contains(code),
                "{failure}"
            );
            assert_eq!(times_asked(&server).await, tries, "{status} {code}");
        }
    });
}

/// Goal: server errors are retried until there is an answer. Method: two failures, one answer, two
/// retries.
#[test]
fn a_broken_server_recovers() {
    real(async |system| {
        let server = server([
            ResponseTemplate::new(500),
            ResponseTemplate::new(502),
            hello(),
        ])
        .await;
        let agent = spawn(system, ModelConfig::Openai(at(&server)));
        assert_eq!(
            sample(&agent, &said("Hi")).await.unwrap()["content"]["text"],
            "Hello"
        );
        assert_eq!(times_asked(&server).await, 3);
    });
}

/// Goal: a malformed body is a failure, never a partial answer. Method: rows of bodies, whole and
/// streamed.
#[test]
fn bodies_that_cannot_be_read() {
    let half = r#"{"choices":[{"delta":{"content":"Hel"}}]}"#;
    let rows = [
        (
            "no JSON",
            ResponseTemplate::new(200).set_body_raw("<html>", "application/json"),
        ),
        ("no object", whole(json!([1]))),
        ("no choice", whole(json!({ "choices": [] }))),
        (
            "no content type",
            ResponseTemplate::new(200).set_body_string("{}"),
        ),
        ("an event that is no JSON", events(&["{"])),
        (
            "an error",
            whole(json!({ "error": { "code": "odd", "message": "x" } })),
        ),
        (
            "an error in a stream",
            events(&[half, r#"{"error":{"code":"odd"}}"#]),
        ),
        ("a stream without its end", events(&[half])),
        ("an empty stream", events(&[])),
        (
            "no UTF-8",
            ResponseTemplate::new(200)
                .set_body_raw(b"data: \xff\xfe\n\n".to_vec(), "text/event-stream"),
        ),
    ];
    real(async |system| {
        for (what, answer) in rows {
            let server = server([answer]).await;
            let agent = spawn(system, ModelConfig::Openai(at(&server)));
            let failure = sample(&agent, &said("Hi")).await.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Unavailable, "{what}: {failure}");
            assert_eq!(times_asked(&server).await, 1, "{what}");
        }
    });
}

/// Goal: the size of an answer is limited, whole or streamed. Method: exactly the limit, and a byte
/// more.
#[test]
fn answers_have_a_limit() {
    real(async |system| {
        let text = r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#;
        let stream = format!("data: {text}\n\n");
        for (body, kind) in [
            (text.to_owned(), "application/json"),
            (stream, "text/event-stream"),
        ] {
            let server =
                server([ResponseTemplate::new(200).set_body_raw(body.clone(), kind)]).await;
            for (answer_bytes_max, fits) in [(body.len(), true), (body.len() - 1, false)] {
                let limits = ModelLimits {
                    answer_bytes_max,
                    ..ModelLimits::default()
                };
                let agent = spawn(
                    system,
                    ModelConfig::Openai(RemoteModelConfig {
                        limits,
                        ..at(&server)
                    }),
                );
                let answer = sample(&agent, &said("Hi")).await;
                assert_eq!(answer.is_ok(), fits, "{kind}: {answer:?}");
            }
        }
    });
}

/// Goal: an unreachable provider is reported as such. Method: a port that was just closed.
#[test]
fn nobody_there() {
    real(async |system| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        drop(listener);
        let retries = ModelRetries {
            pause_ms: 1,
            ..ModelRetries::default()
        };
        let config = RemoteModelConfig {
            url: Some(url),
            retries,
            ..RemoteModelConfig::new("m")
        };
        let agent = spawn(system, ModelConfig::OpenaiCompatible(config));
        let failure = sample(&agent, &said("Hi")).await.unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.message),
            (
                FailureKind::Unavailable,
                "the model's provider can't be reached: check `url` and the network"
            )
        );
    });
}
