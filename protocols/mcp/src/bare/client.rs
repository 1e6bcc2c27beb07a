use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Call, CallMetaParams, METHOD, coded, from_rpc, write_call};
use callboard_message::{Failure, FailureKind, Named};
use callboard_rpc::http1::{BodyError, Clients, Connector, NetError, Target};
use callboard_rpc::{Id, Incoming, Limits, decode, encode_request};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, outward};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::value::RawValue;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

/// How long a connection may take, by default.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// How long a call may take, by default.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Most calls that one client has in flight; others wait in its mailbox.
pub const CALLS_IN_FLIGHT_MAX: u32 = 64;

/// How a remote agent is reached.
#[derive(Debug, Clone)]
pub struct BareClientOptions {
    /// What a response may measure.
    pub limits: Limits,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long a call may take; its own deadline may be earlier.
    pub call_timeout: Duration,
}

impl Default for BareClientOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            call_timeout: CALL_TIMEOUT_DEFAULT,
        }
    }
}

/// Why a remote agent can't be configured so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BareClientError {
    /// Give a URL like `http://127.0.0.1:8001/mcp`, without user and password.
    #[error("not an http or https URL without user and password")]
    Url,
    /// The TLS library has none of the protocol versions that are safe.
    #[error("can't build the HTTP client")]
    Tls,
}

/// A remote agent that speaks the bare dialect, as an agent of this system.
///
/// Asked a typed message, it posts it as `tools/call` under the message's name. It follows no redirects and no proxy
/// variables, sends each call once, and prints and keeps nothing of what passes. Cancelling the call aborts the
/// request.
#[derive(Clone)]
pub struct BareMcpClient {
    clients: Clients,
    url: Url,
    target: Arc<Target>,
    options: BareClientOptions,
}

impl BareMcpClient {
    /// A client of the agent at `url`. Connects when it is first asked.
    ///
    /// # Errors
    /// See [`BareClientError`].
    pub fn new(url: &str, options: BareClientOptions) -> Result<Self, BareClientError> {
        let url = Url::parse(url).map_err(|_| BareClientError::Url)?;
        let is_anonymous = url.username().is_empty() && url.password().is_none() && url.has_host();
        if !is_anonymous || !matches!(url.scheme(), "http" | "https") {
            return Err(BareClientError::Url);
        }
        let target = Target::new(&url).ok_or(BareClientError::Url)?;
        let clients = Clients::new(
            Connector::new(options.connect_timeout).map_err(|_| BareClientError::Tls)?,
        );
        Ok(Self {
            clients,
            url,
            target,
            options,
        })
    }

    async fn call(self, named: Named, cx: Cx) -> Result<Box<RawValue>, Failure> {
        let latest = Instant::now() + self.options.call_timeout;
        let deadline = cx
            .deadline()
            .map_or(latest, |deadline| deadline.min(latest));
        let server = cx.me().name().unwrap_or(self.url.as_str());
        let work = async |named: Named| {
            let mut meta = CallMetaParams {
                patience: Some(deadline.saturating_duration_since(Instant::now())),
                ..CallMetaParams::default()
            };
            if let Some(call) = cx.call() {
                meta.purpose.clone_from(&call.principal.purpose);
                (meta.hops, meta.trace) = (call.hops.saturating_add(1), Some(call.trace));
            }
            let call = Call {
                tool: named.name,
                arguments: Cow::Borrowed(&named.payload),
                meta,
            };
            self.exchange(&write_call(&call)).await.map_err(coded)
        };
        let replied = outward::exchange(named, &cx, server, || deadline, work).await;
        replied.map_err(|failure| match failure.kind {
            FailureKind::TimedOut | FailureKind::Cancelled => coded(failure),
            // A refusal of the policy has no code of the dialect.
            _ => failure,
        })
    }

    async fn exchange(&self, params: &RawValue) -> Result<Box<RawValue>, Failure> {
        let id = Id::text(&Uuid::new_v4().to_string());
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON), (ACCEPT, JSON)]);
        let sent = self
            .clients
            .here()
            .send(
                &self.target,
                Method::POST,
                headers,
                encode_request(&id, METHOD, params).into(),
            )
            .await;
        let response = sent.map_err(network)?;
        let status = response.status();
        let body = response
            .body(self.options.limits.body_bytes_max)
            .await
            .map_err(|error| match error {
                BodyError::TooLarge => Failure::overloaded("the response is over the limit"),
                BodyError::Net(error) => network(error),
            })?;
        match decode(&body, &self.options.limits) {
            // A peer that broke the protocol: what it answered can't be used, for it may be another's.
            Ok(Incoming::Response(answer)) => match (answer.id, answer.outcome) {
                (Some(got), outcome) if got == id => outcome
                    .map(RawValue::to_owned)
                    .map_err(|error| from_rpc(&error)),
                // The peer couldn't read the id; on this connection it can only mean our request.
                (None, Err(error)) if status.is_success() => Err(from_rpc(&error)),
                (None, Err(_)) => Err(by_status(status)),
                _ => Err(Failure::internal("the response belongs to another request")),
            },
            _ if !status.is_success() => Err(by_status(status)),
            Ok(_) => Err(Failure::internal("the answer is not a response")),
            Err(refusal) => Err(Failure::internal(format!("the response {refusal}"))),
        }
    }
}

impl Agent for BareMcpClient {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(CALLS_IN_FLIGHT_MAX);
    }
}

impl ConcurrentHandler<Named> for BareMcpClient {
    fn handle(
        &mut self,
        message: Named,
        cx: Cx,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        self.clone().call(message, cx)
    }
}

fn network(error: NetError) -> Failure {
    let what = match error {
        NetError::Unreachable => "network failure during HTTP dispatch: can't connect",
        NetError::Broken => "network failure during HTTP dispatch: the connection broke",
    };
    Failure::unavailable(what)
}

fn by_status(status: StatusCode) -> Failure {
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FailureKind::Denied,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => FailureKind::Overloaded,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => FailureKind::TimedOut,
        _ => FailureKind::Unavailable,
    };
    Failure::new(
        kind,
        format!("the server answered with HTTP status {}", status.as_u16()),
    )
}

impl fmt::Debug for BareMcpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareMcpClient")
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}
