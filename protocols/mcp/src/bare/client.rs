use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{BareCall, BareCallMeta, CALL_METHOD, encode_call, from_rpc, with_code};
use callboard_message::{Failure, FailureKind, RawMessage};
use callboard_rpc::http1::{
    BodyError, ConnectFailure, Connector, Http1Clients, NetError, RequestTarget,
};
use callboard_rpc::{ClientTls, DecodeLimits, RequestId, RpcMessage, decode, encode_request};
use callboard_runtime::{Agent, CallOrigin, ConcurrentHandler, Context, Handlers, outbound_policy};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

/// Default time limit of a connect attempt.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Default time limit of a call.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Maximum number of calls that one client has in flight. Further calls wait in its mailbox.
pub const PENDING_CALLS_MAX: u32 = 64;

/// Limits of a [`BareMcpClient`]'s responses and times.
#[derive(Debug, Clone)]
pub struct BareClientOptions {
    /// Size and depth limits of a response.
    pub limits: DecodeLimits,
    /// Time limit of a connect attempt.
    pub connect_timeout: Duration,
    /// Time limit of a call. An earlier deadline of the call itself takes precedence.
    pub call_timeout: Duration,
    /// Authorities that the server's certificate may be of, and the client's own certificate.
    pub tls: ClientTls,
    /// Bearer token of each request. It is sent to the client's URL only, and never printed.
    pub bearer: Option<SecretString>,
}

impl Default for BareClientOptions {
    fn default() -> Self {
        Self {
            limits: DecodeLimits::default(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            call_timeout: CALL_TIMEOUT_DEFAULT,
            tls: ClientTls::default(),
            bearer: None,
        }
    }
}

/// Errors of [`BareMcpClient::new`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BareClientError {
    /// The address isn't an http or https URL with a host and without user and password. Use one
    /// like `http://127.0.0.1:8001/mcp`.
    #[error(
        "not an http or https URL without user and password: write it like http://127.0.0.1:8001/mcp"
    )]
    Url,
    /// The HTTP client can't be built, because the TLS library supports none of the safe protocol
    /// versions.
    #[error("can't build the HTTP client")]
    Tls,
    /// The bearer token has characters that a header can't hold.
    #[error("the bearer token has other characters than visible ASCII")]
    Bearer,
}

/// Agent that forwards its messages to a remote agent in the bare dialect.
///
/// Each message is posted once, as `tools/call` with the message's name as the tool's name. The
/// client follows no redirects, ignores proxy variables, and neither logs nor stores payloads.
/// Cancelling a call aborts its HTTP request.
#[derive(Clone)]
pub struct BareMcpClient {
    clients: Http1Clients,
    url: Url,
    target: Arc<RequestTarget>,
    /// Headers of each request. The token among them is marked as sensitive.
    headers: HeaderMap,
    options: BareClientOptions,
}

impl BareMcpClient {
    /// Creates a client of the agent at `url`. The client connects on its first call.
    ///
    /// # Errors
    /// See [`BareClientError`].
    pub fn new(url: &str, options: BareClientOptions) -> Result<Self, BareClientError> {
        let url = Url::parse(url).map_err(|_| BareClientError::Url)?;
        let is_anonymous = url.username().is_empty() && url.password().is_none() && url.has_host();
        if !is_anonymous || !matches!(url.scheme(), "http" | "https") {
            return Err(BareClientError::Url);
        }
        let target = RequestTarget::new(&url).ok_or(BareClientError::Url)?;
        let clients = Http1Clients::new(
            Connector::with_tls(options.connect_timeout, &options.tls)
                .map_err(|_| BareClientError::Tls)?,
        );
        let headers = request_headers(options.bearer.as_ref())?;
        Ok(Self {
            clients,
            url,
            target,
            headers,
            options,
        })
    }

    async fn call(self, named: RawMessage, cx: Context) -> Result<Box<RawValue>, Failure> {
        let latest = Instant::now() + self.options.call_timeout;
        let deadline = cx
            .deadline()
            .map_or(latest, |deadline| deadline.min(latest));
        let server = cx.me().name().unwrap_or(self.url.as_str());
        let work = async |named: RawMessage| {
            let mut meta = BareCallMeta {
                timeout: Some(deadline.saturating_duration_since(Instant::now())),
                ..BareCallMeta::default()
            };
            if let Some(call) = cx.call() {
                meta.purpose.clone_from(&call.principal.purpose);
                (meta.hops, meta.trace) = (call.hops.saturating_add(1), Some(call.trace));
            }
            let call = BareCall {
                tool: named.name,
                arguments: Cow::Borrowed(&named.payload),
                meta,
            };
            self.exchange(&encode_call(&call)).await.map_err(with_code)
        };
        let replied =
            outbound_policy::exchange(named, &cx, server, CallOrigin::MCP, || deadline, work).await;
        replied.map_err(|failure| match failure.kind {
            FailureKind::TimedOut | FailureKind::Cancelled => with_code(failure),
            // A refusal by the policy has no code of the dialect.
            _ => failure,
        })
    }

    async fn exchange(&self, params: &RawValue) -> Result<Box<RawValue>, Failure> {
        let id = RequestId::text(&Uuid::new_v4().to_string());
        let sent = self
            .clients
            .for_current_runtime()
            .send(
                &self.target,
                Method::POST,
                self.headers.clone(),
                encode_request(&id, CALL_METHOD, params).into(),
            )
            .await;
        let response = sent.map_err(failure_from_net)?;
        let status = response.status();
        let body = response
            .body(self.options.limits.body_bytes_max)
            .await
            .map_err(|error| match error {
                BodyError::TooLarge => Failure::overloaded(format!(
                    "the response is over the limit of {} bytes (`body_bytes_max`)",
                    self.options.limits.body_bytes_max
                )),
                BodyError::Net(error) => failure_from_net(error),
            })?;
        match decode(&body, &self.options.limits) {
            // A response with another request's id may hold another caller's data: it is discarded.
            Ok(RpcMessage::Response(answer)) => match (answer.id, answer.outcome) {
                // An error tells more than its HTTP status; a result with one of an error is none.
                (Some(got), Ok(_)) if got == id && !status.is_success() => {
                    Err(failure_from_status(status))
                }
                (Some(got), outcome) if got == id => outcome
                    .map(RawValue::to_owned)
                    .map_err(|error| from_rpc(&error)),
                // The peer couldn't read the id. This connection carries no other request, so the
                // error is ours.
                (None, Err(error)) if status.is_success() => Err(from_rpc(&error)),
                (None, Err(_)) => Err(failure_from_status(status)),
                _ => Err(Failure::internal(
                    "the server answered with the id of another request, so its answer was discarded: the server has to be corrected",
                )),
            },
            _ if !status.is_success() => Err(failure_from_status(status)),
            Ok(_) => Err(Failure::internal(
                "the server answered with no JSON-RPC response: the server has to be corrected",
            )),
            Err(refusal) => Err(Failure::internal(format!(
                "the server's response {refusal}"
            ))),
        }
    }
}

impl Agent for BareMcpClient {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(PENDING_CALLS_MAX);
    }
}

impl ConcurrentHandler<RawMessage> for BareMcpClient {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        self.clone().call(message, cx)
    }
}

/// Returns the headers of each request.
fn request_headers(bearer: Option<&SecretString>) -> Result<HeaderMap, BareClientError> {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON), (ACCEPT, JSON)]);
    if let Some(token) = bearer {
        let value = Zeroizing::new(format!("Bearer {}", token.expose_secret()));
        let mut value = HeaderValue::from_str(&value).map_err(|_| BareClientError::Bearer)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn failure_from_net(error: NetError) -> Failure {
    match error {
        // Only a certificate is the operator's to correct; other reasons aren't told apart.
        NetError::Unreachable(ConnectFailure::Certificate(fault)) => Failure::unavailable(format!(
            "network failure during HTTP dispatch: can't connect: {fault}"
        )),
        NetError::Unreachable(_) => {
            Failure::unavailable("network failure during HTTP dispatch: can't connect")
        }
        NetError::Broken => {
            Failure::unavailable("network failure during HTTP dispatch: the connection broke")
        }
    }
}

fn failure_from_status(status: StatusCode) -> Failure {
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
