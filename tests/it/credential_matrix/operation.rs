//! Rows of the matrix: an operation, its request, and what the right credential gets.

use super::site::{Ids, ShownCredential, TestNode, forwarded};
use crate::kit::soon;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::Value;

/// ShownCredential that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredAccess {
    /// None: any is ignored.
    Public,
    /// None, and none is accepted: the listener is for this machine.
    Local,
    /// Any that the listener accepts.
    Any,
    /// One with this scope.
    Scope(&'static str),
}

/// A row. `{me}` in its texts stands for the caller, `{n}` for a number of its own, and the name of an object for its id.
pub struct MatrixRow {
    /// Name in the tables of the product.
    pub name: String,
    method: &'static str,
    pub url: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Whether the credential is in `X-API-Key`, without `Bearer`.
    is_by_api_key: bool,
    pub access: RequiredAccess,
    /// Status and error code of JSON-RPC that the right credential gets; 0 for no error.
    pub right: (u16, i64),
}

/// A response, without the number of its request.
#[derive(Debug, Clone, PartialEq)]
pub struct RowOutcome {
    pub status: u16,
    /// Error code of JSON-RPC, [`FAILED`] for a result that tells of a failure; 0 without an error.
    pub code: i64,
    /// Value of `WWW-Authenticate`.
    pub challenge: String,
    pub body: String,
}

impl MatrixRow {
    /// An operation that needs a credential and succeeds with it. `method` is that of HTTP.
    pub fn new(name: impl Into<String>, method: &'static str, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            method,
            url: url.into(),
            headers: Vec::new(),
            body: String::new(),
            is_by_api_key: false,
            access: RequiredAccess::Any,
            right: (200, 0),
        }
    }

    pub fn named(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }

    pub fn by_api_key(mut self) -> Self {
        self.is_by_api_key = true;
        self
    }

    pub fn access(mut self, access: RequiredAccess) -> Self {
        self.access = access;
        self
    }

    pub fn right(mut self, status: u16, code: i64) -> Self {
        self.right = (status, code);
        self
    }

    /// Asks for a WebSocket.
    pub fn upgraded(self) -> Self {
        self.header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .right(101, 0)
    }

    /// Names of the objects in the request.
    pub fn objects(&self, ids: &Ids) -> Vec<&'static str> {
        let is_named = |name: &&str| self.mentions(&format!("{{{name}}}"));
        ids.keys().copied().filter(is_named).collect()
    }

    /// Whether a text is in the URL, a header or the body of the request, before objects take the place of their names.
    pub fn mentions(&self, text: &str) -> bool {
        let headers = self.headers.iter().map(|(_, value)| value);
        let mut parts = headers.chain([&self.url, &self.body]);
        parts.any(|part| part.contains(text))
    }

    /// Whether the request names the agent that it is of, besides its credential.
    pub fn is_of_claimed_agent(&self) -> bool {
        self.headers.iter().any(|(_, value)| value == "{me}")
    }

    /// Sends the request as a caller, with a credential.
    pub async fn send(
        &self,
        site: &TestNode,
        who: &str,
        credential: ShownCredential<'_>,
        ids: &Ids,
    ) -> RowOutcome {
        // All of one length.
        static NEXT: AtomicU32 = AtomicU32::new(1_000_000);
        let number = NEXT.fetch_add(1, Relaxed).to_string();
        let fill = |text: &str| {
            let text = text.replace("{me}", &format!("corp.{who}"));
            let text = text.replace("{n}", &number);
            ids.iter().fold(text, |text, (name, id)| {
                text.replace(&format!("{{{name}}}"), id)
            })
        };
        let mut request = site.request(credential.certificate_of, self.method, &fill(&self.url));
        // Listeners without credentials refuse what a proxy passes on, and a certificate would be the proxy's.
        if self.access != RequiredAccess::Local && site.certificates.is_none() {
            request = forwarded(request);
        }
        request = request.header("accept", "application/json, text/event-stream");
        if !self.body.is_empty() {
            let body = fill(&self.body);
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, fill(value));
        }
        request = match credential.authorization {
            None => request,
            Some(shown) if self.is_by_api_key => {
                request.header("x-api-key", shown.strip_prefix("Bearer ").unwrap())
            }
            Some(shown) => request.header("authorization", shown),
        };
        let mut response = soon(&self.name, request.send()).await.unwrap();
        let header = |name| {
            let value = response.headers().get(name);
            value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
        };
        let (status, challenge) = (response.status().as_u16(), header("www-authenticate"));
        let is_stream = header("content-type").starts_with("text/event-stream");
        let body = match (status, is_stream) {
            (101, _) => String::new(),
            // It may have no event.
            (_, true) if self.method == "GET" => String::new(),
            (_, true) => {
                let mut read = String::new();
                while event_of(&read).is_none() {
                    let chunk = soon(&self.name, response.chunk()).await.unwrap();
                    let Some(chunk) = chunk else { break };
                    read += std::str::from_utf8(&chunk).unwrap();
                }
                event_of(&read).unwrap_or_default().to_owned()
            }
            (_, false) => soon(&self.name, response.text()).await.unwrap(),
        };
        RowOutcome {
            status,
            code: error_code(&body),
            challenge,
            body: body.replace(&number, "NUMBER"),
        }
    }
}

/// The first event with JSON of a stream, if it has arrived.
fn event_of(stream: &str) -> Option<&str> {
    let (events, _) = stream.rsplit_once("\n\n")?;
    let data = events.lines().filter_map(|line| line.strip_prefix("data:"));
    data.map(str::trim).find(|data| data.starts_with('{'))
}

/// Code of a tool's error, and of a task that failed.
const FAILED: i64 = 1;

fn error_code(body: &str) -> i64 {
    let read: Value = serde_json::from_str(body).unwrap_or_default();
    let failed = [
        "\"TASK_STATE_FAILED\"",
        "\"TASK_STATE_REJECTED\"",
        "\"state\":\"failed\"",
        "\"state\":\"rejected\"",
    ];
    match read["jsonrpc"].is_string() {
        true if read["error"].is_object() => read["error"]["code"].as_i64().unwrap_or(FAILED),
        true if read["result"]["isError"] == true => FAILED,
        _ if failed.iter().any(|state| body.contains(state)) => FAILED,
        _ => 0,
    }
}
