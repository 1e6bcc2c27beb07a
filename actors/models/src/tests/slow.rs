//! Slow providers, and callers that don't wait. The server is a bare socket, so that a test
//! controls each byte.

use std::time::Duration;

use callboard_message::FailureKind;
use callboard_runtime::{CallEvent, testkit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::kit::{open, params, real, said, sample, spawn};
use crate::{
    ModelConfig, ModelRetries, ModelTimeouts, RemoteModelConfig, STREAM_ARTIFACT, STREAM_KEY,
    STREAM_PIECE_INTERVAL,
};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const HALF: &str = r#"{"choices":[{"delta":{"content":"Hel"}}]}"#;
const REST: &str = r#"{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}"#;

struct Bare(TcpListener);

impl Bare {
    async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn config(&self, timeouts: ModelTimeouts) -> ModelConfig {
        let url = Some(format!("http://{}/v1", self.0.local_addr().unwrap()));
        let retries = ModelRetries {
            retries_max: 0,
            ..ModelRetries::default()
        };
        ModelConfig::OpenaiCompatible(RemoteModelConfig {
            url,
            timeouts,
            retries,
            ..RemoteModelConfig::new("m")
        })
    }

    /// Accepts a connection and reads its request, or a connection that a client in a hurry has
    /// already closed.
    async fn accept(&self) -> TcpStream {
        let (mut stream, _) = self.0.accept().await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"}}") {
            if matches!(stream.read_buf(&mut got).await, Ok(0) | Err(_)) {
                break;
            }
        }
        stream
    }
}

/// Returns the reply to `ask` while `serve` runs. A client in a hurry may end before it is
/// connected.
async fn reply_of<T>(ask: impl Future<Output = T>, serve: impl Future<Output = ()>) -> T {
    let serve = async {
        serve.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        reply = ask => reply,
        () = serve => unreachable!(),
    }
}

/// Encodes an event as an HTTP chunk.
fn chunk(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

async fn event(stream: &mut TcpStream, data: &str) {
    stream.write_all(chunk(data).as_bytes()).await.unwrap();
}

/// Waits until the other side has closed the connection.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset closes the connection too.
    let _ = stream.read_to_end(&mut rest).await;
}

/// Goal: a silent provider times out, and the connection is closed. Method: silence before the
/// headers, after them, and after a piece.
#[test]
fn silence_has_an_end() {
    real(async |system| {
        for said_before in [&[][..], &["head"], &["head", "piece"]] {
            let bare = Bare::new().await;
            let agent = spawn(
                system,
                bare.config(ModelTimeouts {
                    silence_ms: 50,
                    ..ModelTimeouts::default()
                }),
            );
            let request = said("Hi");
            let serve = async {
                let mut stream = bare.accept().await;
                for what in said_before {
                    let said = match *what {
                        "head" => HEAD.to_owned(),
                        _ => chunk(HALF),
                    };
                    // On a busy machine, the client may have given up by now.
                    let _ = stream.write_all(said.as_bytes()).await;
                }
                closed(&mut stream).await;
            };
            let (answer, ()) = tokio::join!(sample(&agent, &request), serve);
            let failure = answer.unwrap_err();
            assert_eq!(failure.kind, FailureKind::TimedOut, "{failure}");
            assert_eq!(
                failure.message,
                "the model sent nothing for `timeouts.silence_ms`: try again, or raise it"
            );
        }
    });
}

/// Goal: an endless answer in small pieces times out. Method: pieces until the connection is
/// closed.
#[test]
fn the_whole_has_an_end() {
    real(async |system| {
        let bare = Bare::new().await;
        let agent = spawn(
            system,
            bare.config(ModelTimeouts {
                whole_ms: 100,
                ..ModelTimeouts::default()
            }),
        );
        let request = said("Hi");
        let serve = async {
            let mut stream = bare.accept().await;
            let mut said = HEAD.to_owned();
            while stream.write_all(said.as_bytes()).await.is_ok() {
                said = chunk(HALF);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let failure = reply_of(sample(&agent, &request), serve).await.unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.message),
            (
                FailureKind::TimedOut,
                "the model didn't answer within `timeouts.whole_ms` or the call's time limit"
            )
        );
    });
}

/// Goal: a connection that breaks within an answer is a failure, not a partial answer. Method:
/// break it after a piece.
#[test]
fn a_broken_connection() {
    real(async |system| {
        let bare = Bare::new().await;
        let agent = spawn(system, bare.config(ModelTimeouts::default()));
        let request = said("Hi");
        let serve = async {
            let mut stream = bare.accept().await;
            stream.write_all(HEAD.as_bytes()).await.unwrap();
            event(&mut stream, HALF).await;
        };
        let (answer, ()) = tokio::join!(sample(&agent, &request), serve);
        let failure = answer.unwrap_err();
        assert_eq!(
            failure.message,
            "the connection to the model's provider broke during the answer: try again"
        );
    });
}

/// Goal: the caller gets progress without content, and only then the answer. Method: the second
/// piece is sent after the first progress report.
#[test]
fn progress_is_told() {
    real(async |system| {
        let bare = Bare::new().await;
        let agent = spawn(system, bare.config(ModelTimeouts::default()));
        let (tell, told) = oneshot::channel();
        let serve = async {
            let mut stream = bare.accept().await;
            stream.write_all(HEAD.as_bytes()).await.unwrap();
            event(&mut stream, HALF).await;
            told.await.unwrap();
            event(&mut stream, REST).await;
            event(&mut stream, "[DONE]").await;
        };
        let ask = async {
            let mut call = agent.call(params(&said("Hi"))).start();
            let Some(CallEvent::Progress(progress)) = call.next().await else {
                panic!("no progress")
            };
            assert_eq!(
                (progress.done, progress.message.as_deref()),
                (3.0, Some("3 bytes written"))
            );
            tell.send(()).unwrap();
            call.reply().await.unwrap().unwrap()
        };
        let (answer, ()) = tokio::join!(ask, serve);
        assert_eq!(answer.written_text().as_deref(), Some("Hello"));
    });
}

/// Goal: a caller that requests it gets the text while it is written, in bundled pieces that form
/// the beginning of the answer. Method: small pieces until two were sent; the rest.
#[test]
fn the_text_comes_while_it_is_written() {
    real(async |system| {
        let bare = Bare::new().await;
        let agent = spawn(system, bare.config(ModelTimeouts::default()));
        let (tell, mut told) = oneshot::channel();
        let serve = async {
            let mut stream = bare.accept().await;
            stream.write_all(HEAD.as_bytes()).await.unwrap();
            event(&mut stream, r#"{"choices":[{"delta":{"content":"\n "}}]}"#).await;
            while told.try_recv().is_err() {
                event(&mut stream, HALF).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            event(&mut stream, REST).await;
            event(&mut stream, "[DONE]").await;
        };
        let ask = async {
            let mut request = said("Hi");
            request["_meta"] = serde_json::json!({ STREAM_KEY: true });
            let mut call = agent.call(params(&request)).start();
            let begun = std::time::Instant::now();
            let mut text = String::new();
            for nth in 0..2 {
                let Some(CallEvent::Artifact(piece)) = call.next().await else {
                    panic!("no piece")
                };
                assert_eq!(
                    (piece.id().as_str(), piece.is_appended()),
                    (STREAM_ARTIFACT, nth > 0)
                );
                text.extend(
                    piece
                        .content()
                        .iter()
                        .filter_map(callboard_message::Content::as_text),
                );
            }
            assert!(
                begun.elapsed() >= STREAM_PIECE_INTERVAL,
                "{:?}",
                begun.elapsed()
            );
            tell.send(()).unwrap();
            (
                text,
                call.reply().await.unwrap().unwrap().written_text().unwrap(),
            )
        };
        let ((text, answer), ()) = tokio::join!(ask, serve);
        assert!(
            text.len() > 3 && answer.trim().starts_with(&text) && answer.ends_with("Hello"),
            "{text} {answer}"
        );
    });
}

/// Goal: a cancelled call closes the request to the provider, and the usage until then counts.
/// Method: cancel after a piece; the server sees the connection close.
#[test]
fn a_cancelled_call_closes_the_request() {
    real(async |system| {
        let bare = Bare::new().await;
        let model = open(bare.config(ModelTimeouts::default()));
        let agent = system.spawn(model.clone());
        let serve = async {
            let mut stream = bare.accept().await;
            stream.write_all(HEAD.as_bytes()).await.unwrap();
            event(&mut stream, HALF).await;
            closed(&mut stream).await;
        };
        let ask = async {
            let mut call = agent.call(params(&said("Hi"))).start();
            assert!(matches!(call.next().await, Some(CallEvent::Progress(_))));
            call.cancel();
            call.reply().await
        };
        let (reply, ()) = tokio::join!(ask, serve);
        assert!(reply.map_or(true, |reply| reply.is_err()));
        // Input tokens and the token begun, but not the hundred that were reserved.
        let used = || model.0.ledger.usage_today().0;
        testkit::eventually("the rest is free again", Duration::from_secs(5), || {
            used() < 10
        })
        .await;
        assert!(used() >= 2, "{}", used());
    });
}

/// Goal: the deadline of a call ends the wait for a provider. Method: a server that never answers.
#[test]
fn the_deadline_of_the_call_counts() {
    real(async |system| {
        let bare = Bare::new().await;
        let agent = spawn(system, bare.config(ModelTimeouts::default()));
        let ask = agent
            .call(params(&said("Hi")))
            .within(Duration::from_millis(50))
            .start()
            .reply();
        let serve = async { closed(&mut bare.accept().await).await };
        match reply_of(ask, serve).await {
            Ok(reply) => assert_eq!(reply.unwrap_err().kind, FailureKind::TimedOut),
            Err(error) => assert_eq!(
                callboard_message::Failure::from(error).kind,
                FailureKind::TimedOut
            ),
        }
    });
}
