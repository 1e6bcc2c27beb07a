use std::net::SocketAddr;

use callboard_mcp::inbound::{
    CompatOptions, ListenOptions, McpServer, McpServerOptions, NamedServers, serve_named,
};
use callboard_rpc::UnauthenticatedAccess;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::{Connection, header, soon};
use crate::lingering::{Seen, lingering};
use crate::mcp_client::{Client, Streaming, initialize};
use crate::mcp_kit::{Everything, Served};

fn options() -> McpServerOptions {
    McpServerOptions {
        compat: CompatOptions {
            websocket: true,
            sse: true,
            ..CompatOptions::default()
        },
        ..McpServerOptions::default()
    }
}

/// A raw WebSocket client (RFC 6455): whole text frames, masked with zeros.
pub struct Socket {
    connection: Connection,
    bytes: Vec<u8>,
}

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

impl Socket {
    pub const HANDSHAKE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    async fn open(server: &Served) -> Self {
        Self::open_with(server, "").await
    }

    /// Opens a socket with additional header lines.
    pub async fn open_with(server: &Served, more: &str) -> Self {
        Self::open_at(server.address, more).await
    }

    async fn open_at(address: SocketAddr, more: &str) -> Self {
        let mut connection = Connection(soon(TcpStream::connect(address)).await.unwrap());
        let lines = format!(
            "{}Sec-WebSocket-Protocol: x, mcp\r\n{more}",
            Self::HANDSHAKE
        );
        let request = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
        connection.send(request.as_bytes()).await;
        let reply = Streaming::begin(connection).await;
        assert_eq!(
            (reply.status, header(&reply.head, "sec-websocket-protocol")),
            (101, Some("mcp"))
        );
        let (connection, bytes) = reply.into_parts();
        Self { connection, bytes }
    }

    async fn send_frame(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            length @ 0..126 => frame.push(0x80 | length as u8),
            length @ 126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.connection.send(&frame).await;
    }

    /// Sends the first `sent` bytes of a message, of which the header declares `declared`. The server
    /// may close the socket before it has read them.
    pub async fn send_half(&mut self, declared: usize, sent: usize) {
        let mut frame = vec![0x80 | TEXT, 0x80 | 127];
        frame.extend((declared as u64).to_be_bytes());
        frame.extend([0; 4]);
        frame.resize(frame.len() + sent, b' ');
        let _ = soon(self.connection.0.write_all(&frame)).await;
    }

    pub async fn send(&mut self, message: impl ToString) {
        self.send_frame(TEXT, message.to_string().as_bytes()).await;
    }

    /// Returns the next frame other than a ping; `None` if the socket is closed.
    pub async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            self.fill(2).await?;
            let kind = self.bytes[0] & 0x0F;
            let (head, length) = match self.bytes[1] {
                126 => {
                    self.fill(4).await?;
                    (
                        4,
                        u16::from_be_bytes(self.bytes[2..4].try_into().unwrap()).into(),
                    )
                }
                127 => {
                    self.fill(10).await?;
                    (
                        10,
                        u64::from_be_bytes(self.bytes[2..10].try_into().unwrap()) as usize,
                    )
                }
                length => (2, length.into()),
            };
            self.fill(head + length).await?;
            let payload = self.bytes[head..head + length].to_vec();
            self.bytes.drain(..head + length);
            if kind != PING {
                return Some((kind, payload));
            }
        }
    }

    async fn fill(&mut self, bytes: usize) -> Option<()> {
        while self.bytes.len() < bytes {
            if soon(self.connection.0.read_buf(&mut self.bytes))
                .await
                .unwrap_or(0)
                == 0
            {
                return None;
            }
        }
        Some(())
    }

    async fn message(&mut self) -> Value {
        let (kind, payload) = self.frame().await.expect("the socket is closed");
        assert_eq!(kind, TEXT, "{payload:?}");
        serde_json::from_slice(&payload).unwrap()
    }

    async fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        self.message().await
    }
}

/// Goal: a socket is a whole session: handshake, call, progress, question, change, cancellation, both eras. Method: one
/// socket through all of it.
/// Rows: M-52.
#[tokio::test]
async fn websocket_session() {
    let mut server = Served::with(options()).await;
    let mut socket = Socket::open(&server).await;
    socket
        .send(initialize("2025-11-25", &json!({ "roots": {} })))
        .await;
    assert_eq!(
        socket.message().await["result"]["protocolVersion"],
        "2025-11-25"
    );
    socket
        .send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    let call = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments });
    let echoed = socket
        .ask(1, "tools/call", call("echo", json!({ "text": "hi" })))
        .await;
    assert_eq!(echoed["result"]["content"][0]["text"], "hi");

    let mut counting = call("count", json!({ "steps": 1 }));
    counting["_meta"] = json!({ "progressToken": "p" });
    assert_eq!(
        socket.ask(2, "tools/call", counting).await["params"]["progress"],
        0
    );
    assert_eq!(socket.message().await["params"]["progress"], 1);
    assert_eq!(socket.message().await["id"], 2);

    let question = socket
        .ask(3, "tools/call", call("inquire", json!({ "what": "roots" })))
        .await;
    assert_eq!(question["method"], "roots/list");
    socket
        .send(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } }))
        .await;
    assert_eq!(
        socket.message().await["result"]["content"][0]["text"],
        "0 roots"
    );

    let told = socket
        .ask(
            4,
            "tools/call",
            call("announce", json!({ "what": "tools" })),
        )
        .await;
    let after = socket.message().await;
    let change = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    assert!([&told, &after].contains(&&change), "{told} {after}");

    socket
        .send(json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call("linger", json!({})) }))
        .await;
    assert_eq!(server.watch.event().await, Seen::Began);
    assert_eq!(socket.ask(5, "ping", json!({})).await["result"], json!({}));
    assert_eq!(
        socket.ask(5, "tools/list", json!({})).await["error"]["code"],
        -32600
    );
    socket.send(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } })).await;
    assert_eq!(server.watch.event().await, Seen::Cancelled);
    assert_eq!(socket.ask(6, "ping", json!({})).await["id"], 6);

    socket.send_frame(PING, b"here").await;
    assert_eq!(socket.frame().await, Some((PONG, b"here".to_vec())));
    socket.send_frame(CLOSE, &1000_u16.to_be_bytes()).await;
    assert_eq!(socket.frame().await.map(|(kind, _)| kind), Some(CLOSE));
    server.stop().await;
}

/// Goal: invalid messages have their codes and don't affect the socket. Method: rows on one socket,
/// a ping after each.
#[tokio::test]
async fn bad_messages_on_a_websocket() {
    let server = Served::with(options()).await;
    let mut socket = Socket::open(&server).await;
    assert_eq!(
        socket.ask(0, "tools/list", json!({})).await["error"]["code"],
        -32600
    );
    socket.send(initialize("2025-11-25", &json!({}))).await;
    socket.message().await;
    let deep = "[".repeat(100_000);
    for (code, id, message) in [
        (-32700, json!(null), ""),
        (-32700, json!(null), "{"),
        (-32700, json!(null), "\u{feff}{}"),
        (-32700, json!(null), "{\"a\":\"\0\"}"),
        (-32600, json!(null), &deep),
        (-32600, json!(null), "[]"),
        (
            -32600,
            json!(null),
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        ),
        (
            -32600,
            json!(null),
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        ),
        (
            -32600,
            json!(null),
            r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"ping"}"#,
        ),
        (
            -32600,
            json!(7),
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
        ),
        (
            -32602,
            json!(7),
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":7}"#,
        ),
        (
            -32601,
            json!("a"),
            r#"{"jsonrpc":"2.0","id":"a","method":"nothing"}"#,
        ),
    ] {
        socket.send(message).await;
        let answer = socket.message().await;
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &id),
            "{message:.80}"
        );
        assert_eq!(socket.ask(1, "ping", json!({})).await["result"], json!({}));
    }
    for silent in [
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"nothing"}"#,
    ] {
        socket.send(silent).await;
        assert_eq!(socket.ask(1, "ping", json!({})).await["result"], json!({}));
    }
    server.stop().await;
}

/// Goal: invalid frames close the socket with their reason, and no other socket. Method: binary,
/// invalid UTF-8, at the limit and one over.
#[tokio::test]
async fn broken_frames_end_a_websocket() {
    const BYTES_MAX: usize = 10_000;
    let mut options = options();
    options.inbound.limits.body_bytes_max = BYTES_MAX;
    let server = Served::with(options).await;
    let mut good = Socket::open(&server).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    good.send(format!("{ping}{}", " ".repeat(BYTES_MAX - ping.len())))
        .await;
    assert_eq!(good.message().await["result"], json!({}));
    for (kind, payload, code) in [
        (2, b"{}".to_vec(), Some(1003_u16)),
        (TEXT, vec![0xFF, 0xFE], None),
        (TEXT, vec![b' '; BYTES_MAX + 1], Some(1009)),
    ] {
        let mut socket = Socket::open(&server).await;
        socket.send_frame(kind, &payload).await;
        if let Some((CLOSE, reason)) = socket.frame().await {
            assert!(
                code.is_none_or(|code| reason.starts_with(&code.to_be_bytes())),
                "{reason:?}"
            );
        }
        assert_eq!(socket.frame().await, None);
    }
    assert_eq!(good.ask(2, "ping", json!({})).await["result"], json!({}));
    server.stop().await;
}

/// Goal: a message over the limit is rejected as soon as a header declares it, so that nothing of
/// it is buffered. Method: the header alone, of one byte over the limit and of 2^40, and of a
/// fragment that exceeds it; at the limit, it is answered.
#[tokio::test]
async fn declared_lengths_end_a_websocket() {
    const BYTES_MAX: usize = 10_000;
    let mut options = options();
    options.inbound.limits.body_bytes_max = BYTES_MAX;
    let server = Served::with(options).await;
    let header =
        |kind: u8, bytes: u64| [&[kind, 0x80 | 127][..], &bytes.to_be_bytes(), &[0; 4]].concat();
    let (first, last) = (TEXT, 0x80);
    let one_over = [
        header(first, 6_000),
        vec![b' '; 6_000],
        header(last, BYTES_MAX as u64 - 5_999),
    ]
    .concat();
    for sent in [
        header(0x80 | TEXT, 1 << 40),
        header(0x82, 1 << 40),
        header(0x80 | TEXT, BYTES_MAX as u64 + 1),
        one_over,
    ] {
        let mut socket = Socket::open(&server).await;
        socket.connection.send(&sent).await;
        let (kind, reason) = socket.frame().await.expect("no close frame");
        assert_eq!((kind, &reason[..2]), (CLOSE, &1009_u16.to_be_bytes()[..]));
        assert_eq!(socket.frame().await, None, "the connection ends");
    }
    let mut socket = Socket::open(&server).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.as_bytes();
    let rest = BYTES_MAX - ping.len();
    let whole = [
        header(first, ping.len() as u64),
        ping.into(),
        header(last, rest as u64),
        vec![b' '; rest],
    ]
    .concat();
    socket.connection.send(&whole).await;
    assert_eq!(socket.message().await["result"], json!({}));
    server.stop().await;
}

/// Goal: both transports are off by default, and check the source when on; a slash at the end changes
/// nothing; another path tells where MCP is. Method: their URLs, by option and source.
/// Rows: X-4.
#[tokio::test]
async fn off_unless_configured() {
    let (off, on) = (Served::start().await, Served::with(options()).await);
    let socket = format!("GET /mcp HTTP/1.1\r\n{}", Socket::HANDSHAKE);
    let events = "GET /sse HTTP/1.1\r\nAccept: text/event-stream\r\n";
    // A page that the listener itself serves.
    let own = format!("Origin: http://localhost:{}\r\n", on.address.port());
    for (server, request, source, status) in [
        (&off, &*socket, "", 405),
        (&on, &*socket, "", 101),
        (&on, &*socket, "Origin: http://evil.example\r\n", 403),
        (&on, &*socket, "Origin: http://localhost:3000\r\n", 403),
        (&on, &*socket, &*own, 101),
        (&on, "GET /mcp HTTP/1.1\r\nUpgrade: websocket\r\n", "", 400),
        (&off, events, "", 404),
        (&on, events, "", 200),
        (&on, events, "Origin: http://evil.example\r\n", 403),
        (&on, "GET /sse HTTP/1.1\r\n", "", 406),
        (
            &on,
            "GET /sse/ HTTP/1.1\r\nAccept: text/event-stream\r\n",
            "",
            200,
        ),
        (&off, "GET /mcp/ HTTP/1.1\r\n", "", 406),
    ] {
        let client: Client = server.client("", "");
        let reply = client
            .send(&format!("{request}{source}Host: localhost\r\n\r\n"))
            .await;
        assert_eq!(reply.status, status, "{request}{source}");
    }
    let mut connection = off.connect().await;
    connection
        .send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    let reply = connection.reply().await;
    assert_eq!(reply.status, 404);
    assert_eq!(
        reply.body,
        "not found; MCP is served at /mcp, /agents/{name}/mcp\n"
    );
    off.stop().await;
    on.stop().await;
}

/// Goal: a request through a proxy isn't taken for one of this machine, unless the listener is
/// declared to be behind one. Method: a header of each kind at every URL, with each trust.
#[tokio::test]
async fn forwarded_requests() {
    let trusting = |trust: UnauthenticatedAccess| {
        Served::with(McpServerOptions {
            access: trust.into(),
            ..options()
        })
    };
    let operator = trusting(UnauthenticatedAccess::LoopbackOperator).await;
    let (anonymous, proxied) = (
        trusting(UnauthenticatedAccess::Anonymous).await,
        trusting(UnauthenticatedAccess::BehindProxy).await,
    );
    let hello = initialize("2025-11-25", &json!({})).to_string();
    let hello = format!(
        "Accept: */*\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        hello.len()
    ) + "|"
        + &hello;
    let socket = format!("GET /mcp HTTP/1.1\r\n{}|", Socket::HANDSHAKE);
    for (request, status) in [
        (format!("POST /mcp HTTP/1.1\r\n{hello}"), 200),
        (socket, 101),
        (
            "GET /sse HTTP/1.1\r\nAccept: text/event-stream\r\n|".to_owned(),
            200,
        ),
        (
            format!("POST /messages?sessionId=x HTTP/1.1\r\n{hello}"),
            404,
        ),
        (
            "GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\n|".to_owned(),
            400,
        ),
    ] {
        let (head, body) = request.split_once('|').unwrap();
        for header in [
            "",
            "X-Forwarded-For: 203.0.113.9",
            "forwarded: for=203.0.113.9",
            "Via: 1.1 x",
            "CF-Connecting-IP: 203.0.113.9",
        ] {
            let line = if header.is_empty() {
                String::new()
            } else {
                format!("{header}\r\n")
            };
            let forwarded = if header.is_empty() { status } else { 403 };
            for (server, status) in [
                (&operator, forwarded),
                (&anonymous, forwarded),
                (&proxied, status),
            ] {
                let reply = server
                    .client("", "")
                    .send(&format!("{head}{line}Host: localhost\r\n\r\n{body}"))
                    .await;
                assert_eq!(reply.status, status, "{head}{line}");
                if status == 403 {
                    assert!(
                        reply.rest().await.contains("configure `keys`"),
                        "the remedy is told"
                    );
                }
            }
        }
    }
    // nginx forwards by HTTP/1.0 unless configured otherwise, and adds no header.
    let (head, body) = hello.split_once('|').unwrap();
    for (server, status) in [(&operator, 403), (&anonymous, 403), (&proxied, 200)] {
        let request = format!("POST /mcp HTTP/1.0\r\n{head}Host: localhost\r\n\r\n{body}");
        assert_eq!(server.client("", "").send(&request).await.status, status);
    }
    for server in [operator, anonymous, proxied] {
        server.stop().await;
    }
}

/// Goal: HTTP+SSE as in 2024-11-05: the stream names the URL for posting and carries every answer,
/// its end ends the session. Method: a session through call, progress, question and end.
/// Rows: H-15.
#[tokio::test]
async fn http_with_sse() {
    let mut server = Served::with(options()).await;
    let client = server.client("", "");
    let get = "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    let mut stream = client.send(get).await;
    let endpoint = stream.event().await.unwrap();
    assert_eq!(endpoint.name.as_deref(), Some("endpoint"));
    let post = |to: &str, body: &str| {
        let head =
            format!("POST {to} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let to = endpoint.data;
    let call = |id: i64, tool: &str, arguments: Value| {
        let params =
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    };
    let hello = initialize("2024-11-05", &json!({ "roots": {} })).to_string();
    assert_eq!(client.send(&post(&to, &hello)).await.status, 202);
    assert_eq!(
        stream.message().await["result"]["protocolVersion"],
        "2024-11-05"
    );
    assert_eq!(
        client
            .send(&post(&to, &call(1, "count", json!({ "steps": 0 }))))
            .await
            .status,
        202
    );
    assert_eq!(stream.message().await["params"]["progressToken"], 1);
    assert_eq!(stream.message().await["id"], 1);
    client
        .send(&post(&to, &call(2, "inquire", json!({ "what": "roots" }))))
        .await;
    let question = stream.message().await;
    let answer =
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } }).to_string();
    assert_eq!(client.send(&post(&to, &answer)).await.status, 202);
    assert_eq!(
        stream.message().await["result"]["content"][0]["text"],
        "0 roots"
    );
    assert_eq!(client.send(&post(&to, "{")).await.status, 400);
    for unknown in ["/messages", "/messages?session=", "/messages?session=x"] {
        assert_eq!(
            client.send(&post(unknown, &hello)).await.status,
            404,
            "{unknown}"
        );
    }
    client.send(&post(&to, &call(3, "linger", json!({})))).await;
    assert_eq!(server.watch.event().await, Seen::Began);
    drop(stream);
    assert_eq!(server.watch.event().await, Seen::Cancelled);
    let gone = async { while client.send(&post(&to, &hello)).await.status != 404 {} };
    soon(gone).await;
    server.stop().await;
}

/// Goal: HTTP+SSE names the URL for posting beside the stream, at the server's path and at each
/// named server's, with a slash or without. Method: a session at each URL; other names, and a
/// server without HTTP+SSE, have none.
#[tokio::test]
async fn sse_of_named_servers() {
    let system = callboard_runtime::System::start(1).unwrap();
    let agent = system.spawn(Named);
    let all = McpServer::new(agent.clone(), options());
    let named = NamedServers::default();
    let without = McpServer::new(agent.clone(), McpServerOptions::default());
    let with = McpServer::new(agent, options());
    named.set([("with".to_owned(), with), ("without".to_owned(), without)].into());
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let serving = serve_named(socket, vec![all], named, &ListenOptions::default()).unwrap();
    let (address, handle) = (serving.address, serving.server.handle());
    tokio::spawn(serving.server);
    let client = Client::new(address, "", "");
    let get = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    };
    for (path, folder) in [
        ("/sse", "/"),
        ("/sse/", "/"),
        ("/agents/with/sse", "/agents/with/"),
        ("/agents/with/sse/", "/agents/with/"),
    ] {
        let mut stream = client.send(&get(path)).await;
        let to = stream.event().await.unwrap().data;
        assert!(
            to.starts_with(&format!("{folder}messages?session=")),
            "{path}: {to}"
        );
        let hello = initialize("2024-11-05", &json!({})).to_string();
        let posted = client
            .send(&format!(
                "POST {to} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{hello}",
                hello.len()
            ))
            .await;
        assert_eq!(posted.status, 202, "{path}");
        assert_eq!(
            stream.message().await["result"]["protocolVersion"],
            "2024-11-05"
        );
    }
    for path in ["/agents/without/sse", "/agents/nobody/sse"] {
        assert_eq!(client.send(&get(path)).await.status, 404, "{path}");
    }
    handle.stop(false).await;
    system.shutdown(std::time::Duration::ZERO).await;
}

/// Agent without any message.
struct Named;

impl callboard_runtime::Agent for Named {
    fn handlers(_: &mut callboard_runtime::Handlers<Self>) {}
}

/// Goal: a server that stops ends the streams that no request keeps open, and finishes running
/// requests on the others first. Method: a stream of each kind, idle, and with a call that lingers
/// until the stop has begun; WebSocket, HTTP+SSE, GET, and a subscription of 2026-07-28.
#[tokio::test]
async fn stopped_streams_end() {
    let (lingering, mut watch) = lingering();
    let system = callboard_runtime::System::start(1).unwrap();
    let agent = system.spawn_with(move || Everything::new(lingering.clone()));
    let server = McpServer::new(agent, options());
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = ListenOptions::default();
    let serving = serve_named(
        socket,
        vec![server.clone()],
        NamedServers::default(),
        &listen,
    );
    let serving = serving.unwrap();
    let (address, handle) = (serving.address, serving.server.handle());
    tokio::spawn(serving.server);

    let mut idle = Socket::open_at(address, "").await;
    let mut busy = Socket::open_at(address, "").await;
    let linger = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "linger", "arguments": {} } });
    busy.send(initialize("2025-11-25", &json!({}))).await;
    busy.message().await;
    busy.send(&linger).await;
    assert_eq!(watch.event().await, Seen::Began);
    let client = Client::new(address, "", "");
    let get = "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    let mut sse = client.send(get).await;
    let to = sse.event().await.unwrap().data;
    for body in [initialize("2024-11-05", &json!({})), linger] {
        let body = body.to_string();
        let post = format!(
            "POST {to} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(client.send(&post).await.status, 202);
    }
    assert_eq!(sse.message().await["id"], 0);
    assert_eq!(watch.event().await, Seen::Began);
    let mut session = Client::new(address, "", "");
    let hello = session
        .post(&initialize("2025-06-18", &json!({})).to_string())
        .await;
    session.session = header(&hello.head, "mcp-session-id").unwrap().to_owned();
    let mut unsolicited = session.get(None).await;
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
    let subscribe = json!({ "jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": { "_meta": meta, "notifications": {} } });
    let modern = Client::new(
        address,
        "",
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n",
    );
    let mut subscription = modern.stream(&subscribe.to_string()).await;
    assert_eq!(
        subscription.message().await["method"],
        "notifications/subscriptions/acknowledged"
    );

    let stopping = tokio::spawn(async move { server.stop().await });
    assert_eq!(unsolicited.event().await, None);
    assert_eq!(subscription.message().await["id"], 9);
    let going_away = [&1001_u16.to_be_bytes()[..]].concat();
    assert_eq!(idle.frame().await, Some((CLOSE, going_away.clone())));
    watch.go_on.send(true).unwrap();
    assert_eq!(busy.message().await["id"], 7);
    assert_eq!(busy.frame().await, Some((CLOSE, going_away)));
    assert_eq!(sse.message().await["id"], 7);
    assert_eq!(sse.event().await, None);
    soon(stopping).await.unwrap();
    // New streams end at once.
    assert_eq!(session.get(None).await.event().await, None);
    handle.stop(false).await;
    system.shutdown(std::time::Duration::ZERO).await;
}
