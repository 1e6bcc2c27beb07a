//! Agent mail for clients: HTTP and WebSocket on a listener of its own.
//!
//! Whoever asks shows a key, and says in `X-Agent-ID` who it is: the two must agree. The mailroom decides everything else.
//!
//! | sent | status |
//! |---|---|
//! | a good request | 200, also where nobody could be written to: `success` says so |
//! | no good key; no `X-Agent-ID`, an empty one, or two | 401 |
//! | an `X-Agent-ID` that isn't the key's; an agent that is terminated; an `Origin` or `Host` that isn't allowed | 403 |
//! | a message or agent that isn't there, or isn't the caller's to see | 404 |
//! | another method; another content type; a body over the limit; one that doesn't arrive in time | 405; 415; 413; 408 |
//! | a body or query that doesn't fit | 422, which names the member |
//! | too many messages | 429, with `Retry-After` |
//! | a store that failed, or a bug | 500 |
//! | no room just now; a mailroom that is late | 503; 504 |

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
use callboard_message::{Failure, Message, Named, Principal, TraceContext};
use callboard_rpc::serve::guard::{self, Refused};
use callboard_rpc::serve::{self as door, claim, idle};
use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, Limits};
use callboard_runtime::{AgentRef, CallMeta, Direction, inward};
use parking_lot::RwLock;
use serde_json::value::RawValue;
use tokio::time::Instant;

use events::Events;
use http::Problem;

pub use callboard_rpc::serve::{ListenOptions, ServeError, Serving};
pub use events::INCOMING_MESSAGES_MAX;

/// Serves a mailroom over HTTP and WebSocket, as a part of any actix-web application. Its clones are one server.
///
/// Whoever builds the `HttpServer` sets its timeouts and must call `h1_allow_half_closed(false)`, else a client that
/// goes away isn't noticed, and `tcp_nodelay(true)`; [`serve`] does all of that.
#[derive(Clone)]
pub struct MailServer {
    server: Data<Server>,
}

/// What the workers share.
struct Server {
    agent: RwLock<AgentRef>,
    options: MailServerOptions,
    events: Events,
}

impl MailServer {
    /// Serves `agent`, which handles the messages of [`callboard_message::mail`].
    pub fn new(agent: AgentRef, options: MailServerOptions) -> Self {
        let events = Events::of(agent.system());
        Self {
            server: Data::new(Server {
                agent: RwLock::new(agent),
                options,
                events,
            }),
        }
    }

    /// Serves `agent` from now on, in place of the one before. A request that was begun ends with the agent that it began
    /// with.
    pub fn replace(&self, agent: AgentRef) {
        let before = std::mem::replace(&mut *self.server.agent.write(), agent);
        drop(before);
    }

    /// Closes its sockets, each with a reason.
    pub async fn stop(&self) {
        self.server.events.stop().await;
    }

    /// Adds its paths to an application, all of them below `/api`.
    pub fn configure(&self, config: &mut ServiceConfig) {
        for path in routes::paths() {
            config.service(
                web::resource(path)
                    .app_data(self.server.clone())
                    .to(at_path),
            );
        }
        config.service(web::resource("/api/{tail:.*}").to(nowhere));
    }
}

async fn at_path(request: HttpRequest, payload: Payload, server: Data<Server>) -> HttpResponse {
    let busy = idle::busy(&request);
    let path = request.match_pattern().unwrap_or_default();
    let done = match routes::find(&path, request.method().as_str()) {
        Ok(route) => operations::perform(route, &request, payload, &server, busy).await,
        Err(allow) => Err(Problem::only(allow)),
    };
    done.unwrap_or_else(Problem::respond)
}

async fn nowhere() -> HttpResponse {
    Problem::not_found().respond()
}

impl Server {
    /// The mailroom.
    fn agent(&self) -> AgentRef {
        self.agent.read().clone()
    }

    /// Asks the mailroom on behalf of a caller, if the policy lets it in. Dropped, it cancels whatever it caused.
    ///
    /// # Errors
    /// The policy's refusal, the mailroom's, or the kernel's.
    async fn ask<T, M>(&self, caller: &Caller, message: &M) -> Result<T, Failure>
    where
        T: 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let agent = self.agent();
        let (name, payload) = (agent.to_string(), written(message)?);
        let call = self.call(caller);
        inward::admit(&agent, &name, M::NAME, &payload, &call).await?;
        let sent = Named {
            name: M::NAME.to_owned(),
            payload,
        };
        let reply = inward::ask(&agent, &name, M::NAME, sent, call).await;
        read::<T, M>(reply)
    }

    /// Asks once more what the policy has let in before.
    ///
    /// # Errors
    /// The mailroom's refusal, or the kernel's.
    async fn ask_again<T, M>(&self, caller: &Caller, message: &M) -> Result<T, Failure>
    where
        T: 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let agent = self.agent();
        let call = self
            .call(caller)
            .judged(agent.system(), Direction::Inbound, &agent.to_string());
        read::<T, M>(
            agent
                .ask_named(M::NAME, written(message)?, Some(Arc::new(call)))
                .await,
        )
    }

    fn call(&self, caller: &Caller) -> CallMeta {
        let call = CallMeta {
            trace: caller.trace,
            ..CallMeta::new(caller.principal.clone())
        };
        call.until(Instant::now() + self.options.call_deadline)
    }
}

fn written<M: Message>(message: &M) -> Result<Box<RawValue>, Failure> {
    let wire = M::wire().ok_or_else(|| Failure::internal("the message has no form on a wire"))?;
    (wire.encode)(message).map_err(|_| Failure::internal("the message can't be written"))
}

fn read<T, M>(reply: Result<Box<RawValue>, Failure>) -> Result<T, Failure>
where
    M: Message<Reply = Result<T, Failure>>,
{
    let wire = M::wire().ok_or_else(|| Failure::internal("the message has no form on a wire"))?;
    (wire.decode_reply)(reply).and_then(|reply| reply)
}

/// Serves a mailroom on one bound listener, with every timeout set. Call it within a tokio runtime.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    listener: TcpListener,
    server: MailServer,
    listen: &ListenOptions,
) -> Result<Serving, ServeError> {
    door::check_address(&listener, |address| {
        server.server.options.access.may_listen_on(address)
    })?;
    door::serve(listener, listen, move |config| server.configure(config))
}

/// The caller's place in a trace (W3C Trace Context).
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Who calls.
#[derive(Debug)]
struct Caller {
    principal: Arc<Principal>,
    trace: TraceContext,
}

/// Who is behind a request, from a source that may ask, under the id that it claims.
///
/// # Errors
/// 401 without a good credential, or without one claim; 403 where the claim isn't the credential's, which is the same
/// answer whether there is such an agent or not.
fn caller(request: &HttpRequest, options: &MailServerOptions) -> Result<Caller, Refused> {
    guard::check_source(request, &options.hosts, &options.origins)?;
    let principal = guard::principal(request, &options.access).map_err(unproven)?;
    claim::check(request.headers(), &principal)?;
    let word = request
        .headers()
        .get(&TRACE_PARENT)
        .and_then(|value| value.to_str().ok());
    let trace = word.and_then(|parent| parent.trim().parse::<TraceContext>().ok());
    let trace = trace
        .as_ref()
        .map_or_else(TraceContext::root, TraceContext::child);
    Ok(Caller {
        principal: Arc::new(principal),
        trace,
    })
}

/// Whatever is wrong with a credential, its sender is not known: 401, but for credentials that can't be verified now.
fn unproven(mut refusal: Refused) -> Refused {
    if refusal.status == StatusCode::BAD_REQUEST {
        refusal.status = StatusCode::UNAUTHORIZED;
    }
    refusal
}

/// How a mailroom is served. Without keys only this machine's operator can be known, so `access` is to be set.
#[derive(Debug, Clone)]
pub struct MailServerOptions {
    /// How it is known who is behind a request.
    pub access: Access,
    /// Names (`Host`) beside this machine's own.
    pub hosts: AllowedHosts,
    /// Web pages (`Origin`) beside this machine's own.
    pub origins: AllowedOrigins,
    /// Size and nesting of a request's body; by default 512 KiB: a letter of 64 KiB, each byte of it escaped, and its members.
    /// A larger body is refused with 413. This option changes it.
    pub limits: Limits,
    /// Time in which a request's body has to arrive; 10 s by default. One that is later is refused with 408. This option
    /// changes it.
    pub body_timeout: Duration,
    /// Time that the mailroom has for a request; 10 s by default. One that takes longer is answered with 504. This option
    /// changes it.
    pub call_deadline: Duration,
    /// Number of event sockets that are open at once; 256 by default. Further ones are refused with 503. This option
    /// changes it.
    pub sockets_max: usize,
    /// Time in which an event socket has to take a frame; 5 s by default. A slower one is closed with 1013, which says where
    /// to go on. This option changes it.
    pub frame_timeout: Duration,
    /// Period between pings to an event socket; 15 s by default. One that is silent for three of them is closed. This option
    /// changes it.
    pub ping_every: Duration,
}

impl Default for MailServerOptions {
    fn default() -> Self {
        Self {
            access: Access::default(),
            hosts: AllowedHosts::default(),
            origins: AllowedOrigins::default(),
            limits: Limits {
                body_bytes_max: 512 * 1024,
                ..Limits::default()
            },
            body_timeout: Duration::from_secs(10),
            call_deadline: Duration::from_secs(10),
            sockets_max: 256,
            frame_timeout: Duration::from_secs(5),
            ping_every: Duration::from_secs(15),
        }
    }
}
