use std::fmt;
use std::time::Duration;

use callboard_message::{CallId, Failure, FailureKind, Named};
use callboard_rpc::{Id, Incoming, Limits, decode, encode_request};
use callboard_runtime::{Agent, ConcurrentHandler, Crossing, Cx, Direction, Handlers};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, StatusCode, Url, redirect};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::params::{self, Call, CallMetaParams};
use super::{METHOD, error_map};

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
        Self { limits: Limits::default(), connect_timeout: CONNECT_TIMEOUT_DEFAULT, call_timeout: CALL_TIMEOUT_DEFAULT }
    }
}

/// Why a remote agent can't be configured so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BareClientError {
    /// Give a URL like `http://127.0.0.1:8001/mcp`, without user and password.
    #[error("not an http or https URL without user and password")]
    Url,
    /// The HTTP client can't be built: see the cause.
    #[error("can't build the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// A remote agent that speaks the bare dialect, as an agent of this system.
///
/// Asked a typed message, it posts it as `tools/call` under the message's name. It follows no redirects and no proxy
/// variables, sends each call once, and prints and keeps nothing of what passes. Cancelling the call aborts the
/// request.
#[derive(Clone)]
pub struct BareMcpClient {
    http: Client,
    url: Url,
    options: BareClientOptions,
}

impl BareMcpClient {
    /// A client of the agent at `url`. Connects when it is first asked.
    ///
    /// # Errors
    /// See [`BareClientError`].
    pub fn new(url: &str, options: BareClientOptions) -> Result<Self, BareClientError> {
        let url = Url::parse(url).map_err(|_| BareClientError::Url)?;
        let bare = url.username().is_empty() && url.password().is_none() && url.has_host();
        if !bare || !matches!(url.scheme(), "http" | "https") {
            return Err(BareClientError::Url);
        }
        let http = Client::builder()
            .connect_timeout(options.connect_timeout)
            // A redirect or a proxy of the environment's would take patient data where nobody configured it to go.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(BareClientError::Client)?;
        Ok(Self { http, url, options })
    }

    async fn call(self, named: Named, cx: Cx) -> Result<Box<RawValue>, Failure> {
        let timeout = match cx.deadline() {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()).min(self.options.call_timeout),
            None => self.options.call_timeout,
        };
        let meta = travels_along(&cx, timeout)?;
        let name = named.name.clone();
        let crossing = Crossing {
            direction: Direction::Outbound,
            principal: cx.principal(),
            call: cx.call().map_or_else(CallId::fresh, |call| call.id),
            agent: cx.me().name().unwrap_or(self.url.as_str()),
            message: &name,
            payload: &named.payload,
        };
        cx.system().policy().judge(crossing).await?;
        let params = params::write(&Call { tool: named.name, arguments: &named.payload, meta })
            .map_err(|_| Failure::internal("the call can't be written"))?;
        let id = Id::text(&Uuid::new_v4().to_string());
        let body = encode_request(&id, METHOD, &params);
        let deadline = Instant::now() + timeout;
        let exchange = timeout_at(deadline, self.exchange(&id, body));
        let reply = tokio::select! {
            // The deadline cancels too.
            () = cx.cancelled() => Err(if Instant::now() < deadline { cancelled() } else { timed_out() }),
            answer = exchange => answer.unwrap_or_else(|_| Err(timed_out())),
        };
        cx.system().policy().judge_reply(crossing, reply).await
    }

    async fn exchange(&self, id: &Id, body: Vec<u8>) -> Result<Box<RawValue>, Failure> {
        let request = self.http.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let response = request.header(ACCEPT, "application/json").body(body).send().await.map_err(|e| network(&e))?;
        let status = response.status();
        let body = self.read(response).await?;
        match decode(&body, &self.options.limits) {
            Ok(Incoming::Response(answer)) => match (answer.id, answer.outcome) {
                (Some(got), outcome) if got == *id => {
                    outcome.map(RawValue::to_owned).map_err(|error| error_map::from_rpc(&error))
                }
                // The peer couldn't read the id; on this connection it can only mean our request.
                (None, Err(error)) if status.is_success() => Err(error_map::from_rpc(&error)),
                (None, Err(_)) => Err(by_status(status)),
                _ => Err(bad_envelope("the response belongs to another request")),
            },
            _ if !status.is_success() => Err(by_status(status)),
            Ok(_) => Err(bad_envelope("the answer is not a response")),
            Err(refusal) => Err(bad_envelope(&format!("the response {refusal}"))),
        }
    }

    /// The body, held to its limit while it arrives.
    async fn read(&self, mut response: reqwest::Response) -> Result<Vec<u8>, Failure> {
        let bytes_max = self.options.limits.body_bytes_max;
        let too_large = || error_map::of_dispatch(FailureKind::Overloaded, "the response is over the limit");
        if response.content_length().is_some_and(|declared| declared > bytes_max as u64) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| network(&e))? {
            if body.len() + chunk.len() > bytes_max {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn travels_along(cx: &Cx, timeout: Duration) -> Result<CallMetaParams, Failure> {
    let Some(call) = cx.call() else {
        return Ok(CallMetaParams { patience: Some(timeout), ..CallMetaParams::default() });
    };
    let hops = call.hops.saturating_add(1);
    if hops > call.hops_max {
        return Err(error_map::of_dispatch(FailureKind::Rejected, "the call passed through too many agents"));
    }
    let purpose = call.principal.purpose.clone();
    Ok(CallMetaParams { purpose, patience: Some(timeout), hops, trace: Some(call.trace) })
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

fn network(error: &reqwest::Error) -> Failure {
    if error.is_timeout() && !error.is_connect() {
        return timed_out();
    }
    let what = match error.is_connect() {
        true => "network failure during HTTP dispatch: can't connect",
        false => "network failure during HTTP dispatch: the connection broke",
    };
    error_map::of_dispatch(FailureKind::Unavailable, what)
}

fn cancelled() -> Failure {
    error_map::of_dispatch(FailureKind::Cancelled, "the call was cancelled")
}

fn timed_out() -> Failure {
    error_map::of_dispatch(FailureKind::TimedOut, "no response in time")
}

/// The peer broke the protocol, so what it answered can't be used: it may be another's.
fn bad_envelope(what: &str) -> Failure {
    error_map::of_dispatch(FailureKind::Internal, what)
}

fn by_status(status: StatusCode) -> Failure {
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FailureKind::Denied,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => FailureKind::Overloaded,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => FailureKind::TimedOut,
        _ => FailureKind::Unavailable,
    };
    error_map::of_dispatch(kind, &format!("the server answered with HTTP status {}", status.as_u16()))
}

impl fmt::Debug for BareMcpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareMcpClient").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}
