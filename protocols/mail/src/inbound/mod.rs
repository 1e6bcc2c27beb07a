//! Agent mail for clients: HTTP and WebSocket on a listener of its own.
//!
//! A client presents a key, and its agent id in `X-Agent-ID`; the two must match. All other
//! decisions are the mailroom's.
//!
//! | request | status |
//! |---|---|
//! | valid request | 200, even if no recipient could be reached: see `success` |
//! | no valid key; `X-Agent-ID` missing, empty or repeated | 401 |
//! | an `X-Agent-ID` that doesn't match the key; a terminated agent; an `Origin` or `Host` that isn't allowed | 403 |
//! | a message or agent that doesn't exist, or isn't visible to the caller | 404 |
//! | another method; another content type; a body over the limit; a body that doesn't arrive in time | 405; 415; 413; 408 |
//! | a body or query that isn't valid | 422, which names the member |
//! | too many messages; too many event sockets of one principal | 429, with `Retry-After` |
//! | a failure of the store, or a defect | 500 |
//! | no capacity, or no memory left for messages; no reply of the mailroom in time | 503; 504 |

mod events;
mod http;
mod operations;
mod routes;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderName;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::{Failure, Message, Principal, RawMessage, TraceContext};
use callboard_rpc::serve::guard::{self, HttpRejection};
use callboard_rpc::serve::{self as listener_serve, agent_id_header, idle_timeout};
use callboard_rpc::{AccessControl, AllowedHosts, AllowedOrigins, DecodeLimits};
use callboard_runtime::{
    AgentRef, CallContext, CallOrigin, Direction, PRINCIPAL_SHARE_PERCENT_DEFAULT, PrincipalShares,
    inbound_policy,
};
use parking_lot::RwLock;
use serde_json::value::RawValue;
use tokio::time::Instant;

use events::EventSockets;
use http::ProblemResponse;

pub use callboard_rpc::serve::{BoundServer, ListenOptions, ServeError};
pub use events::INCOMING_MESSAGES_MAX;
pub use routes::routes;

/// HTTP and WebSocket server of a mailroom, for use in any actix-web application. Clones share one
/// server.
///
/// An application that builds its own `HttpServer` must set timeouts, and call
/// `h1_allow_half_closed(false)` so that departed clients are noticed, and `tcp_nodelay(true)`.
/// [`serve`] does all of this.
#[derive(Clone)]
pub struct MailServer {
    server: Data<MailServerState>,
}

/// State shared by a server's worker threads.
struct MailServerState {
    agent: RwLock<AgentRef>,
    options: MailServerOptions,
    events: EventSockets,
}

impl MailServer {
    /// Creates a server for the mailroom `agent`. It must handle the messages of
    /// [`callboard_message::mail`].
    pub fn new(agent: AgentRef, options: MailServerOptions) -> Self {
        let sockets = PrincipalShares::new(options.sockets_max, options.principal_share_percent);
        let events = EventSockets::subscribe(agent.system(), sockets);
        Self {
            server: Data::new(MailServerState {
                agent: RwLock::new(agent),
                options,
                events,
            }),
        }
    }

    /// Replaces the mailroom that is served. Requests in progress complete with the previous one.
    pub fn replace_agent(&self, agent: AgentRef) {
        let before = std::mem::replace(&mut *self.server.agent.write(), agent);
        drop(before);
    }

    /// Closes all event sockets with code 1001. Waits at most 2 s until they are closed.
    pub async fn stop(&self) {
        self.server.events.stop().await;
    }

    /// Adds the server's routes to an application. All paths begin with `/api`, except for the
    /// aliases `/broadcast_message`, `/send_message` and `/ws`.
    pub fn configure(&self, config: &mut ServiceConfig) {
        for path in routes::paths().chain(routes::alias_paths()) {
            config.service(
                web::resource(path)
                    .app_data(self.server.clone())
                    .to(handle_path),
            );
        }
        config.service(web::resource("/api/{tail:.*}").to(unknown_path));
    }
}

async fn handle_path(
    request: HttpRequest,
    payload: Payload,
    server: Data<MailServerState>,
) -> HttpResponse {
    let busy = idle_timeout::track_request(&request);
    let path = request.match_pattern().unwrap_or_default();
    let path = routes::resolve_alias(&path);
    let done = match routes::find_route(path, request.method().as_str()) {
        Ok(route) => operations::handle_route(route, &request, payload, &server, busy).await,
        Err(allow) => Err(ProblemResponse::method_not_allowed(allow)),
    };
    done.unwrap_or_else(|problem| problem.respond_to(&request, &server.options.access))
}

async fn unknown_path() -> HttpResponse {
    ProblemResponse::not_found().respond()
}

impl MailServerState {
    /// Returns the mailroom that is currently served.
    fn agent(&self) -> AgentRef {
        self.agent.read().clone()
    }

    /// Sends a message to the mailroom on behalf of a caller, with the deadline of the server's
    /// options. The inbound policy checks it first. Dropping the future cancels the call.
    ///
    /// # Errors
    /// Returns the failure of the policy, the mailroom or the runtime.
    async fn ask<T, M>(&self, caller: &MailCaller, message: &M) -> Result<T, Failure>
    where
        T: 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let agent = self.agent();
        let (name, payload) = (agent.to_string(), encode(message)?);
        let call = self.call(caller);
        inbound_policy::admit(&agent, &name, M::NAME, &payload, &call).await?;
        let sent = RawMessage {
            name: M::NAME.to_owned(),
            payload,
        };
        let reply = inbound_policy::ask(&agent, &name, M::NAME, sent, call).await;
        decode::<T, M>(reply)
    }

    /// Sends a message to the mailroom like [`Self::ask`], but without the check of the inbound
    /// policy. For repeated reads of an event socket, which was checked when it was opened.
    ///
    /// # Errors
    /// Returns the failure of the mailroom or the runtime.
    async fn ask_admitted<T, M>(&self, caller: &MailCaller, message: &M) -> Result<T, Failure>
    where
        T: 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let agent = self.agent();
        let call =
            self.call(caller)
                .with_policy(agent.system(), Direction::Inbound, &agent.to_string());
        decode::<T, M>(
            agent
                .ask_named(M::NAME, encode(message)?, Some(Arc::new(call)))
                .await,
        )
    }

    fn call(&self, caller: &MailCaller) -> CallContext {
        let call = CallContext {
            trace: caller.trace,
            origin: CallOrigin::MAIL,
            ..CallContext::new(caller.principal.clone())
        };
        call.with_deadline(Instant::now() + self.options.call_deadline)
    }
}

fn encode<M: Message>(message: &M) -> Result<Box<RawValue>, Failure> {
    let wire = M::codec().ok_or_else(no_codec::<M>)?;
    (wire.encode)(message).map_err(|_| {
        Failure::internal(format!(
            "{} can't be encoded as JSON, which is a bug: report it to the operator",
            M::NAME
        ))
    })
}

fn no_codec<M: Message>() -> Failure {
    Failure::internal(format!(
        "{} has no JSON codec, which is a bug: report it to the operator",
        M::NAME
    ))
}

fn decode<T, M>(reply: Result<Box<RawValue>, Failure>) -> Result<T, Failure>
where
    M: Message<Reply = Result<T, Failure>>,
{
    let wire = M::codec().ok_or_else(no_codec::<M>)?;
    (wire.decode_reply)(reply).and_then(|reply| reply)
}

/// Creates an HTTP server for a bound listener, with all timeouts set. Must be called within a
/// tokio runtime.
///
/// # Errors
/// [`ServeError::UnauthenticatedListener`] if the address is not loopback and no keys are required;
/// [`ServeError::Io`] if the listener can't be used.
pub fn serve(
    listener: TcpListener,
    server: MailServer,
    listen: &ListenOptions,
) -> Result<BoundServer, ServeError> {
    listener_serve::check_address(&listener, |address| {
        server.server.options.access.may_listen_on(address)
    })?;
    listener_serve::serve(listener, listen, move |config| server.configure(config))
}

/// Request header with the caller's trace context (W3C Trace Context).
static TRACE_PARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");

/// Authenticated caller of a request.
#[derive(Debug)]
struct MailCaller {
    principal: Arc<Principal>,
    trace: TraceContext,
}

/// Authenticates a request: checks its `Origin` and `Host`, its credential, and the agent id that
/// it claims in `X-Agent-ID`.
///
/// # Errors
/// 401 if the credential is missing or invalid, or there is not exactly one `X-Agent-ID`. 403 if
/// `Origin` or `Host` is not allowed, or `X-Agent-ID` doesn't match the credential, whether or not
/// such an agent exists.
async fn authenticate(
    request: &HttpRequest,
    options: &MailServerOptions,
) -> Result<MailCaller, HttpRejection> {
    guard::check_source(request, &options.hosts, &options.origins)?;
    let authenticated = guard::authenticate(request, None, &options.access).await;
    let principal = authenticated.map_err(as_unauthenticated)?;
    agent_id_header::check_matches_principal(request.headers(), &principal)?;
    let word = request
        .headers()
        .get(&TRACE_PARENT_HEADER)
        .and_then(|value| value.to_str().ok());
    let trace = word.and_then(|parent| parent.trim().parse::<TraceContext>().ok());
    let trace = trace
        .as_ref()
        .map_or_else(TraceContext::root, TraceContext::child);
    Ok(MailCaller {
        principal: Arc::new(principal),
        trace,
    })
}

/// Changes the status 400 of a malformed credential to 401, because the caller is not
/// authenticated. Other statuses are unchanged.
fn as_unauthenticated(mut refusal: HttpRejection) -> HttpRejection {
    if refusal.status == StatusCode::BAD_REQUEST {
        refusal.status = StatusCode::UNAUTHORIZED;
    }
    refusal
}

/// Settings of a [`MailServer`]. By default no keys are required and only local connections are
/// accepted, so `access` should be set.
#[derive(Debug, Clone)]
pub struct MailServerOptions {
    /// Authentication method. By default no credential is required.
    pub access: AccessControl,
    /// Host names (`Host`) that are allowed in addition to this machine's own.
    pub hosts: AllowedHosts,
    /// Web origins (`Origin`) that are allowed in addition to this machine's own.
    pub origins: AllowedOrigins,
    /// Limits of a request's JSON body. Default: 512 KiB, enough for a message of 64 KiB with each
    /// byte escaped. A larger body is rejected with 413.
    pub limits: DecodeLimits,
    /// Time within which a request's body must arrive. Default: 10 s. A later body is rejected with
    /// 408.
    pub body_timeout: Duration,
    /// Time within which the mailroom must reply. Default: 10 s. After it, the request is answered
    /// with 504.
    pub call_deadline: Duration,
    /// Maximum number of open event sockets. Default: 256. Further ones are rejected with 503.
    pub sockets_max: usize,
    /// Share of a principal in the event sockets, in percent, 1 to 100. Default: 25. Beyond its
    /// share, a principal may have more as long as a share is left for others: 192 of 256 if no
    /// other has any. Further ones are rejected with 429. With 100, one principal may have all.
    pub principal_share_percent: u8,
    /// Time within which the client of an event socket must accept a frame. Default: 5 s. After it,
    /// the socket is closed with code 1013; the reason contains the sequence number at which the
    /// client can resume.
    pub frame_timeout: Duration,
    /// Interval between pings to the client of an event socket. Default: 15 s. A socket is closed
    /// if its client sends nothing for three intervals.
    pub ping_interval: Duration,
}

impl Default for MailServerOptions {
    fn default() -> Self {
        Self {
            access: AccessControl::default(),
            hosts: AllowedHosts::default(),
            origins: AllowedOrigins::default(),
            limits: DecodeLimits {
                body_bytes_max: 512 * 1024,
                ..DecodeLimits::default()
            },
            body_timeout: Duration::from_secs(10),
            call_deadline: Duration::from_secs(10),
            sockets_max: 256,
            principal_share_percent: PRINCIPAL_SHARE_PERCENT_DEFAULT,
            frame_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(15),
        }
    }
}
