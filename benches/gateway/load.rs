//! The load: kept connections, each with one call at a time, and every answer read to its end and looked at.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::Era;
use crate::response::{self, header};
use crate::round::Caller;

/// A part of every text; the rest says which call it was.
const TEXT: &str = "the quick brown fox jumps over the lazy dog, call";

/// An MCP endpoint with an echo tool.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// The path of its URL.
    pub path: &'static str,
    /// What the echo tool is called there.
    pub tool: &'static str,
}

/// A client: one connection that has said whatever comes before the first call.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    sent: Vec<u8>,
    endpoint: Endpoint,
    era: Era,
    /// The header lines of a call.
    headers: String,
    /// Among all clients of the run: no two calls have one text.
    number: usize,
    calls: u64,
}

/// What an answer must have.
#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: Echoed<'a>,
}

#[derive(Deserialize)]
struct Echoed<'a> {
    #[serde(borrow)]
    content: [Block<'a>; 1],
}

#[derive(Deserialize)]
struct Block<'a> {
    text: &'a str,
}

impl Client {
    /// Connects; in the legacy era, begins a session.
    pub async fn open(endpoint: &Endpoint, era: Era, number: usize) -> Result<Self, String> {
        let connected = TcpStream::connect(endpoint.address).await;
        let stream = connected.map_err(|e| format!("can't connect: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (received, sent) = (Vec::with_capacity(4096), Vec::with_capacity(1024));
        let headers = match era {
            Era::Legacy => String::new(),
            Era::Modern => {
                format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {}\r\n", endpoint.tool)
            }
        };
        let mut client = Self { stream, received, sent, endpoint: endpoint.clone(), era, headers, number, calls: 0 };
        if era == Era::Legacy {
            client.initialize().await?;
        }
        Ok(client)
    }

    async fn initialize(&mut self) -> Result<(), String> {
        let client = json!({ "name": "bench", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        self.post(&message(Some(0), "initialize", Some(params)));
        self.exchange().await?;
        let head = String::from_utf8_lossy(&self.received).into_owned();
        let session = header(&head, "mcp-session-id").ok_or_else(|| format!("no session: {head}"))?;
        self.headers = format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n");
        self.post(&message(None, "notifications/initialized", None));
        self.exchange().await.map(drop)
    }

    /// Writes the request into `sent`.
    fn post(&mut self, body: &str) {
        let Endpoint { address, path, .. } = &self.endpoint;
        let (headers, length) = (&self.headers, body.len());
        self.sent.clear();
        self.sent.extend_from_slice(
            format!(
                "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
                 accept: application/json, text/event-stream\r\n{headers}content-length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
    }

    /// Sends, and reads one response, which is sized, in chunks, or has no body. The JSON in it: the body, or the last
    /// event's data.
    async fn exchange(&mut self) -> Result<&str, String> {
        self.stream.write_all(&self.sent).await.map_err(|e| format!("can't send: {e}"))?;
        let (head, end) = response::read(&mut self.stream, &mut self.received).await?;
        if !self.received.starts_with(b"HTTP/1.1 20") {
            return Err(format!("refused: {}", String::from_utf8_lossy(&self.received[..end])));
        }
        let body = std::str::from_utf8(&self.received[head..end]).map_err(|e| e.to_string())?;
        Ok(match body.rfind("data: {") {
            Some(at) => body[at + 6..].lines().next().unwrap_or_default(),
            None => body,
        })
    }
}

impl Caller for Client {
    async fn call(&mut self) -> Result<Duration, String> {
        self.calls += 1;
        let (id, number) = (self.calls, self.number);
        let text = format!("{TEXT} {id} of client {number}");
        let tool = self.endpoint.tool;
        let body = match self.era {
            Era::Legacy => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{text}"}}}}}}"#
            ),
            Era::Modern => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{text}"}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
            ),
        };
        self.post(&body);
        let began = Instant::now();
        let answer = self.exchange().await?;
        let took = began.elapsed();
        let answer: Answer<'_> =
            serde_json::from_str(answer).map_err(|e| format!("no answer to a call: {e}: {answer}"))?;
        let [block] = answer.result.content;
        match answer.id == id && block.text == text {
            true => Ok(took),
            false => Err(format!("call {id} of client {number} was answered as {}: {:?}", answer.id, block.text)),
        }
    }
}

fn message(id: Option<u64>, method: &str, params: Option<Value>) -> String {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    if let Some(params) = params {
        message["params"] = params;
    }
    message.to_string()
}
