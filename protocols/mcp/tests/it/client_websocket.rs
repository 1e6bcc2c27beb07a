//! Limits of the client's WebSocket.

use callboard_mcp::outbound::{Era, McpClientOptions};
use callboard_message::FailureKind;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use crate::client_kit::{Client, joined, only, tool};

const CALL: &str = "callboard.tools.call";

/// Goal: the client closes a WebSocket as soon as a frame header declares more than the limit.
/// Method: a server that answers a call with the header of 2^40 bytes, and of one byte over the
/// limit, and waits; at the limit the answer is accepted.
#[tokio::test]
async fn declared_lengths_are_bounded() {
    const BYTES_MAX: usize = 10_000;
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[]}}"#;
    let at_limit = format!("{answer}{}", " ".repeat(BYTES_MAX - answer.len())).into_bytes();
    for (declared, payload) in [
        (1 << 40, vec![]),
        (BYTES_MAX as u64 + 1, vec![]),
        (BYTES_MAX as u64, at_limit),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
        let fits = !payload.is_empty();
        let server = tokio::spawn(async move {
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
            let mut socket = tokio_tungstenite::accept_hdr_async(stream, accept)
                .await
                .unwrap();
            while let Some(Ok(Message::Text(text))) = socket.next().await {
                let sent: Value = serde_json::from_str(&text).unwrap();
                match sent["method"].as_str() {
                    Some("initialize") => {
                        let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
                        let response =
                            json!({ "jsonrpc": "2.0", "id": sent["id"], "result": result });
                        socket
                            .send(Message::text(response.to_string()))
                            .await
                            .unwrap();
                    }
                    Some("tools/call") => {
                        let frame =
                            [&[0x81, 127][..], &u64::to_be_bytes(declared), &payload].concat();
                        socket.get_mut().write_all(&frame).await.unwrap();
                    }
                    _ => {}
                }
            }
        });
        let limits = callboard_rpc::DecodeLimits {
            body_bytes_max: BYTES_MAX,
            ..Default::default()
        };
        let client = Client::at(
            &url,
            McpClientOptions {
                limits,
                ..only(Era::Legacy)
            },
        );
        match joined(client.ask(CALL, tool("t", json!({})))).await {
            Ok(result) => assert!(fits, "{result}"),
            Err(failed) => assert!(
                !fits && failed.kind == FailureKind::Overloaded,
                "{failed:?}"
            ),
        }
        client.stop().await;
        joined(server).await;
    }
}
