//! The load: kept connections, each with one call at a time, and every answer read to its end and looked at.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::response;
use crate::round::Caller;

/// Size of each text, in bytes.
const TEXT_BYTES: usize = 1024;

/// A client: one connection.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    sent: Vec<u8>,
    address: SocketAddr,
    path: &'static str,
    /// Among all clients of the run: no two calls have one text.
    number: usize,
    calls: u64,
}

/// What an answer must have.
#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: Sent<'a>,
}

#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    task: Task<'a>,
}

#[derive(Deserialize)]
struct Task<'a> {
    #[serde(borrow)]
    status: Status<'a>,
    artifacts: [Artifact<'a>; 1],
}

#[derive(Deserialize)]
struct Status<'a> {
    state: &'a str,
}

#[derive(Deserialize)]
struct Artifact<'a> {
    #[serde(borrow)]
    parts: [Part<'a>; 1],
}

#[derive(Deserialize)]
struct Part<'a> {
    text: &'a str,
}

impl Client {
    /// Connects.
    pub async fn open(address: SocketAddr, path: &'static str, number: usize) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|e| format!("can't connect: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (received, sent) = (Vec::with_capacity(8192), Vec::with_capacity(2048));
        Ok(Self { stream, received, sent, address, path, number, calls: 0 })
    }
}

impl Caller for Client {
    async fn call(&mut self) -> Result<Duration, String> {
        self.calls += 1;
        let (id, number) = (self.calls, self.number);
        let text = format!("{:.<TEXT_BYTES$}", format!("call {id} of client {number} "));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"SendMessage","params":{{"message":{{"messageId":"m-{number}-{id}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}}}"#
        );
        let (address, path, length) = (self.address, self.path, body.len());
        self.sent.clear();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
             accept: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.sent.extend_from_slice(head.as_bytes());
        self.sent.extend_from_slice(body.as_bytes());
        let began = Instant::now();
        self.stream.write_all(&self.sent).await.map_err(|e| format!("can't send: {e}"))?;
        let (head, end) = response::read(&mut self.stream, &mut self.received).await?;
        let took = began.elapsed();
        if !self.received.starts_with(b"HTTP/1.1 200") {
            return Err(format!("refused: {}", String::from_utf8_lossy(&self.received[..end])));
        }
        let body = std::str::from_utf8(&self.received[head..end]).map_err(|e| e.to_string())?;
        let answer: Answer<'_> = serde_json::from_str(body).map_err(|e| format!("no echo: {e}: {body}"))?;
        let Task { status, artifacts: [Artifact { parts: [part] }] } = answer.result.task;
        match answer.id == id && status.state == "TASK_STATE_COMPLETED" && part.text == text {
            true => Ok(took),
            false => Err(format!("call {id} of client {number} was answered as {}: {}", answer.id, status.state)),
        }
    }
}
