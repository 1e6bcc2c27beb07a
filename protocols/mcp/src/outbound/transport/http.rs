//! Streamable HTTP transport: one POST per message, and for each request its own response, as JSON
//! or as an event stream.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::http1::{
    BodyError, ClientResponse, Http1Clients, RequestTarget, SseStream, StreamPosition,
};
use callboard_rpc::{DecodedLine, LineDecoder, ReadPacer, check_json};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use hyper::{Method, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use url::Url;

use super::duplex::{
    CLIENT_ENDED, DuplexChannel, DuplexDriver, OutboxReceiver, droppable_bytes_max,
};
use super::{OutgoingRequest, RequestHeaders, Transport, send_authorized};
use crate::outbound::exchange::{
    DecodedMessage, ExchangeResult, ServerMessage, TransportError, cancelled_notification,
    decode_message, decode_server_message, request_number,
};
use crate::outbound::options::McpClientOptions;
use crate::outbound::pending_requests::PendingRequest;
use crate::outbound::server_messages::{NotificationHandler, ServerReply};
use crate::wire::Revision;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_OR_EVENT_STREAM: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// Media types of a response body with one message per line.
const MESSAGE_LINES: [&str; 3] = [
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
];
/// Time limit of a request that notifies the server of a cancellation or ends a session.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP transport to one MCP endpoint, with the session that a legacy server has assigned.
#[derive(Clone)]
pub(crate) struct HttpTransport {
    clients: Http1Clients,
    url: Url,
    /// `None` if the URL can't be used in an HTTP request.
    target: Option<Arc<RequestTarget>>,
    /// URL of the same origin to which the server has redirected a POST, once it has.
    moved: OnceLock<(Url, Arc<RequestTarget>)>,
    options: Arc<McpClientOptions>,
    notifications: Arc<NotificationHandler>,
    /// Session id, assigned by a legacy server.
    session: OnceLock<HeaderValue>,
    /// Negotiated revision, once known.
    revision: OnceLock<Revision>,
}

impl HttpTransport {
    pub fn new(
        clients: Http1Clients,
        url: Url,
        options: Arc<McpClientOptions>,
        notifications: Arc<NotificationHandler>,
    ) -> Self {
        let target = RequestTarget::new(&url);
        Self {
            clients,
            url,
            target,
            moved: OnceLock::new(),
            options,
            notifications,
            session: OnceLock::new(),
            revision: OnceLock::new(),
        }
    }

    /// Returns a copy of the transport that sends to another URL.
    fn with_url(&self, url: Url) -> Self {
        Self {
            target: RequestTarget::new(&url),
            url,
            moved: OnceLock::new(),
            ..self.clone()
        }
    }

    /// Sets the negotiated revision, which the `MCP-Protocol-Version` header of later requests
    /// states.
    pub fn set_revision(&self, revision: Revision) {
        let _ = self.revision.set(revision);
    }

    /// Notifies a legacy server that request `number` is cancelled.
    pub fn cancel(&self, number: u64) {
        let http = self.clone();
        self.spawn_cleanup(async move {
            if let Err(error) = http.send(cancelled_notification(number)).await {
                callboard_message::log::debug!(%error, "failed to notify the server of a cancelled call");
            }
        });
    }

    pub async fn exchange(
        &self,
        outgoing: &OutgoingRequest,
        pending: &PendingRequest,
    ) -> ExchangeResult {
        let is_legacy = matches!(outgoing.headers, RequestHeaders::Legacy);
        let response = self
            .post(outgoing.body.clone(), &outgoing.headers, &outgoing.method)
            .await?;
        let status = response.status();
        if is_legacy && status == StatusCode::NOT_FOUND && self.session.get().is_some() {
            return Err(TransportError::SessionLost);
        }
        if outgoing.method == "initialize" && status.is_success() {
            self.begin_session(response.headers());
        }
        if status.is_success() && response.is_event_stream() {
            let events = self.event_stream(response, StreamPosition::default());
            return self.read_response_stream(events, pending, is_legacy).await;
        }
        if status.is_success() && MESSAGE_LINES.contains(&&*response.media_type()) {
            return self.read_response_lines(response, pending).await;
        }
        let body = response.body(self.options.limits.body_bytes_max).await;
        let body = body.map_err(|error| match error {
            BodyError::TooLarge => self.too_large(),
            BodyError::Net(error) => error.into(),
        })?;
        let mut outcome = None;
        for part in self.split_batch(&body) {
            match decode_server_message(part, &self.options.limits) {
                Ok(DecodedMessage::Response {
                    id,
                    outcome: received,
                }) => match id {
                    Some(id) if request_number(&id) == Some(pending.number) => {
                        outcome = Some(received)
                    }
                    // The server couldn't read the id. This connection carries no other request, so
                    // the response is ours.
                    None => outcome = outcome.or(Some(received)),
                    Some(_) => self.notifications.pending_requests.count_unknown(),
                },
                // The call receives these messages before the outcome.
                Ok(DecodedMessage::Message(message)) => {
                    drop(pending.events.send(Box::new(message)).await)
                }
                Err(_) if !status.is_success() => {
                    return Err(TransportError::Status(status.as_u16()));
                }
                Err(unreadable) => return Err(unreadable.to_error()),
            }
        }
        match outcome {
            Some(Ok(result)) if status.is_success() => Ok(result),
            Some(Err(error)) => Err(TransportError::Rpc {
                error,
                status: Some(status.as_u16()),
            }),
            _ if !status.is_success() => Err(TransportError::Status(status.as_u16())),
            _ => Err(TransportError::Protocol(
                "the server answered with no JSON-RPC response: check its URL".into(),
            )),
        }
    }

    /// Reads the response from an event stream, and resumes the stream if it breaks (legacy only).
    async fn read_response_stream(
        &self,
        mut events: SseStream,
        pending: &PendingRequest,
        is_legacy: bool,
    ) -> ExchangeResult {
        let broken = TransportError::Broken(
            "the server's response stream broke off; the server may have acted on the request"
                .into(),
        );
        loop {
            while let Some(event) = events.next().await.map_err(|_| self.too_large())? {
                if let Some(result) = self.handle_streamed(&event.data, pending).await {
                    return result;
                }
            }
            let place = events.into_position();
            if !is_legacy || place.last_event_id().is_none() {
                return Err(broken);
            }
            events = self.resume(place).await?;
        }
    }

    /// Reads the response from a body with one message per line.
    async fn read_response_lines(
        &self,
        mut response: ClientResponse,
        pending: &PendingRequest,
    ) -> ExchangeResult {
        let mut pacer = ReadPacer::default();
        let mut lines = LineDecoder::with_scan(self.options.limits.body_bytes_max);
        let mut is_over = false;
        loop {
            pacer.wait().await;
            let line = match is_over {
                true => lines.finish(),
                false => lines.next(),
            };
            match line {
                Some(DecodedLine::Whole(line)) => {
                    pacer.count();
                    if let Some(result) = self.handle_streamed(&line, pending).await {
                        return result;
                    }
                }
                Some(DecodedLine::TooLong) => {
                    pacer.count();
                    let answered = lines.dropped_response().as_ref().and_then(request_number);
                    if answered == Some(pending.number) {
                        return Err(self.too_large());
                    }
                    callboard_message::log::warn!(
                        "skipped a line of a response over the size limit; `body_bytes_max` raises it"
                    );
                }
                None if is_over => {
                    return Err(TransportError::Broken(
                        "the server's response ended without a JSON-RPC response".into(),
                    ));
                }
                None => match response.chunk().await? {
                    Some(chunk) => lines.push(&chunk),
                    None => is_over = true,
                },
            }
        }
    }

    /// Handles a message in the response to a request. Returns the result if it is the response.
    async fn handle_streamed(
        &self,
        message: &[u8],
        pending: &PendingRequest,
    ) -> Option<ExchangeResult> {
        match decode_server_message(message, &self.options.limits) {
            Ok(DecodedMessage::Message(message)) => {
                drop(pending.events.send(Box::new(message)).await)
            }
            Ok(DecodedMessage::Response { id, outcome })
                if id.as_ref().and_then(request_number) == Some(pending.number) =>
            {
                return Some(outcome.map_err(|error| TransportError::Rpc {
                    error,
                    status: Some(200),
                }));
            }
            Ok(DecodedMessage::Response { .. }) => {
                self.notifications.pending_requests.count_unknown()
            }
            Err(unreadable) if unreadable.number == Some(pending.number) => {
                return Some(Err(unreadable.to_error()));
            }
            Err(unreadable) => {
                let refusal = &unreadable.failure;
                callboard_message::log::warn!(%refusal, "skipped an event of the server that is no valid JSON-RPC")
            }
        }
        None
    }

    /// Returns a reader of a response's events. Events over the limit of a message are read, so that
    /// they can be skipped, up to [`droppable_bytes_max`].
    fn event_stream(&self, response: ClientResponse, from: StreamPosition) -> SseStream {
        let bytes_max = droppable_bytes_max(&self.options.limits);
        SseStream::new(response, bytes_max, from)
    }

    /// Opens a broken response stream again after its last event. Waits before each attempt for the
    /// delay that the server has set. Fails after `reconnects_max` further attempts.
    async fn resume(&self, place: StreamPosition) -> Result<SseStream, TransportError> {
        for _ in 0..=self.options.reconnects_max {
            tokio::time::sleep(place.retry_delay()).await;
            match self.open_event_stream(place.last_event_id()).await {
                Ok(Some((response, _))) => {
                    return Ok(self.event_stream(response, place));
                }
                // Without the session the call is lost. The server may have executed it, so it
                // isn't repeated.
                Ok(None) | Err(TransportError::SessionLost) => break,
                Err(TransportError::Unreachable(_) | TransportError::Broken(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Err(TransportError::Broken(
            "the server's response stream broke off and can't be resumed; the server may have acted on the request".into(),
        ))
    }

    /// Opens the server's GET stream, or resumes a stream after the event `last_event_id`. Returns
    /// the response with the URL that it came from, or `None` if the server answers with status 405
    /// or 406, because it offers no such stream.
    async fn open_event_stream(
        &self,
        last_event_id: Option<&str>,
    ) -> Result<Option<(ClientResponse, Url)>, TransportError> {
        let mut headers = self.headers();
        headers.insert(ACCEPT, EVENT_STREAM);
        if let Some(place) = last_event_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, place);
        }
        let (response, url) = self
            .send_authorized(Method::GET, headers, Bytes::new())
            .await?;
        match response.status() {
            status if status.is_success() && response.is_event_stream() => {
                Ok(Some((response, url)))
            }
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_ACCEPTABLE => Ok(None),
            status => Err(self.status_error(status)),
        }
    }

    fn too_large(&self) -> TransportError {
        TransportError::TooLarge(self.options.limits.body_bytes_max)
    }

    /// Returns the error for a rejected request that has no JSON-RPC response: `SessionLost` for
    /// status 404 in a session, otherwise `Status`.
    fn status_error(&self, status: StatusCode) -> TransportError {
        match status {
            StatusCode::NOT_FOUND if self.session.get().is_some() => TransportError::SessionLost,
            status => TransportError::Status(status.as_u16()),
        }
    }

    /// Reads the GET stream to its end and handles its messages. Returns the delay after which the
    /// stream may be opened again, or `None` if the server offers no such stream.
    ///
    /// `place` is the position from which to resume. It is replaced by the position at which this
    /// stream ended. `ready` is dropped once the server has answered or the request has failed.
    pub async fn read_get_stream(
        self: &Arc<Self>,
        place: &mut Option<StreamPosition>,
        ready: &mut Option<oneshot::Sender<()>>,
    ) -> Result<Option<Duration>, TransportError> {
        let from = place.take().unwrap_or_default();
        let answered = self.open_event_stream(from.last_event_id()).await;
        // Dropping it signals the same: there is nothing more to wait for.
        drop(ready.take());
        let Some((response, _)) = answered? else {
            return Ok(None);
        };
        let mut events = self.event_stream(response, from);
        while let Some(event) = events.next().await.map_err(|_| self.too_large())? {
            match decode_message(&event.data, &self.options.limits) {
                Ok(DecodedMessage::Message(message)) => {
                    let (reply, transport) = (
                        self.notifications.handle_message(message),
                        Transport::Http(self.clone()),
                    );
                    match reply {
                        ServerReply::Later(_) => {
                            drop(tokio::spawn(
                                async move { transport.send_reply(reply).await },
                            ))
                        }
                        now => transport.send_reply(now).await,
                    }
                }
                Ok(DecodedMessage::Response { .. }) => {
                    self.notifications.pending_requests.count_unknown()
                }
                Err(refusal) => {
                    callboard_message::log::warn!(%refusal, "skipped an event of the server that is no valid JSON-RPC")
                }
            }
        }
        let broke_off = events.into_position();
        let pause = broke_off.retry_delay();
        *place = Some(broke_off);
        Ok(Some(pause))
    }

    pub async fn send(&self, body: Vec<u8>) -> Result<(), TransportError> {
        let response = self.post(body, &RequestHeaders::Legacy, "").await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(self.status_error(status)),
        }
    }

    async fn post(
        &self,
        body: Vec<u8>,
        head: &RequestHeaders,
        method: &str,
    ) -> Result<ClientResponse, TransportError> {
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON_OR_EVENT_STREAM);
        if let RequestHeaders::Modern { name, params } = head {
            headers.insert(
                VERSION,
                HeaderValue::from_static(Revision::V2026_07_28.as_str()),
            );
            let method = HeaderValue::from_str(method);
            headers.insert(
                METHOD,
                method.map_err(|_| {
                    TransportError::Protocol(
                        "the method's name has characters that a header can't hold".into(),
                    )
                })?,
            );
            if let Some(name) = name {
                headers.insert(NAME, name.clone());
            }
            for (name, value) in params {
                headers.append(name, value.clone());
            }
        }
        let (response, _) = self
            .send_authorized(Method::POST, headers, body.into())
            .await?;
        Ok(response)
    }

    /// Returns the headers common to all requests: the configured ones, the session id and the
    /// negotiated revision.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.options.headers.clone();
        if let Some(session) = self.session.get() {
            headers.insert(SESSION, session.clone());
        }
        // The header exists since 2025-06-18; modern requests set it themselves.
        let stated = self
            .revision
            .get()
            .filter(|r| (Revision::V2025_06_18..Revision::V2026_07_28).contains(*r));
        if let Some(revision) = stated {
            headers.insert(VERSION, HeaderValue::from_static(revision.as_str()));
        }
        headers
    }

    /// Sends a request with the `Authorization` of the configured authorizer, and again after a
    /// rejection if the authorizer has obtained a better token. Returns the response with the URL
    /// that it came from.
    async fn send_authorized(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(ClientResponse, Url), TransportError> {
        let unusable = TransportError::Unreachable(
            "the server's URL can't be used over HTTP: correct `url`".into(),
        );
        let target = self.target.as_ref().ok_or(unusable)?;
        let send = |authorization: Option<HeaderValue>| {
            let (mut headers, method, body) = (headers.clone(), method.clone(), body.clone());
            if let Some(value) = authorization {
                headers.insert(AUTHORIZATION, value);
            }
            self.send_followed(target, method, headers, body)
        };
        send_authorized(&self.options, send, |(response, _)| {
            Some((response.status(), response.headers()))
        })
        .await
    }

    /// Sends a request to `target`, or to the URL to which the server has redirected. Follows one
    /// redirect with status 307 or 308 within the origin. If a POST succeeds there, the redirect's
    /// URL is used from then on, and no further redirect of a POST is followed. A redirect of
    /// another method says nothing about where messages go. Returns the response with the URL that
    /// it came from.
    ///
    /// # Errors
    /// `Protocol` for any other redirect, with its target: nothing is sent to another origin.
    async fn send_followed(
        &self,
        target: &RequestTarget,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(ClientResponse, Url), TransportError> {
        let is_post = method == Method::POST;
        let client = self.clients.for_current_runtime();
        let was_moved = self.moved.get();
        let url = was_moved.map_or(&self.url, |(url, _)| url);
        let target = was_moved.map_or(target, |(_, target)| target);
        let (again, same) = ((method.clone(), headers.clone()), body.clone());
        let response = client.send(target, method, headers, body).await?;
        let Some(to) = redirect_target(url, &response) else {
            return Ok((response, url.clone()));
        };
        let status = response.status();
        let is_followed = !(is_post && was_moved.is_some())
            && matches!(
                status,
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
            )
            && to.origin() == self.url.origin();
        let Some(target) = RequestTarget::new(&to).filter(|_| is_followed) else {
            return Err(redirect_error(status, &to));
        };
        drop(response);
        let (method, headers) = again;
        let response = client.send(&target, method, headers, same).await?;
        if let Some(next) = redirect_target(&to, &response) {
            return Err(redirect_error(response.status(), &next));
        }
        if is_post && response.status().is_success() {
            let _ = self.moved.set((to.clone(), target));
        }
        Ok((response, to))
    }

    /// Returns true if the server has given the connection a session id.
    pub fn has_session(&self) -> bool {
        self.session.get().is_some()
    }

    fn begin_session(&self, headers: &HeaderMap) {
        let given = headers
            .get(SESSION)
            .filter(|id| id.as_bytes().iter().all(u8::is_ascii_graphic));
        // Copied, because a header's value shares the connection's 8 KiB read buffer, which would
        // be kept in memory.
        if let Some(mut id) = given.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            id.set_sensitive(true);
            let _ = self.session.set(id);
        }
    }

    /// Splits a response body into its JSON-RPC messages. A body is one message, or a JSON array of
    /// several from a server of 2025-03-26.
    fn split_batch<'a>(&self, body: &'a [u8]) -> Vec<&'a [u8]> {
        let is_batch = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
        if !is_batch
            || self
                .revision
                .get()
                .is_some_and(|r| *r != Revision::V2025_03_26)
        {
            return vec![body];
        }
        let parts = check_json(body, &self.options.limits)
            .ok()
            .and_then(|text| serde_json::from_str::<Vec<&RawValue>>(text).ok());
        parts.map_or_else(
            || vec![body],
            |parts| parts.iter().map(|part| part.get().as_bytes()).collect(),
        )
    }

    /// Spawns the request `cleanup` with a limit of [`CLEANUP_TIMEOUT`]. Does nothing outside a
    /// Tokio runtime.
    fn spawn_cleanup(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.notifications
                .cleanup_tasks
                .spawn_on(tokio::time::timeout(CLEANUP_TIMEOUT, cleanup), &runtime);
        }
    }

    /// Notifies a legacy server that its session has ended, so that the server can free it. Does
    /// nothing without a session.
    pub fn end_session(&self) {
        if self.session.get().is_none() {
            return;
        }
        let http = self.clone();
        self.spawn_cleanup(async move {
            // The server may reject this (405), or be unavailable.
            let _ = http
                .send_authorized(Method::DELETE, http.headers(), Bytes::new())
                .await;
        });
    }
}

/// Returns the target of a redirect from `url`; `None` if the response is none.
fn redirect_target(url: &Url, response: &ClientResponse) -> Option<Url> {
    let location = response.headers().get(LOCATION);
    let location = location.filter(|_| response.status().is_redirection())?;
    url.join(location.to_str().ok()?).ok()
}

/// Returns the error of a redirect that isn't followed. The target's query is left out, because it
/// may hold a secret.
fn redirect_error(status: StatusCode, to: &Url) -> TransportError {
    let (origin, path) = (to.origin().ascii_serialization(), to.path());
    let status = status.as_u16();
    TransportError::Protocol(format!(
        "the server redirects to {origin}{path} (HTTP status {status}); if that is right, write it as `url`"
    ))
}

/// Opens the event stream of HTTP+SSE (2024-11-05) and returns the transport. The stream's first
/// event holds the URL to which messages are posted. It must have the same origin.
pub(crate) async fn open_event_stream(http: HttpTransport) -> Result<Transport, TransportError> {
    let limits = http.options.limits;
    let Some((response, url)) = http.open_event_stream(None).await? else {
        return Err(TransportError::Status(405));
    };
    let mut events = http.event_stream(response, StreamPosition::default());
    let first = tokio::time::timeout(http.options.connect_timeout, events.next());
    let first = first
        .await
        .map_err(|_| TransportError::TimedOut(http.options.connect_timeout))?
        .map_err(|_| http.too_large())?;
    let first = first.filter(|event| event.kind() == "endpoint");
    let endpoint = first.and_then(|event| String::from_utf8(event.data).ok());
    let endpoint = endpoint.and_then(|path| url.join(path.trim()).ok());
    let Some(endpoint) = endpoint else {
        return Err(TransportError::Protocol(
            "the event stream doesn't begin with an `endpoint` event: check that `url` is of HTTP+SSE".into(),
        ));
    };
    // Messages must not be sent to another origin.
    if endpoint.origin() != http.url.origin() {
        return Err(TransportError::Protocol(
            "the event stream's endpoint has another origin than `url`, so nothing is sent there"
                .into(),
        ));
    }
    let server = endpoint.host_str().unwrap_or_default().to_owned();
    let post = http.with_url(endpoint);
    let (transport, driver, outbox) =
        DuplexChannel::open(post.notifications.clone(), limits, &server);
    tokio::spawn(run_driver(driver, outbox, events, post));
    Ok(transport)
}

async fn run_driver(
    driver: DuplexDriver,
    mut outbox: OutboxReceiver,
    mut events: SseStream,
    post: HttpTransport,
) {
    let hear = async {
        loop {
            match events.next().await {
                Ok(Some(event)) if event.kind() == "message" => {
                    if driver.handle_message(&event.data) {
                        events.discount();
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    return TransportError::Broken("the server has closed the event stream".into());
                }
                Err(_) => return post.too_large(),
            }
        }
    };
    let write = async {
        while let Some(message) = outbox.recv().await {
            let number = match decode_message(&message, &post.options.limits) {
                Ok(DecodedMessage::Message(ServerMessage::Request { id, .. })) => {
                    request_number(&id)
                }
                _ => None,
            };
            match (post.send(message).await, number) {
                (Err(error), Some(number)) => {
                    post.notifications
                        .pending_requests
                        .complete(Some(number), Err(error));
                }
                (Err(error), None) => {
                    callboard_message::log::warn!(%error, "failed to post a message to the server")
                }
                (Ok(()), _) => {}
            }
        }
        CLIENT_ENDED
    };
    driver.run(hear, write).await;
}
