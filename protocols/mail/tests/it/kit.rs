//! Test kit: a listener with a substitute for the mailroom, and clients without the project's
//! types.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use callboard_mail::inbound::{ListenOptions, MailServer, MailServerOptions, serve};
use callboard_message::mail::MailEvent;
use callboard_message::{Principal, PrincipalKind};
use callboard_rpc::{AccessControl, BearerVerifier, CredentialError};
use callboard_runtime::System;
use futures::{SinkExt, StreamExt};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::room::Room;

/// Maximum time that a test waits for a condition.
pub const SOON: Duration = Duration::from_secs(20);

/// Returns the result of `work`, which must complete within [`SOON`].
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work)
        .await
        .expect("it did not happen in time")
}

/// Verifier that accepts every name as a key, unless it is revoked.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<Vec<String>>>);

impl Names {
    pub fn revoke(&self, name: &str) {
        self.0.lock().unwrap().push(name.to_owned());
    }
}

impl BearerVerifier for Names {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        let id = String::from_utf8_lossy(token).into_owned();
        if self.0.lock().unwrap().contains(&id) {
            return Some(Err(CredentialError::Wrong));
        }
        let scopes = match &*id {
            "alice" | "bob" | "gone" => Vec::new(),
            "watcher" => vec!["mail.watch".to_owned()],
            "guide" => vec!["mail.guardian".to_owned()],
            _ => return Some(Err(CredentialError::Wrong)),
        };
        Some(Ok(Principal {
            id,
            kind: PrincipalKind::ApiKey,
            scopes,
            purpose: None,
        }))
    }
}

/// A mail server on a free port.
pub struct Served {
    pub address: SocketAddr,
    pub system: System,
    pub room: Room,
    pub server: MailServer,
    pub names: Names,
    handle: ServerHandle,
}

impl Served {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server with changed options.
    pub async fn with(change: impl FnOnce(&mut MailServerOptions)) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), change).await
    }

    /// Starts a server at the address of a stopped one, with its state.
    pub fn again(address: SocketAddr, room: Room, names: Names) -> Self {
        Self::serving(TcpListener::bind(address).unwrap(), room, names, |_| {})
    }

    /// Starts a server on the given socket.
    pub async fn on(listener: TcpListener, change: impl FnOnce(&mut MailServerOptions)) -> Self {
        Self::serving(listener, Room::default(), Names::default(), change)
    }

    fn serving(
        listener: TcpListener,
        room: Room,
        names: Names,
        change: impl FnOnce(&mut MailServerOptions),
    ) -> Self {
        let system = System::start(1).unwrap();
        let made = room.clone();
        let agent = system.spawn_with(move || made.clone());
        let access = AccessControl::Bearer(Arc::new([Box::new(names.clone())]));
        let mut options = MailServerOptions {
            access,
            ..MailServerOptions::default()
        };
        change(&mut options);
        let server = MailServer::new(agent, options);
        let listen = ListenOptions {
            drain_timeout: Duration::ZERO,
            ..ListenOptions::default()
        };
        let serving = serve(listener, server.clone(), &listen).unwrap();
        let handle = serving.server.handle();
        tokio::spawn(serving.server);
        Self {
            address: serving.address,
            system,
            room,
            server,
            names,
            handle,
        }
    }

    pub fn happen(&self, events: impl IntoIterator<Item = MailEvent>) -> u64 {
        self.room.happen(&self.system, events)
    }

    /// Returns a client with the key and id of an agent.
    pub fn agent(&self, id: &str) -> Peer {
        self.nobody()
            .with("Authorization", &format!("Bearer {id}"))
            .with("X-Agent-ID", id)
    }

    /// Returns a client without credentials.
    pub fn nobody(&self) -> Peer {
        let http = Client::builder().no_proxy().build().unwrap();
        Peer {
            http,
            base: format!("http://{}", self.address),
            headers: Vec::new(),
        }
    }

    pub async fn stop(self) {
        self.server.stop().await;
        self.handle.stop(false).await;
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// HTTP client of a test.
#[derive(Clone)]
pub struct Peer {
    http: Client,
    base: String,
    headers: Vec<(String, String)>,
}

impl Peer {
    /// Returns the client with an additional header.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut peer = self.clone();
        peer.headers.push((name.into(), value.into()));
        peer
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        self.headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }

    pub async fn get(&self, path: &str) -> Reply {
        Reply::of(soon(self.request(Method::GET, path).send()).await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Reply {
        let request = self
            .request(Method::POST, path)
            .header("Content-Type", "application/json")
            .body(body);
        Reply::of(soon(request.send()).await.unwrap()).await
    }

    /// Opens an event socket; `Err` has the status if the handshake is rejected.
    pub async fn listen(&self, query: &str) -> Result<EventSocketClient, u16> {
        let address = self.base.strip_prefix("http://").unwrap();
        let stream = soon(TcpStream::connect(address)).await.unwrap();
        self.listen_on(stream, query).await
    }

    /// Opens an event socket on an existing connection.
    pub async fn listen_on(
        &self,
        stream: TcpStream,
        query: &str,
    ) -> Result<EventSocketClient, u16> {
        self.open_socket(stream, &format!("/api/events{query}"))
            .await
    }

    /// Opens an event socket at a path of its own.
    pub async fn listen_at(&self, path: &str) -> Result<EventSocketClient, u16> {
        let address = self.base.strip_prefix("http://").unwrap();
        let stream = soon(TcpStream::connect(address)).await.unwrap();
        self.open_socket(stream, path).await
    }

    async fn open_socket(&self, stream: TcpStream, path: &str) -> Result<EventSocketClient, u16> {
        let url = format!("ws{}{path}", self.base.strip_prefix("http").unwrap());
        let mut request = url.into_client_request().unwrap();
        for (name, value) in &self.headers {
            let name: reqwest::header::HeaderName = name.parse().unwrap();
            let value = value.parse().unwrap();
            match name == reqwest::header::HOST {
                true => drop(request.headers_mut().insert(name, value)),
                false => drop(request.headers_mut().append(name, value)),
            }
        }
        match soon(client_async(request, stream)).await {
            Ok((socket, _)) => Ok(EventSocketClient(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("no answer to the handshake: {error}"),
        }
    }
}

/// HTTP response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Reply {
    async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self {
            status,
            headers,
            text: soon(response.text()).await.unwrap(),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the `detail` of an error response.
    pub fn detail(&self) -> String {
        let json = self.json();
        assert_eq!(
            json.as_object().map(|object| object.len()),
            Some(1),
            "{json}"
        );
        json["detail"].as_str().unwrap().to_owned()
    }
}

/// Client side of an event socket.
pub struct EventSocketClient(WebSocketStream<TcpStream>);

/// Message from an event socket.
#[derive(Debug, PartialEq)]
pub enum SocketItem {
    Frame(String),
    Closed(u16, String),
    /// Closed without a close frame.
    Gone,
}

impl EventSocketClient {
    pub async fn next(&mut self) -> SocketItem {
        loop {
            match soon(self.0.next()).await {
                Some(Ok(Message::Text(text))) => return SocketItem::Frame(text.to_string()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(Some(why)))) => {
                    return SocketItem::Closed(why.code.into(), why.reason.to_string());
                }
                _ => return SocketItem::Gone,
            }
        }
    }

    pub async fn json(&mut self) -> Value {
        match self.next().await {
            SocketItem::Frame(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("no frame: {other:?}"),
        }
    }

    pub async fn say(&mut self, message: Message) {
        soon(self.0.send(message)).await.unwrap();
    }

    /// Sends bytes without framing them.
    pub async fn raw(&mut self, bytes: &[u8]) {
        soon(self.0.get_mut().write_all(bytes)).await.unwrap();
    }

    /// Returns the TCP connection.
    pub fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }
}
