//! A client of a mail listener.

use std::time::Duration;

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_message::mail::{
    AGENT_ID_HEADER, AgentLogs, AgentStatus, AgentView, BroadcastMessage, Direction, Done,
    EntryState, History, Logs, MailId, MailView, MemberState, MessageHistory, Numbered,
    SendMessage, Sent,
};
use callboard_rpc::http1::{self, BodyError, Connector, NetError, Response, Target};
use futures::StreamExt;
use rand::Rng;
use reqwest::Method;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use url::Url;
use url::form_urlencoded::Serializer;

use crate::{ClientError, EVENT_SEQUENCE};

/// Bytes of an answer that the client reads: a page of 100 whole letters, each byte escaped. A longer one is
/// [`ClientError::Unreadable`].
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take: longer than the server gives the mailroom.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const AGENT_ID: HeaderName = HeaderName::from_static(AGENT_ID_HEADER);

/// An agent at a mail listener: its key, and the id that goes with it. Its clones share their connections.
#[derive(derive_more::Debug, Clone)]
#[debug("Client {{ base: {:?}, .. }}", base.as_str())]
pub struct Client {
    http: http1::Client,
    base: Url,
    headers: HeaderMap,
}

impl Client {
    /// Without a connection yet. `base` is the listener's address; without a key only a listener that trusts its machine's
    /// operator answers, to the id `operator`.
    ///
    /// # Errors
    /// [`ClientError::Address`], [`ClientError::Key`].
    pub fn new(
        base: Url,
        key: impl Into<Option<SecretString>>,
        id: &MailId,
    ) -> Result<Self, ClientError> {
        let is_bare = base.path() == "/" && base.query().is_none() && base.username().is_empty();
        if !matches!(base.scheme(), "http" | "https")
            || !base.has_host()
            || !is_bare
            || base.password().is_some()
        {
            return Err(ClientError::Address);
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            AGENT_ID,
            HeaderValue::from_str(id.as_str()).map_err(|_| ClientError::Key)?,
        );
        if let Some(key) = key.into() {
            let shown = format!("Bearer {}", key.expose_secret());
            let mut value = HeaderValue::from_str(&shown).map_err(|_| ClientError::Key)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let connector = Connector::new(CONNECT_TIMEOUT).map_err(|_| ClientError::Unreachable)?;
        Ok(Self {
            http: http1::Client::new(connector),
            base,
            headers,
        })
    }

    /// Tells all active agents, or a group.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn broadcast(&self, message: &BroadcastMessage) -> Result<Sent, ClientError> {
        self.post("/api/broadcast_message?detail=true", message)
            .await
    }

    /// Writes to one agent, or to a list. A recipient that can't be written to is no error: see [`Sent::success`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send(&self, message: &SendMessage) -> Result<Sent, ClientError> {
        self.post("/api/send_message?detail=true", message).await
    }

    /// Answers a message: its sender gets it, and its other recipients where they are to.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reply(
        &self,
        to: &MailId,
        message: &str,
        to_all: bool,
    ) -> Result<Sent, ClientError> {
        let body = RawObject::new()
            .with("message", message)
            .with("to_all", to_all);
        self.post(&format!("/api/messages/{to}/reply?detail=true"), &body)
            .await
    }

    /// Who is here; in this state only.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agents(&self, state: Option<MemberState>) -> Result<AgentStatus, ClientError> {
        let query = Query::default().add("state", state.map(MemberState::as_str));
        self.get(&query.behind("/api/agents")).await
    }

    /// One agent.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agent(&self, id: &MailId) -> Result<AgentView, ClientError> {
        self.get(&format!("/api/agents/{id}")).await
    }

    /// Says that an agent is terminated, or that it is back.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_agent(&self, id: &MailId, back: bool) -> Result<Done, ClientError> {
        self.post(
            &format!("/api/agents/{id}/{}", if back { "back" } else { "end" }),
            &RawObject::new(),
        )
        .await
    }

    /// A page of messages, newest first, with what was sent. They count as delivered.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn messages(&self, filter: &MessageHistory) -> Result<History, ClientError> {
        let query = Query::default()
            .add("box", filter.direction.map(Direction::as_str))
            .add("from", filter.from.as_deref())
            .add("with", filter.with.as_deref())
            .add("topic", filter.topic.as_deref())
            .add("thread", filter.thread.as_deref())
            .add("text", filter.text.as_deref())
            .add("since", filter.since.as_deref())
            .add("until", filter.until.as_deref())
            .add("state", filter.state.map(EntryState::as_str))
            .add("after", filter.after)
            .add("limit", filter.limit);
        self.get(&query.behind("/api/messages")).await
    }

    /// One message, with its receipts where they are wanted. It counts as delivered.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn message(&self, id: &MailId, receipts: bool) -> Result<MailView, ClientError> {
        self.get(
            &Query::default()
                .add("receipts", receipts.then_some(true))
                .behind(&format!("/api/messages/{id}")),
        )
        .await
    }

    /// Says that a message is read.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn mark_read(&self, id: &MailId) -> Result<Done, ClientError> {
        self.post(&format!("/api/messages/{id}/read"), &RawObject::new())
            .await
    }

    /// Who wrote to whom, oldest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agent_logs(&self, asked: &AgentLogs) -> Result<Logs, ClientError> {
        let query = Query::default()
            .add("agent_id", asked.agent_id.as_deref())
            .add("after", asked.after)
            .add("limit", asked.limit);
        self.get(&query.behind("/api/agent_logs")).await
    }

    /// What happens, from a number on (0: the oldest that is kept), or from now on. It goes on by itself when its
    /// connection breaks, and shows each event once. `types` are names of events; none: all of them.
    pub fn events(&self, after: Option<u64>, types: &[&str]) -> EventStream {
        EventStream::new(self.clone(), after, types)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, self.headers.clone(), Bytes::new())
            .await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|_| ClientError::Unreadable)?;
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.ask(Method::POST, path, headers, body.into()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let url = self.base.join(path).map_err(|_| ClientError::Address)?;
        let target = Target::new(&url).ok_or(ClientError::Address)?;
        let exchange = async {
            let response = self
                .http
                .send(&target, method, headers, body)
                .await
                .map_err(of_net)?;
            let (status, retry_after_s) = (response.status().as_u16(), retry_after_s(&response));
            let body = response
                .body(ANSWER_BYTES_MAX)
                .await
                .map_err(|error| match error {
                    BodyError::TooLarge => ClientError::Unreadable,
                    BodyError::Net(error) => of_net(error),
                })?;
            match status {
                200 => serde_json::from_slice(&body).map_err(|_| ClientError::Unreadable),
                _ => Err(refused(status, &body, retry_after_s)),
            }
        };
        let in_time = timeout(ANSWER_TIMEOUT, exchange).await;
        in_time.map_err(|_| ClientError::TimedOut(ANSWER_TIMEOUT))?
    }
}

fn of_net(error: NetError) -> ClientError {
    match error {
        NetError::Unreachable => ClientError::Unreachable,
        NetError::Broken => ClientError::Broken,
    }
}

fn retry_after_s(response: &Response) -> Option<u64> {
    response
        .headers()
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// What a status other than 200 says, in the server's own words where they are a mail listener's.
fn refused(status: u16, body: &[u8], retry_after_s: Option<u64>) -> ClientError {
    #[derive(Deserialize)]
    struct Told {
        detail: String,
    }
    let told = serde_json::from_slice::<Told>(body)
        .ok()
        .map(|told| told.detail);
    let detail = told.unwrap_or_else(|| "the server refuses".to_owned());
    ClientError::Refused {
        status,
        detail,
        retry_after_s,
    }
}

/// The query of a path.
#[derive(Default)]
struct Query(String);

impl Query {
    fn add(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let written = Serializer::new(String::new())
                .append_pair(name, &value.to_string())
                .finish();
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(&written);
        }
        self
    }

    fn behind(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

/// Most bytes of an event: one names at most 256 agents.
const EVENT_BYTES_MAX: usize = 64 * 1024;
/// How long to wait before a broken connection is made anew; each further wait is twice as long.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
/// The longest wait.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long nothing may come, the server's pings included.
const SILENCE_MAX: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What a stream of events hears.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Heard {
    /// An event.
    Event(Numbered),
    /// The connection broke, for this reason; the stream goes on by itself.
    Broken(ClientError),
}

/// Events in order, each once, over as many connections as it takes.
pub struct EventStream {
    client: Client,
    types: String,
    place: Place,
    socket: Option<Socket>,
    retry_after: Duration,
    /// Its connection has shown nothing yet.
    is_fresh: bool,
}

/// Where the stream is. What one thing gave rise to has one number, so a connection may break in the midst of a number.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The number to begin after, until an event has come; `None`: now.
    after: Option<u64>,
    /// The number of the last event that came, and how many came under it.
    last: Option<(u64, usize)>,
    /// How many more events of that number are known already.
    known: usize,
}

impl Place {
    /// The value of `after` for the next connection. The last number is asked for once more, less what is known of it.
    fn resume(&mut self) -> Option<u64> {
        let Some((sequence, came)) = self.last else {
            return self.after;
        };
        self.known = came;
        Some(sequence.saturating_sub(1))
    }

    /// Whether an event is a new one.
    fn is_new(&mut self, sequence: u64) -> bool {
        match &mut self.last {
            Some((last, _)) if *last == sequence && self.known > 0 => {
                self.known -= 1;
                false
            }
            Some((last, came)) if *last == sequence => {
                *came += 1;
                true
            }
            last => {
                *last = Some((sequence, 1));
                self.known = 0;
                true
            }
        }
    }
}

impl EventStream {
    fn new(client: Client, after: Option<u64>, types: &[&str]) -> Self {
        let place = Place {
            after,
            ..Place::default()
        };
        Self {
            client,
            types: types.join(","),
            place,
            socket: None,
            retry_after: RECONNECT_PAUSE,
            is_fresh: false,
        }
    }

    /// Connects, unless it is connected: what happens after this is heard, however often the connection breaks.
    ///
    /// # Errors
    /// See [`ClientError`]: nobody has tried again.
    pub async fn ready(&mut self) -> Result<(), ClientError> {
        if self.socket.is_none() {
            self.socket = Some(self.connect().await?);
        }
        Ok(())
    }

    /// What comes next. A connection that breaks is told of and made anew: only what will not pass ends the stream. Dropped
    /// before it is done, it loses nothing.
    ///
    /// # Errors
    /// What will not pass: the key or id is refused, the place doesn't exist, this is no mail listener.
    pub async fn next(&mut self) -> Result<Heard, ClientError> {
        loop {
            if let Err(error) = self.ready().await {
                if !error.may_pass() {
                    return Err(error);
                }
                self.wait().await;
                return Ok(Heard::Broken(error));
            }
            let Some(socket) = &mut self.socket else {
                continue;
            };
            let heard = timeout(SILENCE_MAX, socket.next()).await;
            match heard {
                Ok(Some(Ok(Message::Text(text)))) => {
                    let event: Numbered =
                        serde_json::from_str(&text).map_err(|_| ClientError::Unreadable)?;
                    (self.retry_after, self.is_fresh) = (RECONNECT_PAUSE, false);
                    if self.place.is_new(event.sequence) {
                        return Ok(Heard::Event(event));
                    }
                }
                // Pings are answered by the socket itself.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(Some(Ok(Message::Close(Some(told))))) if told.code == CloseCode::Policy => {
                    let detail = told.reason.to_string();
                    return Err(ClientError::Refused {
                        status: 403,
                        detail,
                        retry_after_s: None,
                    });
                }
                _ => {
                    self.socket = None;
                    if self.is_fresh {
                        self.wait().await;
                    }
                    return Ok(Heard::Broken(ClientError::Broken));
                }
            }
        }
    }

    /// Breaks the connection, as a network would.
    pub fn cut(&mut self) {
        self.socket = None;
    }

    async fn wait(&mut self) {
        let part = rand::rng().random_range(0.5..1.0);
        sleep(self.retry_after.mul_f64(part)).await;
        self.retry_after = (self.retry_after * 2).min(RECONNECT_PAUSE_MAX);
    }

    async fn connect(&mut self) -> Result<Socket, ClientError> {
        let after = self
            .place
            .resume()
            .map_or_else(|| "now".to_owned(), |after| after.to_string());
        let types = (!self.types.is_empty()).then_some(&self.types);
        let path = Query::default()
            .add("after", Some(after))
            .add("types", types)
            .behind("/api/events");
        let mut url = self
            .client
            .base
            .join(&path)
            .map_err(|_| ClientError::Address)?;
        let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
        url.set_scheme(scheme).map_err(|()| ClientError::Address)?;
        let mut request = url
            .as_str()
            .into_client_request()
            .map_err(|_| ClientError::Address)?;
        request.headers_mut().extend(self.client.headers.clone());
        let bytes_max = Some(EVENT_BYTES_MAX);
        let config = WebSocketConfig::default()
            .max_message_size(bytes_max)
            .max_frame_size(bytes_max);
        // The last argument: small messages aren't held back (TCP_NODELAY).
        let connecting = timeout(
            CONNECT_TIMEOUT,
            connect_async_with_config(request, Some(config), true),
        );
        match connecting
            .await
            .map_err(|_| ClientError::TimedOut(CONNECT_TIMEOUT))?
        {
            Ok((socket, response)) => {
                let newest = response
                    .headers()
                    .get(EVENT_SEQUENCE)
                    .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
                self.place.after = self.place.after.or(newest);
                self.is_fresh = true;
                Ok(socket)
            }
            Err(Error::Http(response)) => {
                let body: &[u8] = response.body().as_deref().unwrap_or_default();
                Err(refused(response.status().as_u16(), body, None))
            }
            Err(_) => Err(ClientError::Unreachable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever breaks where, each event is shown once. Method: numbers with one, two and three events, cut after each
    /// single event.
    #[test]
    fn places() {
        let all: Vec<(u64, usize)> = [
            (1, 0),
            (1, 1),
            (3, 0),
            (4, 0),
            (4, 1),
            (4, 2),
            (6, 0),
            (6, 1),
        ]
        .into();
        for every in 1..all.len() {
            let (mut place, mut shown) = (
                Place {
                    after: Some(0),
                    ..Place::default()
                },
                Vec::<&(u64, usize)>::new(),
            );
            while shown.len() < all.len() {
                let after = place.resume().unwrap();
                let sent = all.iter().filter(|(sequence, _)| *sequence > after);
                let new = sent
                    .filter(|(sequence, _)| place.is_new(*sequence))
                    .take(every)
                    .collect::<Vec<_>>();
                shown.extend(new);
            }
            assert_eq!(
                shown,
                all.iter().collect::<Vec<_>>(),
                "cut after every {every}"
            );
        }
    }
}
