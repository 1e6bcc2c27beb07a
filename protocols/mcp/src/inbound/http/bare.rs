//! The bare dialect (see [`crate::bare`]) at the server's path, instead of streamable HTTP.

use crate::inbound::agent_adapter::RpcResult;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse, Resource, web};
use callboard_message::capabilities::RESERVED_PREFIX;
use callboard_message::{Failure, FailureKind, Principal, TraceContext};
use callboard_rpc::serve::guard::{HttpRejection, JSON, http_rejection};
use callboard_rpc::serve::{guard, http_response, idle_timeout};
use callboard_rpc::{
    RequestId, RpcError, RpcMessage, RpcNotification, RpcRequest, UnusedMember, decode,
    encode_response,
};
use callboard_runtime::{CallContext, CallOrigin};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{ServerState, authenticate, with_slash};
use crate::bare::{CALL_METHOD, parse_call, to_rpc};

pub(crate) fn bare_resource(path: &str) -> Resource {
    web::resource(with_slash(path))
        .route(web::post().to(post))
        .default_service(web::to(other_method))
}

async fn other_method(request: HttpRequest, server: Data<ServerState>) -> HttpResponse {
    const METHOD: HttpRejection =
        http_rejection(StatusCode::METHOD_NOT_ALLOWED, "calls are posted: use POST");
    let checked = guard::check_source(&request, &server.options.hosts, &server.options.origins);
    let mut response = rejection_response(checked.err().unwrap_or(METHOD));
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

async fn post(request: HttpRequest, payload: Payload, server: Data<ServerState>) -> HttpResponse {
    let _busy = idle_timeout::track_request(&request);
    handle_post(&request, payload, &server)
        .await
        .unwrap_or_else(rejection_response)
}

async fn handle_post(
    request: &HttpRequest,
    payload: Payload,
    server: &ServerState,
) -> Result<HttpResponse, HttpRejection> {
    let principal = authenticate(request, server).await?;
    let (bytes_max, body_timeout) = (
        server.options.inbound.limits.body_bytes_max,
        server.options.body_timeout,
    );
    let body = guard::read_json(request, payload, &[JSON], bytes_max, body_timeout).await?;
    let invalid = |why: &str| rpc_response(None, Err(&RpcError::invalid_request(why)));
    Ok(match decode(&body, &server.options.inbound.limits) {
        Ok(RpcMessage::Request(request)) => rpc_response(
            Some(&request.id),
            call(server, principal, &request).await.as_deref(),
        ),
        // The client expects a response but couldn't match it to a request: silence would hide the
        // mistake.
        Ok(RpcMessage::Notification(RpcNotification { method, .. })) if method == CALL_METHOD => {
            invalid("`tools/call` must have an `id`")
        }
        Ok(RpcMessage::Notification(_)) => HttpResponse::Accepted().finish(),
        Ok(RpcMessage::Response(_)) => invalid("unexpected response: no request is pending"),
        Err(refusal) => rpc_response(refusal.id.as_ref(), Err(&RpcError::from(&refusal))),
    })
}

async fn call(
    server: &ServerState,
    mut principal: Principal,
    request: &RpcRequest<'_>,
) -> RpcResult {
    if request.method != CALL_METHOD {
        return Err(RpcError::method_not_found(
            "unsupported method: only `tools/call` is served",
        ));
    }
    let sent =
        parse_call(request.params).map_err(|error| RpcError::invalid_params(error.to_string()))?;
    // A message of the runtime isn't a tool, and its checks are those of the methods of MCP.
    if sent.tool.starts_with(RESERVED_PREFIX) {
        return Err(RpcError::invalid_params(
            "unknown tool: list the agent's tools",
        ));
    }
    if let Some(purpose) = sent.meta.purpose {
        principal = principal.with_purpose(purpose);
    }
    let deadline_max = server.options.inbound.call_deadline;
    let timeout = sent
        .meta
        .timeout
        .map_or(deadline_max, |timeout| timeout.min(deadline_max));
    let trace = sent
        .meta
        .trace
        .as_ref()
        .map_or_else(TraceContext::root, TraceContext::child);
    let principal = Arc::new(principal);
    let call = CallContext {
        hops: sent.meta.hops,
        trace,
        origin: CallOrigin::MCP,
        ..CallContext::new(principal.clone())
    };
    let (adapter, deadline) = (
        server.service.tasks.endpoint.adapter(),
        Instant::now() + timeout,
    );
    let asked = adapter
        .ask(
            &sent.tool,
            sent.arguments.into_owned(),
            call.with_deadline(deadline),
        )
        .await;
    // A handler that ends because its deadline passed may still return a value, which can't be told
    // from a reply.
    let late = || Err(Failure::timed_out(format!("no reply in {timeout:?}")));
    let outcome = if Instant::now() < deadline {
        asked
    } else {
        late()
    };
    outcome.map_err(|failure| {
        if failure.kind == FailureKind::Internal {
            // Without its message, which may quote data.
            let agent = &*adapter.agent_name;
            callboard_message::log::warn!(by: agent, agent, principal = principal.id, %trace, "a call failed with an internal error, whose text may hold data and isn't logged");
        }
        to_rpc(failure)
    })
}

fn rpc_response(id: Option<&RequestId>, outcome: Result<&RawValue, &RpcError>) -> HttpResponse {
    http_response::json_response(
        StatusCode::OK,
        JSON,
        encode_response(id, outcome, UnusedMember::Emit),
    )
}

fn rejection_response(refused: HttpRejection) -> HttpResponse {
    let error = RpcError::invalid_request(&*refused.message);
    http_response::rejection_response(
        &refused,
        JSON,
        encode_response(None, Err(&error), UnusedMember::Emit),
    )
}
