//! The way to a server: four transports, one shape.
//!
//! A request is an *exchange*: it is sent, and its response waited for. What else the server says that belongs to it goes
//! to the request's [`PendingRequest`] meanwhile; what belongs to nobody goes to the
//! [`NotificationHandler`](super::server_messages::NotificationHandler).

pub(crate) mod child;
mod duplex;
pub(crate) mod http;
pub(crate) mod websocket;

use std::sync::Arc;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use secrecy::ExposeSecret;

use super::auth::Challenge;
use super::exchange::{Exchanged, TransportError};
use super::options::{AUTH_REFUSALS_MAX, ClientOptions};
use super::pending_requests::PendingRequest;
use super::server_messages::{PreparedAnswer, Reply};

pub(crate) use duplex::Duplex;
pub(crate) use http::Http;

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
    Modern {
        name: Option<HeaderValue>,
        params: Vec<(HeaderName, HeaderValue)>,
    },
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
        let tells = outgoing.cancellable
            && (matches!(outgoing.head, Head::Legacy) || self.http().is_none());
        let mut unanswered = Unanswered {
            link: self,
            number: tells.then_some(outgoing.number),
        };
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

    /// Sends what a message of the server's calls for, once it is there.
    pub async fn reply(&self, reply: Reply) {
        match reply {
            Reply::None => {}
            Reply::Now(body) => self.answer(PreparedAnswer { body, roots: None }).await,
            Reply::Later(answering) => {
                if let Some(answer) = answering.await {
                    self.answer(answer).await;
                }
            }
        }
    }

    /// Sends an answer to a question of the server's.
    pub async fn answer(&self, PreparedAnswer { body, mut roots }: PreparedAnswer) {
        if let Err(error) = self.send(body).await {
            roots.iter_mut().for_each(|roots| roots.given = false);
            callboard_message::log::warn!(%error, "the server doesn't get the answer to its request");
        }
    }

    /// Whether nothing more can come of it.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Duplex(duplex) => duplex.closed.is_cancelled(),
        }
    }

    /// Ends when nothing more can come of it; `None` where each request has a connection of its own.
    pub fn closed(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        match self {
            Self::Http(_) => None,
            Self::Duplex(duplex) => Some(duplex.closed.clone().cancelled_owned()),
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
    let Some(authorizer) = &options.authorizer else {
        return send(None).await;
    };
    let failed = |error| TransportError::Auth(Arc::new(error));
    let mut refused_before = 0;
    loop {
        let sent = authorizer.authorization().await.map_err(failed)?;
        let mut value = sent
            .as_ref()
            .and_then(|secret| HeaderValue::from_str(secret.expose_secret()).ok());
        value.iter_mut().for_each(|value| value.set_sensitive(true));
        let answer = send(value).await?;
        let Some((status, headers)) = refusal(&answer) else {
            return Ok(answer);
        };
        let status = status.as_u16();
        if !Challenge::concerns(status) || refused_before >= AUTH_REFUSALS_MAX {
            return Ok(answer);
        }
        let told: Vec<&str> = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|told| told.to_str().ok())
            .collect();
        let challenge = Challenge {
            status,
            www_authenticate: &told,
            sent: sent.as_ref(),
            refused_before,
        };
        if !authorizer.challenged(challenge).await.map_err(failed)? {
            return Ok(answer);
        }
        refused_before += 1;
    }
}
