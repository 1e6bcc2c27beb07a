//! Limits of the client's WebSocket.

use callboard_mcp::outbound::{Era, McpClientOptions};
use callboard_message::FailureKind;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use crate::client_kit::{Client, joined, only, tool};

const CALL: &str = "callboard.tools.call";
const BYTES_MAX: usize = 10_000;
/// Multiple of the limit up to which a message is read, so that it can be skipped.
const DROPPABLE_FACTOR: usize = 4;

/// A server's end of a connection.
struct Peer(WebSocketStream<TcpStream>);

impl Peer {
    async fn accept(listener: TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        #[expect(
            clippy::result_large_err,
            reason = "the callback's type is the library's"
        )]
        let accept = |_: &Request, mut response: Response| {
            response
                .headers_mut()
                .insert("sec-websocket-protocol", "mcp".parse().unwrap());
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, accept).await;
        let mut peer = Self(socket.unwrap());
        let hello = peer.next("initialize").await.unwrap();
        let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
        peer.say(json!({ "jsonrpc": "2.0", "id": hello["id"], "result": result }).to_string())
            .await;
        peer
    }

    /// Returns the next request of this method; `None` at the end.
    async fn next(&mut self, method: &str) -> Option<Value> {
        while let Some(Ok(Message::Text(text))) = self.0.next().await {
            let sent: Value = serde_json::from_str(&text).unwrap();
            if sent["method"] == method {
                return Some(sent);
            }
        }
        None
    }

    async fn say(&mut self, text: String) {
        self.0.send(Message::text(text)).await.unwrap();
    }
}

async fn listen() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
    let limits = callboard_rpc::DecodeLimits {
        body_bytes_max: BYTES_MAX,
        ..Default::default()
    };
    let options = McpClientOptions {
        limits,
        ..only(Era::Legacy)
    };
    (listener, Client::at(&url, options))
}

/// Returns the answer to a request with this id, of this length.
fn answer(id: &Value, bytes: usize) -> String {
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } }).to_string();
    format!("{answer}{}", " ".repeat(bytes - answer.len()))
}

/// Goal: the client closes a WebSocket as soon as a frame header declares more than it reads to skip a
/// message. Method: a server that answers a call with the header of 2^40 bytes, and of one byte too
/// many, and waits.
#[tokio::test]
async fn declared_lengths_are_bounded() {
    for declared in [1 << 40, (BYTES_MAX * DROPPABLE_FACTOR) as u64 + 1] {
        let (listener, client) = listen().await;
        let server = tokio::spawn(async move {
            let mut peer = Peer::accept(listener).await;
            peer.next("tools/call").await.unwrap();
            let head = [&[0x81, 127][..], &u64::to_be_bytes(declared)].concat();
            peer.0.get_mut().write_all(&head).await.unwrap();
            assert!(peer.next("none").await.is_none());
        });
        let failed = joined(client.ask(CALL, tool("t", json!({}))))
            .await
            .unwrap_err();
        assert_eq!(failed.kind, FailureKind::Overloaded);
        client.stop().await;
        joined(server).await;
    }
}

/// Goal: one message over the limit fails the call that it answers and no other, and the connection
/// goes on. Method: of two calls the first gets a result of one byte more than the limit, the second
/// one at the limit, after a message of the largest size that is skipped; then another call.
/// Rows: M-17.
#[tokio::test]
async fn oversized_messages_fail_their_call() {
    let (listener, client) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(listener).await;
        let one = peer.next("tools/call").await.unwrap();
        let two = peer.next("tools/call").await.unwrap();
        peer.say(answer(&one["id"], BYTES_MAX + 1)).await;
        peer.say(" ".repeat(BYTES_MAX * DROPPABLE_FACTOR)).await;
        peer.say(answer(&two["id"], BYTES_MAX)).await;
        let three = peer.next("tools/call").await.unwrap();
        peer.say(answer(&three["id"], BYTES_MAX)).await;
        assert!(peer.next("none").await.is_none());
    });
    let calls = [(); 2].map(|()| client.ask(CALL, tool("t", json!({}))));
    let mut failed = Vec::new();
    for call in calls {
        failed.extend(joined(call).await.err());
    }
    let [failed] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert_eq!(failed.kind, FailureKind::Overloaded);
    assert!(failed.message.contains("10000"), "{failed}");
    joined(client.ask(CALL, tool("t", json!({}))))
        .await
        .unwrap();
    client.stop().await;
    joined(server).await;
}
