//! Helpers: a server of an agent with every feature, and an untyped client.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use callboard_a2a::inbound::{A2aOptions, A2aServer, ListenOptions, NamedAgents, serve};
use callboard_message::{Principal, PrincipalKind};
use callboard_rpc::{
    AccessControl, BearerVerifier, CredentialError, SseDecoder, SseEvent, SseLimits,
    UnauthenticatedAccess,
};
use callboard_runtime::{AgentRef, System};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

pub use crate::everything::{Add, Echo, OnlyEcho, Sum, Watched};
pub use crate::lingering::Seen;

/// Timeout for anything that must happen.
pub const SOON: Duration = Duration::from_secs(10);

/// Waits for `work`, at most for [`SOON`].
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work)
        .await
        .expect("it did not happen in time")
}

/// Authentication that accepts any name as the key of its principal.
struct Names;

impl BearerVerifier for Names {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        let id = String::from_utf8_lossy(token).into_owned();
        Some(match &*id {
            "alice" | "bob" => Ok(Principal {
                id,
                kind: PrincipalKind::ApiKey,
                scopes: Vec::new(),
                purpose: None,
            }),
            _ => Err(CredentialError::Wrong),
        })
    }
}

/// Returns access control with the keys `alice` and `bob` only.
pub fn named_keys() -> AccessControl {
    AccessControl::Bearer(Arc::new([Box::new(Names)]))
}

/// Returns options for a server on a free port. Peers without a credential count as this machine's
/// operator.
pub fn options(listener: &TcpListener) -> A2aOptions {
    let address = listener.local_addr().unwrap();
    let mut options = A2aOptions::new(format!("http://{address}").parse().unwrap());
    options.access = UnauthenticatedAccess::LoopbackOperator.into();
    options.agent.name = "everything".into();
    options
}

/// [`Everything`] behind a listener on a free port. Must be stopped with [`Served::stop`].
pub struct Served {
    pub address: SocketAddr,
    pub system: System,
    pub watched: Watched,
    pub server: A2aServer,
    pub named: NamedAgents,
    handle: ServerHandle,
}

impl Served {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server of an agent whose only skill is an echo.
    pub async fn answering() -> Self {
        let system = System::start(1).unwrap();
        let agent = system.spawn_with(|| OnlyEcho);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = A2aServer::new(agent, options(&listener));
        Self::serving(
            listener,
            system,
            Watched::new(),
            server,
            &ListenOptions::default(),
        )
    }

    /// Starts a server with changed options.
    pub async fn with(change: impl FnOnce(&mut A2aOptions)) -> Self {
        let system = System::start(1).unwrap();
        let watched = Watched::new();
        let agent = watched.spawn(&system);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut options = options(&listener);
        change(&mut options);
        let server = A2aServer::new(agent, options);
        Self::serving(listener, system, watched, server, &ListenOptions::default())
    }

    pub fn serving(
        listener: TcpListener,
        system: System,
        watched: Watched,
        server: A2aServer,
        listen: &ListenOptions,
    ) -> Self {
        let named = NamedAgents::default();
        let serving = serve(listener, server.clone(), named.clone(), listen).unwrap();
        let handle = serving.server.handle();
        tokio::spawn(serving.server);
        Self {
            address: serving.address,
            system,
            watched,
            server,
            named,
            handle,
        }
    }

    /// Adds named agents to the server.
    pub fn name<const N: usize>(
        &self,
        agents: [(&str, AgentRef); N],
        change: impl Fn(&mut A2aOptions),
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = |(name, agent): (&str, AgentRef)| {
            let mut options = options(&listener);
            options.agent.name = name.into();
            change(&mut options);
            (name.to_owned(), A2aServer::new(agent, options))
        };
        self.named.set(agents.map(server).into());
    }

    /// Returns a client of this server at a path.
    pub fn client(&self) -> Peer {
        Peer::new(format!("http://{}", self.address))
    }

    /// Stops the listener and the server. Its agents, and tasks in a durable store, continue.
    pub async fn leave(self) -> System {
        self.handle.stop(false).await;
        self.server.detach();
        self.system
    }

    pub async fn stop(self) {
        self.handle.stop(false).await;
        self.server.stop().await;
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// Starts a server with changed options, and a client of it.
pub async fn serving(change: impl FnOnce(&mut A2aOptions)) -> (Served, Peer) {
    let served = Served::with(change).await;
    let peer = served.client();
    (served, peer)
}

/// An untyped client, of the path `/a2a` by default.
#[derive(Clone)]
pub struct Peer {
    http: Client,
    base: String,
    path: String,
    headers: Vec<(String, String)>,
}

impl Peer {
    pub fn new(base: impl Into<String>) -> Self {
        let http = Client::builder().no_proxy().build().unwrap();
        Self {
            http,
            base: base.into(),
            path: "/a2a".into(),
            headers: Vec::new(),
        }
    }

    /// Returns the client with another path.
    pub fn at(&self, path: &str) -> Self {
        Self {
            path: path.into(),
            ..self.clone()
        }
    }

    /// Returns the client with one more header.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut peer = self.clone();
        peer.headers.push((name.into(), value.into()));
        peer
    }

    /// Returns the client with this key.
    pub fn key(&self, key: &str) -> Self {
        self.with("Authorization", &format!("Bearer {key}"))
    }

    /// Begins a request below the client's path.
    pub fn request(&self, method: Method, tail: &str) -> RequestBuilder {
        let request = self
            .http
            .request(method, format!("{}{}{tail}", self.base, self.path));
        self.headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }

    /// Posts bytes as JSON.
    pub async fn post(&self, tail: &str, body: impl Into<reqwest::Body>) -> Response {
        let request = self
            .request(Method::POST, tail)
            .header("Content-Type", "application/json")
            .body(body);
        soon(request.send()).await.unwrap()
    }

    /// Sends a JSON-RPC request and returns the whole response.
    pub async fn rpc(&self, method: &str, params: Value) -> Value {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let response = self.post("", body).await;
        assert_eq!(response.status(), 200, "{method}");
        let answer: Value = serde_json::from_slice(&soon(response.bytes()).await.unwrap()).unwrap();
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &json!(1)),
            "{answer}"
        );
        answer
    }

    /// Sends a JSON-RPC request and returns its result.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        let mut answer = self.rpc(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Sends a JSON-RPC request and returns the code of its error.
    pub async fn code(&self, method: &str, params: Value) -> i64 {
        let answer = self.rpc(method, params).await;
        answer["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    /// Sends a request of HTTP+JSON and returns status and body.
    pub async fn rest(&self, method: Method, tail: &str, body: Option<Value>) -> (u16, Value) {
        let request = self.request(method, tail);
        let request = match body {
            Some(body) => request
                .header("Content-Type", "application/json")
                .body(body.to_string()),
            None => request,
        };
        let response = soon(request.send()).await.unwrap();
        let (status, body) = (
            response.status().as_u16(),
            soon(response.bytes()).await.unwrap(),
        );
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Sends a JSON-RPC request and returns its event stream.
    pub async fn stream(&self, method: &str, params: Value) -> Stream {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        Stream::of(self.post("", body).await)
    }
}

/// An event stream that is read event by event.
pub struct Stream {
    response: Response,
    decoder: SseDecoder,
}

impl Stream {
    pub fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            decoder: SseDecoder::new(&SseLimits::default()),
        }
    }

    /// Waits for the next raw event; `None` at the stream's end.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.decoder.next().unwrap() {
                return Some(event);
            }
            let chunk = soon(self.response.chunk()).await.unwrap()?;
            self.decoder.push(&chunk);
        }
    }

    /// Waits for the next event and returns its JSON.
    pub async fn event(&mut self) -> Option<Value> {
        Some(serde_json::from_slice(&self.next().await?.data).unwrap())
    }

    /// Returns the remaining bytes of the stream as a text.
    pub async fn rest(self) -> String {
        soon(self.response.text()).await.unwrap()
    }

    /// Returns the results of all remaining events, which are JSON-RPC responses.
    pub async fn results(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(mut event) = self.event().await {
            assert!(event.get("error").is_none(), "{event}");
            all.push(event["result"].take());
        }
        all
    }
}

/// Returns a message of 1.0 with an id and one text, for a skill.
pub fn said(id: &str, text: &str, skill: &str) -> Value {
    json!({
        "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }], "metadata": { "skill": skill },
    })
}

/// Returns a message of 1.0 with an id and one object, for a skill.
pub fn given(id: &str, data: Value, skill: &str) -> Value {
    json!({
        "messageId": id, "role": "ROLE_USER", "parts": [{ "data": data }], "metadata": { "skill": skill },
    })
}
