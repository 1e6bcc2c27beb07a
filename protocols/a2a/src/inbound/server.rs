//! The A2A server: its routes, and its two HTTP bindings. Over JSON-RPC the method identifies the
//! protocol version.

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use callboard_rpc::serve::guard::HttpRejection;
use callboard_rpc::serve::http_response::json_response;
use callboard_rpc::serve::idle_timeout::{self, ActiveRequest};
use callboard_rpc::serve::{
    self as rpc_serve, BoundServer, CredentialWatch, ListenOptions, ServeError, ServerRegistry,
    guard,
};
#[cfg(feature = "tower")]
use callboard_rpc::tower::{MountOptions, MountedService};
use callboard_rpc::{
    DecodeError, DecodeLimits, RequestId, RpcError, RpcMessage, RpcNotification, RpcRequest,
    UnusedMember, check_json, code, decode, encode_response,
};
use callboard_runtime::{AgentRef, PrincipalShares};
use serde_json::value::RawValue;
use url::Url;

use super::calls::{A2aTaskService, RelatedAgents, RequestContext};
use super::cards::{AgentCards, HttpDocument, catalog};
use super::http_reply::{self, ResponseEncoder};
use super::operations::{self, A2aRequest, OperationResult, ServerState};
use super::options::A2aOptions;
use super::push::PushDispatcher;
use super::request_head::{self, RequestHead};
use super::rest::{self, RestRoute, RouteMatch};
use crate::{A2aError, Dialect, ErrorKind};

/// Path of a listener's aggregate agent, which represents all agents of the listener.
pub const A2A_PATH: &str = "/a2a";
/// Path of a named agent.
pub const NAMED_AGENT_PATH: &str = "/agents/{name}/a2a";

/// Paths of the aggregate agent.
const ROOT_PATHS: [&str; 4] = [
    A2A_PATH,
    "/a2a/{tail:.*}",
    "/v1/{tail:.*}",
    "/.well-known/{file}",
];
/// Paths of the named agents.
const NAMED_PATHS: [&str; 3] = [
    NAMED_AGENT_PATH,
    "/agents/{name}/a2a/{tail:.*}",
    "/agents/{name}/.well-known/{file}",
];
/// Base path of the aggregate agent, for JSON-RPC only.
const ROOT_BASE_PATHS: [&str; 1] = ["/"];
/// Base paths of the named agents, for JSON-RPC only.
const NAMED_BASE_PATHS: [&str; 2] = ["/agents/{name}", "/agents/{name}/"];

/// Returns the paths of a listener's resources. A `tail` is a path of [`rest_routes`](super::rest_routes),
/// a `file` one of [`document_names`].
#[doc(hidden)]
pub fn resource_paths() -> impl Iterator<Item = &'static str> {
    let base_paths = ROOT_BASE_PATHS.into_iter().chain(NAMED_BASE_PATHS);
    ROOT_PATHS.into_iter().chain(NAMED_PATHS).chain(base_paths)
}

/// A public document below `/.well-known/`.
#[derive(Clone, Copy)]
enum WellKnownDocument {
    /// Card of the agent.
    Card,
    /// Keys that sign cards.
    KeySet,
    /// Catalogue of the agents that the caller may see; at the listener's root only.
    Catalog,
}

/// Well-known documents by file name.
const DOCUMENTS: [(&str, WellKnownDocument); 4] = [
    ("agent-card.json", WellKnownDocument::Card),
    ("agent.json", WellKnownDocument::Card),
    ("jwks.json", WellKnownDocument::KeySet),
    ("ai-catalog.json", WellKnownDocument::Catalog),
];

/// Returns the file names of the well-known documents. They need no credential.
#[doc(hidden)]
pub fn document_names() -> impl Iterator<Item = &'static str> {
    DOCUMENTS.iter().map(|(name, _)| *name)
}

/// A2A server of one agent, for use in any actix-web application. It supports every protocol
/// version, over JSON-RPC and HTTP+JSON.
///
/// Configure the application's `HttpServer` with timeouts, `tcp_nodelay(true)` and
/// `h1_allow_half_closed(false)`. Without the latter, clients that disconnect aren't noticed.
/// [`serve`] sets all of these.
#[derive(Clone)]
pub struct A2aServer {
    pub(super) server: Arc<ServerState>,
}

impl A2aServer {
    /// Creates a server. Each message type of `agent` with a JSON form becomes a skill of the same
    /// name. If the agent lists its tools itself, these become the skills instead. An agent that
    /// handles `Converse` also accepts messages that name no skill.
    pub fn new(agent: AgentRef, options: A2aOptions) -> Self {
        let options = Arc::new(options);
        let calls = A2aTaskService::new(agent, options.clone());
        let push = PushDispatcher::new(&calls, &options);
        calls.set_push_handler(push.config_handler());
        let cards = AgentCards::new(calls.clone(), options.clone());
        let streams = PrincipalShares::new(options.streams_max, options.principal_share_percent);
        Self {
            server: Arc::new(ServerState {
                options,
                tasks: calls,
                push,
                cards,
                streams,
            }),
        }
    }

    /// Replaces the description on the agent's card; if empty, it is derived from the skills.
    pub fn update_description(&self, description: &str) {
        self.server.cards.update_description(description);
    }

    /// Replaces the agent for future calls. Calls that have begun continue with the previous agent.
    pub fn replace_agent(&self, agent: AgentRef) {
        self.server.tasks.replace_agent(agent);
    }

    /// Replaces the agents whose tasks this server shows too. They must have the same store.
    pub fn set_related_agents(&self, related: RelatedAgents) {
        self.server.tasks.set_related_agents(related);
    }

    /// Stops serving requests. Tasks continue with another server of the same agent and store; in a
    /// durable store also with a later one, until
    /// [`RunningTaskScopes::stop`](callboard_runtime::running::RunningTaskScopes::stop) is called
    /// for the store.
    pub fn detach(&self) {
        self.server.push.stop();
        self.server.tasks.live.detach_host(&self.server.tasks);
    }

    /// Ends all subscriptions to tasks. Call it before the listener closes: a subscription would
    /// keep its connection open until the drain timeout. A client may subscribe again elsewhere.
    pub fn end_subscriptions(&self) {
        self.server.tasks.end_subscriptions();
    }

    /// Stops running tasks in this process, including those of other servers with the same agent
    /// and store. Tasks in a durable store are resumed by the next server.
    pub async fn stop(&self) {
        self.server.push.stop();
        self.server.tasks.stop().await;
    }

    /// Adds the server's routes to an application: [`A2A_PATH`] and the card's.
    pub fn configure(&self, config: &mut ServiceConfig) {
        AddressRouter {
            aggregate: self.clone(),
            named: NamedAgents::default(),
        }
        .configure(config);
    }
}

/// Servers by agent name, each served at [`NAMED_AGENT_PATH`].
pub type NamedAgents = ServerRegistry<A2aServer>;

/// Returns the catalogue of the agents that the caller may see.
async fn visible_catalog(
    named: &NamedAgents,
    request: &HttpRequest,
    base_url: &Url,
) -> HttpDocument {
    let mut seen = Vec::new();
    for (name, A2aServer { server }) in named.all() {
        let caller = request_head::caller_or_anonymous(request, &server.options).await;
        if server.tasks.is_visible_to(caller.call_context()).await {
            seen.push((name, server));
        }
    }
    catalog(
        base_url,
        seen.iter()
            .map(|(name, served)| (&**name, &served.options.agent, served.cards.description())),
    )
}

/// Serves agents on a bound listener with all timeouts set: the aggregate agent `all` at
/// [`A2A_PATH`], and those of `named` at their own paths. Must be called within a tokio runtime.
///
/// # Errors
/// [`ServeError`] if the address isn't allowed without authentication, or the server can't start.
pub fn serve(
    listener: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
) -> Result<BoundServer, ServeError> {
    serve_with(listener, all, named, listen, |_| {})
}

/// Serves agents like [`serve`]; `more` adds further routes to the application.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(
    listener: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
    more: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
) -> Result<BoundServer, ServeError> {
    let router = AddressRouter {
        aggregate: all,
        named,
    };
    rpc_serve::check_address(&listener, |address| router.may_listen_on(address))?;
    rpc_serve::serve(listener, listen, move |config| {
        router.configure_all(config, &more);
    })
}

/// Creates a tower service with the agents that [`serve`] serves, for the HTTP server of a host.
///
/// Its paths are relative to [`A2aOptions::base_url`]: the host mounts it as its fallback, or nests it at the
/// path of that URL, without [`MountedService::nested_at`]. With a
/// [`token_resource`](MountOptions::token_resource) it is mounted at the root: clients find the metadata by
/// the paths that the service sees.
///
/// Call [`A2aServer::end_subscriptions`] before the host stops, which otherwise waits for them. Keep a clone of
/// the service until [`A2aServer::stop`] has returned: tasks without an open response are dropped with the
/// last one.
///
/// # Errors
/// [`ServeError`] if the host's address isn't allowed without authentication, or a thread can't be
/// started.
#[cfg(feature = "tower")]
pub fn a2a_service(
    all: A2aServer,
    named: NamedAgents,
    mount: &MountOptions,
) -> Result<MountedService, ServeError> {
    let router = AddressRouter {
        aggregate: all,
        named,
    };
    let checked = router.clone();
    MountedService::new(
        mount,
        |address| checked.may_listen_on(address),
        move |config| router.configure_all(config, |_| {}),
    )
}

/// Servers of a listener: the aggregate agent and the named ones.
#[derive(Clone)]
pub(crate) struct AddressRouter {
    pub(crate) aggregate: A2aServer,
    pub(crate) named: NamedAgents,
}

/// Server of an address (the listener's root or a named agent), and the agents that its requests
/// can select by tenant.
pub(super) struct HttpEndpoint {
    pub(super) server: Arc<ServerState>,
    /// Agents that a request's tenant can name. For a named agent, its own name, which is the only
    /// valid tenant.
    pub(super) tenants: Result<NamedAgents, String>,
}

impl AddressRouter {
    /// Returns whether the authentication of all servers allows listening on an address.
    pub(crate) fn may_listen_on(&self, address: IpAddr) -> bool {
        let named = self.named.all().into_iter().map(|(_, server)| server);
        named
            .chain([self.aggregate.clone()])
            .all(|served| served.server.options.access.may_listen_on(address))
    }

    /// Adds all routes of a listener, with `more` before those of base paths.
    fn configure_all(&self, config: &mut ServiceConfig, more: impl Fn(&mut ServiceConfig)) {
        self.configure(config);
        more(config);
        self.configure_base_paths(config);
    }

    fn configure(&self, config: &mut ServiceConfig) {
        let data = Data::new(self.clone());
        let resource = |path: &str| web::resource(path).app_data(data.clone());
        for path in ROOT_PATHS {
            config.service(resource(path).to(handle_root));
        }
        for path in NAMED_PATHS {
            config.service(resource(path).to(handle_named));
        }
    }

    /// Adds routes for JSON-RPC at the base URLs without `/a2a`, because clients that don't read
    /// cards send requests there. Only POST is handled.
    fn configure_base_paths(&self, config: &mut ServiceConfig) {
        let data = Data::new(self.clone());
        let posted = |path: &str| {
            web::resource(path)
                .guard(actix_web::guard::Post())
                .app_data(data.clone())
        };
        for path in ROOT_BASE_PATHS {
            config.service(posted(path).to(handle_root));
        }
        for path in NAMED_BASE_PATHS {
            config.service(posted(path).to(handle_named));
        }
    }

    /// Returns the endpoint of the aggregate agent, whose tenants are the named agents.
    pub(super) fn root_endpoint(&self) -> HttpEndpoint {
        HttpEndpoint {
            server: self.aggregate.server.clone(),
            tenants: Ok(self.named.clone()),
        }
    }
}

async fn handle_root(
    request: HttpRequest,
    payload: Payload,
    router: Data<AddressRouter>,
) -> HttpResponse {
    let tail = request.uri().path();
    router
        .root_endpoint()
        .handle(
            &request,
            payload,
            tail.strip_prefix(A2A_PATH).unwrap_or(tail),
        )
        .await
}

async fn handle_named(
    request: HttpRequest,
    payload: Payload,
    router: Data<AddressRouter>,
) -> HttpResponse {
    let name = request.match_info().get("name").unwrap_or_default();
    let Some(server) = router.named.get(name) else {
        let why = "no agent of this name is served here";
        return HttpResponse::NotFound()
            .content_type("text/plain; charset=utf-8")
            .body(why);
    };
    let endpoint = HttpEndpoint {
        server: server.server,
        tenants: Err(name.to_owned()),
    };
    // Remove `/agents/NAME`.
    let path = request.uri().path();
    let tail = path
        .splitn(4, '/')
        .nth(3)
        .map_or(path.len(), |rest| path.len() - rest.len() - 1);
    let tail = path.get(tail..).unwrap_or_default();
    endpoint
        .handle(
            &request,
            payload,
            tail.strip_prefix(A2A_PATH).unwrap_or(tail),
        )
        .await
}

impl HttpEndpoint {
    /// Handles a request for the endpoint's agent: a well-known document, JSON-RPC or HTTP+JSON.
    /// `tail` is the path after the agent's address.
    async fn handle(&self, request: &HttpRequest, payload: Payload, tail: &str) -> HttpResponse {
        let busy = idle_timeout::track_request(request);
        if let Some(file) = tail.strip_prefix("/.well-known/") {
            let binding = ResponseEncoder::HttpJson { is_a2a_json: false };
            return self
                .serve_document(request, file, &binding)
                .await
                .unwrap_or_else(|refused| binding.respond_refused(refused));
        }
        match (tail, request.method()) {
            ("" | "/", &Method::POST) => {
                let nobody = ResponseEncoder::JsonRpc(None);
                self.handle_rpc(request, payload, busy)
                    .await
                    .unwrap_or_else(|refused| nobody.respond_refused(refused))
            }
            ("" | "/", _) => http_reply::method_not_allowed("POST"),
            (tail, method) => match rest::match_route(method, tail) {
                RouteMatch::Matched(route) => {
                    let binding = ResponseEncoder::HttpJson {
                        is_a2a_json: request_head::uses_a2a_json(request.headers(), route.dialect),
                    };
                    let answered = self
                        .handle_rest(route, request, payload, binding.clone(), busy)
                        .await;
                    answered.unwrap_or_else(|refused| binding.respond_refused(refused))
                }
                RouteMatch::MethodNotAllowed(methods) => http_reply::method_not_allowed(methods),
                RouteMatch::NotFound => HttpResponse::NotFound().finish(),
            },
        }
    }

    /// Serves a well-known document: the card, the key set, or at the listener's root the catalogue
    /// of agents.
    async fn serve_document(
        &self,
        request: &HttpRequest,
        name: &str,
        binding: &ResponseEncoder,
    ) -> Result<HttpResponse, HttpRejection> {
        let options = &self.server.options;
        guard::check_source(request, &options.hosts, &options.origins)?;
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(http_reply::method_not_allowed("GET, HEAD"));
        }
        let document = DOCUMENTS.iter().find(|(file, _)| *file == name);
        let made = match (document.map(|(_, document)| *document), &self.tenants) {
            (Some(WellKnownDocument::Card), _) => self
                .server
                .cards
                .public_card(request_head::accepts_v1_card(request))
                .await
                .map(Some),
            (Some(WellKnownDocument::KeySet), _) => Ok(self.server.cards.jwks()),
            (Some(WellKnownDocument::Catalog), Ok(others)) => {
                let mut answer = visible_catalog(others, request, &options.base_url)
                    .await
                    .to_response(request);
                // The catalogue differs between callers.
                answer.headers_mut().insert(
                    CACHE_CONTROL,
                    HeaderValue::from_static("private, max-age=60"),
                );
                return Ok(answer);
            }
            _ => Ok(None),
        };
        Ok(match made {
            Ok(Some(document)) => document.to_response(request),
            Ok(None) => HttpResponse::NotFound().finish(),
            Err(error) => binding.respond_error(&error, Dialect::V10),
        })
    }

    /// Handles a request of the HTTP+JSON binding.
    async fn handle_rest(
        &self,
        route: RestRoute,
        request: &HttpRequest,
        payload: Payload,
        binding: ResponseEncoder,
        busy: ActiveRequest,
    ) -> Result<HttpResponse, HttpRejection> {
        let options = &self.server.options;
        let head = RequestHead::from_request(request, options).await?;
        let body = match *request.method() {
            Method::POST => Some(request_head::read_body(request, payload, options).await?),
            _ => None,
        };
        self.perform(request, head, binding, route.dialect, busy, || {
            let body = body.as_deref().filter(|body| !body.is_empty());
            let body = body.map(|body| parse_body(body, options)).transpose()?;
            A2aRequest::from_path(&route, request.query_string(), body)
        })
        .await
    }

    /// Handles a request of the JSON-RPC binding, in any version.
    async fn handle_rpc(
        &self,
        request: &HttpRequest,
        payload: Payload,
        busy: ActiveRequest,
    ) -> Result<HttpResponse, HttpRejection> {
        let options = &self.server.options;
        let head = RequestHead::from_request(request, options).await?;
        let body = request_head::read_body(request, payload, options).await?;
        let limits = DecodeLimits {
            allows_null_id: true,
            ..options.limits
        };
        let (id, method, params) = match decode(&body, &limits) {
            Ok(RpcMessage::Request(RpcRequest { id, method, params })) => {
                (Some(id), method, params)
            }
            Ok(RpcMessage::Notification(RpcNotification { method, params })) => {
                (None, method, params)
            }
            Ok(RpcMessage::Response(_)) => {
                let error = RpcError::new(
                    code::INVALID_REQUEST,
                    "unexpected response: this server sends no requests",
                );
                return Ok(rpc_error_response(StatusCode::OK, None, &error));
            }
            Err(refused) => {
                // The sender of a batch expects several responses, so a single error could be
                // overlooked. The HTTP status signals it too.
                let is_batch = refused.error == DecodeError::Batch;
                let status = if is_batch {
                    StatusCode::BAD_REQUEST
                } else {
                    StatusCode::OK
                };
                return Ok(rpc_error_response(
                    status,
                    refused.id.as_ref(),
                    &RpcError::from(&refused),
                ));
            }
        };
        let (binding, is_request) = (ResponseEncoder::JsonRpc(id.clone()), id.is_some());
        let Some((dialect, operation)) = Dialect::from_method(&method) else {
            return Ok(match is_request {
                // The client's dialect is unknown, so the newest is used.
                true => binding.respond_error(
                    &ErrorKind::MethodNotFound.error(
                        "no such method: use one of A2A 1.0, 0.3 or 0.1, such as `SendMessage`",
                    ),
                    Dialect::V10,
                ),
                // A notification gets no response (JSON-RPC 2.0, section 4.1).
                false => HttpResponse::Accepted().finish(),
            });
        };
        self.perform(request, head, binding, dialect, busy, || {
            let asked = A2aRequest::from_params(dialect, operation, params)?;
            // The client expects a response that it couldn't match without an id. Silence would
            // hide the mistake.
            let missing = || ErrorKind::InvalidRequest.error("a request must have an `id`");
            is_request.then_some(asked).ok_or_else(missing)
        })
        .await
    }

    /// Performs one request and encodes its response. `read` parses the request's parameters.
    async fn perform(
        &self,
        request: &HttpRequest,
        mut head: RequestHead,
        binding: ResponseEncoder,
        dialect: Dialect,
        busy: ActiveRequest,
        read: impl FnOnce() -> Result<A2aRequest, A2aError>,
    ) -> Result<HttpResponse, HttpRejection> {
        if let Err(error) = &head.negotiated {
            return Ok(binding.respond_error(error, error_dialect(error, dialect)));
        }
        let found =
            read().and_then(|mut asked| Ok((self.server_for_tenant(asked.tenant_mut())?, asked)));
        let (server, asked) = match found {
            Ok(found) => found,
            Err(error) => return Ok(binding.respond_error(&error, dialect)),
        };
        if !Arc::ptr_eq(&server, &self.server) {
            // The tenant's own server decides who is allowed.
            head = RequestHead::from_request(request, &server.options).await?;
            if let Err(error) = &head.negotiated {
                return Ok(binding.respond_error(error, error_dialect(error, dialect)));
            }
        }
        let who = operations::complete_context(
            &server,
            RequestContext {
                dialect,
                ..head.context
            },
            &asked,
        )
        .await;
        let dialect = who.dialect;
        let room = server.stream_permit(&who, &asked)?;
        Ok(
            match (
                operations::perform_operation(&server, &who, asked, head.last_event).await,
                room,
            ) {
                (Ok(OperationResult::SingleResult(answer)), _) => binding.respond(&answer),
                (Ok(OperationResult::EventStream(events)), Some(room)) => {
                    let standing = CredentialWatch::new(request, &server.options.access);
                    http_reply::stream_events(
                        events,
                        binding,
                        dialect,
                        server.options.keep_alive_interval,
                        standing,
                        (busy, room),
                    )
                }
                (Ok(OperationResult::EventStream(_)), None) => {
                    binding.respond_error(&A2aError::internal(), dialect)
                }
                (Err(error), room) => {
                    if error.kind == ErrorKind::Internal {
                        // The message may contain data, so it isn't logged.
                        callboard_message::log::warn!(agent = server.options.agent.name, principal = who.principal.id, trace = %who.trace, "a request failed with an internal error");
                    }
                    // Clients of older versions accept only an event stream in response to a streaming
                    // request; newer ones expect JSON.
                    match matches!(dialect, Dialect::V03 | Dialect::V01)
                        && room.is_some()
                        && head.accepts_events_only
                    {
                        true => binding.respond_error_event(&error, dialect),
                        false => binding.respond_error(&error, dialect),
                    }
                }
            },
        )
    }

    /// Returns the server of the agent that a tenant names; the endpoint's own server if `tenant`
    /// is empty. Fails with `InvalidParams` if the tenant is unknown.
    pub(super) fn server_for_tenant(&self, tenant: &str) -> Result<Arc<ServerState>, A2aError> {
        let unknown = || A2aError::invalid_params("tenant", "is not served at this address");
        match &self.tenants {
            _ if tenant.is_empty() => Ok(self.server.clone()),
            Ok(others) => Ok(others.get(tenant).ok_or_else(unknown)?.server),
            Err(own) if own == tenant => Ok(self.server.clone()),
            Err(_) => Err(unknown()),
        }
    }
}

/// Parses a body as JSON. Fails if it isn't a single JSON value or exceeds the limits of the
/// options.
fn parse_body<'a>(body: &'a [u8], options: &A2aOptions) -> Result<&'a RawValue, A2aError> {
    let text = check_json(body, &options.limits).map_err(|error| match error.is_well_formed() {
        true => ErrorKind::InvalidRequest.error(error.to_string()),
        false => ErrorKind::Parse.error(error.to_string()),
    })?;
    serde_json::from_str(text).map_err(|_| ErrorKind::Parse.error("the body is not JSON"))
}

/// Returns the dialect of an error response: 1.0 if the client's version is unsupported, because
/// only 1.0 defines that error; otherwise the request's `dialect`.
fn error_dialect(error: &A2aError, dialect: Dialect) -> Dialect {
    if error.kind == ErrorKind::VersionNotSupported {
        Dialect::V10
    } else {
        dialect
    }
}

fn rpc_error_response(
    status: StatusCode,
    id: Option<&RequestId>,
    error: &RpcError,
) -> HttpResponse {
    json_response(
        status,
        guard::JSON,
        encode_response(id, Err(error), UnusedMember::Omit),
    )
}
