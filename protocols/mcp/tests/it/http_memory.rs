//! Memory of a server whose clients send half of their bodies, or don't read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::inbound::{CompatOptions, ListenOptions, McpServerOptions};
use callboard_message::Principal;
use callboard_rpc::{
    AccessControl, BearerVerifier, BufferBudget, BufferLimits, CredentialError,
    UNCOUNTED_REQUEST_BYTES_MAX,
};
use futures::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

use crate::http_compat::Socket;
use crate::kit::{Server, call, header, soon};
use crate::mcp_client::{BOTH, initialize};
use crate::mcp_kit::Served;

/// Verifier that takes any token as the principal's id.
struct ByName;

impl BearerVerifier for ByName {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        Some(Ok(Principal::agent(String::from_utf8_lossy(token))))
    }
}

fn options() -> McpServerOptions {
    McpServerOptions {
        access: AccessControl::Bearer(Arc::new([Box::new(ByName) as Box<dyn BearerVerifier>])),
        // No body may be rejected as late on a busy machine.
        body_timeout: Duration::from_secs(60),
        ..McpServerOptions::default()
    }
}

fn budget(bytes_max: usize) -> (BufferBudget, ListenOptions) {
    let budget = BufferBudget::new(BufferLimits {
        bytes_max,
        principal_percent: 25,
    });
    let listen = ListenOptions {
        buffers: budget.clone(),
        ..ListenOptions::default()
    };
    (budget, listen)
}

async fn all_released(budget: &BufferBudget) {
    soon(async {
        while budget.used_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn head(name: &str, bytes: usize) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{BOTH}\
         Authorization: Bearer {name}\r\nContent-Length: {bytes}\r\n\r\n"
    )
}

/// Sends these bytes on a connection of its own, as far as the server takes them, and reports the
/// head of the response, if one comes. The connection stays open until the task is aborted.
async fn send_and_wait(address: SocketAddr, bytes: Vec<u8>, heads: mpsc::Sender<String>) {
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let sending = async {
        let _ = writer.write_all(&bytes).await;
    };
    let mut response = Vec::new();
    let reading = async {
        while !response.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            if !matches!(reader.read_buf(&mut response).await, Ok(1..)) {
                break;
            }
        }
    };
    tokio::join!(sending, reading);
    let response = String::from_utf8_lossy(&response).into_owned();
    heads.send(response).await.unwrap();
    std::future::pending().await
}

/// Goal: half-sent bodies are bounded: one principal gets half of a quiet node, its other requests
/// get 503 with `Retry-After`, another's are served, as are small ones, and all is released. Method:
/// 150 bodies that end early, then requests of two principals.
#[tokio::test]
async fn half_sent_bodies_are_bounded() {
    const MAX: usize = 4 * 1024 * 1024;
    const BODY: usize = 400 * 1024;
    const CLIENTS: usize = 150;
    let (budget, listen) = budget(MAX);
    let server = Served::on(options(), &listen).await;
    let (heads, mut refused) = mpsc::channel(CLIENTS);
    let half = [head("mallory", BODY).into_bytes(), vec![b' '; BODY - 1]].concat();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(send_and_wait(server.address, half.clone(), heads.clone())))
        .collect();
    let mut refusals = Vec::new();
    let settled = async {
        let mut waiting = CLIENTS;
        while waiting * BODY > MAX / 2 || budget.used_bytes() != waiting * BODY {
            assert!(budget.used_bytes() <= MAX / 2);
            match refused.try_recv() {
                Ok(head) => {
                    waiting -= 1;
                    refusals.push(head);
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), settled)
        .await
        .expect("the bodies aren't bounded");
    assert!(refusals.len() < CLIENTS);
    // A connection may be reset before its response is read.
    let read: Vec<_> = refusals.iter().filter(|head| !head.is_empty()).collect();
    assert!(!read.is_empty());
    for head in read {
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        assert_eq!(header(head, "retry-after"), Some("5"), "{head}");
    }
    let hello = initialize("2025-11-25", &json!({})).to_string();
    for (name, bytes, status) in [
        ("ana", BODY, 200),
        ("mallory", BODY, 503),
        ("mallory", UNCOUNTED_REQUEST_BYTES_MAX, 200),
    ] {
        let body = format!("{hello}{}", " ".repeat(bytes - hello.len()));
        let request = format!("{}{body}", head(name, bytes)).into_bytes();
        let (heads, mut replies) = mpsc::channel(1);
        let client = tokio::spawn(send_and_wait(server.address, request, heads));
        let reply = soon(replies.recv()).await.unwrap();
        client.abort();
        let was_reset = status == 503 && reply.is_empty();
        let is_status = reply.starts_with(&format!("HTTP/1.1 {status}"));
        assert!(was_reset || is_status, "{name} {bytes}: {reply}");
    }
    for client in clients {
        client.abort();
    }
    all_released(&budget).await;
    server.stop().await;
}

/// Goal: readers that don't read are bounded: a principal's oldest large responses are cut off, and
/// another's stay whole. Method: six large responses that nobody reads, a smaller one of another
/// principal before them and one after; then all are read.
#[tokio::test]
async fn readers_that_do_not_read_are_bounded() {
    const MAX: usize = 40 * 1024 * 1024;
    /// More than the kernel takes for a connection that isn't read.
    const RESPONSE: usize = 8 * 1024 * 1024;
    const SMALL: usize = 512 * 1024;
    const CLIENTS: usize = 6;
    let (budget, listen) = budget(MAX);
    let options = McpServerOptions {
        access: options().access,
        ..McpServerOptions::bare()
    };
    let server = Server::with(options, &listen).await;
    let ask = async |name: &str, bytes: usize| {
        // So that the kernel holds little of the response.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 * 1024).unwrap();
        let mut stream = soon(socket.connect(server.address)).await.unwrap();
        let body = call("1", "blob", &format!(r#"{{"bytes":{bytes}}}"#));
        let head = head(name, body.len()).replace(BOTH, "Connection: close\r\n");
        let request = format!("{head}{body}");
        soon(stream.write_all(request.as_bytes())).await.unwrap();
        let mut status = [0; 12];
        soon(stream.read_exact(&mut status)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 200");
        stream
    };
    let early = ask("ana", SMALL).await;
    let mut slow = Vec::new();
    for _ in 0..CLIENTS {
        slow.push(ask("mallory", RESPONSE).await);
        assert!(budget.used_bytes() <= MAX / 2 + RESPONSE + SMALL);
    }
    let late = ask("ana", SMALL).await;
    // Up to the end of the response or of the connection.
    let read = async |mut stream: TcpStream| {
        let mut bytes = Vec::new();
        let _ = soon(stream.read_to_end(&mut bytes)).await;
        bytes.len()
    };
    assert!(read(early).await >= SMALL);
    assert!(read(late).await >= SMALL);
    let read = join_all(slow.into_iter().map(read)).await;
    let whole = read.iter().filter(|bytes| **bytes >= RESPONSE).count();
    assert!((1..=CLIENTS / 2).contains(&whole), "{read:?}");
    all_released(&budget).await;
    server.stop().await;
}

/// Goal: a message that the budget doesn't allow is answered with an error, and its socket closed
/// with 1013; others go on, and large messages come whole, in frames. Method: a half-sent message
/// one byte over the share, on one of two sockets; a large text on the other.
#[tokio::test]
async fn sockets_are_bounded() {
    const MAX: usize = 4 * 1024 * 1024;
    const TEXT_BYTES: usize = 200 * 1024;
    const FRAME_BYTES_MAX: usize = 16 * 1024;
    /// Header of a frame with a long payload.
    const HEADER_BYTES: usize = 14;
    let (budget, listen) = budget(MAX);
    let compat = CompatOptions {
        websocket: true,
        ..CompatOptions::default()
    };
    let server = Served::on(
        McpServerOptions {
            compat,
            ..options()
        },
        &listen,
    )
    .await;
    let open = async |name: &str| {
        Socket::open_with(&server, &format!("Authorization: Bearer {name}\r\n")).await
    };
    let (mut honest, mut greedy) = (open("ana").await, open("mallory").await);
    // Not a byte more than is rejected: a connection with unread bytes would be reset.
    greedy.send_half(MAX, MAX / 2 + 1 - HEADER_BYTES).await;
    let (_, error) = greedy.frame().await.unwrap();
    let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
    assert_eq!(error["error"]["code"], -3, "{error}");
    let (_, reason) = greedy.frame().await.unwrap();
    assert!(reason.starts_with(&1013_u16.to_be_bytes()), "{reason:?}");
    let text = "é".repeat(TEXT_BYTES / 2);
    honest.send(initialize("2025-11-25", &json!({}))).await;
    honest.frame().await.unwrap();
    let params = json!({ "name": "echo", "arguments": { "text": text } });
    honest
        .send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
        .await;
    let (mut answer, mut parsed) = (Vec::new(), None);
    while parsed.is_none() {
        let (kind, payload) = honest.frame().await.unwrap();
        assert_eq!(kind == 0, !answer.is_empty(), "a continuation");
        assert!(payload.len() <= FRAME_BYTES_MAX);
        answer.extend(payload);
        parsed = serde_json::from_slice::<serde_json::Value>(&answer).ok();
    }
    assert_eq!(parsed.unwrap()["result"]["content"][0]["text"], text);
    drop((honest, greedy));
    all_released(&budget).await;
    server.stop().await;
}
