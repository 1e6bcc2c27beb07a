//! Streams over connections that break.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use callboard_message::{Principal, PrincipalKind};
use callboard_rpc::{AccessControl, BearerVerifier, CredentialError, SseDecoder, SseLimits};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{Peer, Served, given, said, serving, soon};

/// Number of times that the connection is cut.
pub const CUTS: usize = 20;
/// Number of the artifact's pieces: with the task, the result and the end, events 1 to 203.
const PIECES: u64 = 200;

/// Proxy that closes each connection after some bytes of the response, [`CUTS`] times.
pub struct Cutting {
    pub address: SocketAddr,
    pub cut: Arc<AtomicUsize>,
}

impl Cutting {
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, cut) = (
            listener.local_addr().unwrap(),
            Arc::new(AtomicUsize::new(0)),
        );
        let count = cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, count.clone()));
            }
        });
        Self { address, cut }
    }
}

async fn carry(client: TcpStream, server: SocketAddr, cut: Arc<AtomicUsize>) {
    let server = TcpStream::connect(server).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    tokio::spawn(async move { drop(tokio::io::copy(&mut from_client, &mut to_server).await) });
    let nth = cut.load(Ordering::SeqCst);
    // At another position each time: in the head, in a line, between two events.
    let mut left = match nth {
        0 => 150,
        1..CUTS => 1_200 + 150 * nth,
        _ => usize::MAX,
    };
    let mut buffer = [0; 1024];
    while left > 0 {
        let Ok(read @ 1..) = from_server.read(&mut buffer).await else {
            return;
        };
        let passed = read.min(left);
        left -= passed;
        if to_client.write_all(&buffer[..passed]).await.is_err() {
            return;
        }
    }
    cut.fetch_add(1, Ordering::SeqCst);
}

/// Subscriber that records each event by its number.
#[derive(Default)]
struct SubscriberLog {
    events: BTreeMap<u64, Value>,
    last: Option<u64>,
    connections: usize,
    is_over: bool,
}

impl SubscriberLog {
    /// Reads a stream until it ends or breaks.
    async fn read(&mut self, response: reqwest::Response) {
        self.connections += 1;
        let (mut response, mut decoder) = (response, SseDecoder::new(&SseLimits::default()));
        while let Ok(Some(chunk)) = soon(response.chunk()).await {
            decoder.push(&chunk);
            while let Some(event) = decoder.next().unwrap() {
                let number: u64 = event.id.as_deref().unwrap().parse().unwrap();
                let told: Value = serde_json::from_slice(&event.data).unwrap();
                let told = told["result"].clone();
                let is_task = told.get("task").is_some();
                self.is_over |= told["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED";
                match self.last {
                    // The task is repeated in its state after the last event.
                    Some(last) if is_task => assert_eq!(number, last, "the task is another"),
                    Some(last) => {
                        assert_eq!(number, last + 1, "an event is missing, or came twice")
                    }
                    None => assert!(is_task),
                }
                self.last = Some(number);
                if !(is_task && self.connections > 1) {
                    assert!(
                        self.events.insert(number, told).is_none(),
                        "{number} came twice"
                    );
                }
            }
        }
    }

    fn pieces(&self) -> Vec<String> {
        let update = |told: &Value| {
            let artifact = &told["artifactUpdate"]["artifact"];
            (artifact["artifactId"] == "pieces")
                .then(|| artifact["parts"][0]["text"].as_str().unwrap().to_owned())
        };
        self.events.values().filter_map(update).collect()
    }
}

/// Goal: a subscriber whose connection is cut 20 times gets every event once. Method: a proxy that
/// closes the socket after some bytes each time, 200 pieces and their result; the subscriber sends
/// only the last id that it received.
#[tokio::test]
async fn twenty_cuts() {
    let served = Served::start().await;
    let way = Cutting::before(served.address).await;
    let peer = Peer::new(format!("http://{}", way.address))
        .with("A2A-Version", "1.0")
        .with("Connection", "close");
    let body = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let mut told = SubscriberLog::default();
    let (mut id, message) = (None, given("m-1", json!({ "count": PIECES }), "pieces"));
    while !told.is_over {
        let asked = match (&id, told.last) {
            (Some(id), Some(last)) => {
                let again = peer.with("Last-Event-ID", &last.to_string());
                again
                    .request(reqwest::Method::POST, "")
                    .body(body("SubscribeToTask", json!({ "id": id })))
            }
            _ => {
                // Cut in the head: whether there is a task is unknown, so the message is repeated
                // with the same key.
                let mut message = message.clone();
                message["metadata"]["callboard/key"] = "once".into();
                let params = json!({ "message": message });
                peer.request(reqwest::Method::POST, "")
                    .body(body("SendStreamingMessage", params))
            }
        };
        let Ok(response) = soon(asked.header("Content-Type", "application/json").send()).await
        else {
            continue;
        };
        told.read(response).await;
        id = told
            .events
            .values()
            .find_map(|told| told["task"]["id"].as_str())
            .map(str::to_owned);
        assert!(
            told.connections <= 2 * CUTS,
            "it doesn't get on: {:?}",
            told.last
        );
    }
    assert!(
        way.cut.load(Ordering::SeqCst) >= CUTS,
        "cut {} times",
        way.cut.load(Ordering::SeqCst)
    );
    assert_eq!(
        told.pieces(),
        (1..=PIECES)
            .map(|piece| piece.to_string())
            .collect::<Vec<_>>()
    );
    served.stop().await;
}

/// Authentication with one key until it is revoked, and the number of its verifications.
#[derive(Clone, Default)]
pub struct Alice(Arc<AtomicBool>, Arc<AtomicUsize>);

impl Alice {
    pub fn access(&self) -> AccessControl {
        AccessControl::Bearer(Arc::new([Box::new(self.clone())]))
    }

    pub fn revoke(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl BearerVerifier for Alice {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let is_good = token == b"alice" && !self.0.load(Ordering::SeqCst);
        let alice = Principal {
            kind: PrincipalKind::ApiKey,
            ..Principal::agent("alice")
        };
        Some(is_good.then_some(alice).ok_or(CredentialError::Wrong))
    }
}

/// Goal: a stream opened with a key ends soon after the key is revoked, with an error. Method: a
/// message's stream and a subscription, both open when the key is revoked.
#[tokio::test]
async fn revoked_keys_end_streams() {
    let alice = Alice::default();
    let access = alice.access();
    let served = Served::with(|options| options.access = access).await;
    let peer = served.client().key("alice");
    let mut sent = peer
        .stream(
            "SendStreamingMessage",
            json!({ "message": given("m-1", json!({}), "linger") }),
        )
        .await;
    let task = sent.event().await.unwrap()["result"]["task"]["id"].clone();
    let mut followed = peer.stream("SubscribeToTask", json!({ "id": task })).await;
    assert_eq!(
        followed.event().await.unwrap()["result"]["task"]["id"],
        task
    );
    alice.revoke();
    for stream in [sent, followed] {
        assert!(
            stream
                .rest()
                .await
                .ends_with(": the credential was revoked or has expired\n\n")
        );
    }
    served.stop().await;
}

/// Goal: a key in `X-API-Key` is verified again during a stream as one in `Authorization` is, so
/// that the stream lasts as long as the key. Method: a stream whose key is verified several times
/// before it is revoked.
#[tokio::test]
async fn other_headers_keep_streams_open() {
    let alice = Alice::default();
    let access = alice.access();
    let served = Served::with(|options| options.access = access).await;
    let peer = served.client().with("X-API-Key", "alice");
    let message = json!({ "message": given("m-1", json!({}), "linger") });
    let mut sent = peer.stream("SendStreamingMessage", message).await;
    assert!(sent.event().await.unwrap()["result"]["task"]["id"].is_string());
    let verified = || alice.1.load(Ordering::SeqCst);
    let begun = verified();
    soon(async {
        while verified() < begun + 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    alice.revoke();
    let rest = sent.rest().await;
    assert!(
        rest.ends_with(": the credential was revoked or has expired\n\n"),
        "{rest}"
    );
    served.stop().await;
}

/// Goal: a subscription ends when the server stops, so that it doesn't delay the end; the stream of a
/// sent message goes on. Method: both on a task that lingers.
#[tokio::test]
async fn subscriptions_end_when_the_server_stops() {
    let (served, peer) = serving(|_| {}).await;
    let peer = peer.with("A2A-Version", "1.0");
    let message = json!({ "message": said("m-1", "{}", "linger") });
    let mut sent = peer.stream("SendStreamingMessage", message).await;
    let task = sent.event().await.unwrap()["result"]["task"].clone();
    let id = json!({ "id": task["id"] });
    let mut subscription = peer.stream("SubscribeToTask", id.clone()).await;
    assert!(soon(subscription.event()).await.is_some());
    served.server.end_subscriptions();
    while soon(subscription.event()).await.is_some() {}
    let canceled = peer.result("CancelTask", id).await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
    let told = soon(sent.results()).await;
    assert_eq!(
        told.last().unwrap()["statusUpdate"]["status"]["state"],
        "TASK_STATE_CANCELED"
    );
    served.stop().await;
}
