//! Streamable HTTP: a POST a message, and for each request its own response, in one piece or as an event stream.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::check;
use callboard_rpc::http1::{Clients, EventStream, Place, Response, Target};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use url::Url;

use super::duplex::{CLIENT_ENDED, Duplex, Engine, Outbox};
use super::{Head, Outgoing, Transport, authorized};
use crate::outbound::exchange::{
    Exchanged, Heard, Said, TransportError, cancelled, number_of, read,
};
use crate::outbound::options::ClientOptions;
use crate::outbound::pending_requests::PendingRequest;
use crate::outbound::server_messages::{NotificationHandler, Reply};
use crate::wire::Revision;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// How long saying goodbye to a server may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// One MCP endpoint, and the session with it where there is one.
#[derive(Clone)]
pub(crate) struct Http {
    clients: Clients,
    url: Url,
    /// `None` where the URL can't stand in an HTTP request.
    target: Option<Arc<Target>>,
    options: Arc<ClientOptions>,
    ear: Arc<NotificationHandler>,
    /// Given by a legacy server.
    session: OnceLock<HeaderValue>,
    /// Once it is known.
    revision: OnceLock<Revision>,
}

impl Http {
    pub fn new(
        clients: Clients,
        url: Url,
        options: Arc<ClientOptions>,
        ear: Arc<NotificationHandler>,
    ) -> Self {
        let target = Target::new(&url);
        Self {
            clients,
            url,
            target,
            options,
            ear,
            session: OnceLock::new(),
            revision: OnceLock::new(),
        }
    }

    /// The same server at another URL.
    fn at(&self, url: Url) -> Self {
        Self {
            target: Target::new(&url),
            url,
            ..self.clone()
        }
    }

    /// From here on requests say which revision they speak.
    pub fn speak(&self, revision: Revision) {
        let _ = self.revision.set(revision);
    }

    /// Tells the server, which is a legacy one, that nobody waits for request `number` any more.
    pub fn cancel(&self, number: u64) {
        let http = self.clone();
        self.in_background(async move {
            if let Err(error) = http.send(cancelled(number)).await {
                callboard_message::log::debug!(%error, "the server isn't told of a cancelled call");
            }
        });
    }

    pub async fn exchange(&self, outgoing: &Outgoing, flight: &PendingRequest) -> Exchanged {
        let is_legacy = matches!(outgoing.head, Head::Legacy);
        let response = self
            .post(outgoing.body.clone(), &outgoing.head, &outgoing.method)
            .await?;
        let status = response.status();
        if is_legacy && status == StatusCode::NOT_FOUND && self.session.get().is_some() {
            return Err(TransportError::SessionLost);
        }
        if outgoing.method == "initialize" && status.is_success() {
            self.begin_session(response.headers());
        }
        if status.is_success() && response.is_event_stream() {
            let events = EventStream::new(
                response,
                self.options.limits.body_bytes_max,
                Place::default(),
            );
            return self.follow(events, flight, is_legacy).await;
        }
        let body = response.body(self.options.limits.body_bytes_max).await?;
        let mut outcome = None;
        for part in self.parts(&body) {
            match read(part, &self.options.limits) {
                Ok(Said::Response { id, outcome: said }) => match id {
                    Some(id) if number_of(&id) == Some(flight.number) => outcome = Some(said),
                    // It couldn't read the id; on this connection it can only mean our request.
                    None => outcome = outcome.or(Some(said)),
                    Some(_) => self.ear.flights.count_unknown(),
                },
                // Whoever waits takes them before the outcome.
                Ok(Said::Event(heard)) => drop(flight.events.send(Box::new(heard)).await),
                Err(_) if !status.is_success() => {
                    return Err(TransportError::Status(status.as_u16()));
                }
                Err(refusal) => {
                    return Err(TransportError::Protocol(format!("the response {refusal}")));
                }
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
                "the request was answered with no response".into(),
            )),
        }
    }

    /// Reads the response off an event stream, taking it up again where it breaks off (legacy only).
    async fn follow(
        &self,
        mut events: EventStream,
        flight: &PendingRequest,
        is_legacy: bool,
    ) -> Exchanged {
        let broken = TransportError::Broken("the response's stream broke off");
        loop {
            while let Some(event) = events.next().await? {
                match read(&event.data, &self.options.limits) {
                    Ok(Said::Event(heard)) => drop(flight.events.send(Box::new(heard)).await),
                    Ok(Said::Response { id, outcome })
                        if id.as_ref().and_then(number_of) == Some(flight.number) =>
                    {
                        return outcome.map_err(|error| TransportError::Rpc {
                            error,
                            status: Some(200),
                        });
                    }
                    Ok(Said::Response { .. }) => self.ear.flights.count_unknown(),
                    Err(refusal) => {
                        callboard_message::log::warn!(%refusal, "an event that is no message is skipped")
                    }
                }
            }
            let place = events.into_place();
            if !is_legacy || place.last_event_id().is_none() {
                return Err(broken);
            }
            events = self.resume(place).await?;
        }
    }

    /// Takes a stream up where it broke off, after the pause that the server wants.
    async fn resume(&self, place: Place) -> Result<EventStream, TransportError> {
        for _ in 0..=self.options.reconnects_max {
            tokio::time::sleep(place.retry()).await;
            match self.listen(place.last_event_id()).await {
                Ok(Some(response)) => {
                    return Ok(EventStream::new(
                        response,
                        self.options.limits.body_bytes_max,
                        place,
                    ));
                }
                // With its session, the call is lost: whether the server acted is unknown, so it isn't repeated.
                Ok(None) | Err(TransportError::SessionLost) => break,
                Err(TransportError::Unreachable(_) | TransportError::Broken(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Err(TransportError::Broken(
            "the response's stream broke off and can't be taken up again",
        ))
    }

    /// Opens the stream of what belongs to no request, or one that broke off. `None`: the server has none.
    async fn listen(
        &self,
        last_event_id: Option<&str>,
    ) -> Result<Option<Response>, TransportError> {
        let mut headers = self.headers();
        headers.insert(ACCEPT, STREAM);
        if let Some(place) = last_event_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, place);
        }
        let response = self.authorized(Method::GET, headers, Bytes::new()).await?;
        match response.status() {
            status if status.is_success() && response.is_event_stream() => Ok(Some(response)),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_ACCEPTABLE => Ok(None),
            status => Err(self.refused(status)),
        }
    }

    /// Why a message that has no response is refused.
    fn refused(&self, status: StatusCode) -> TransportError {
        match status {
            StatusCode::NOT_FOUND if self.session.get().is_some() => TransportError::SessionLost,
            status => TransportError::Status(status.as_u16()),
        }
    }

    /// Follows the stream of what belongs to no request, to its end; returns the pause after which it may be opened again,
    /// `None` where the server has none. `place`: where an earlier one broke off.
    pub async fn follow_get(
        self: &Arc<Self>,
        place: &mut Option<Place>,
        ready: &mut Option<oneshot::Sender<()>>,
    ) -> Result<Option<Duration>, TransportError> {
        let from = place.take().unwrap_or_default();
        let answered = self.listen(from.last_event_id()).await;
        // Dropped, it says the same: there is nothing more to wait for.
        drop(ready.take());
        let Some(response) = answered? else {
            return Ok(None);
        };
        let mut events = EventStream::new(response, self.options.limits.body_bytes_max, from);
        while let Some(event) = events.next().await? {
            match read(&event.data, &self.options.limits) {
                Ok(Said::Event(heard)) => {
                    let (reply, link) = (self.ear.hear(heard), Transport::Http(self.clone()));
                    match reply {
                        Reply::Later(_) => {
                            drop(tokio::spawn(async move { link.reply(reply).await }))
                        }
                        now => link.reply(now).await,
                    }
                }
                Ok(Said::Response { .. }) => self.ear.flights.count_unknown(),
                Err(refusal) => {
                    callboard_message::log::warn!(%refusal, "an event that is no message is skipped")
                }
            }
        }
        let broke_off = events.into_place();
        let pause = broke_off.retry();
        *place = Some(broke_off);
        Ok(Some(pause))
    }

    pub async fn send(&self, body: Vec<u8>) -> Result<(), TransportError> {
        let response = self.post(body, &Head::Legacy, "").await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(self.refused(status)),
        }
    }

    async fn post(
        &self,
        body: Vec<u8>,
        head: &Head,
        method: &str,
    ) -> Result<Response, TransportError> {
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, BOTH);
        if let Head::Modern { name, params } = head {
            headers.insert(
                VERSION,
                HeaderValue::from_static(Revision::V2026_07_28.as_str()),
            );
            let method = HeaderValue::from_str(method);
            headers.insert(
                METHOD,
                method.map_err(|_| TransportError::Protocol("no such method".into()))?,
            );
            if let Some(name) = name {
                headers.insert(NAME, name.clone());
            }
            for (name, value) in params {
                headers.append(name, value.clone());
            }
        }
        self.authorized(Method::POST, headers, body.into()).await
    }

    /// What every request says.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.options.headers.clone();
        if let Some(session) = self.session.get() {
            headers.insert(SESSION, session.clone());
        }
        // The header came with 2025-06-18; modern requests say it themselves.
        let said = self
            .revision
            .get()
            .filter(|r| (Revision::V2025_06_18..Revision::V2026_07_28).contains(*r));
        if let Some(revision) = said {
            headers.insert(VERSION, HeaderValue::from_static(revision.as_str()));
        }
        headers
    }

    /// Sends a request, authorised.
    async fn authorized(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, TransportError> {
        let unusable = TransportError::Unreachable("the server's URL can't be used over HTTP");
        let target = self.target.as_ref().ok_or(unusable)?;
        let send = |authorization: Option<HeaderValue>| {
            let (mut headers, method, body) = (headers.clone(), method.clone(), body.clone());
            if let Some(value) = authorization {
                headers.insert(AUTHORIZATION, value);
            }
            async move {
                Ok(self
                    .clients
                    .here()
                    .send(target, method, headers, body)
                    .await?)
            }
        };
        authorized(&self.options, send, |response| {
            Some((response.status(), response.headers()))
        })
        .await
    }

    fn begin_session(&self, headers: &HeaderMap) {
        let given = headers
            .get(SESSION)
            .filter(|id| id.as_bytes().iter().all(u8::is_ascii_graphic));
        // Copied: a header's value shares what was read from the connection, 8 KiB, and this one is kept.
        if let Some(mut id) = given.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            id.set_sensitive(true);
            let _ = self.session.set(id);
        }
    }

    /// The messages of a body: one, or several in a batch, which a server of 2025-03-26 may answer with.
    fn parts<'a>(&self, body: &'a [u8]) -> Vec<&'a [u8]> {
        let is_batch = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
        if !is_batch
            || self
                .revision
                .get()
                .is_some_and(|r| *r != Revision::V2025_03_26)
        {
            return vec![body];
        }
        let parts = check(body, &self.options.limits)
            .ok()
            .and_then(|text| serde_json::from_str::<Vec<&RawValue>>(text).ok());
        parts.map_or_else(
            || vec![body],
            |parts| parts.iter().map(|part| part.get().as_bytes()).collect(),
        )
    }

    /// Runs a farewell that nobody waits for; not at all where no runtime is left.
    fn in_background(&self, farewell: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.ear
                .farewells
                .spawn_on(tokio::time::timeout(FAREWELL_TIMEOUT, farewell), &runtime);
        }
    }

    /// Ends the session (legacy): the server needn't keep it any longer.
    pub fn end_session(&self) {
        if self.session.get().is_none() {
            return;
        }
        let http = self.clone();
        self.in_background(async move {
            // A server may not want to be told (405), or be gone.
            let _ = http
                .authorized(Method::DELETE, http.headers(), Bytes::new())
                .await;
        });
    }
}

/// Opens the event stream, whose first event says where to post.
pub(crate) async fn open_event_stream(http: Http) -> Result<Transport, TransportError> {
    let limits = http.options.limits;
    let Some(response) = http.listen(None).await? else {
        return Err(TransportError::Status(405));
    };
    let mut events = EventStream::new(response, limits.body_bytes_max, Place::default());
    let first = tokio::time::timeout(http.options.connect_timeout, events.next());
    let first = first
        .await
        .map_err(|_| TransportError::TimedOut(http.options.connect_timeout))??;
    let first = first.filter(|event| event.kind() == "endpoint");
    let endpoint = first.and_then(|event| String::from_utf8(event.data).ok());
    let endpoint = endpoint.and_then(|said| http.url.join(said.trim()).ok());
    let Some(endpoint) = endpoint else {
        return Err(TransportError::Protocol(
            "the event stream doesn't begin with an endpoint".into(),
        ));
    };
    // Another origin would get what was meant for this one.
    if endpoint.origin() != http.url.origin() {
        return Err(TransportError::Protocol(
            "the event stream's endpoint has another origin".into(),
        ));
    }
    let server = endpoint.host_str().unwrap_or_default().to_owned();
    let post = http.at(endpoint);
    let (link, engine, outbox) = Duplex::open(post.ear.clone(), limits, &server);
    tokio::spawn(speak(engine, outbox, events, post));
    Ok(link)
}

async fn speak(engine: Engine, mut outbox: Outbox, mut events: EventStream, post: Http) {
    let hear = async {
        loop {
            match events.next().await {
                Ok(Some(event)) if event.kind() == "message" => engine.take(&event.data),
                Ok(Some(_)) => {}
                Ok(None) => {
                    return TransportError::Broken("the server has closed the event stream");
                }
                Err(error) => return error.into(),
            }
        }
    };
    let write = async {
        while let Some(message) = outbox.recv().await {
            let number = match read(&message, &post.options.limits) {
                Ok(Said::Event(Heard::Request { id, .. })) => number_of(&id),
                _ => None,
            };
            match (post.send(message).await, number) {
                (Err(error), Some(number)) => post.ear.flights.answer(Some(number), Err(error)),
                (Err(error), None) => {
                    callboard_message::log::warn!(%error, "the server takes no message")
                }
                (Ok(()), _) => {}
            }
        }
        CLIENT_ENDED
    };
    engine.run(hear, write).await;
}
