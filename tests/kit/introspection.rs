//! An introspection endpoint within a test (RFC 7662), which counts what it is asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Client id and secret of the endpoint's only client, and how they are sent.
pub const CLIENT: (&str, &str) = ("callboard", "s3cret");
const AUTHORIZATION: (&str, &str) = ("authorization", "Basic Y2FsbGJvYXJkOnMzY3JldA==");

/// An introspection endpoint. It knows no token at first, and its answers may be changed while it runs.
pub struct IntrospectionServer {
    /// URL of the endpoint.
    pub url: String,
    state: Arc<ServerState>,
}

struct ServerState {
    /// Status and body for each token.
    answers: Mutex<HashMap<String, (u16, String)>>,
    /// Tokens asked about, in order.
    asked: Mutex<Vec<String>>,
    /// Whether answers are held back.
    is_held: watch::Sender<bool>,
    /// Requests in progress: their number.
    open: watch::Sender<usize>,
}

impl IntrospectionServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/introspect", listener.local_addr().unwrap());
        let state = Arc::new(ServerState {
            answers: Mutex::default(),
            asked: Mutex::default(),
            is_held: watch::Sender::new(false),
            open: watch::Sender::new(0),
        });
        let served = state.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, served.clone()));
            }
        });
        Self { url, state }
    }

    /// Sets status and body of the answer about a token.
    pub fn set(&self, token: &str, status: u16, body: &str) {
        let answer = (status, body.to_owned());
        let mut answers = self.state.answers.lock().unwrap();
        answers.insert(token.to_owned(), answer);
    }

    /// Makes a token active, with these claims.
    pub fn activate(&self, token: &str, claims: &Value) {
        let mut told = claims.clone();
        told["active"] = true.into();
        self.set(token, 200, &told.to_string());
    }

    /// Makes a token unknown, as if it had never been issued.
    pub fn revoke(&self, token: &str) {
        self.state.answers.lock().unwrap().remove(token);
    }

    /// Number of requests about a token.
    pub fn asked_about(&self, token: &str) -> usize {
        let asked = self.state.asked.lock().unwrap();
        asked.iter().filter(|one| *one == token).count()
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.state.asked.lock().unwrap().len()
    }

    /// Holds answers back, or sends them again.
    pub fn hold(&self, is_held: bool) {
        self.state.is_held.send_replace(is_held);
    }

    /// Waits until a number of requests is in progress.
    pub async fn open_requests(&self, wanted: usize) {
        let mut open = self.state.open.subscribe();
        let reached = open.wait_for(|open| *open == wanted);
        let reached = tokio::time::timeout(Duration::from_secs(30), reached).await;
        assert!(reached.is_ok(), "there were never {wanted} requests");
    }
}

async fn serve(mut connection: TcpStream, state: Arc<ServerState>) {
    let Some((head, body)) = read_request(&mut connection).await else {
        return;
    };
    let fields = form_fields(&body);
    let token = fields.get("token").cloned().unwrap_or_default();
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let is_client =
        headers.any(|(name, value)| (name.to_lowercase().as_str(), value) == AUTHORIZATION);
    assert_eq!(fields.get("token_type_hint").unwrap(), "access_token");
    state.asked.lock().unwrap().push(token.clone());
    state.open.send_modify(|open| *open += 1);
    let mut is_held = state.is_held.subscribe();
    is_held.wait_for(|is_held| !is_held).await.unwrap();
    let known = state.answers.lock().unwrap().get(&token).cloned();
    let inactive = || (200, json!({ "active": false }).to_string());
    let (status, body) = match is_client {
        true => known.unwrap_or_else(inactive),
        false => (401, String::new()),
    };
    state.open.send_modify(|open| *open -= 1);
    let answer = format!(
        "HTTP/1.1 {status} S\r\nContent-Length: {}\r\nLocation: /elsewhere\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = connection.write_all(answer.as_bytes()).await;
}

async fn read_request(connection: &mut TcpStream) -> Option<(String, String)> {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_lowercase();
            let (_, length) = lower.split_once("content-length: ")?;
            let length: usize = length.lines().next()?.trim().parse().ok()?;
            if body.len() >= length {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        let mut chunk = [0; 4_096];
        match connection.read(&mut chunk).await {
            Ok(bytes) if bytes > 0 => read.extend_from_slice(&chunk[..bytes]),
            _ => return None,
        }
    }
}

fn form_fields(body: &str) -> HashMap<String, String> {
    let parsed = url::form_urlencoded::parse(body.as_bytes());
    parsed.into_owned().collect()
}
