//! A peer that a protocol's test plays itself, request by request: JSON-RPC over HTTP. The protocol adds its own words.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Capacity of the channel of requests.
const HITS_MAX: usize = 256;
/// Timeout for a request; long, for machines under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// An HTTP server that the test plays.
pub struct Played {
    pub url: String,
    /// Requests that are answered by 404 here, and not seen by the test.
    pub skips: fn(&Hit) -> bool,
    hits: mpsc::Receiver<Hit>,
}

/// One request that waits for the test's answer.
pub struct Hit {
    pub method: String,
    pub target: String,
    pub headers: HashMap<String, String>,
    pub text: String,
    pub body: Value,
    stream: TcpStream,
}

/// An event stream under way.
pub struct Events {
    /// The request's body.
    pub request: Value,
    pub stream: TcpStream,
}

impl Played {
    /// Listens on a free port; its URL ends with `path`.
    pub async fn at(path: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        let (sender, hits) = mpsc::channel(HITS_MAX);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    if let Some(hit) = Hit::read(stream).await {
                        let _ = sender.send(hit).await;
                    }
                });
            }
        });
        Self {
            url,
            skips: |_| false,
            hits,
        }
    }

    pub async fn hit(&mut self) -> Hit {
        loop {
            let hit = tokio::time::timeout(PATIENCE, self.hits.recv()).await;
            let hit = hit.expect("no request in time").expect("no listener");
            if !(self.skips)(&hit) {
                return hit;
            }
            hit.empty(404).await;
        }
    }

    /// The next request, which must be this method of JSON-RPC.
    pub async fn expect(&mut self, method: &str) -> Hit {
        let hit = self.hit().await;
        assert_eq!(
            hit.body["method"], method,
            "{} {} {}",
            hit.method, hit.target, hit.text
        );
        hit
    }

    /// Whether no request waits now.
    pub fn is_quiet(&mut self) -> bool {
        self.hits.try_recv().is_err()
    }
}

impl Hit {
    async fn read(mut stream: TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ').map(str::to_owned);
        let (method, target) = (first.next()?, first.next()?);
        let mut headers: HashMap<String, String> = HashMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let values = headers.entry(name.to_ascii_lowercase()).or_default();
            // One that is there twice counts as a list (RFC 9110, section 5.3).
            values.push_str(if values.is_empty() { "" } else { ", " });
            values.push_str(value.trim());
        }
        let length: usize = headers
            .get("content-length")
            .map_or(0, |l| l.parse().unwrap());
        while bytes.len() < end + length {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let text = String::from_utf8(bytes[end..].to_vec()).unwrap();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Some(Self {
            method,
            target,
            headers,
            text,
            body,
            stream,
        })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The response to it, with this outcome.
    pub fn response(&self, outcome: Result<Value, Value>) -> Value {
        let (name, value) = match outcome {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        json!({ "jsonrpc": "2.0", "id": self.body["id"], name: value })
    }

    pub async fn result(self, result: Value) {
        let body = self.response(Ok(result));
        self.json(200, &body).await;
    }

    pub async fn json(self, status: u16, body: &Value) {
        self.write(status, "", "application/json", &body.to_string())
            .await;
    }

    pub async fn empty(self, status: u16) {
        self.write(status, "", "text/plain", "").await;
    }

    pub async fn write(mut self, status: u16, headers: &str, kind: &str, body: &str) {
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
        // Whoever asked may have left.
        let _ = self.stream.write_all(response.as_bytes()).await;
    }

    /// Answers with an event stream, which ends when it is dropped.
    pub async fn stream(self) -> Events {
        self.begin("text/event-stream").await
    }

    /// Answers with a body of this kind, which ends when it is dropped.
    pub async fn begin(mut self, kind: &str) -> Events {
        let head = format!("HTTP/1.1 200 X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await.unwrap();
        Events {
            request: self.body,
            stream: self.stream,
        }
    }
}

impl Events {
    /// Whether somebody still reads.
    pub async fn raw(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).await.is_ok()
    }
}
