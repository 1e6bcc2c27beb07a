//! Misbehaviour of a client: single attempts, each of which returns whether the node served it. Connections come from another
//! loopback address than the well-behaved clients', as from another machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::node::{Addresses, Client, a2a_message, tool_call};

/// Name of the misbehaving principal.
pub const NAME: &str = "offender";
/// Address that misbehaving clients connect from.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Declared size of a body of which half is sent, in bytes. The listener's limit is the same.
const HALF_SENT_BYTES: usize = 4 * 1024 * 1024;
/// Declared size of a body beyond the listener's limit, in bytes.
const OVERSIZED_BYTES: usize = 64 * 1024 * 1024;
/// Size of the chunks that large bodies are sent in, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Size of each text in answers that aren't read, in bytes, and number of requests on the connection.
const UNREAD_TEXT_BYTES: usize = 256 * 1024;
const UNREAD_REQUESTS: usize = 16;
/// Receive buffer of a client that doesn't read, in bytes.
const UNREAD_BUFFER_BYTES: u32 = 4 * 1024;
/// Size of a text for the guard, in bytes.
const HUGE_TEXT_BYTES: usize = 1024 * 1024;
/// Size of each text that fills the store, in bytes.
const STORED_TEXT_BYTES: usize = 64 * 1024;

/// Result of an attempt: whether the node served it. The error says why the connection broke.
pub type Attempt = Result<bool, String>;

/// A misbehaving principal.
#[derive(Clone)]
pub struct Offender(Client);

impl Offender {
    pub fn new(at: Addresses, key: String) -> Result<Self, String> {
        Client::new(at, key, ADDRESS, PATIENCE).map(Self)
    }

    async fn connect(&self, to: SocketAddr, buffer: Option<u32>) -> Result<TcpStream, String> {
        let connecting = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((ADDRESS, 0).into())?;
            if let Some(bytes) = buffer {
                socket.set_recv_buffer_size(bytes)?;
            }
            socket.connect(to).await
        };
        timeout(PATIENCE, connecting)
            .await
            .map_err(|_| "no connection in time".to_owned())?
            .map_err(|e| e.to_string())
    }

    /// Head of a request to the MCP listener.
    fn head(&self, bytes: usize) -> String {
        let (headers, _) = tool_call("echo", "", 1, false);
        let to = self.0.at.mcp;
        let key = &self.0.key;
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             {headers}content-length: {bytes}\r\n\r\n"
        )
    }

    /// Half of a body; the rest never comes. Returns when the node closes the connection.
    pub async fn half_sent_body(self) -> Attempt {
        let mut stream = self.connect(self.0.at.mcp, None).await?;
        let head = self.head(HALF_SENT_BYTES);
        send_large(&mut stream, &head, HALF_SENT_BYTES / 2).await?;
        // The refusal at the listener's time limit, or at its connection limit.
        closed(&mut stream, 4 * PATIENCE).await
    }

    /// Requests whose large answers are never read. Returns after a time, or when the node closes the connection.
    pub async fn unread_answers(self) -> Attempt {
        let mut stream = self
            .connect(self.0.at.mcp, Some(UNREAD_BUFFER_BYTES))
            .await?;
        let text = "unread ".repeat(UNREAD_TEXT_BYTES / 7);
        let (_, body) = tool_call("echo", &text, 1, false);
        let head = self.head(body.len());
        let sending = async {
            for _ in 0..UNREAD_REQUESTS {
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(body.as_bytes()).await?;
            }
            // Nothing more is sent, and nothing is read.
            std::future::pending::<std::io::Result<()>>().await
        };
        match timeout(PATIENCE, sending).await {
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(())) | Err(_) => Ok(true),
        }
    }

    /// A socket of mail events that is never read. Returns after a time, or when the node closes it.
    pub async fn unread_events(self) -> Attempt {
        let to = self.0.at.mail;
        let mut stream = self.connect(to, Some(UNREAD_BUFFER_BYTES)).await?;
        let (key, name) = (&self.0.key, NAME);
        let head = format!(
            "GET /api/events?after=0 HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {key}\r\nx-agent-id: {name}\r\n\
             connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream
            .write_all(head.as_bytes())
            .await
            .map_err(|e| e.to_string())?;
        tokio::time::sleep(PATIENCE).await;
        Ok(true)
    }

    /// A call that asks, and whose question is never answered.
    pub async fn unanswered_question(self) -> Attempt {
        let (status, answer) = self.0.call("ask", "", true).await?;
        Ok(status == 200 && answer.contains("input_required"))
    }

    /// A small call.
    pub async fn small_call(self) -> Attempt {
        let (status, answer) = self.0.call("echo", "call", false).await?;
        Ok(status == 200 && answer.contains("\"content\""))
    }

    /// A session of the legacy era, left open.
    pub async fn session(self) -> Attempt {
        self.open_session().await.map(|id| id.is_some())
    }

    async fn open_session(&self) -> Result<Option<String>, String> {
        let client = json!({ "name": "bench", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let opening = self
            .0
            .http
            .post(format!("http://{}/mcp", self.0.at.mcp))
            .bearer_auth(&self.0.key)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        let response = opening.send().await.map_err(|e| e.to_string())?;
        let id = response.headers().get("mcp-session-id").cloned();
        response.bytes().await.map_err(|e| e.to_string())?;
        Ok(id.and_then(|id| id.to_str().map(str::to_owned).ok()))
    }

    /// An event stream of a new session, which stays open until the client gives up.
    pub async fn stream(self) -> Attempt {
        let Some(session) = self.open_session().await? else {
            return Ok(false);
        };
        let opening = self
            .0
            .http
            .get(format!("http://{}/mcp", self.0.at.mcp))
            .bearer_auth(&self.0.key)
            .header("accept", "text/event-stream")
            .header("mcp-session-id", session)
            .header("mcp-protocol-version", "2025-11-25");
        let response = opening.send().await.map_err(|e| e.to_string())?;
        let is_open = response.status().is_success();
        // Ends with the time-out of the client, or when the node closes it.
        let _ = response.bytes().await;
        Ok(is_open)
    }

    /// A large text, which the guard has to screen.
    pub async fn huge_text(self) -> Attempt {
        let text = "a plain sentence about nothing. ".repeat(HUGE_TEXT_BYTES / 32);
        let (status, answer) = self.0.call("echo", &text, false).await?;
        Ok(status == 200 && answer.contains("\"content\""))
    }

    /// A body beyond the limit, sent until the node refuses it.
    pub async fn oversized_body(self) -> Attempt {
        let mut stream = self.connect(self.0.at.mcp, None).await?;
        let head = self.head(OVERSIZED_BYTES);
        // The node may close the connection before all is sent.
        let _ = send_large(&mut stream, &head, OVERSIZED_BYTES).await;
        closed(&mut stream, PATIENCE).await
    }

    /// A request with a wrong key.
    pub async fn wrong_key(mut self) -> Attempt {
        self.0.key.push('x');
        let (status, _) = self.0.call("echo", "", false).await?;
        Ok(status == 200)
    }

    /// A task with a large text, which the store keeps.
    pub async fn stored_text(self) -> Attempt {
        let text = "stored ".repeat(STORED_TEXT_BYTES / 7);
        let message = rand::random::<u128>().to_string();
        let params = a2a_message(&message, "echo", &text, true);
        let (status, answer) = self.0.a2a("SendMessage", &params).await?;
        Ok(status == 200 && answer.contains("TASK_STATE_COMPLETED"))
    }
}

async fn send_large(stream: &mut TcpStream, head: &str, bytes: usize) -> Result<(), String> {
    let chunk = [b' '; CHUNK_BYTES];
    let sending = async {
        stream.write_all(head.as_bytes()).await?;
        for _ in 0..bytes / CHUNK_BYTES {
            stream.write_all(&chunk).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    timeout(PATIENCE, sending)
        .await
        .map_err(|_| "not sent in time".to_owned())?
        .map_err(|e| e.to_string())
}

/// Reads until the node closes the connection. Returns whether its status was a success.
async fn closed(stream: &mut TcpStream, patience: Duration) -> Attempt {
    let mut answer = Vec::new();
    match timeout(patience, stream.read_to_end(&mut answer)).await {
        Ok(Ok(_)) => Ok(answer.starts_with(b"HTTP/1.1 200")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the connection is still open".to_owned()),
    }
}
