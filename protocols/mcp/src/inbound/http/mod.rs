//! Streamable HTTP on actix-web, both eras at one URL.
//!
//! A message belongs to the modern era where its `_meta` names a revision or the header `MCP-Protocol-Version` names
//! 2026-07-28; else it belongs to the legacy session that `Mcp-Session-Id` names.
//!
//! | sent | status |
//! |---|---|
//! | a request | 200: JSON, or an event stream where something comes before the answer, or the answer late |
//! | a notification, a response | 202, empty |
//! | no message, a batch where the revision has none | 400 with -32700, -32600 or -32602 |
//! | a version that isn't spoken here | 400 with -32022 |
//! | no session where one is needed; an unknown one, or another principal's | 400; 404 |
//! | an `Accept` without JSON and event streams; another content type | 406; 415 |
//! | a body over the limit; one that doesn't arrive in time, or whole | 413; 408, 400 |
//! | an `Origin` or `Host` that isn't this machine's, nor configured | 403 |
//! | in front of a mailroom: an `X-Agent-ID` that isn't the credential's id; two, or an empty one | 403; 401 |
//! | a credential that nobody verifies | 401 |
//! | more streams of a session than it may have; more of the server, or sessions | 429; 503 |
//!
//! In the legacy era the end of a connection is no cancellation: the work goes on, and its stream can be resumed by GET
//! with `Last-Event-ID`. In the modern era it is one.

mod admit;
mod bare;
mod body;
mod get;
mod log;
mod modern;
mod options;
mod post;
mod reply;
mod sessions;
mod sse_compat;
mod websocket;

use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use actix_web::dev::{Extensions, Service as _};
use actix_web::guard;
use actix_web::http::StatusCode;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource};
use callboard_rpc::serve::guard::{Refused, refused};
use callboard_rpc::serve::{self as door, ListenOptions, Named, Permit, ServeError, Serving, Standing};
use callboard_runtime::AgentRef;
use futures::future::{Either, ready};

pub use log::{REPLAY_BYTES_MAX_DEFAULT, STREAM_BYTES_MAX_DEFAULT, STREAM_EVENTS_MAX_DEFAULT, StreamLimits};
pub use options::{
    BODY_TIMEOUT_DEFAULT, Compat, KEEP_ALIVE_COMMENT_DEFAULT, McpServerOptions, PATH_DEFAULT,
    REPLAY_STREAMS_MAX_DEFAULT, RETRY_DEFAULT, SESSION_IDLE_DEFAULT, SESSION_STREAMS_MAX_DEFAULT, SESSIONS_MAX_DEFAULT,
    SESSIONS_OF_PRINCIPAL_MAX_DEFAULT, STREAM_AFTER_DEFAULT, STREAMS_MAX_DEFAULT, SessionOptions, StreamOptions,
};

use self::body::LogEvents;
use self::sessions::{HttpSession, Sessions};
use self::sse_compat::SseSessions;
use super::endpoint::Endpoint;

/// Serves one agent as an MCP server, as a part of any actix-web application.
///
/// Whoever builds the `HttpServer` sets its timeouts and must call `h1_allow_half_closed(false)`, else a client that
/// goes away isn't noticed, and `tcp_nodelay(true)`; [`serve`] does all of that.
#[derive(Clone)]
pub struct McpServer {
    server: Data<Server>,
}

/// What the workers share.
struct Server {
    endpoint: Arc<Endpoint>,
    options: McpServerOptions,
    sessions: Sessions,
    open_streams: Arc<AtomicUsize>,
    sse: SseSessions,
}

impl McpServer {
    /// Every message of `agent`'s that can be written as JSON is a tool under its name, unless the agent lists its tools
    /// itself; what else it handles of `callboard_message::surface` is served as well.
    pub fn new(agent: AgentRef, options: McpServerOptions) -> Self {
        let server = Server {
            endpoint: Endpoint::new(agent, options.inbound.clone()),
            sessions: Sessions::new(options.sessions.clone(), options.streams.limits),
            open_streams: Arc::default(),
            sse: SseSessions::default(),
            options,
        };
        Self { server: Data::new(server) }
    }

    /// Serves `agent` from now on, in place of the one before: sessions and subscriptions go on with it, and are told that
    /// its lists changed. A request that was begun ends with the agent that it began with.
    pub fn replace(&self, agent: AgentRef) {
        self.server.endpoint.replace(agent);
    }

    /// Adds the resource to an application, at [`McpServerOptions::path`], and what [`McpServerOptions::compat`] wants
    /// beside it.
    pub fn configure(&self, config: &mut ServiceConfig) {
        let options = &self.server.options;
        let resource = if options.compat.bare { bare::resource } else { resource };
        config.service(resource(&options.path).app_data(self.server.clone()));
        if options.compat.sse {
            let folder = options.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let stream = web::resource(format!("{folder}/sse")).route(web::get().to(sse_compat::get));
            let messages = web::resource(format!("{folder}/messages")).route(web::post().to(sse_compat::post));
            config.service(stream.app_data(self.server.clone()).default_service(web::to(get::other)));
            config.service(messages.app_data(self.server.clone()).default_service(web::to(get::other)));
        }
    }
}

/// Where each of [`NamedServers`] is served.
pub const NAMED_PATH: &str = "/agents/{name}/mcp";

/// Servers by name, each at [`NAMED_PATH`].
pub type NamedServers = Named<McpServer>;

fn configure_named(servers: &NamedServers, config: &mut ServiceConfig) {
    let servers = servers.clone();
    let found = resource(NAMED_PATH).wrap_fn(move |mut request, service| {
        let Some(server) = request.match_info().get("name").and_then(|name| servers.get(name)) else {
            return Either::Left(ready(Ok(request.into_response(HttpResponse::NotFound().finish()))));
        };
        let mut data = Extensions::new();
        data.insert(server.server.clone());
        request.add_data_container(Rc::new(data));
        Either::Right(service.call(request))
    });
    config.service(found);
}

/// Streamable HTTP at a path; it needs a `Data<Server>`.
fn resource(path: &str) -> Resource {
    web::resource(path)
        .route(web::post().to(post::post))
        .route(web::get().guard(guard::fn_guard(websocket::is_wanted)).to(websocket::get))
        .route(web::get().to(get::get))
        .route(web::delete().to(get::delete))
        .default_service(web::to(get::other))
}

impl Server {
    fn may_listen_on(&self, address: IpAddr) -> bool {
        let Self { options, .. } = self;
        options.access.may_listen_on(address) && (!options.compat.bare || address.to_canonical().is_loopback())
    }

    /// Whether who sent a request may go on with what that opened.
    fn standing(&self, request: &HttpRequest) -> Standing {
        Standing::of(request, &self.options.access)
    }

    /// Answers with an event stream.
    fn stream(&self, request: &HttpRequest, events: LogEvents, held: impl Sized + 'static) -> HttpResponse {
        door::reply::events(events, self.options.streams.keep_alive, self.standing(request), held)
    }

    /// Room for one more event stream.
    fn permits(&self, session: Option<&HttpSession>) -> Result<Vec<Permit>, Refused> {
        const SESSION_FULL: Refused = refused(StatusCode::TOO_MANY_REQUESTS, "the session has too many open streams");
        const SERVER_FULL: Refused =
            refused(StatusCode::SERVICE_UNAVAILABLE, "there are too many open streams: try again later");
        let mut permits = Vec::with_capacity(2);
        if let Some(session) = session {
            permits.push(Permit::take(session.open_streams(), self.sessions.streams_max()).ok_or(SESSION_FULL)?);
        }
        permits.push(Permit::take(&self.open_streams, self.options.streams.streams_max).ok_or(SERVER_FULL)?);
        Ok(permits)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.endpoint.modern.close();
        self.endpoint.tasks.leave();
    }
}

/// Serves `agent` over MCP on a bound listener, with every timeout set. Call it within a tokio runtime.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    listener: TcpListener,
    agent: AgentRef,
    options: McpServerOptions,
    listen: &ListenOptions,
) -> Result<Serving, ServeError> {
    serve_named(listener, vec![McpServer::new(agent, options)], NamedServers::default(), listen)
}

/// Serves agents on one bound listener, each at its own path, and those of `named` at theirs, of which some may come and go
/// while it serves.
///
/// # Errors
/// See [`ServeError`].
pub fn serve_named(
    listener: TcpListener,
    servers: Vec<McpServer>,
    named: NamedServers,
    listen: &ListenOptions,
) -> Result<Serving, ServeError> {
    door::check_address(&listener, |address| {
        let named = named.all().into_iter().map(|(_, server)| server);
        named.chain(servers.iter().cloned()).all(|server| server.server.may_listen_on(address))
    })?;
    door::serve(listener, listen, move |config| {
        servers.iter().for_each(|server| server.configure(config));
        configure_named(&named, config);
    })
}
