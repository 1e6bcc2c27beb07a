//! The server, its addresses, and its two bindings of HTTP. Over JSON-RPC the method says which version is spoken.

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use callboard_rpc::serve::guard::Refused;
use callboard_rpc::serve::idle::{self, Busy};
use callboard_rpc::serve::reply::json;
use callboard_rpc::serve::{
    self as door, ListenOptions, Named, ServeError, Serving, Standing, guard,
};
use callboard_rpc::{
    DecodeError, Id, Incoming, Notification, Nulls, Request, RpcError, check, code, decode,
    encode_response,
};
use callboard_runtime::AgentRef;
use serde_json::value::RawValue;
use url::Url;

use super::admit::{self, Head};
use super::calls::{Calls, Who};
use super::cards::{CardBody, Cards, catalog};
use super::operations::{self, Answer, Asked, Server};
use super::options::A2aOptions;
use super::push::PushDesk;
use super::reply::{self, Binding, Streams};
use super::rest::{self, Route, Routed};
use crate::{A2aError, Dialect, ErrorKind};

/// Where agents are served: below it all of a listener's as one.
pub const PATH: &str = "/a2a";
/// Where each agent of a listener is served by itself.
pub const NAMED_PATH: &str = "/agents/{name}/a2a";

/// Serves one agent over A2A, in every version and in both bindings of HTTP, as a part of any actix-web application.
///
/// Whoever builds the `HttpServer` sets its timeouts and must call `h1_allow_half_closed(false)`, else a client that
/// goes away isn't noticed, and `tcp_nodelay(true)`; [`serve`] does all of that.
#[derive(Clone)]
pub struct A2aServer {
    pub(super) server: Arc<Server>,
}

impl A2aServer {
    /// Every message of `agent`'s that can be written as JSON is a skill under its name, unless the agent lists its tools
    /// itself; one that converses takes any message.
    pub fn new(agent: AgentRef, options: A2aOptions) -> Self {
        let options = Arc::new(options);
        let calls = Calls::new(agent, options.clone());
        let desk = PushDesk::new(&calls, &options);
        calls.keep_pushes_with(desk.keeper());
        let cards = Cards::new(calls.clone(), options.clone());
        let streams = Streams::default();
        Self {
            server: Arc::new(Server {
                options,
                calls,
                desk,
                cards,
                streams,
            }),
        }
    }

    /// Says from now on that it is for this; empty: what its skills say.
    pub fn describe(&self, description: &str) {
        self.server.cards.describe(description);
    }

    /// Serves `agent` from now on, in place of the one before. A call that was begun ends with the agent that it began
    /// with.
    pub fn replace(&self, agent: AgentRef) {
        self.server.calls.replace(agent);
    }

    /// Serves no more. Tasks in a store that lasts go on, for whoever serves them too or next, until
    /// [`LiveScopes::stop`](callboard_runtime::live::LiveScopes::stop) of the store.
    pub fn leave(&self) {
        self.server.desk.stop();
        self.server.calls.live.leave();
    }

    /// Ends its work, and that of all who serve the same agent from the same store. Tasks in a store that lasts are left to
    /// whoever serves next.
    pub async fn stop(&self) {
        self.server.desk.stop();
        self.server.calls.stop().await;
    }

    /// Adds its addresses to an application: [`PATH`], and its card's.
    pub fn configure(&self, config: &mut ServiceConfig) {
        Front {
            all: self.clone(),
            named: NamedAgents::default(),
        }
        .configure(config);
    }
}

/// Servers by name, each at [`NAMED_PATH`].
pub type NamedAgents = Named<A2aServer>;

/// Those whose cards whoever asks may see.
async fn agents_catalog(named: &NamedAgents, request: &HttpRequest, base_url: &Url) -> CardBody {
    let mut seen = Vec::new();
    for (name, A2aServer { server }) in named.all() {
        if server
            .calls
            .is_seen_by(admit::anybody(request, &server.options).call())
            .await
        {
            seen.push((name, server));
        }
    }
    catalog(
        base_url,
        seen.iter()
            .map(|(name, served)| (&**name, &served.options.info, served.cards.description())),
    )
}

/// Serves agents on one bound listener, with every timeout set: `all` of them as one at [`PATH`], and those of `named` at
/// theirs. Call it within a tokio runtime.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    listener: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
) -> Result<Serving, ServeError> {
    serve_with(listener, all, named, listen, |_| {})
}

/// The same, with what `more` adds to the application.
///
/// # Errors
/// See [`ServeError`].
pub fn serve_with(
    listener: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
    more: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
) -> Result<Serving, ServeError> {
    let front = Front { all, named };
    door::check_address(&listener, |address| front.may_listen_on(address))?;
    door::serve(listener, listen, move |config| {
        front.configure(config);
        more(config);
        front.configure_bases(config);
    })
}

/// Who is served at a listener.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) all: A2aServer,
    pub(crate) named: NamedAgents,
}

/// Who is served at an address.
pub(super) struct Door {
    pub(super) server: Arc<Server>,
    /// Those that a tenant may name, and this address' own name.
    pub(super) others: Result<NamedAgents, String>,
}

impl Front {
    /// Whether all of these may be served on an address.
    pub(crate) fn may_listen_on(&self, address: IpAddr) -> bool {
        let named = self.named.all().into_iter().map(|(_, server)| server);
        named
            .chain([self.all.clone()])
            .all(|served| served.server.options.access.may_listen_on(address))
    }

    fn configure(&self, config: &mut ServiceConfig) {
        let data = Data::new(self.clone());
        let resource = |path: &str| web::resource(path).app_data(data.clone());
        for path in [
            PATH,
            "/a2a/{tail:.*}",
            "/v1/{tail:.*}",
            "/.well-known/{file}",
        ] {
            config.service(resource(path).to(at_root));
        }
        for path in [
            NAMED_PATH,
            "/agents/{name}/a2a/{tail:.*}",
            "/agents/{name}/.well-known/{file}",
        ] {
            config.service(resource(path).to(at_name));
        }
    }

    /// JSON-RPC at what stands before the paths of A2A: there clients from before cards look for it. Other methods, and
    /// whatever else is there, aren't touched.
    fn configure_bases(&self, config: &mut ServiceConfig) {
        let data = Data::new(self.clone());
        let posted = |path: &str| {
            web::resource(path)
                .guard(actix_web::guard::Post())
                .app_data(data.clone())
        };
        config.service(posted("/").to(at_root));
        for path in ["/agents/{name}", "/agents/{name}/"] {
            config.service(posted(path).to(at_name));
        }
    }

    /// The listener's own address.
    pub(super) fn door(&self) -> Door {
        Door {
            server: self.all.server.clone(),
            others: Ok(self.named.clone()),
        }
    }
}

async fn at_root(request: HttpRequest, payload: Payload, front: Data<Front>) -> HttpResponse {
    let tail = request.uri().path();
    front
        .door()
        .open(&request, payload, tail.strip_prefix(PATH).unwrap_or(tail))
        .await
}

async fn at_name(request: HttpRequest, payload: Payload, front: Data<Front>) -> HttpResponse {
    let name = request.match_info().get("name").unwrap_or_default();
    let Some(server) = front.named.get(name) else {
        let why = "no agent of this name is served here";
        return HttpResponse::NotFound()
            .content_type("text/plain; charset=utf-8")
            .body(why);
    };
    let door = Door {
        server: server.server,
        others: Err(name.to_owned()),
    };
    // After `/agents/NAME`.
    let path = request.uri().path();
    let tail = path
        .splitn(4, '/')
        .nth(3)
        .map_or(path.len(), |rest| path.len() - rest.len() - 1);
    let tail = path.get(tail..).unwrap_or_default();
    door.open(&request, payload, tail.strip_prefix(PATH).unwrap_or(tail))
        .await
}

impl Door {
    /// Answers a request for `tail`: the path after the agent's address.
    async fn open(&self, request: &HttpRequest, payload: Payload, tail: &str) -> HttpResponse {
        let busy = idle::busy(request);
        if let Some(file) = tail.strip_prefix("/.well-known/") {
            let binding = Binding::Rest { own_type: false };
            return self
                .document(request, file, &binding)
                .await
                .unwrap_or_else(|refused| binding.refuse(refused));
        }
        match (tail, request.method()) {
            ("" | "/", &Method::POST) => {
                let nobody = Binding::Rpc(None);
                self.rpc(request, payload, busy)
                    .await
                    .unwrap_or_else(|refused| nobody.refuse(refused))
            }
            ("" | "/", _) => reply::only("POST"),
            (tail, method) => match rest::route(method, tail) {
                Routed::To(route) => {
                    let binding = Binding::Rest {
                        own_type: admit::wants_a2a_json(request.headers()),
                    };
                    let answered = self
                        .rest(route, request, payload, binding.clone(), busy)
                        .await;
                    answered.unwrap_or_else(|refused| binding.refuse(refused))
                }
                Routed::Allow(methods) => reply::only(methods),
                Routed::Nowhere => HttpResponse::NotFound().finish(),
            },
        }
    }

    /// What a server says of itself: its card, the keys that it is signed with, and at a listener's root who else is
    /// there.
    async fn document(
        &self,
        request: &HttpRequest,
        name: &str,
        binding: &Binding,
    ) -> Result<HttpResponse, Refused> {
        let options = &self.server.options;
        guard::check_source(request, &options.hosts, &options.origins)?;
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(reply::only("GET, HEAD"));
        }
        let made = match (name, &self.others) {
            ("agent-card.json" | "agent.json", _) => self
                .server
                .cards
                .public(admit::reads_1(request))
                .await
                .map(Some),
            ("jwks.json", _) => Ok(self.server.cards.jwks()),
            ("ai-catalog.json", Ok(others)) => {
                let mut answer = agents_catalog(others, request, &options.base_url)
                    .await
                    .answer(request);
                // Another may see others.
                answer.headers_mut().insert(
                    CACHE_CONTROL,
                    HeaderValue::from_static("private, max-age=60"),
                );
                return Ok(answer);
            }
            _ => Ok(None),
        };
        Ok(match made {
            Ok(Some(document)) => document.answer(request),
            Ok(None) => HttpResponse::NotFound().finish(),
            Err(error) => binding.error(&error, Dialect::V10),
        })
    }

    /// The HTTP+JSON binding.
    async fn rest(
        &self,
        route: Route,
        request: &HttpRequest,
        payload: Payload,
        binding: Binding,
        busy: Busy,
    ) -> Result<HttpResponse, Refused> {
        let options = &self.server.options;
        let head = Head::of(request, options)?;
        let body = match *request.method() {
            Method::POST => admit::body(request, payload, options).await?,
            _ => Default::default(),
        };
        self.perform(request, head, binding, route.dialect, busy, || {
            let body = if body.is_empty() {
                None
            } else {
                Some(read(&body, options)?)
            };
            Asked::of_path(&route, request.query_string(), body)
        })
        .await
    }

    /// The JSON-RPC binding of all versions.
    async fn rpc(
        &self,
        request: &HttpRequest,
        payload: Payload,
        busy: Busy,
    ) -> Result<HttpResponse, Refused> {
        let options = &self.server.options;
        let head = Head::of(request, options)?;
        let body = admit::body(request, payload, options).await?;
        let (id, method, params) = match decode(&body, &options.limits) {
            Ok(Incoming::Request(Request { id, method, params })) => (Some(id), method, params),
            Ok(Incoming::Notification(Notification { method, params })) => (None, method, params),
            Ok(Incoming::Response(_)) => {
                let error =
                    RpcError::new(code::INVALID_REQUEST, "a response that nobody waits for");
                return Ok(refusal(StatusCode::OK, None, &error));
            }
            Err(refused) => {
                // Whoever sends several messages at once waits for several answers, which an error in their place isn't:
                // HTTP says so too.
                let is_batch = refused.error == DecodeError::Batch;
                let status = if is_batch {
                    StatusCode::BAD_REQUEST
                } else {
                    StatusCode::OK
                };
                return Ok(refusal(
                    status,
                    refused.id.as_ref(),
                    &RpcError::from(&refused),
                ));
            }
        };
        let (binding, is_request) = (Binding::Rpc(id.clone()), id.is_some());
        let Some((dialect, operation)) = Dialect::of_method(&method) else {
            return Ok(match is_request {
                // In the newest dialect's words: what was meant is unknown.
                true => binding.error(
                    &ErrorKind::MethodNotFound.error("no such method"),
                    Dialect::V10,
                ),
                // A notification of whatever sort: it wants no answer (JSON-RPC 2.0, section 4.1).
                false => HttpResponse::Accepted().finish(),
            });
        };
        self.perform(request, head, binding, dialect, busy, || {
            let asked = Asked::read(dialect, operation, params)?;
            // An answer is wanted and nobody could pair it: silence would hide the mistake.
            let missing = || ErrorKind::InvalidRequest.error("a request must have an `id`");
            is_request.then_some(asked).ok_or_else(missing)
        })
        .await
    }

    /// One request on its way to an answer: what `read` says it asks.
    async fn perform(
        &self,
        request: &HttpRequest,
        mut head: Head,
        binding: Binding,
        dialect: Dialect,
        busy: Busy,
        read: impl FnOnce() -> Result<Asked, A2aError>,
    ) -> Result<HttpResponse, Refused> {
        if let Err(error) = &head.agreed {
            return Ok(binding.error(error, words_of(error, dialect)));
        }
        let found = read().and_then(|mut asked| Ok((self.of(asked.tenant())?, asked)));
        let (server, asked) = match found {
            Ok(found) => found,
            Err(error) => return Ok(binding.error(&error, dialect)),
        };
        if !Arc::ptr_eq(&server, &self.server) {
            // Behind a tenant it is that agent's to say who may ask.
            head = Head::of(request, &server.options)?;
            if let Err(error) = &head.agreed {
                return Ok(binding.error(error, words_of(error, dialect)));
            }
        }
        let who = operations::known(
            &server,
            Who {
                dialect,
                ..head.who
            },
            &asked,
        )
        .await;
        let dialect = who.dialect;
        let room = server.room(&who, &asked)?;
        Ok(
            match (
                operations::perform(&server, &who, asked, head.last_event).await,
                room,
            ) {
                (Ok(Answer::Whole(answer)), _) => binding.answer(&answer),
                (Ok(Answer::Events(events)), Some(room)) => {
                    let standing = Standing::of(request, &server.options.access);
                    reply::stream_events(
                        events,
                        binding,
                        dialect,
                        server.options.keep_alive,
                        standing,
                        (busy, room),
                    )
                }
                (Ok(Answer::Events(_)), None) => binding.error(&A2aError::internal(), dialect),
                (Err(error), room) => {
                    if error.kind == ErrorKind::Internal {
                        // Without its message, which may quote data.
                        callboard_message::log::warn!(agent = server.options.info.name, trace = %who.trace, "a request failed by a bug");
                    }
                    // Clients of old versions take nothing else for an answer to what streams; newer ones want JSON.
                    match matches!(dialect, Dialect::V03 | Dialect::V01)
                        && room.is_some()
                        && head.reads_events_only
                    {
                        true => binding.error_event(&error, dialect),
                        false => binding.error(&error, dialect),
                    }
                }
            },
        )
    }

    /// Who serves a tenant.
    pub(super) fn of(&self, tenant: &str) -> Result<Arc<Server>, A2aError> {
        let unknown = || A2aError::invalid("tenant", "is not served at this address");
        match &self.others {
            _ if tenant.is_empty() => Ok(self.server.clone()),
            Ok(others) => Ok(others.get(tenant).ok_or_else(unknown)?.server),
            Err(own) if own == tenant => Ok(self.server.clone()),
            Err(_) => Err(unknown()),
        }
    }
}

/// A body that is one JSON text within the limits.
fn read<'a>(body: &'a [u8], options: &A2aOptions) -> Result<&'a RawValue, A2aError> {
    let text = check(body, &options.limits).map_err(|error| match error.is_well_formed() {
        true => ErrorKind::InvalidRequest.error(error.to_string()),
        false => ErrorKind::Parse.error(error.to_string()),
    })?;
    serde_json::from_str(text).map_err(|_| ErrorKind::Parse.error("the body is not JSON"))
}

/// Who names a version that isn't spoken knows versions, and so 1.0's error for it, whatever the method's name.
fn words_of(error: &A2aError, dialect: Dialect) -> Dialect {
    if error.kind == ErrorKind::VersionNotSupported {
        Dialect::V10
    } else {
        dialect
    }
}

fn refusal(status: StatusCode, id: Option<&Id>, error: &RpcError) -> HttpResponse {
    json(
        status,
        guard::JSON,
        encode_response(id, Err(error), Nulls::Omit),
    )
}
