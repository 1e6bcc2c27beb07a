//! A server around an agent with everything, and a client that knows no types.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use callboard_a2a::inbound::{A2aOptions, A2aServer, ListenOptions, NamedAgents, serve};
use callboard_message::{Principal, PrincipalKind};
use callboard_rpc::{
    Access, BearerVerifier, CredentialError, SseDecoder, SseEvent, SseLimits, Trust,
};
use callboard_runtime::{AgentRef, System};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

pub use crate::everything::{Add, Echo, OnlyEcho, Sum, Watched};
pub use crate::lingering::Seen;

/// How long a test waits for what must happen.
pub const SOON: Duration = Duration::from_secs(10);

/// What `work` comes to, within [`SOON`].
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work)
        .await
        .expect("it did not happen in time")
}

/// Knows whoever gives a name as their key.
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

/// `alice` and `bob` are keys, and nothing else is.
pub fn named_keys() -> Access {
    Access::Bearer(Arc::new([Box::new(Names)]))
}

/// Options for a server on a free port: peers without a credential are this machine's operator.
pub fn options(listener: &TcpListener) -> A2aOptions {
    let address = listener.local_addr().unwrap();
    let mut options = A2aOptions::at(format!("http://{address}").parse().unwrap());
    options.access = Trust::LoopbackOperator.into();
    options.info.name = "everything".into();
    options
}

/// [`Everything`] behind a listener on a free port. Ends with [`Served::stop`].
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

    /// With an agent whose one skill is to say again what it is told.
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

    /// With other options.
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

    /// Serves agents by their names too.
    pub fn name<const N: usize>(
        &self,
        agents: [(&str, AgentRef); N],
        change: impl Fn(&mut A2aOptions),
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = |(name, agent): (&str, AgentRef)| {
            let mut options = options(&listener);
            options.info.name = name.into();
            change(&mut options);
            (name.to_owned(), A2aServer::new(agent, options))
        };
        self.named.set(agents.map(server).into());
    }

    /// A client of this server, at a path.
    pub fn client(&self) -> Peer {
        Peer::new(format!("http://{}", self.address))
    }

    /// Ends its listener and its server. Its agents, and tasks in a store that lasts, go on.
    pub async fn leave(self) -> System {
        self.handle.stop(false).await;
        self.server.leave();
        self.system
    }

    pub async fn stop(self) {
        self.handle.stop(false).await;
        self.server.stop().await;
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// A server with other options, and a client of it.
pub async fn serving(change: impl FnOnce(&mut A2aOptions)) -> (Served, Peer) {
    let served = Served::with(change).await;
    let peer = served.client();
    (served, peer)
}

/// A client: of the address' `/a2a` unless it is told otherwise.
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

    /// With another address.
    pub fn at(&self, path: &str) -> Self {
        Self {
            path: path.into(),
            ..self.clone()
        }
    }

    /// With one more header.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut peer = self.clone();
        peer.headers.push((name.into(), value.into()));
        peer
    }

    /// With this key.
    pub fn key(&self, key: &str) -> Self {
        self.with("Authorization", &format!("Bearer {key}"))
    }

    /// A request below the address.
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

    /// A whole JSON-RPC response.
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

    /// The result of a JSON-RPC request.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        let mut answer = self.rpc(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The code of the error that a JSON-RPC request comes to.
    pub async fn code(&self, method: &str, params: Value) -> i64 {
        let answer = self.rpc(method, params).await;
        answer["error"]["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    /// Status and body of a request of the HTTP+JSON binding.
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

    /// Opens the stream that a JSON-RPC request is answered with.
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

    /// The next event as it came; `None` at the stream's end.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.decoder.next().unwrap() {
                return Some(event);
            }
            let chunk = soon(self.response.chunk()).await.unwrap()?;
            self.decoder.push(&chunk);
        }
    }

    /// The JSON of the next event.
    pub async fn event(&mut self) -> Option<Value> {
        Some(serde_json::from_slice(&self.next().await?.data).unwrap())
    }

    /// The bytes of all that still comes, as a text.
    pub async fn rest(self) -> String {
        soon(self.response.text()).await.unwrap()
    }

    /// The results of all that still comes, as JSON-RPC wraps them.
    pub async fn results(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(mut event) = self.event().await {
            assert!(event.get("error").is_none(), "{event}");
            all.push(event["result"].take());
        }
        all
    }
}

/// A message of 1.0 with one text, under this id, for a skill.
pub fn said(id: &str, text: &str, skill: &str) -> Value {
    json!({
        "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }], "metadata": { "skill": skill },
    })
}

/// A message of 1.0 with one object, under this id, for a skill.
pub fn given(id: &str, data: Value, skill: &str) -> Value {
    json!({
        "messageId": id, "role": "ROLE_USER", "parts": [{ "data": data }], "metadata": { "skill": skill },
    })
}
