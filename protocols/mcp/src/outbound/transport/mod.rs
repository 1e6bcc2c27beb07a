//! The way to a server: four transports, one shape.
//!
//! A request is an *exchange*: it is sent, and its response waited for. What else the server says that belongs to it goes
//! to the request's [`PendingRequest`] meanwhile; what belongs to nobody goes to the [`NotificationHandler`](super::server_messages::NotificationHandler).

pub(crate) mod child;
mod duplex;
pub(crate) mod http;
mod pending_requests;
pub(crate) mod websocket;

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_rpc::http1::{BodyError, NetError};
use callboard_rpc::{Id, Incoming, Limits, Refusal, RpcError, SseError, decode};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use secrecy::ExposeSecret;
use serde_json::value::RawValue;

use super::auth::{AuthError, Challenge};
use super::options::{AUTH_REFUSALS_MAX, ClientOptions};
use crate::wire::failure;

pub(crate) use duplex::Duplex;
pub(crate) use http::Http;
pub(crate) use pending_requests::{PendingRequest, PendingRequests, Unplaced};

/// What a server said that is no response.
#[derive(Clone)]
pub(crate) enum Heard {
    /// It asks.
    Request { id: Id, method: String, params: Option<Box<RawValue>> },
    /// It tells.
    Notification { method: String, params: Option<Box<RawValue>> },
}

/// What an exchange comes to.
pub(crate) type Exchanged = Result<Box<RawValue>, TransportError>;

/// A response's result or error.
pub(crate) type Outcome = Result<Box<RawValue>, RpcError>;

/// One message of a server's, owned.
pub(crate) enum Said {
    Response { id: Option<Id>, outcome: Outcome },
    Event(Heard),
}

/// A request on its way out.
pub(crate) struct Outgoing {
    /// The number of its flight: its id, and its progress token.
    pub number: u64,
    pub method: String,
    /// The whole JSON-RPC message.
    pub body: Vec<u8>,
    /// What HTTP says beside the body.
    pub head: Head,
    /// Whether the server is told when nobody waits any more. Never of `initialize`.
    pub cancellable: bool,
}

/// What HTTP says beside a body.
#[derive(Clone)]
pub(crate) enum Head {
    /// Session and revision, as negotiated.
    Legacy,
    /// What a modern request mirrors into headers (2026-07-28, streamable HTTP, request metadata).
    Modern { name: Option<HeaderValue>, params: Vec<(HeaderName, HeaderValue)> },
}

/// Why there is no result.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TransportError {
    /// The server answered with an error; `status` is HTTP's.
    #[error("the server answered with an error")]
    Rpc { error: RpcError, status: Option<u16> },
    /// HTTP refused, and no JSON-RPC error says why.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// The server has forgotten the session: begin another.
    #[error("the session is lost")]
    SessionLost,
    /// It can't be reached.
    #[error("{0}")]
    Unreachable(&'static str),
    /// It was reached; whether it acted is unknown.
    #[error("{0}")]
    Broken(&'static str),
    /// What came is no MCP.
    #[error("{0}")]
    Protocol(String),
    /// What came is over a limit.
    #[error("the server's message is over the limit")]
    TooLarge,
    /// Not in time.
    #[error("no answer in {0:?}")]
    TimedOut(Duration),
    /// The request couldn't be authorised.
    #[error("{0}")]
    Auth(Arc<AuthError>),
    /// A failure of this side's.
    #[error("{0}")]
    Failed(Failure),
}

impl From<NetError> for TransportError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Unreachable => Self::Unreachable("can't connect to the server"),
            NetError::Broken => Self::Broken("the connection to the server broke"),
        }
    }
}

impl From<BodyError> for TransportError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::TooLarge,
            BodyError::Net(error) => error.into(),
        }
    }
}

impl From<SseError> for TransportError {
    fn from(_: SseError) -> Self {
        Self::TooLarge
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        let kind = match &error {
            TransportError::Rpc { error, .. } => return failure::of_rpc(error),
            TransportError::Failed(failure) => return failure.clone(),
            TransportError::Status(401 | 403) | TransportError::Auth(_) => FailureKind::Denied,
            TransportError::Status(413 | 429) | TransportError::TooLarge => FailureKind::Overloaded,
            TransportError::Status(408 | 504) | TransportError::TimedOut(_) => FailureKind::TimedOut,
            // `Internal` is a bug of ours, whose sentence nobody is told: here it is what says how to mend it.
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}

/// An open way to a server.
#[derive(Clone)]
pub(crate) enum Transport {
    /// Each request has a response stream of its own.
    Http(Arc<Http>),
    /// All share one channel.
    Duplex(Arc<Duplex>),
}

impl Transport {
    /// Sends a request and waits for its response. Dropped, it tells the server that nobody waits any more.
    pub async fn exchange(&self, outgoing: &Outgoing, flight: &mut PendingRequest) -> Exchanged {
        // Over HTTP, a modern server takes the end of the connection for it.
        let tells = outgoing.cancellable && (matches!(outgoing.head, Head::Legacy) || self.http().is_none());
        let mut unanswered = Unanswered { link: self, number: tells.then_some(outgoing.number) };
        let answered = match self {
            Self::Http(http) => http.exchange(outgoing, flight).await,
            Self::Duplex(duplex) => duplex.exchange(outgoing, flight).await,
        };
        unanswered.number = None;
        answered
    }

    /// Sends what has no response: a notification, or a response of ours. Legacy only, but for cancellation.
    pub async fn send(&self, body: Vec<u8>) -> Result<(), TransportError> {
        match self {
            Self::Http(http) => http.send(body).await,
            Self::Duplex(duplex) => duplex.send(body).await,
        }
    }

    /// Whether nothing more can come of it.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Duplex(duplex) => duplex.is_closed(),
        }
    }

    /// Ends when nothing more can come of it; `None` where each request has a connection of its own.
    pub fn closed(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        match self {
            Self::Http(_) => None,
            Self::Duplex(duplex) => Some(duplex.closed()),
        }
    }

    pub fn http(&self) -> Option<&Arc<Http>> {
        match self {
            Self::Http(http) => Some(http),
            Self::Duplex(_) => None,
        }
    }
}

/// Tells the server that nobody waits any more, where the response hasn't come when it is dropped.
struct Unanswered<'a> {
    link: &'a Transport,
    number: Option<u64>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        match (self.number, self.link) {
            (None, _) => {}
            (Some(number), Transport::Http(http)) => http.cancel(number),
            (Some(number), Transport::Duplex(duplex)) => duplex.cancel(number),
        }
    }
}

/// Sends a request with the value of `Authorization`, and again where the authorizer got something better after a refusal.
/// `refusal`: status and headers of an answer that refuses.
async fn authorized<R, Sent: Future<Output = Result<R, TransportError>>>(
    options: &ClientOptions,
    send: impl Fn(Option<HeaderValue>) -> Sent,
    refusal: impl Fn(&R) -> Option<(StatusCode, &HeaderMap)>,
) -> Result<R, TransportError> {
    let Some(authorizer) = &options.authorizer else { return send(None).await };
    let failed = |error| TransportError::Auth(Arc::new(error));
    let mut refused_before = 0;
    loop {
        let sent = authorizer.authorization().await.map_err(failed)?;
        let mut value = sent.as_ref().and_then(|secret| HeaderValue::from_str(secret.expose_secret()).ok());
        value.iter_mut().for_each(|value| value.set_sensitive(true));
        let answer = send(value).await?;
        let Some((status, headers)) = refusal(&answer) else { return Ok(answer) };
        let status = status.as_u16();
        if !Challenge::concerns(status) || refused_before >= AUTH_REFUSALS_MAX {
            return Ok(answer);
        }
        let told: Vec<&str> = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|told| told.to_str().ok()).collect();
        let challenge = Challenge { status, www_authenticate: &told, sent: sent.as_ref(), refused_before };
        if !authorizer.challenged(challenge).await.map_err(failed)? {
            return Ok(answer);
        }
        refused_before += 1;
    }
}

/// Reads one message.
fn read(bytes: &[u8], limits: &Limits) -> Result<Said, Refusal> {
    Ok(match decode(bytes, limits)? {
        Incoming::Response(response) => {
            Said::Response { id: response.id, outcome: response.outcome.map(RawValue::to_owned) }
        }
        Incoming::Request(request) => Said::Event(Heard::Request {
            id: request.id,
            method: request.method,
            params: request.params.map(RawValue::to_owned),
        }),
        Incoming::Notification(told) => {
            Said::Event(Heard::Notification { method: told.method, params: told.params.map(RawValue::to_owned) })
        }
    })
}

/// The number of one of our requests, from an id that came back.
fn number_of(id: &Id) -> Option<u64> {
    id.as_json().parse().ok()
}

/// The id of our request `number`.
pub(crate) fn id_of(number: u64) -> Id {
    Id::integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// `notifications/cancelled` for our request `number`.
fn cancelled(number: u64) -> Vec<u8> {
    let params = format!("{{\"requestId\":{number},\"reason\":\"nobody waits for it any more\"}}");
    let params = RawValue::from_string(params).unwrap_or_default();
    callboard_rpc::encode_notification("notifications/cancelled", Some(&params))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever configured a server of another era reads so, not that something internal went wrong. Method: the
    /// failure that a caller gets.
    #[test]
    fn what_is_no_mcp_is_told() {
        let failure =
            Failure::from(TransportError::Protocol("the server chose a revision that isn't spoken here".into()));
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert_eq!(failure.message, "the server chose a revision that isn't spoken here");
    }
}
