use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::bare::{BareClientError, BareClientOptions, BareMcpClient, PENDING_CALLS_MAX};
use callboard_message::{Failure, FailureKind, Principal};
use callboard_rpc::DecodeLimits;
use callboard_runtime::CallContext;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::kit::{Client, header, soon};

/// Requests that a test leaves unread.
const REQUESTS_MAX: usize = 256;

/// HTTP server with scripted responses, which reports the requests it received.
struct Peer {
    url: String,
    requests: mpsc::Receiver<(String, Value)>,
}

impl Peer {
    /// Starts a peer; `answer` makes the bytes of a response from a request's id.
    async fn start(answer: impl Fn(&Value) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::gated(answer, Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))).await
    }

    /// Starts a peer that answers one request per permit of `gate`.
    async fn gated(
        answer: impl Fn(&Value) -> Vec<u8> + Send + Sync + 'static,
        gate: Arc<Semaphore>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, sender, gate) = (answer.clone(), sender.clone(), gate.clone());
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while let Some((head, body)) = next_request(&mut stream, &mut bytes).await {
                        let response = answer(&body["id"]);
                        let _ = sender.try_send((head, body));
                        let Ok(permit) = gate.acquire().await else {
                            return;
                        };
                        permit.forget();
                        if stream.write_all(&response).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, requests }
    }

    async fn request(&mut self) -> (String, Value) {
        soon(self.requests.recv()).await.unwrap()
    }
}

async fn next_request(
    stream: &mut tokio::net::TcpStream,
    bytes: &mut Vec<u8>,
) -> Option<(String, Value)> {
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end + 4].to_vec()).unwrap();
            let length: usize = header(&head, "content-length").unwrap().parse().unwrap();
            if bytes.len() >= end + 4 + length {
                let body = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).unwrap();
                bytes.drain(..end + 4 + length);
                return Some((head, body));
            }
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn http(status: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Returns a client's result from a peer with these responses.
async fn outcome(
    answer: impl Fn(&Value) -> Vec<u8> + Send + Sync + 'static,
) -> Result<Value, Failure> {
    let peer = Peer::start(answer).await;
    let client = Client::of(&peer.url, BareClientOptions::default());
    let outcome = client.ask("t", json!({}), None).await;
    client.stop().await;
    outcome.map(|raw| serde_json::from_str(raw.get()).unwrap())
}

/// Goal: the client sends the document's request. Method: a peer that records it.
/// Rows: C-12.
#[tokio::test]
async fn requests_have_the_documents_shape() {
    let mut peer = Peer::start(|id| {
        http(
            "200 OK",
            json!({"jsonrpc":"2.0","id":id,"result":[1]}).to_string(),
        )
    })
    .await;
    let client = Client::of(&peer.url, BareClientOptions::default());
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = client
            .ask("get_patient", json!({"patient_id": "CARD-001"}), None)
            .await
            .unwrap();
        assert_eq!(answer.get(), "[1]");
        let (head, body) = peer.request().await;
        assert!(head.starts_with("POST /mcp HTTP/1.1\r\n"));
        assert_eq!(header(&head, "content-type"), Some("application/json"));
        assert_eq!(
            (&body["jsonrpc"], &body["method"]),
            (&json!("2.0"), &json!("tools/call"))
        );
        assert_eq!(body["params"]["name"], "get_patient");
        assert_eq!(
            body["params"]["arguments"],
            json!({"patient_id": "CARD-001"})
        );
        let id = uuid::Uuid::parse_str(body["id"].as_str().unwrap()).unwrap();
        assert_eq!(id.get_version_num(), 4);
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
    client.stop().await;
}

/// Goal: a result beside an HTTP status of an error is none; an error keeps its code. Method: 4xx and 5xx
/// with a result that would be right, the same with 200, and an error with 500.
#[tokio::test]
async fn a_result_needs_a_good_status() {
    let result = |id: &Value| json!({"jsonrpc":"2.0","id":id,"result":"secret"}).to_string();
    assert_eq!(
        outcome(move |id| http("200 OK", result(id))).await,
        Ok(json!("secret"))
    );
    for (status, kind) in [
        ("400 Bad Request", FailureKind::Unavailable),
        ("403 Forbidden", FailureKind::Denied),
        ("500 Internal Server Error", FailureKind::Unavailable),
    ] {
        let failure = outcome(move |id| http(status, result(id)))
            .await
            .unwrap_err();
        assert_eq!(failure.kind, kind, "{status}");
        assert!(!failure.message.contains("secret"));
    }
    let error = |id: &Value| {
        json!({"jsonrpc":"2.0","id":id,"error":{"code":-32602,"message":"no such patient"}})
            .to_string()
    };
    let failure = outcome(move |id| http("500 Internal Server Error", error(id))).await;
    assert_eq!(failure.unwrap_err().kind, FailureKind::InvalidInput);
}

/// Goal: a response to another request is never taken for this one's. Method: each broken envelope.
#[tokio::test]
async fn broken_envelopes_are_failures() {
    let rows: Vec<fn(&Value) -> String> = vec![
        |_| json!({"jsonrpc":"2.0","id":"another","result":"secret"}).to_string(),
        |_| json!({"jsonrpc":"2.0","id":null,"result":"secret"}).to_string(),
        |_| json!({"jsonrpc":"2.0","result":"secret"}).to_string(),
        |_| json!({"jsonrpc":"2.0","id":1,"result":"secret"}).to_string(),
        |_| {
            json!({"jsonrpc":"2.0","id":"another","error":{"code":-32602,"message":"secret"}})
                .to_string()
        },
        |id| json!({"jsonrpc":"2.0","id":id}).to_string(),
        |id| json!({"jsonrpc":"2.0","id":id,"error":null}).to_string(),
        |id| {
            json!({"jsonrpc":"2.0","id":id,"result":"secret","error":{"code":1,"message":""}})
                .to_string()
        },
        |id| json!({"jsonrpc":"1.0","id":id,"result":"secret"}).to_string(),
        |id| json!([{"jsonrpc":"2.0","id":id,"result":"secret"}]).to_string(),
        |id| json!({"jsonrpc":"2.0","id":id,"method":"ping"}).to_string(),
        |id| json!({"jsonrpc":"2.0","id":id,"error":"secret"}).to_string(),
        |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"secret","result":1}}"#),
        |id| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{}1{}}}"#,
                "[".repeat(100_000),
                "]".repeat(100_000)
            )
        },
        |_| "secret".into(),
        |_| String::new(),
    ];
    for row in rows {
        let failure = outcome(move |id| http("200 OK", row(id)))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.kind, failure.data),
            (FailureKind::Internal, Some(json!({"code": -32000})))
        );
        assert!(!failure.message.contains("secret"), "{}", failure.message);
    }
}

/// Goal: errors are read in every spelling that peers use. Method: beside a null result, without an id, on HTTP 400.
#[tokio::test]
async fn remote_errors_become_failures() {
    let nulls = |id: &Value| json!({"jsonrpc":"2.0","id":id,"result":null,"error":{"code":-32602,"message":"m"}});
    let failure = outcome(move |id| http("200 OK", nulls(id).to_string()))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::InvalidInput, "m")
    );
    let failure = outcome(move |id| http("404 Not Found", nulls(id).to_string()))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidInput);
    let nobody =
        json!({"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"m"}}).to_string();
    let failure = outcome(move |_| http("200 OK", &nobody)).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.data),
        (FailureKind::NotFound, Some(json!({"code": -32601})))
    );
    let null = outcome(|id| {
        http(
            "200 OK",
            json!({"jsonrpc":"2.0","id":id,"result":null,"error":null}).to_string(),
        )
    });
    assert_eq!(null.await.unwrap(), json!(null));
}

/// Goal: HTTP failures have a kind that tells callers what to do, and their bodies are not
/// repeated. Method: one row per status.
#[tokio::test]
async fn http_statuses_become_failures() {
    for (status, kind) in [
        ("401 Unauthorized", FailureKind::Denied),
        ("413 Payload Too Large", FailureKind::Overloaded),
        ("422 Unprocessable Entity", FailureKind::Unavailable),
        ("429 Too Many Requests", FailureKind::Overloaded),
        ("500 Internal Server Error", FailureKind::Unavailable),
        ("504 Gateway Timeout", FailureKind::TimedOut),
    ] {
        let failure = outcome(move |_| http(status, r#"{"detail":"secret"}"#))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.kind, failure.data),
            (kind, Some(json!({"code": -32000}))),
            "{status}"
        );
        assert!(!failure.message.contains("secret"));
    }
}

/// Goal: a redirect takes no patient data elsewhere. Method: a redirect to a second peer, which
/// must receive nothing.
#[tokio::test]
async fn redirects_are_not_followed() {
    let mut other = Peer::start(|id| {
        http(
            "200 OK",
            json!({"jsonrpc":"2.0","id":id,"result":1}).to_string(),
        )
    })
    .await;
    let location = other.url.clone();
    let redirect = move |_: &Value| {
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
        )
        .into_bytes()
    };
    assert_eq!(
        outcome(redirect).await.unwrap_err().kind,
        FailureKind::Unavailable
    );
    assert!(other.requests.try_recv().is_err());
}

/// Goal: a response is bounded while it arrives. Method: at the limit, one over, and chunks without end.
#[tokio::test]
async fn responses_are_bounded() {
    const BYTES_MAX: usize = 1_000;
    for (over, refused) in [(0, false), (1, true)] {
        let peer = Peer::start(move |id| {
            let body = json!({"jsonrpc":"2.0","id":id,"result":1}).to_string();
            http(
                "200 OK",
                format!("{body}{}", " ".repeat(BYTES_MAX - body.len() + over)),
            )
        })
        .await;
        let limits = DecodeLimits {
            body_bytes_max: BYTES_MAX,
            ..DecodeLimits::default()
        };
        let client = Client::of(
            &peer.url,
            BareClientOptions {
                limits,
                ..BareClientOptions::default()
            },
        );
        let outcome = client.ask("t", json!({}), None).await;
        assert_eq!(
            outcome.map_err(|f| f.kind).err(),
            refused.then_some(FailureKind::Overloaded)
        );
        client.stop().await;
    }
    // More than the limit in chunks, and no end: only a reader that stops gets past it.
    let chunk = "x".repeat(100_000);
    let endless = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}",
        format!("186a0\r\n{chunk}\r\n").repeat(50)
    );
    let failure = outcome(move |_| endless.clone().into_bytes())
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Overloaded);
}

/// Goal: a silent peer takes no longer than the deadline. Method: the client's own, then the
/// call's.
#[tokio::test]
async fn silence_times_out() {
    let peer = Peer::gated(|_| Vec::new(), Arc::new(Semaphore::new(0))).await;
    let options = BareClientOptions {
        call_timeout: Duration::from_millis(50),
        ..BareClientOptions::default()
    };
    let client = Client::of(&peer.url, options);
    let failure = client.ask("t", json!({}), None).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.data),
        (FailureKind::TimedOut, Some(json!({"code": -32000})))
    );
    client.stop().await;

    let client = Client::of(&peer.url, BareClientOptions::default());
    let meta = CallContext::new(Arc::new(Principal::anonymous()))
        .with_deadline(Instant::now() + Duration::from_millis(50));
    let failure = client.ask("t", json!({}), Some(meta)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::TimedOut);
    client.stop().await;
}

/// Goal: a peer that closes without a response is unavailable. Method: a connection that ends after
/// the request.
#[tokio::test]
async fn broken_connections_are_unavailable() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\n{".to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for answer in [Vec::new(), half] {
            let (mut stream, _) = listener.accept().await.unwrap();
            next_request(&mut stream, &mut Vec::new()).await;
            stream.write_all(&answer).await.unwrap();
        }
    });
    let client = Client::of(&url, BareClientOptions::default());
    for _ in 0..2 {
        assert_eq!(
            client.ask("t", json!({}), None).await.unwrap_err().kind,
            FailureKind::Unavailable
        );
    }
    client.stop().await;
}

/// Goal: the number of calls in flight of one client is limited exactly. Method: a peer that
/// answers nothing, then all.
#[tokio::test]
async fn calls_in_flight_are_bounded() {
    let gate = Arc::new(Semaphore::new(0));
    let answer = |id: &Value| {
        http(
            "200 OK",
            json!({"jsonrpc":"2.0","id":id,"result":1}).to_string(),
        )
    };
    let mut peer = Peer::gated(answer, gate.clone()).await;
    let client = Client::of(&peer.url, BareClientOptions::default());
    let asks = (0..=PENDING_CALLS_MAX).map(|_| client.ask("t", json!({}), None));
    let all = futures::future::join_all(asks);
    let counted = async {
        for _ in 0..PENDING_CALLS_MAX {
            peer.request().await;
        }
        // All have been sent, because `join_all` polls each before it waits; the last can start
        // only once another was answered.
        let waiting = client.agent.snapshot();
        assert_eq!(
            (waiting.in_flight, waiting.mailbox_depth),
            (PENDING_CALLS_MAX, 1)
        );
        assert!(peer.requests.try_recv().is_err(), "one more than the limit");
        gate.add_permits(Semaphore::MAX_PERMITS);
        peer.request().await;
    };
    let (answers, ()) = tokio::join!(all, counted);
    assert!(answers.iter().all(Result::is_ok));
    client.stop().await;
}

/// Goal: only plain http and https URLs are accepted, without credentials. Method: rows.
#[test]
fn urls_are_checked() {
    for url in [
        "",
        "/mcp",
        "ftp://h/mcp",
        "file:///etc/passwd",
        "http://user@h/",
        "http://:pw@h/",
        "http://",
        "data:x",
    ] {
        let refused = BareMcpClient::new(url, BareClientOptions::default());
        assert!(matches!(refused, Err(BareClientError::Url)), "{url}");
    }
    assert!(BareMcpClient::new("https://clinic.example/mcp", BareClientOptions::default()).is_ok());
}
