//! A raw client of the legacy era over HTTP, and its reader of event streams.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::kit::{Connection, Reply, header, soon};

/// Returns the request that begins a session.
pub fn initialize(revision: &str, capabilities: &Value) -> Value {
    let info = json!({ "name": "test", "version": "0" });
    let params =
        json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": info });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

/// A raw client of one session; each request on a new connection.
pub struct Client {
    pub address: SocketAddr,
    pub session: String,
    /// Additional header lines.
    pub more: String,
    last_id: i64,
}

/// A response that is still being read.
pub struct Streaming {
    pub status: u16,
    pub head: String,
    connection: Connection,
    /// Body without framing.
    body: String,
    raw: Vec<u8>,
    over: bool,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    pub id: Option<String>,
    pub retry: Option<u64>,
    pub name: Option<String>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

pub const BOTH: &str = "Accept: application/json, text/event-stream\r\n";

impl Client {
    pub fn new(address: SocketAddr, session: &str, more: &str) -> Self {
        Self {
            address,
            session: session.to_owned(),
            more: more.to_owned(),
            last_id: 0,
        }
    }

    /// Opens a session of `revision` whose client declares `capabilities`.
    pub async fn open(address: SocketAddr, revision: &str, capabilities: &Value) -> Self {
        let mut client = Self::new(address, "", "");
        let reply = client
            .post(&initialize(revision, capabilities).to_string())
            .await;
        assert_eq!(reply.status, 200, "{reply:?}");
        client.session = header(&reply.head, "mcp-session-id").unwrap().to_owned();
        client.more = format!("MCP-Protocol-Version: {revision}\r\n");
        let done = client
            .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        assert_eq!((done.status, done.body.as_str()), (202, ""));
        client
    }

    pub fn headers(&self) -> String {
        let session = match self.session.is_empty() {
            true => String::new(),
            false => format!("Mcp-Session-Id: {}\r\n", self.session),
        };
        format!("{session}{}", self.more)
    }

    /// Returns a request with the next id.
    pub fn request(&mut self, method: &str, params: Value) -> String {
        self.last_id += 1;
        json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params })
            .to_string()
    }

    /// Posts and reads the whole response, however it is framed.
    pub async fn post(&self, body: &str) -> Reply {
        let stream = self.stream(body).await;
        let (status, head) = (stream.status, stream.head.clone());
        Reply {
            status,
            head,
            body: stream.rest().await,
        }
    }

    /// Sends a request, and expects plain JSON.
    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = self.request(method, params);
        let reply = self.post(&request).await;
        assert_eq!(
            header(&reply.head, "content-type"),
            Some("application/json"),
            "{reply:?}"
        );
        reply.json()
    }

    /// Calls a tool, and returns its response as a stream.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Streaming {
        let params =
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
        let request = self.request("tools/call", params);
        self.stream(&request).await
    }

    pub async fn stream(&self, body: &str) -> Streaming {
        let headers = self.headers();
        self.send(&format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             {BOTH}{headers}\r\n{body}",
            body.len()
        ))
        .await
    }

    pub async fn get(&self, last_event_id: Option<&str>) -> Streaming {
        let headers = self.headers();
        let last = last_event_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        self.send(&format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{last}{headers}\r\n"))
            .await
    }

    pub async fn delete(&self) -> Streaming {
        let headers = self.headers();
        self.send(&format!(
            "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
        ))
        .await
    }

    pub async fn send(&self, request: &str) -> Streaming {
        let mut connection = Connection(soon(TcpStream::connect(self.address)).await.unwrap());
        connection.send(request.as_bytes()).await;
        Streaming::begin(connection).await
    }

    /// Answers a request of the server.
    pub async fn answer(&self, question: &Value, result: Value) {
        self.respond(question, "result", result).await;
    }

    /// Answers a request of the server with an error.
    pub async fn refuse(&self, question: &Value, error: Value) {
        self.respond(question, "error", error).await;
    }

    async fn respond(&self, question: &Value, member: &str, outcome: Value) {
        let reply = self
            .post(&json!({ "jsonrpc": "2.0", "id": question["id"], member: outcome }).to_string())
            .await;
        assert_eq!(reply.status, 202, "{reply:?}");
    }
}

impl Streaming {
    pub async fn begin(mut connection: Connection) -> Self {
        use tokio::io::AsyncReadExt as _;
        let mut raw = Vec::new();
        let head = loop {
            if let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") {
                break String::from_utf8(raw.drain(..end + 4).collect()).unwrap();
            }
            assert!(
                soon(connection.0.read_buf(&mut raw)).await.unwrap() > 0,
                "closed without a reply"
            );
        };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            head,
            connection,
            body: String::new(),
            raw,
            over: false,
        }
    }

    /// Reads until more of the body is available, or it has ended.
    async fn more(&mut self) {
        use tokio::io::AsyncReadExt as _;
        let length = header(&self.head, "content-length").map(|l| l.parse::<usize>().unwrap());
        loop {
            let had = self.body.len();
            match length {
                Some(length) => {
                    self.body.push_str(std::str::from_utf8(&self.raw).unwrap());
                    self.raw.clear();
                    self.over = self.body.len() >= length;
                }
                None if header(&self.head, "transfer-encoding") == Some("chunked") => {
                    self.unchunk()
                }
                None => self.over = true,
            }
            if self.over || self.body.len() > had {
                return;
            }
            if soon(self.connection.0.read_buf(&mut self.raw))
                .await
                .unwrap_or(0)
                == 0
            {
                self.over = true;
                return;
            }
        }
    }

    fn unchunk(&mut self) {
        while let Some(end) = self.raw.windows(2).position(|w| w == b"\r\n") {
            let size =
                usize::from_str_radix(std::str::from_utf8(&self.raw[..end]).unwrap(), 16).unwrap();
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            self.body
                .push_str(std::str::from_utf8(&self.raw[end + 2..end + 2 + size]).unwrap());
            self.raw.drain(..end + 2 + size + 2);
            self.over |= size == 0;
        }
    }

    /// Returns the connection, and the bytes read from it beyond the head.
    pub fn into_parts(self) -> (Connection, Vec<u8>) {
        (self.connection, self.raw)
    }

    /// Returns the next part of the body.
    pub async fn chunk(&mut self) -> String {
        if self.body.is_empty() {
            self.more().await;
        }
        std::mem::take(&mut self.body)
    }

    /// Returns the rest of the body.
    pub async fn rest(mut self) -> String {
        while !self.over {
            self.more().await;
        }
        self.body
    }

    /// Returns the next event; `None` if the stream has ended.
    pub async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.body.find("\n\n") {
                let text: String = self.body.drain(..end + 2).collect();
                let mut event = Event::default();
                for line in text.lines() {
                    match line
                        .split_once(": ")
                        .unwrap_or((line.trim_end_matches(':'), ""))
                    {
                        ("id", id) => event.id = Some(id.into()),
                        ("retry", ms) => event.retry = ms.parse().ok(),
                        ("event", name) => event.name = Some(name.into()),
                        ("data", data) => event.data.push_str(data),
                        _ => {}
                    }
                }
                // A comment is no event.
                if event != Event::default() {
                    return Some(event);
                }
                continue;
            }
            if self.over {
                return None;
            }
            self.more().await;
        }
    }

    /// Returns the next message.
    pub async fn message(&mut self) -> Value {
        loop {
            let event = self.event().await.expect("the stream is over");
            if !event.data.is_empty() {
                return event.json();
            }
        }
    }

    /// Returns all messages until the end.
    pub async fn messages(mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(event) = self.event().await {
            if !event.data.is_empty() {
                messages.push(event.json());
            }
        }
        messages
    }
}
