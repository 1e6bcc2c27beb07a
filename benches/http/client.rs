//! A client of few instructions, so that the server is what limits: one kept connection, one call at a time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::Era;
use crate::response::{self, find, header};
use crate::round::Caller;

/// What is echoed.
const TEXT: &str = "the quick brown fox jumps over the lazy dog, and the dog lets it";

/// A connection that has said whatever comes before the first call.
pub struct Connection {
    stream: TcpStream,
    /// The same call each time: ids may repeat once they are answered.
    call: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    /// Connects; in the era of sessions, begins one.
    pub async fn open(address: SocketAddr, era: Era) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|e| format!("can't connect: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut connection = Self { stream, call: Vec::new(), received: Vec::with_capacity(4096) };
        let arguments = json!({ "name": "echo", "arguments": { "text": TEXT } });
        connection.call = match era {
            Era::Sessions => {
                let session = connection.initialize(address).await?;
                let headers = format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n");
                post(address, &headers, &request("tools/call", arguments))
            }
            Era::Stateless => {
                let headers =
                    "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: echo\r\n".to_owned();
                let mut params = arguments;
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                post(address, &headers, &request("tools/call", params))
            }
        };
        Ok(connection)
    }

    async fn initialize(&mut self, address: SocketAddr) -> Result<String, String> {
        let client = json!({ "name": "bench", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let begin = post(address, "", &request("initialize", params));
        self.stream.write_all(&begin).await.map_err(|e| format!("can't send: {e}"))?;
        let end = self.answer().await?;
        let answer = String::from_utf8_lossy(&self.received[..end]).into_owned();
        let session = header(&answer, "mcp-session-id").ok_or_else(|| format!("no session: {answer}"))?.to_owned();
        let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
        let headers = format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n");
        self.stream.write_all(&post(address, &headers, &done)).await.map_err(|e| format!("can't send: {e}"))?;
        self.answer().await?;
        Ok(session)
    }

    /// Reads one response; where it ends.
    async fn answer(&mut self) -> Result<usize, String> {
        response::read(&mut self.stream, &mut self.received).await.map(|(_, end)| end)
    }
}

impl Caller for Connection {
    async fn call(&mut self) -> Result<Duration, String> {
        let began = Instant::now();
        self.stream.write_all(&self.call).await.map_err(|e| format!("can't send: {e}"))?;
        let end = self.answer().await?;
        let took = began.elapsed();
        let answer = &self.received[..end];
        match answer.starts_with(b"HTTP/1.1 200") && find(answer, TEXT.as_bytes()).is_some() {
            true => Ok(took),
            false => Err(format!("not an echo: {}", String::from_utf8_lossy(answer))),
        }
    }
}

fn request(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

fn post(address: SocketAddr, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
