//! Transports to a server, behind one interface.
//!
//! A request is an *exchange*: it is sent, and its response awaited. Messages that belong to the
//! request go to its [`PendingRequest`] meanwhile. All others go to the
//! [`NotificationHandler`](super::server_messages::NotificationHandler).

pub(crate) mod child;
mod duplex;
pub(crate) mod http;
pub(crate) mod websocket;

use std::sync::Arc;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use secrecy::ExposeSecret;

use super::auth::AuthChallenge;
use super::exchange::{ExchangeResult, TransportError};
use super::options::{AUTH_REJECTIONS_MAX, McpClientOptions};
use super::pending_requests::PendingRequest;
use super::server_messages::{PreparedAnswer, ServerReply};

pub(crate) use duplex::DuplexChannel;
pub(crate) use http::HttpTransport;

/// JSON-RPC request that is ready to be sent.
pub(crate) struct OutgoingRequest {
    /// Number of the pending request; used as JSON-RPC id and as progress token.
    pub number: u64,
    pub method: String,
    /// The whole JSON-RPC message.
    pub body: Vec<u8>,
    pub headers: RequestHeaders,
    /// True if the server is notified when the request is cancelled; false for `initialize` and
    /// `server/discover`.
    pub is_cancellable: bool,
}

/// HTTP headers that depend on the era of a request.
#[derive(Clone)]
pub(crate) enum RequestHeaders {
    /// Legacy era: the session id and the negotiated revision.
    Legacy,
    /// Modern era: values of the request that are repeated in headers (2026-07-28, streamable HTTP,
    /// request metadata).
    Modern {
        name: Option<HeaderValue>,
        params: Vec<(HeaderName, HeaderValue)>,
    },
}

/// An open transport to a server.
#[derive(Clone)]
pub(crate) enum Transport {
    /// HTTP: each request has an HTTP response of its own.
    Http(Arc<HttpTransport>),
    /// Child process, WebSocket or HTTP+SSE: all requests share one channel.
    Duplex(Arc<DuplexChannel>),
}

impl Transport {
    /// Sends a request and waits for its response. If the future is dropped before, the server is
    /// notified of the cancellation.
    pub async fn exchange(
        &self,
        outgoing: &OutgoingRequest,
        pending: &mut PendingRequest,
    ) -> ExchangeResult {
        // Over HTTP, a modern server takes a closed connection as cancellation.
        let tells = outgoing.is_cancellable
            && (matches!(outgoing.headers, RequestHeaders::Legacy) || self.http().is_none());
        let mut unanswered = CancelOnDrop {
            transport: self,
            number: tells.then_some(outgoing.number),
        };
        let answered = match self {
            Self::Http(http) => http.exchange(outgoing, pending).await,
            Self::Duplex(duplex) => duplex.exchange(outgoing, pending).await,
        };
        unanswered.number = None;
        answered
    }

    /// Sends a message that has no response: a notification, or the response to a server's request.
    /// In the modern era only cancellations are sent this way.
    pub async fn send(&self, body: Vec<u8>) -> Result<(), TransportError> {
        match self {
            Self::Http(http) => http.send(body).await,
            Self::Duplex(duplex) => duplex.send(body).await,
        }
    }

    /// Waits until the reply to a server's message is ready, then sends it. Failures are logged.
    pub async fn send_reply(&self, reply: ServerReply) {
        match reply {
            ServerReply::None => {}
            ServerReply::Now(body) => {
                self.send_answer(PreparedAnswer {
                    body,
                    roots_request: None,
                })
                .await
            }
            ServerReply::Later(answering) => {
                if let Some(answer) = answering.await {
                    self.send_answer(answer).await;
                }
            }
        }
    }

    /// Sends the response to a server's request. Failures are logged; roots that couldn't be sent
    /// count as not given.
    pub async fn send_answer(
        &self,
        PreparedAnswer {
            body,
            roots_request: mut roots,
        }: PreparedAnswer,
    ) {
        if let Err(error) = self.send(body).await {
            roots.iter_mut().for_each(|roots| roots.is_given = false);
            callboard_message::log::warn!(%error, "failed to send the answer to the server's request");
        }
    }

    /// Returns true if the channel to the server is closed. Always false over HTTP.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Duplex(duplex) => duplex.closed.is_cancelled(),
        }
    }

    /// Returns a future that ends when the channel to the server is closed; `None` over HTTP.
    pub fn wait_closed(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        match self {
            Self::Http(_) => None,
            Self::Duplex(duplex) => Some(duplex.closed.clone().cancelled_owned()),
        }
    }

    pub fn http(&self) -> Option<&Arc<HttpTransport>> {
        match self {
            Self::Http(http) => Some(http),
            Self::Duplex(_) => None,
        }
    }
}

/// Guard of a pending request. Dropping it before the response notifies the server of the
/// cancellation.
struct CancelOnDrop<'a> {
    transport: &'a Transport,
    number: Option<u64>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        match (self.number, self.transport) {
            (None, _) => {}
            (Some(number), Transport::Http(http)) => http.cancel(number),
            (Some(number), Transport::Duplex(duplex)) => duplex.cancel(number),
        }
    }
}

/// Sends a request with the `Authorization` of the configured authorizer. Sends it again after a
/// rejection for which the authorizer has obtained a better token, up to [`AUTH_REJECTIONS_MAX`]
/// times. `send` sends the request once. `refusal` returns the status and headers of a response if
/// it rejects the request.
async fn send_authorized<R, Sent: Future<Output = Result<R, TransportError>>>(
    options: &McpClientOptions,
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
        if !AuthChallenge::is_challenge_status(status) || refused_before >= AUTH_REJECTIONS_MAX {
            return Ok(answer);
        }
        let www_authenticate: Vec<&str> = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let challenge = AuthChallenge {
            status,
            www_authenticate: &www_authenticate,
            sent_authorization: sent.as_ref(),
            earlier_rejections: refused_before,
        };
        if !authorizer
            .handle_challenge(challenge)
            .await
            .map_err(failed)?
        {
            return Ok(answer);
        }
        refused_before += 1;
    }
}
