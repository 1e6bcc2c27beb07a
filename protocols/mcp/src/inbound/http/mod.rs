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

use std::fmt;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use actix_web::dev::{Extensions, Service as _};
use actix_web::guard::fn_guard;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderMap, HeaderName, HeaderValue};
use actix_web::web::{Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, ResponseError, web};
use bytes::BytesMut;
use callboard_message::Principal;
use callboard_message::mail::Join;
use callboard_rpc::serve::guard::{JSON, Refused, refused};
use callboard_rpc::serve::{
    ListenOptions, Named, Permit, ServeError, Serving, Standing, accept, claim, guard, reply,
};
use callboard_rpc::{Refusal, RpcError, code, encode_error, encode_refusal, serve as door};
use callboard_runtime::AgentRef;
use futures::future::{Either, ready};

use super::modern::ModernService;
use super::options::McpServerOptions;
use super::response::Answer;
use crate::wire::{Era, Revision, code as mcp};
use replay_buffer::LogEvents;
use sessions::{HttpSession, Sessions};
use sse_compat::SseSessions;

mod bare;
mod replay_buffer;
mod sessions;
mod sse_compat;
mod streamable;
mod websocket;

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
    service: Arc<ModernService>,
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
            service: ModernService::new(agent, options.inbound.clone()),
            sessions: Sessions::new(options.sessions.clone(), options.streams.limits),
            open_streams: Arc::default(),
            sse: SseSessions::default(),
            options,
        };
        Self {
            server: Data::new(server),
        }
    }

    /// Serves `agent` from now on, in place of the one before: sessions and subscriptions go on with it, and are told that
    /// its lists changed. A request that was begun ends with the agent that it began with.
    pub fn replace(&self, agent: AgentRef) {
        self.server.service.tasks.endpoint.replace(agent);
    }

    /// Adds the resource to an application, at [`McpServerOptions::path`], and what [`McpServerOptions::compat`] wants
    /// beside it.
    pub fn configure(&self, config: &mut ServiceConfig) {
        let options = &self.server.options;
        let resource = if options.compat.bare {
            bare::resource
        } else {
            resource
        };
        config.service(resource(&options.path).app_data(self.server.clone()));
        if options.compat.sse {
            let folder = options
                .path
                .rsplit_once('/')
                .map_or("", |(folder, _)| folder);
            let stream =
                web::resource(format!("{folder}/sse")).route(web::get().to(sse_compat::get));
            let messages =
                web::resource(format!("{folder}/messages")).route(web::post().to(sse_compat::post));
            config.service(
                stream
                    .app_data(self.server.clone())
                    .default_service(web::to(streamable::other_method)),
            );
            config.service(
                messages
                    .app_data(self.server.clone())
                    .default_service(web::to(streamable::other_method)),
            );
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
        let Some(server) = request
            .match_info()
            .get("name")
            .and_then(|name| servers.get(name))
        else {
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

/// Streamable HTTP at a path; it needs a `Data<Server>`.
fn resource(path: &str) -> Resource {
    web::resource(path)
        .route(web::post().to(streamable::post))
        .route(
            web::get()
                .guard(fn_guard(|context| {
                    accept::wants_websocket(context.head().headers())
                }))
                .to(websocket::get),
        )
        .route(web::get().to(streamable::get))
        .route(web::delete().to(streamable::delete))
        .default_service(web::to(streamable::other_method))
}

impl Server {
    fn may_listen_on(&self, address: IpAddr) -> bool {
        let Self { options, .. } = self;
        options.access.may_listen_on(address)
            && (!options.compat.bare || address.to_canonical().is_loopback())
    }

    /// Whether who sent a request may go on with what that opened.
    fn standing(&self, request: &HttpRequest) -> Standing {
        Standing::of(request, &self.options.access)
    }

    /// Answers with an event stream.
    fn stream(
        &self,
        request: &HttpRequest,
        events: LogEvents,
        held: impl Sized + 'static,
    ) -> HttpResponse {
        reply::events(
            events,
            self.options.streams.keep_alive,
            self.standing(request),
            held,
        )
    }

    /// Room for one more event stream.
    fn permits(&self, session: Option<&HttpSession>) -> Result<Vec<Permit>, Refused> {
        const SESSION_FULL: Refused = refused(
            StatusCode::TOO_MANY_REQUESTS,
            "the session has too many open streams",
        );
        const SERVER_FULL: Refused = refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "there are too many open streams: try again later",
        );
        let mut permits = Vec::with_capacity(2);
        if let Some(session) = session {
            permits.push(
                Permit::take(&session.open_streams, self.sessions.options.streams_max)
                    .ok_or(SESSION_FULL)?,
            );
        }
        permits.push(
            Permit::take(&self.open_streams, self.options.streams.streams_max)
                .ok_or(SERVER_FULL)?,
        );
        Ok(permits)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.service.close();
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
    serve_named(
        listener,
        vec![McpServer::new(agent, options)],
        NamedServers::default(),
        listen,
    )
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
        named
            .chain(servers.iter().cloned())
            .all(|server| server.server.may_listen_on(address))
    })?;
    door::serve(listener, listen, move |config| {
        servers.iter().for_each(|server| server.configure(config));
        configure_named(&named, config);
    })
}

/// The header of a legacy session's id.
static SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header of the revision.
static PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The header of the last event that a client has seen (WHATWG HTML, section 9.2.4).
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Accepts {
    json: bool,
    events: bool,
}

impl Accepts {
    /// Reads `Accept`, which MCP wants to be there. Weights are only looked at for being zero.
    fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self {
            json: false,
            events: false,
        };
        accept::each_range(headers, |kind| {
            let is = |name: &str| kind.eq_ignore_ascii_case(name.as_bytes());
            accepts.json |= is("application/json") || is("application/*") || is("*/*");
            accepts.events |= is("text/event-stream") || is("text/*") || is("*/*");
        });
        accepts
    }

    /// # Errors
    /// 406 where no event stream can be read.
    fn check_events(headers: &HeaderMap) -> Result<(), Refused> {
        let refused = refused(
            StatusCode::NOT_ACCEPTABLE,
            "`Accept` must name text/event-stream",
        );
        if Self::of(headers).events {
            Ok(())
        } else {
            Err(refused)
        }
    }
}

/// What `MCP-Protocol-Version` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version<'a> {
    Missing,
    Known(Revision),
    Unknown(&'a str),
}

impl<'a> Version<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
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

/// Reads what was posted, by whom.
async fn read_post(
    request: &HttpRequest,
    payload: Payload,
    server: &Server,
) -> Result<(Principal, BytesMut), Refused> {
    let principal = principal_of(request, server)?;
    let (bytes_max, body_timeout) = (
        server.options.inbound.limits.body_bytes_max,
        server.options.body_timeout,
    );
    Ok((
        principal,
        guard::read_json(request, payload, &[JSON], bytes_max, body_timeout).await?,
    ))
}

/// Who is behind a request from a source that may ask. In front of a mailroom it may say so again (`X-Agent-ID`), and only
/// truly.
fn principal_of(request: &HttpRequest, server: &Server) -> Result<Principal, Refused> {
    guard::check_source(request, &server.options.hosts, &server.options.origins)?;
    let principal = guard::principal(request, &server.options.access)?;
    let leads_to_mail = || {
        server
            .service
            .tasks
            .endpoint
            .adapter()
            .agent
            .recipient::<Join>()
            .is_some()
    };
    if claim::is_there(request.headers()) && (server.options.claims_must_match || leads_to_mail()) {
        claim::check(request.headers(), &principal)?;
    }
    Ok(principal)
}

/// The session that a request names. Another principal's is as unknown as none.
fn find_session(
    headers: &HeaderMap,
    principal: &Principal,
    server: &Server,
) -> Result<Option<Arc<HttpSession>>, Refused> {
    let Some(id) = headers.get(&SESSION_ID) else {
        return Ok(None);
    };
    let found = std::str::from_utf8(id.as_bytes())
        .ok()
        .and_then(|id| server.sessions.get(id, principal));
    found.map(Some).ok_or(refused(
        StatusCode::NOT_FOUND,
        "no such session: send `initialize` without one",
    ))
}

/// What a request of a session is that names none.
const NO_SESSION: Refused = refused(
    StatusCode::BAD_REQUEST,
    "the header `Mcp-Session-Id` is missing: send `initialize` first",
);

/// The answer to a request, in one piece.
fn answer_response(answer: Answer) -> HttpResponse {
    reply::json(answer.status, JSON, answer.body.unwrap_or_default())
}

/// Taken, and nothing to say.
fn accepted() -> HttpResponse {
    HttpResponse::Accepted().finish()
}

/// A message that is none.
fn malformed_response(refusal: &Refusal) -> HttpResponse {
    reply::json(StatusCode::BAD_REQUEST, JSON, encode_refusal(refusal))
}

/// A request that never became a call: answered with a JSON-RPC error.
#[derive(Debug)]
pub(crate) struct Rejection(Refused);

impl From<Refused> for Rejection {
    fn from(refused: Refused) -> Self {
        Self(refused)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message)
    }
}

impl ResponseError for Rejection {
    fn status_code(&self) -> StatusCode {
        self.0.status
    }

    fn error_response(&self) -> HttpResponse {
        let refused = self.0;
        let code = match refused.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => mcp::OVERLOADED,
            _ => code::INVALID_REQUEST,
        };
        let message = encode_error(None, &RpcError::new(code, refused.message));
        let mut response = reply::refuse(refused, JSON, message);
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

    /// Goal: what a client can read is told from `Accept`. Method: rows.
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
            assert_eq!(Accepts::of(&headers), Accepts { json, events }, "{accept}");
        }
        assert_eq!(
            Accepts::of(&HeaderMap::new()),
            Accepts {
                json: false,
                events: false
            }
        );
    }
}
