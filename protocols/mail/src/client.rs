//! Client of a mail listener.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_message::mail::{
    AGENT_ID_HEADER, AgentLogPage, AgentLogs, AgentStatus, AgentView, BroadcastMessage,
    DeliveryState, MailAck, MailDirection, MailView, MemberId, MemberState, MessageHistory,
    MessageHistoryPage, NumberedMailEvent, SendMessage, SendReceipt,
};
use callboard_rpc::ClientTls;
use callboard_rpc::http1::{
    self, BodyError, ClientResponse, ConnectFailure, Connector, NetError, RequestTarget,
};
use futures::StreamExt;
use rand::RngExt;
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
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};
use url::Url;
use url::form_urlencoded::Serializer;

use crate::{EVENT_SEQUENCE_HEADER, MailClientError};

/// Maximum size of a response body, in bytes: room for 100 messages of maximum length with each
/// byte escaped. A larger body is [`MailClientError::InvalidResponse`].
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request, from connecting to the end of the response. It is longer than the server's
/// default deadline for the mailroom (10 s).
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
const AGENT_ID: HeaderName = HeaderName::from_static(AGENT_ID_HEADER);

/// HTTP client of one agent for a mail server, with the agent's key and id. Clones share
/// connections.
#[derive(derive_more::Debug, Clone)]
#[debug("Client {{ base: {:?}, .. }}", base.as_str())]
pub struct MailClient {
    http: http1::Http1Client,
    base: Url,
    headers: HeaderMap,
    tls: ClientTls,
}

impl MailClient {
    /// Creates a client without connecting. `base` is the server's address, such as `https://HOST`.
    /// `id` is the agent id that is sent with each request; it must match the key. Without a key,
    /// only a server that trusts the local operator accepts requests, and `id` must be `operator`.
    ///
    /// # Errors
    /// [`MailClientError::InvalidAddress`] or [`MailClientError::InvalidKey`];
    /// [`MailClientError::Unreachable`] if TLS can't be set up.
    pub fn new(
        base: Url,
        key: impl Into<Option<SecretString>>,
        id: &MemberId,
    ) -> Result<Self, MailClientError> {
        let is_bare = base.path() == "/" && base.query().is_none() && base.username().is_empty();
        if !matches!(base.scheme(), "http" | "https")
            || !base.has_host()
            || !is_bare
            || base.password().is_some()
        {
            return Err(MailClientError::InvalidAddress);
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            AGENT_ID,
            HeaderValue::from_str(id.as_str()).map_err(|_| MailClientError::InvalidKey)?,
        );
        if let Some(key) = key.into() {
            let shown = format!("Bearer {}", key.expose_secret());
            let mut value =
                HeaderValue::from_str(&shown).map_err(|_| MailClientError::InvalidKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let tls = ClientTls::default();
        Ok(Self {
            http: http_client(&base, &tls)?,
            base,
            headers,
            tls,
        })
    }

    /// Sets the authorities that the server's certificate may be of, and the client's own
    /// certificate.
    ///
    /// # Errors
    /// [`MailClientError::Unreachable`] if TLS can't be set up.
    pub fn with_tls(mut self, tls: ClientTls) -> Result<Self, MailClientError> {
        self.http = http_client(&self.base, &tls)?;
        self.tls = tls;
        Ok(self)
    }

    /// Sends a message to all agents that the sender can see, or to those of a group. Agents that
    /// are away get it too, terminated ones don't.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn broadcast(
        &self,
        message: &BroadcastMessage,
    ) -> Result<SendReceipt, MailClientError> {
        self.post("/api/broadcast_message?detail=true", message)
            .await
    }

    /// Sends a message to one agent or to a list of agents. An unreachable recipient is not an
    /// error, but reported by [`SendReceipt::success`].
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn send(&self, message: &SendMessage) -> Result<SendReceipt, MailClientError> {
        self.post("/api/send_message?detail=true", message).await
    }

    /// Replies to the sender of the message with the id `to`. If `to_all` is set, its other
    /// recipients get the reply too.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn reply(
        &self,
        to: &MemberId,
        message: &str,
        to_all: bool,
    ) -> Result<SendReceipt, MailClientError> {
        let body = RawObject::new()
            .with("message", message)
            .with("to_all", to_all);
        self.post(&format!("/api/messages/{to}/reply?detail=true"), &body)
            .await
    }

    /// Returns the agents that the caller may see. If `state` is given, returns only agents in that
    /// state.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn agents(&self, state: Option<MemberState>) -> Result<AgentStatus, MailClientError> {
        let query = QueryString::default().add("state", state.map(MemberState::as_str));
        self.get(&query.append_to("/api/agents")).await
    }

    /// Returns one agent by id.
    ///
    /// # Errors
    /// `Refused` with status 404 if there is no such agent, or the caller may not see it. See
    /// [`MailClientError`].
    pub async fn agent(&self, id: &MemberId) -> Result<AgentView, MailClientError> {
        self.get(&format!("/api/agents/{id}")).await
    }

    /// Marks an agent as back if `back` is set, else as ended. Requires the scope `mail.admin`.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn end_agent(&self, id: &MemberId, back: bool) -> Result<MailAck, MailClientError> {
        self.post(
            &format!("/api/agents/{id}/{}", if back { "back" } else { "end" }),
            &RawObject::new(),
        )
        .await
    }

    /// Returns a page of the caller's messages that match `filter`, newest first, with their
    /// original text. A filter without direction returns received messages only. The server marks
    /// received messages as delivered.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn messages(
        &self,
        filter: &MessageHistory,
    ) -> Result<MessageHistoryPage, MailClientError> {
        let query = QueryString::default()
            .add("box", filter.direction.map(MailDirection::as_str))
            .add("from", filter.from.as_deref())
            .add("with", filter.with.as_deref())
            .add("topic", filter.topic.as_deref())
            .add("thread", filter.thread.as_deref())
            .add("text", filter.text.as_deref())
            .add("since", filter.since.as_deref())
            .add("until", filter.until.as_deref())
            .add("state", filter.state.map(DeliveryState::as_str))
            .add("after", filter.after)
            .add("limit", filter.limit);
        self.get(&query.append_to("/api/messages")).await
    }

    /// Returns one message with its original text. If `receipts` is set and the caller is the
    /// sender, the delivery state for each recipient is included. The server marks a received
    /// message as delivered.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn message(
        &self,
        id: &MemberId,
        receipts: bool,
    ) -> Result<MailView, MailClientError> {
        self.get(
            &QueryString::default()
                .add("receipts", receipts.then_some(true))
                .append_to(&format!("/api/messages/{id}")),
        )
        .await
    }

    /// Marks a message as read.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn mark_read(&self, id: &MemberId) -> Result<MailAck, MailClientError> {
        self.post(&format!("/api/messages/{id}/read"), &RawObject::new())
            .await
    }

    /// Returns a page of the communication log, oldest first: one row for each message and
    /// recipient.
    ///
    /// # Errors
    /// See [`MailClientError`].
    pub async fn agent_logs(&self, asked: &AgentLogs) -> Result<AgentLogPage, MailClientError> {
        let query = QueryString::default()
            .add("agent_id", asked.agent_id.as_deref())
            .add("after", asked.after)
            .add("limit", asked.limit);
        self.get(&query.append_to("/api/agent_logs")).await
    }

    /// Creates a stream of mail events. It begins after the sequence number `after` (0 for the
    /// oldest stored event), or with the next new event if `after` is `None`. `types` are the names
    /// of the event types to receive; empty for all. The stream reconnects by itself and returns
    /// each event once.
    pub fn events(&self, after: Option<u64>, types: &[&str]) -> MailEventStream {
        MailEventStream::new(self.clone(), after, types)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, MailClientError> {
        self.request(Method::GET, path, self.headers.clone(), Bytes::new())
            .await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, MailClientError> {
        let body = serde_json::to_vec(body).map_err(|_| MailClientError::InvalidResponse)?;
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.request(Method::POST, path, headers, body.into()).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<T, MailClientError> {
        let url = self
            .base
            .join(path)
            .map_err(|_| MailClientError::InvalidAddress)?;
        let target = RequestTarget::new(&url).ok_or(MailClientError::InvalidAddress)?;
        let exchange = async {
            let response = self
                .http
                .send(&target, method, headers, body)
                .await
                .map_err(|error| self.net_error(error))?;
            let (status, retry_after_s) = (response.status().as_u16(), retry_after_s(&response));
            let body = response
                .body(RESPONSE_BYTES_MAX)
                .await
                .map_err(|error| match error {
                    BodyError::TooLarge => MailClientError::InvalidResponse,
                    BodyError::Net(error) => self.net_error(error),
                })?;
            match status {
                200 => serde_json::from_slice(&body).map_err(|_| MailClientError::InvalidResponse),
                _ => Err(refused_error(status, &body, retry_after_s)),
            }
        };
        let in_time = timeout(RESPONSE_TIMEOUT, exchange).await;
        in_time.map_err(|_| MailClientError::TimedOut(RESPONSE_TIMEOUT))?
    }

    fn net_error(&self, error: NetError) -> MailClientError {
        match error {
            NetError::Unreachable(why) => unreachable_at(&self.base, why),
            NetError::Broken => MailClientError::ConnectionLost,
        }
    }
}

/// Returns the error of a listener that can't be reached, with its address.
fn http_client(base: &Url, tls: &ClientTls) -> Result<http1::Http1Client, MailClientError> {
    let connector = Connector::with_tls(CONNECT_TIMEOUT, tls);
    let connector = connector.map_err(|_| unreachable_at(base, ConnectFailure::Tls))?;
    Ok(http1::Http1Client::new(connector))
}

fn unreachable_at(base: &Url, why: ConnectFailure) -> MailClientError {
    MailClientError::Unreachable {
        address: base.origin().ascii_serialization(),
        why,
    }
}

fn retry_after_s(response: &ClientResponse) -> Option<u64> {
    response
        .headers()
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Builds the error for a response with a status other than 200. Its text is the member `detail` of
/// the body, or a general text if the body has none.
fn refused_error(status: u16, body: &[u8], retry_after_s: Option<u64>) -> MailClientError {
    #[derive(Deserialize)]
    struct ErrorBody {
        detail: String,
    }
    let parsed = serde_json::from_slice::<ErrorBody>(body)
        .ok()
        .map(|body| body.detail);
    let detail =
        parsed.unwrap_or_else(|| "the server rejected the request without a reason".to_owned());
    MailClientError::Refused {
        status,
        detail,
        retry_after_s,
    }
}

/// Query string of a URL, with its leading `?`; empty if there are no parameters.
#[derive(Default)]
struct QueryString(String);

impl QueryString {
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

    fn append_to(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

/// Maximum size of one event message from the server, in bytes. An event names at most 256 agents.
const EVENT_BYTES_MAX: usize = 64 * 1024;
/// Delay before the first attempt to reconnect the event stream. It doubles with each further
/// attempt, up to [`RECONNECT_PAUSE_MAX`].
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
/// Maximum delay before an attempt to reconnect the event stream.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time without any data from the server, pings included, after which the event stream's connection
/// counts as lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

type ClientSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Item of an event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailStreamItem {
    /// A new mail event with its sequence number.
    Event(NumberedMailEvent),
    /// The connection was lost because of this error. The next call of [`MailEventStream::next`]
    /// reconnects.
    Disconnected(MailClientError),
}

/// Stream of mail events over WebSocket. Returns events in order and each once, also when it has to
/// reconnect.
pub struct MailEventStream {
    client: MailClient,
    types: String,
    position: StreamPosition,
    socket: Option<ClientSocket>,
    retry_after: Duration,
    /// Whether nothing has been received on the current connection.
    is_fresh: bool,
}

/// Position of a client in the event stream. Several events may share a sequence number, and a
/// connection may break after only some of them were received.
#[derive(Debug, Clone, Copy, Default)]
struct StreamPosition {
    /// Sequence number after which the stream begins, used until an event has been received; `None`
    /// to begin with the next new event.
    after: Option<u64>,
    /// Sequence number of the last event received, and the number of events with this sequence
    /// number received so far.
    last: Option<(u64, usize)>,
    /// Number of events to skip on the current connection, because they have the last sequence
    /// number and were received on an earlier connection.
    known: usize,
}

impl StreamPosition {
    /// Returns the value of the parameter `after` for a new connection, and notes how many events
    /// to skip. The last sequence number is requested again, because some of its events may not
    /// have been received.
    fn resume(&mut self) -> Option<u64> {
        let Some((sequence, came)) = self.last else {
            return self.after;
        };
        self.known = came;
        Some(sequence.saturating_sub(1))
    }

    /// Counts a received event with this sequence number. Returns `false` if the event was already
    /// received on an earlier connection.
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

impl MailEventStream {
    fn new(client: MailClient, after: Option<u64>, types: &[&str]) -> Self {
        let position = StreamPosition {
            after,
            ..StreamPosition::default()
        };
        Self {
            client,
            types: types.join(","),
            position,
            socket: None,
            retry_after: RECONNECT_PAUSE,
            is_fresh: false,
        }
    }

    /// Connects unless connected. All events that occur after this call are returned, even if the
    /// connection breaks later.
    ///
    /// # Errors
    /// Returns the [`MailClientError`] of the only attempt.
    pub async fn ensure_connected(&mut self) -> Result<(), MailClientError> {
        if self.socket.is_none() {
            self.socket = Some(self.connect().await?);
        }
        Ok(())
    }

    /// Returns the next event or the loss of the connection. After a loss, the next call
    /// reconnects, with increasing delays. Cancel safe.
    ///
    /// # Errors
    /// Only errors that a retry can't resolve: the key or id is rejected, the URL doesn't exist, or
    /// the server is no mail server.
    pub async fn next(&mut self) -> Result<MailStreamItem, MailClientError> {
        loop {
            if let Err(error) = self.ensure_connected().await {
                if !error.is_transient() {
                    return Err(error);
                }
                self.wait_to_reconnect().await;
                return Ok(MailStreamItem::Disconnected(error));
            }
            let Some(socket) = &mut self.socket else {
                continue;
            };
            let received = timeout(IDLE_TIMEOUT, socket.next()).await;
            match received {
                Ok(Some(Ok(Message::Text(text)))) => {
                    let event: NumberedMailEvent = serde_json::from_str(&text)
                        .map_err(|_| MailClientError::InvalidResponse)?;
                    (self.retry_after, self.is_fresh) = (RECONNECT_PAUSE, false);
                    if self.position.is_new(event.sequence) {
                        return Ok(MailStreamItem::Event(event));
                    }
                }
                // The socket answers pings by itself.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(Some(Ok(Message::Close(Some(frame))))) if frame.code == CloseCode::Policy => {
                    let detail = frame.reason.to_string();
                    return Err(MailClientError::Refused {
                        status: 403,
                        detail,
                        retry_after_s: None,
                    });
                }
                _ => {
                    self.socket = None;
                    if self.is_fresh {
                        self.wait_to_reconnect().await;
                    }
                    return Ok(MailStreamItem::Disconnected(
                        MailClientError::ConnectionLost,
                    ));
                }
            }
        }
    }

    /// Drops the connection, so that a lost connection can be simulated. The next call of
    /// [`next`](Self::next) reconnects.
    pub fn disconnect(&mut self) {
        self.socket = None;
    }

    async fn wait_to_reconnect(&mut self) {
        let part = rand::rng().random_range(0.5..1.0);
        sleep(self.retry_after.mul_f64(part)).await;
        self.retry_after = (self.retry_after * 2).min(RECONNECT_PAUSE_MAX);
    }

    async fn connect(&mut self) -> Result<ClientSocket, MailClientError> {
        let after = self
            .position
            .resume()
            .map_or_else(|| "now".to_owned(), |after| after.to_string());
        let types = (!self.types.is_empty()).then_some(&self.types);
        let path = QueryString::default()
            .add("after", Some(after))
            .add("types", types)
            .append_to("/api/events");
        let mut url = self
            .client
            .base
            .join(&path)
            .map_err(|_| MailClientError::InvalidAddress)?;
        let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
        url.set_scheme(scheme)
            .map_err(|()| MailClientError::InvalidAddress)?;
        let mut request = url
            .as_str()
            .into_client_request()
            .map_err(|_| MailClientError::InvalidAddress)?;
        request.headers_mut().extend(self.client.headers.clone());
        let bytes_max = Some(EVENT_BYTES_MAX);
        let config = WebSocketConfig::default()
            .max_message_size(bytes_max)
            .max_frame_size(bytes_max);
        let tls = self.client.tls.config();
        let tls = tls.map_err(|_| unreachable_at(&self.client.base, ConnectFailure::Tls))?;
        let connector = Some(tokio_tungstenite::Connector::Rustls(Arc::new(tls)));
        // TCP_NODELAY: small messages are sent at once.
        let is_undelayed = true;
        let connecting = timeout(
            CONNECT_TIMEOUT,
            connect_async_tls_with_config(request, Some(config), is_undelayed, connector),
        );
        match connecting
            .await
            .map_err(|_| MailClientError::TimedOut(CONNECT_TIMEOUT))?
        {
            Ok((socket, response)) => {
                let newest = response
                    .headers()
                    .get(EVENT_SEQUENCE_HEADER)
                    .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
                self.position.after = self.position.after.or(newest);
                self.is_fresh = true;
                Ok(socket)
            }
            Err(Error::Http(response)) => {
                let body: &[u8] = response.body().as_deref().unwrap_or_default();
                Err(refused_error(response.status().as_u16(), body, None))
            }
            Err(error) => Err(unreachable_at(
                &self.client.base,
                ConnectFailure::from_error(&error),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each event is returned once, wherever the connection breaks. Method: numbers with one,
    /// two and three events, cut after each single event.
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
                StreamPosition {
                    after: Some(0),
                    ..StreamPosition::default()
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
