use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, ContentType, WWW_AUTHENTICATE};
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use bytes::BytesMut;
use callboard_message::{Failure, FailureKind, Principal, TraceContext};
use callboard_rpc::{
    AllowedHosts, AllowedOrigins, Id, Incoming, Limits, Notification, Nulls, Request, RpcError, Trust, code, decode,
    encode_response,
};
use callboard_runtime::{AgentRef, CallMeta, Crossing, Direction};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::{METHOD, error_map, params};
use callboard_rpc::serve::guard::{self, Refused, refused};
use callboard_rpc::serve::idle;

/// Where calls are posted, by default.
pub const PATH_DEFAULT: &str = "/mcp";
/// How long a call may take, by default.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(30);
/// How long a body may take to arrive, by default.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// How an agent is served.
#[derive(Debug, Clone)]
pub struct BareServerOptions {
    /// Where calls are posted.
    pub path: String,
    /// What a message may measure.
    pub limits: Limits,
    /// What a peer without a credential is.
    pub trust: Trust,
    /// How long a call may take; the caller may want less.
    pub call_deadline: Duration,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
}

impl Default for BareServerOptions {
    fn default() -> Self {
        Self {
            path: PATH_DEFAULT.into(),
            limits: Limits::default(),
            trust: Trust::default(),
            call_deadline: CALL_DEADLINE_DEFAULT,
            body_timeout: BODY_TIMEOUT_DEFAULT,
        }
    }
}

/// Serves one agent in the bare dialect, as a part of any actix-web application.
///
/// Whoever builds the `HttpServer` sets its timeouts and must call `h1_allow_half_closed(false)`, else a client that
/// goes away isn't noticed; [`serve`](super::serve) does both.
#[derive(Clone)]
pub struct BareServer {
    endpoint: Data<Endpoint>,
}

struct Endpoint {
    agent: AgentRef,
    /// What the policy knows the agent by.
    agent_name: String,
    options: BareServerOptions,
}

impl BareServer {
    /// Every message of `agent`'s that can be written as JSON is a tool under its name.
    pub fn new(agent: AgentRef, options: BareServerOptions) -> Self {
        let agent_name = agent.to_string();
        Self { endpoint: Data::new(Endpoint { agent, agent_name, options }) }
    }

    /// Adds the one resource to an application.
    pub fn configure(&self, config: &mut ServiceConfig) {
        let resource = web::resource(&self.endpoint.options.path)
            .app_data(self.endpoint.clone())
            .route(web::post().to(post))
            .default_service(web::to(other_method));
        config.service(resource);
    }
}

async fn other_method(request: HttpRequest) -> HttpResponse {
    match guard::check_source(&request, &AllowedHosts::default(), &AllowedOrigins::default()) {
        Ok(()) => refuse(refused(StatusCode::METHOD_NOT_ALLOWED, "calls are posted: use POST")),
        Err(refused) => refuse(refused),
    }
}

async fn post(request: HttpRequest, payload: Payload, endpoint: Data<Endpoint>) -> HttpResponse {
    let _busy = idle::busy(&request);
    match admit(&request, payload, &endpoint).await {
        Ok((principal, body)) => endpoint.answer(principal, &body).await,
        Err(refused) => refuse(refused),
    }
}

/// Who is behind the request, and its body.
async fn admit(request: &HttpRequest, payload: Payload, endpoint: &Endpoint) -> Result<(Principal, BytesMut), Refused> {
    guard::check_source(request, &AllowedHosts::default(), &AllowedOrigins::default())?;
    let principal = guard::principal(request, &endpoint.options.trust.into())?;
    guard::check_content(request.headers(), &[guard::JSON])?;
    let body_bytes_max = endpoint.options.limits.body_bytes_max;
    let body = guard::read_body(request, payload, body_bytes_max, endpoint.options.body_timeout).await?;
    Ok((principal, body))
}

impl Endpoint {
    async fn answer(&self, principal: Principal, body: &[u8]) -> HttpResponse {
        match decode(body, &self.options.limits) {
            Ok(Incoming::Request(request)) => {
                let id = request.id.clone();
                let outcome = self.call(principal, request).await;
                reply(Some(&id), outcome.as_deref())
            }
            // An answer is wanted and nobody could pair it: silence would hide the mistake.
            Ok(Incoming::Notification(Notification { method, .. })) if method == METHOD => {
                reply(None, Err(&RpcError::new(code::INVALID_REQUEST, "`tools/call` must have an `id`")))
            }
            Ok(Incoming::Notification(_)) => HttpResponse::Accepted().finish(),
            Ok(Incoming::Response(_)) => {
                reply(None, Err(&RpcError::new(code::INVALID_REQUEST, "a response that nobody waits for")))
            }
            Err(refusal) => reply(refusal.id.as_ref(), Err(&RpcError::from(&refusal))),
        }
    }

    async fn call(&self, principal: Principal, request: Request<'_>) -> Result<Box<RawValue>, RpcError> {
        if request.method != METHOD {
            return Err(RpcError::new(code::METHOD_NOT_FOUND, "unsupported method: only `tools/call` is served"));
        }
        let call = params::read(request.params).map_err(|e| RpcError::new(code::INVALID_PARAMS, e.to_string()))?;
        let patience = call.meta.patience.map_or(self.options.call_deadline, |p| p.min(self.options.call_deadline));
        let principal = match call.meta.purpose {
            Some(purpose) => principal.for_purpose(purpose),
            None => principal,
        };
        let mut meta = CallMeta::new(Arc::new(principal));
        meta.hops = call.meta.hops;
        meta.trace = call.meta.trace.as_ref().map_or_else(TraceContext::root, TraceContext::child);
        let trace = meta.trace;
        let outcome = self.ask(&call.tool, call.arguments.to_owned(), meta, patience).await;
        outcome.map_err(|failure| {
            if failure.kind == FailureKind::Internal {
                // Without its message, which may quote data.
                callboard_message::log::warn!(by: &self.agent_name, agent = self.agent_name, %trace, "a call failed by a bug");
            }
            error_map::to_rpc(failure)
        })
    }

    async fn ask(
        &self,
        tool: &str,
        arguments: Box<RawValue>,
        meta: CallMeta,
        patience: Duration,
    ) -> Result<Box<RawValue>, Failure> {
        let deadline = Instant::now() + patience;
        if meta.hops > meta.hops_max {
            return Err(Failure::new(FailureKind::Rejected, "the call passed through too many agents"));
        }
        let crossing = Crossing {
            direction: Direction::Inbound,
            principal: &meta.principal,
            call: meta.id,
            agent: &self.agent_name,
            message: tool,
            payload: &arguments,
        };
        let policy = self.agent.system().policy();
        policy.judge(crossing).await?;
        let (principal, call) = (meta.principal.clone(), meta.id);
        let crossed = Crossing {
            direction: Direction::Inbound,
            principal: &principal,
            call,
            agent: &self.agent_name,
            message: tool,
            payload: RawValue::NULL,
        };
        // Dropped with this future when the client goes away: whatever the call caused elsewhere ends too.
        let gone = meta.cancel.clone().drop_guard();
        let asked =
            timeout_at(deadline, self.agent.ask_named(tool, arguments, Some(Arc::new(meta.until(deadline))))).await;
        gone.disarm();
        match asked {
            // A handler that ends because its deadline passed may still answer something: nobody can tell it from a
            // reply.
            Ok(answer) if Instant::now() < deadline => policy.judge_reply(crossed, answer).await,
            _ => Err(Failure::new(FailureKind::TimedOut, format!("no reply in {patience:?}"))),
        }
    }
}

fn reply(id: Option<&Id>, outcome: Result<&RawValue, &RpcError>) -> HttpResponse {
    json(StatusCode::OK, encode_response(id, outcome, Nulls::Emit))
}

fn refuse(refused: Refused) -> HttpResponse {
    let error = RpcError::new(code::INVALID_REQUEST, refused.message);
    let mut response = json(refused.status, encode_response(None, Err(&error), Nulls::Emit));
    let headers = response.headers_mut();
    match refused.status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, actix_web::http::header::HeaderValue::from_static("POST"));
        }
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, actix_web::http::header::HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    response
}

fn json(status: StatusCode, body: Vec<u8>) -> HttpResponse {
    // What a clinic answers is nobody's to keep.
    HttpResponse::build(status).content_type(ContentType::json()).insert_header((CACHE_CONTROL, "no-store")).body(body)
}
