//! The server behind a mail listener.

use std::net::TcpListener;
use std::sync::Arc;

use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::{Failure, FailureKind, Message, Named};
use callboard_rpc::serve::idle;
use callboard_rpc::serve::{self as door, ListenOptions, ServeError, Serving};
use callboard_runtime::{AgentRef, CallMeta, Direction, inward};
use parking_lot::RwLock;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::admit::Caller;
use super::events::Events;
use super::operations;
use super::options::MailServerOptions;
use super::reply::Problem;
use super::routes;

/// Serves a mailroom over HTTP and WebSocket, as a part of any actix-web application. Its clones are one server.
///
/// Whoever builds the `HttpServer` sets its timeouts and must call `h1_allow_half_closed(false)`, else a client that
/// goes away isn't noticed, and `tcp_nodelay(true)`; [`serve`] does all of that.
#[derive(Clone)]
pub struct MailServer {
    server: Data<Server>,
}

/// What the workers share.
pub(super) struct Server {
    agent: RwLock<AgentRef>,
    pub(super) options: MailServerOptions,
    pub(super) events: Events,
}

impl MailServer {
    /// Serves `agent`, which handles the messages of [`callboard_message::mail`].
    pub fn new(agent: AgentRef, options: MailServerOptions) -> Self {
        let events = Events::of(agent.system());
        Self { server: Data::new(Server { agent: RwLock::new(agent), options, events }) }
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
            config.service(web::resource(path).app_data(self.server.clone()).to(at_path));
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
    pub(super) fn agent(&self) -> AgentRef {
        self.agent.read().clone()
    }

    /// Asks the mailroom on behalf of a caller, if the policy lets it in. Dropped, it cancels whatever it caused.
    ///
    /// # Errors
    /// The policy's refusal, the mailroom's, or the kernel's.
    pub(super) async fn ask<T, M>(&self, caller: &Caller, message: &M) -> Result<T, Failure>
    where
        T: 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let agent = self.agent();
        let (name, payload) = (agent.to_string(), written(message)?);
        let call = self.call(caller);
        inward::admit(&agent, &name, M::NAME, &payload, &call).await?;
        let sent = Named { name: M::NAME.to_owned(), payload };
        let reply = inward::ask(&agent, &name, M::NAME, sent, call).await;
        read::<T, M>(reply)
    }

    /// Asks once more what the policy has let in before.
    ///
    /// # Errors
    /// The mailroom's refusal, or the kernel's.
    pub(super) async fn ask_again<T, M>(&self, caller: &Caller, message: &M) -> Result<T, Failure>
    where
        T: 'static,
        M: Message<Reply = Result<T, Failure>>,
    {
        let agent = self.agent();
        let call = self.call(caller).judged(agent.system(), Direction::Inbound, &agent.to_string());
        read::<T, M>(agent.ask_named(M::NAME, written(message)?, Some(Arc::new(call))).await)
    }

    fn call(&self, caller: &Caller) -> CallMeta {
        let call = CallMeta { trace: caller.trace, ..CallMeta::new(caller.principal.clone()) };
        call.until(Instant::now() + self.options.call_deadline)
    }
}

fn written<M: Message>(message: &M) -> Result<Box<RawValue>, Failure> {
    let wire = M::wire().ok_or_else(|| Failure::internal("the message has no form on a wire"))?;
    (wire.encode)(message).map_err(|_| Failure::new(FailureKind::Internal, "the message can't be written"))
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
pub fn serve(listener: TcpListener, server: MailServer, listen: &ListenOptions) -> Result<Serving, ServeError> {
    door::check_address(&listener, |address| server.server.options.access.may_listen_on(address))?;
    door::serve(listener, listen, move |config| server.configure(config))
}
