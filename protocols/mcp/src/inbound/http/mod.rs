//! Streamable HTTP on actix-web, both eras at one URL.
//!
//! A message belongs to the modern era if its `_meta` names a revision or the header
//! `MCP-Protocol-Version` names 2026-07-28. Otherwise it belongs to the legacy session in
//! `Mcp-Session-Id`.
//!
//! | request | status |
//! |---|---|
//! | a request | 200: JSON, or an event stream if messages precede the response, or the response is late |
//! | a notification, a response | 202, empty |
//! | an invalid message, a batch in a revision without batches | 400 with -32700, -32600 or -32602 |
//! | an unsupported version | 400 with -32022 |
//! | no session if one is required; an unknown one, or another principal's | 400; 404 |
//! | an `Accept` without JSON and event streams; another content type | 406; 415 |
//! | a body over the limit; one that doesn't arrive in time, or whole | 413; 408, 400 |
//! | an `Origin` or `Host` that is neither this machine's nor configured | 403 |
//! | in front of a mailroom: an `X-Agent-ID` other than the credential's id; two, or an empty one | 403; 401 |
//! | a credential that no verifier accepts | 401 |
//! | a credential without a scope that the agent needs, if the refusal is the first message | 403, with `WWW-Authenticate` |
//! | too many streams of a session, or streams or sessions of a principal; of the server | 429; 503 |
//! | no memory left for messages ([`BufferBudget`](callboard_rpc::BufferBudget)) | 503, with `Retry-After` |
//!
//! In the legacy era a closed connection is no cancellation: the call continues, and its stream can
//! be resumed by GET with `Last-Event-ID`. In the modern era it is a cancellation.

use std::fmt;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{Extensions, Service as _, ServiceRequest};
use actix_web::guard::fn_guard;
use actix_web::http::header::{ALLOW, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::web::{Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, ResponseError, Route, web};
use callboard_message::Principal;
use callboard_message::mail::JoinMailroom;
use callboard_rpc::serve::guard::{HttpRejection, JSON, http_rejection};
use callboard_rpc::serve::{
    BoundServer, ConcurrencyPermit, CredentialWatch, ListenOptions, ServeError, ServerRegistry,
    accept_header, agent_id_header, guard, http_response,
};
#[cfg(feature = "tower")]
use callboard_rpc::tower::{MountOptions, MountedService};
use callboard_rpc::{
    DecodeFailure, DecodeLimits, RequestId, RpcError, RpcMessage, code, decode,
    encode_decode_failure, encode_error, serve as rpc_serve,
};
use callboard_runtime::{AgentRef, PrincipalShares, ShareError, SharePermit};
use futures::future::{Either, ready};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::modern::ModernService;
use super::options::{McpServerOptions, PATH_DEFAULT};
use super::response::EncodedResponse;
use crate::wire::{Era, Revision, code as mcp};
use replay_buffer::ReplayStream;
use sessions::{HttpSession, SessionTable};
use sse_compat::SseSessions;

mod bare;
mod replay_buffer;
mod sessions;
mod sse_compat;
mod streamable;
mod websocket;

/// Maximum time that [`McpServer::stop`] waits for the end of streams.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// MCP server for one agent, as part of any actix-web application.
///
/// An application that builds its own `HttpServer` must set its timeouts and call
/// `h1_allow_half_closed(false)`, without which disconnected clients aren't noticed, and
/// `tcp_nodelay(true)`. [`serve`] does all of that.
#[derive(Clone)]
pub struct McpServer {
    server: Data<ServerState>,
}

/// State of a server, shared by its HTTP worker threads.
struct ServerState {
    service: Arc<ModernService>,
    options: McpServerOptions,
    sessions: SessionTable,
    open_streams: Arc<PrincipalShares>,
    /// Event streams and WebSockets that no request keeps open.
    idle_streams: TaskTracker,
    sse: SseSessions,
}

impl McpServer {
    /// Creates a server for `agent`. Each of the agent's message types with a JSON form is a tool,
    /// unless the agent lists its tools itself. Other messages of `callboard_message::capabilities`
    /// that the agent handles are served, too.
    pub fn new(agent: AgentRef, options: McpServerOptions) -> Self {
        let share_percent = options.inbound.principal_share_percent;
        let server = ServerState {
            service: ModernService::new(agent, options.inbound.clone()),
            sessions: SessionTable::new(
                options.sessions.clone(),
                options.streams.limits,
                share_percent,
            ),
            open_streams: PrincipalShares::new(options.streams.streams_max, share_percent),
            idle_streams: TaskTracker::new(),
            sse: SseSessions::default(),
            options,
        };
        Self {
            server: Data::new(server),
        }
    }

    /// Serves `agent` from now on instead of the current one. Sessions and subscriptions continue,
    /// and their clients are notified that the lists have changed. A running request is finished by
    /// the agent that it began with.
    pub fn replace(&self, agent: AgentRef) {
        self.server.service.tasks.endpoint.replace(agent);
    }

    /// Adds the server's resources to an application: at [`McpServerOptions::path`], and those of
    /// [`McpServerOptions::compat`].
    pub fn configure(&self, config: &mut ServiceConfig) {
        let options = &self.server.options;
        let resource = if options.compat.bare {
            bare::bare_resource
        } else {
            mcp_resource
        };
        config.service(resource(&options.path).app_data(self.server.clone()));
        if options.compat.sse {
            for resource in sse_resources(&options.path) {
                config.service(resource.app_data(self.server.clone()));
            }
        }
    }

    /// Ends event streams and WebSockets on which no request runs, and subscriptions. Running
    /// requests finish, and their streams end with them. Waits at most [`STOP_TIMEOUT`]. To be
    /// called before the HTTP server is stopped, which otherwise waits for these streams.
    pub async fn stop(&self) {
        self.server.service.end_streams();
        self.server.idle_streams.close();
        let _ = timeout(STOP_TIMEOUT, self.server.idle_streams.wait()).await;
    }
}

/// Returns a path without and with a slash at its end. Some clients add one.
fn with_slash(path: &str) -> [String; 2] {
    let path = path.trim_end_matches('/');
    [path.to_owned(), format!("{path}/")]
}

/// URL path of each of the [`NamedServers`].
pub const NAMED_PATH: &str = "/agents/{name}/mcp";

/// Servers by name, each at [`NAMED_PATH`]. Servers may be added and removed while requests are
/// served.
pub type NamedServers = ServerRegistry<McpServer>;

/// Servers of a listener: each of `servers` at its own path, each of `named` at [`NAMED_PATH`].
#[derive(Clone)]
struct ListenerServers {
    servers: Vec<McpServer>,
    named: NamedServers,
}

impl ListenerServers {
    /// Returns whether the authentication of all servers allows listening on an address.
    fn may_listen_on(&self, address: IpAddr) -> bool {
        let named = self.named.all().into_iter().map(|(_, server)| server);
        named
            .chain(self.servers.iter().cloned())
            .all(|server| server.server.may_listen_on(address))
    }

    fn configure(&self, config: &mut ServiceConfig) {
        let Self { servers, named } = self;
        servers.iter().for_each(|server| server.configure(config));
        configure_named(named, config);
        let paths = servers.iter().map(|server| &*server.server.options.path);
        let paths: Vec<&str> = paths.chain([NAMED_PATH]).collect();
        let not_found = format!("not found; MCP is served at {}\n", paths.join(", "));
        config.default_service(web::to(move || {
            ready(HttpResponse::NotFound().body(not_found.clone()))
        }));
    }
}

fn configure_named(servers: &NamedServers, config: &mut ServiceConfig) {
    let servers = servers.clone();
    let find = move |request: &ServiceRequest| servers.get(request.match_info().get("name")?);
    configure_found(config, mcp_resource(NAMED_PATH), find.clone());
    for resource in sse_resources(NAMED_PATH) {
        let find = find.clone();
        configure_found(config, resource, move |request| {
            find(request).filter(|server| server.server.options.compat.sse)
        });
    }
}

/// Adds a resource whose requests are served by the server that `find` returns for them. Without
/// one they are answered with 404.
fn configure_found(
    config: &mut ServiceConfig,
    resource: Resource,
    find: impl Fn(&ServiceRequest) -> Option<McpServer> + Clone + 'static,
) {
    let found = resource.wrap_fn(move |mut request, service| {
        let Some(server) = find(&request) else {
            return Either::Left(ready(Ok(
                request.into_response(HttpResponse::NotFound().finish())
            )));
        };
        let mut data = Extensions::new();
        data.insert(server.server.clone());
        request.add_data_container(Rc::new(data));
        Either::Right(service.call(request))
    });
    config.service(found);
}

/// Returns the routes at the path of a server, in the order in which they are tried, each with its
/// HTTP method and what else tells it from others.
fn streamable_routes() -> [(&'static str, Route); 4] {
    let wants_websocket =
        fn_guard(|context| accept_header::wants_websocket(context.head().headers()));
    let upgrade = web::get().guard(wants_websocket).to(websocket::upgrade);
    [
        ("POST", web::post().to(streamable::post)),
        ("GET (WebSocket)", upgrade),
        ("GET", web::get().to(streamable::get)),
        ("DELETE", web::delete().to(streamable::delete)),
    ]
}

/// Returns the routes for HTTP+SSE beside the server at `path`, in its folder, each with its HTTP
/// method and path.
fn sse_routes(path: &str) -> [(&'static str, String, Route); 2] {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = |name: &str| format!("{folder}/{name}");
    let (open, post) = (sse_compat::open_stream, sse_compat::post_message);
    [
        ("GET", path("sse"), web::get().to(open)),
        ("POST", path("messages"), web::post().to(post)),
    ]
}

/// Returns the HTTP method and path of each route of a listener, those of the compatibility
/// transports included. The bare dialect has a route of its own instead, `POST` at
/// [`PATH_DEFAULT`].
#[doc(hidden)]
pub fn routes() -> impl Iterator<Item = (&'static str, String)> {
    [PATH_DEFAULT, NAMED_PATH].into_iter().flat_map(|path| {
        let streamable = streamable_routes().map(|(method, _)| (method, path.to_owned()));
        let sse = sse_routes(path).map(|(method, path, _)| (method, path));
        streamable.into_iter().chain(sse)
    })
}

/// Returns the resources for HTTP+SSE beside the server at `path`. They require a
/// `Data<ServerState>`.
fn sse_resources(path: &str) -> [Resource; 2] {
    sse_routes(path).map(|(_, path, route)| {
        web::resource(with_slash(&path))
            .route(route)
            .default_service(web::to(streamable::other_method))
    })
}

/// Returns the actix-web resource for streamable HTTP at `path`. It requires a `Data<ServerState>`.
fn mcp_resource(path: &str) -> Resource {
    let routes = streamable_routes().into_iter();
    let resource = web::resource(with_slash(path));
    routes
        .fold(resource, |resource, (_, route)| resource.route(route))
        .default_service(web::to(streamable::other_method))
}

impl ServerState {
    fn may_listen_on(&self, address: IpAddr) -> bool {
        let Self { options, .. } = self;
        options.access.may_listen_on(address)
            && (!options.compat.bare || address.to_canonical().is_loopback())
    }

    /// Returns a watch that ends the event streams of the request when its credential is revoked.
    fn credential_watch(&self, request: &HttpRequest) -> CredentialWatch {
        CredentialWatch::new(request, &self.options.access)
    }

    /// Responds with an event stream that no request of the client keeps open. Its connection ends
    /// with it, so that a server that stops needn't wait for the client to close it.
    fn idle_stream_response(
        &self,
        request: &HttpRequest,
        events: ReplayStream,
        held: impl Sized + 'static,
    ) -> HttpResponse {
        let held = (held, self.idle_streams.token());
        let mut response = self.event_stream_response(request, events, held);
        response
            .head_mut()
            .set_connection_type(ConnectionType::Close);
        response
    }

    fn event_stream_response(
        &self,
        request: &HttpRequest,
        events: ReplayStream,
        held: impl Sized + 'static,
    ) -> HttpResponse {
        http_response::event_stream_response(
            events,
            self.options.streams.keep_alive,
            self.credential_watch(request),
            held,
        )
    }

    /// Acquires permits for one more event stream of the principal, and of the session if given.
    ///
    /// # Errors
    /// 429 if the session or the principal has too many open streams, 503 if the server has.
    fn acquire_stream_permits(
        &self,
        principal: &Principal,
        session: Option<&HttpSession>,
    ) -> Result<StreamPermits, HttpRejection> {
        const SESSION_FULL: HttpRejection = http_rejection(
            StatusCode::TOO_MANY_REQUESTS,
            "the session has too many open streams: close one first",
        );
        let streams_max = self.sessions.options.streams_max;
        let of_session = |session: &HttpSession| {
            ConcurrencyPermit::try_acquire(&session.open_streams, streams_max).ok_or(SESSION_FULL)
        };
        let of_session = session.map(of_session).transpose()?;
        let of_server = self.open_streams.try_acquire(principal);
        let of_server = of_server.map_err(|error| share_rejection("event streams", error))?;
        Ok((of_session, of_server))
    }
}

/// Permits of one event stream: of its session, if it has one, and of the server.
type StreamPermits = (Option<ConcurrencyPermit>, SharePermit);

/// Returns the rejection of a request that gets no place among the server's `items`: 429 at the
/// principal's limit, 503 at the server's.
fn share_rejection(items: &str, error: ShareError) -> HttpRejection {
    HttpRejection {
        status: match error.is_own_limit() {
            true => StatusCode::TOO_MANY_REQUESTS,
            false => StatusCode::SERVICE_UNAVAILABLE,
        },
        message: format!("too many {items}: {error}").into(),
        challenge: None,
    }
}

impl Drop for ServerState {
    fn drop(&mut self) {
        self.service.close();
    }
}

/// Serves `agent` over MCP on a bound listener, with all timeouts set. Must be called within a
/// Tokio runtime.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    listener: TcpListener,
    agent: AgentRef,
    options: McpServerOptions,
    listen: &ListenOptions,
) -> Result<BoundServer, ServeError> {
    serve_named(
        listener,
        vec![McpServer::new(agent, options)],
        NamedServers::default(),
        listen,
    )
}

/// Serves agents on one bound listener: each of `servers` at its own path, each of `named` at
/// [`NAMED_PATH`]. Servers may be added to and removed from `named` while serving.
///
/// # Errors
/// See [`ServeError`].
pub fn serve_named(
    listener: TcpListener,
    servers: Vec<McpServer>,
    named: NamedServers,
    listen: &ListenOptions,
) -> Result<BoundServer, ServeError> {
    let served = ListenerServers { servers, named };
    rpc_serve::check_address(&listener, |address| served.may_listen_on(address))?;
    rpc_serve::serve(listener, listen, move |config| served.configure(config))
}

/// Creates a tower service with the agents that [`serve_named`] serves, for the HTTP server of a host.
///
/// [`McpServerOptions::path`] is the path that clients request. If the host's router removes a prefix of it,
/// see [`MountedService::nested_at`]. Of a service that is nested at `/mcp` only that path can be reached:
/// [`NAMED_PATH`], and `/sse` and `/messages` of [`McpServerOptions::compat`], need one at the host's root.
/// Requests for [`RESOURCE_METADATA_PATH`](callboard_rpc::RESOURCE_METADATA_PATH) go to a clone from before
/// `nested_at`.
///
/// Call [`McpServer::stop`] before the host stops, which otherwise waits for open streams. Keep a clone of the
/// service until then: calls and tasks without an open response are dropped with the last one.
///
/// # Errors
/// [`ServeError`] if the host's address isn't allowed without authentication, or a thread can't be
/// started.
#[cfg(feature = "tower")]
pub fn mcp_service(
    servers: Vec<McpServer>,
    named: NamedServers,
    mount: &MountOptions,
) -> Result<MountedService, ServeError> {
    let served = ListenerServers { servers, named };
    let checked = served.clone();
    MountedService::new(
        mount,
        |address| checked.may_listen_on(address),
        move |config| served.configure(config),
    )
}

/// Header with the id of a legacy session.
static SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Header with the protocol revision.
static PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Header with the id of the last event that the client has received (WHATWG HTML, section 9.2.4).
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Content types that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AcceptedTypes {
    json: bool,
    events: bool,
}

impl AcceptedTypes {
    /// Parses the `Accept` header. A media type of weight zero isn't accepted; other weights are
    /// ignored.
    fn from_headers(headers: &HeaderMap) -> Self {
        let mut accepts = Self {
            json: false,
            events: false,
        };
        accept_header::for_each_media_range(headers, |kind| {
            let is = |name: &str| kind.eq_ignore_ascii_case(name.as_bytes());
            accepts.json |= is("application/json") || is("application/*") || is("*/*");
            accepts.events |= is("text/event-stream") || is("text/*") || is("*/*");
        });
        accepts
    }

    /// Checks that the client accepts JSON or event streams.
    ///
    /// # Errors
    /// 406 if it accepts neither.
    fn check_any(self) -> Result<(), HttpRejection> {
        const REFUSED: HttpRejection = http_rejection(
            StatusCode::NOT_ACCEPTABLE,
            "`Accept` must name application/json or text/event-stream, better both",
        );
        if self.json || self.events {
            Ok(())
        } else {
            Err(REFUSED)
        }
    }

    /// Checks that the client accepts event streams.
    ///
    /// # Errors
    /// 406 if it doesn't.
    fn check_events(headers: &HeaderMap) -> Result<(), HttpRejection> {
        let refused = http_rejection(
            StatusCode::NOT_ACCEPTABLE,
            "`Accept` must name text/event-stream",
        );
        if Self::from_headers(headers).events {
            Ok(())
        } else {
            Err(refused)
        }
    }
}

/// Value of the header `MCP-Protocol-Version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionHeader<'a> {
    Missing,
    Known(Revision),
    Unknown(&'a str),
}

impl<'a> VersionHeader<'a> {
    fn from_headers(headers: &'a HeaderMap) -> Self {
        let Some(value) = headers.get(&PROTOCOL_VERSION) else {
            return Self::Missing;
        };
        let text = value.to_str().unwrap_or_default().trim();
        Revision::parse(text).map_or(Self::Unknown(text), Self::Known)
    }

    fn is_modern(self) -> bool {
        matches!(self, Self::Known(revision) if revision.era() == Era::Modern)
    }
}

/// Checks `Host` and `Origin`, authenticates the request and returns its principal. If the agent is
/// a mailroom, or `agent_id_must_match` is set, an `X-Agent-ID` header must match the principal.
async fn authenticate(
    request: &HttpRequest,
    server: &ServerState,
) -> Result<Principal, HttpRejection> {
    guard::check_source(request, &server.options.hosts, &server.options.origins)?;
    let principal = guard::authenticate(request, None, &server.options.access).await?;
    let leads_to_mail = || {
        server
            .service
            .tasks
            .endpoint
            .adapter()
            .agent
            .recipient::<JoinMailroom>()
            .is_some()
    };
    if agent_id_header::is_present(request.headers())
        && (server.options.agent_id_must_match || leads_to_mail())
    {
        agent_id_header::check_matches_principal(request.headers(), &principal)?;
    }
    Ok(principal)
}

/// Rejection of a request that needs a session but has no session id.
const MISSING_SESSION: HttpRejection = http_rejection(
    StatusCode::BAD_REQUEST,
    "the header `Mcp-Session-Id` is missing: send `initialize` first",
);

fn answer_response(answer: EncodedResponse) -> HttpResponse {
    let mut response =
        http_response::json_response(answer.status, JSON, answer.body.unwrap_or_default());
    if let Some(seconds) = answer.retry_after_s {
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn accepted_response() -> HttpResponse {
    HttpResponse::Accepted().finish()
}

fn malformed_response(refusal: &DecodeFailure) -> HttpResponse {
    http_response::json_response(
        StatusCode::BAD_REQUEST,
        JSON,
        encode_decode_failure(refusal),
    )
}

/// Rejection of an HTTP request that never became a call, with a JSON-RPC error as body.
#[derive(Debug)]
pub(crate) struct JsonRpcRejection {
    rejection: HttpRejection,
    /// Id of the rejected request; `None` if there is none, or the body wasn't read.
    id: Option<RequestId>,
}

impl JsonRpcRejection {
    /// Creates the rejection of the message in `body`, with the id of the request.
    fn of_message(rejection: HttpRejection, body: &[u8], limits: &DecodeLimits) -> Self {
        let id = match decode(body, limits) {
            Ok(RpcMessage::Request(request)) => Some(request.id),
            Ok(_) => None,
            Err(refusal) => refusal.id,
        };
        Self { rejection, id }
    }
}

impl From<HttpRejection> for JsonRpcRejection {
    fn from(rejection: HttpRejection) -> Self {
        Self {
            rejection,
            id: None,
        }
    }
}

impl fmt::Display for JsonRpcRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rejection.message)
    }
}

impl ResponseError for JsonRpcRejection {
    fn status_code(&self) -> StatusCode {
        self.rejection.status
    }

    fn error_response(&self) -> HttpResponse {
        let refused = &self.rejection;
        let code = match refused.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => mcp::OVERLOADED,
            _ => code::INVALID_REQUEST,
        };
        let message = encode_error(self.id.as_ref(), &RpcError::new(code, &*refused.message));
        let mut response = http_response::rejection_response(refused, JSON, message);
        if refused.status == StatusCode::METHOD_NOT_ALLOWED {
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{ACCEPT, HeaderValue};

    /// Goal: accepted content types follow from `Accept`. Method: rows.
    #[test]
    fn accepts() {
        for (accept, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("Text/Event-Stream;q=0.5 , APPLICATION/json", true, true),
            ("*/*", true, true),
            ("application/*", true, false),
            ("text/event-stream", false, true),
            ("application/json;q=0, text/event-stream", false, true),
            ("*/*;q=0.0", false, false),
            ("text/html", false, false),
            ("", false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(
                AcceptedTypes::from_headers(&headers),
                AcceptedTypes { json, events },
                "{accept}"
            );
        }
        assert_eq!(
            AcceptedTypes::from_headers(&HeaderMap::new()),
            AcceptedTypes {
                json: false,
                events: false
            }
        );
    }
}
