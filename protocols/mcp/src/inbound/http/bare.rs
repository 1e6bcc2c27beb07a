//! The bare dialect (see [`crate::bare`]) at the server's path, in place of streamable HTTP.

use crate::inbound::agent_adapter::Outcome;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse, Resource, web};
use callboard_message::{Failure, FailureKind, Principal, TraceContext};
use callboard_rpc::serve::guard::{JSON, Refused, refused};
use callboard_rpc::serve::{guard, idle, reply};
use callboard_rpc::{
    Id, Incoming, Notification, Nulls, Request, RpcError, decode, encode_response,
};
use callboard_runtime::CallMeta;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Server, read_post};
use crate::bare::{METHOD, read_call, to_rpc};

pub(crate) fn resource(path: &str) -> Resource {
    web::resource(path)
        .route(web::post().to(post))
        .default_service(web::to(other_method))
}

async fn other_method(request: HttpRequest, server: Data<Server>) -> HttpResponse {
    const METHOD: Refused = refused(StatusCode::METHOD_NOT_ALLOWED, "calls are posted: use POST");
    let checked = guard::check_source(&request, &server.options.hosts, &server.options.origins);
    let mut response = refuse(checked.err().unwrap_or(METHOD));
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

async fn post(request: HttpRequest, payload: Payload, server: Data<Server>) -> HttpResponse {
    let _busy = idle::busy(&request);
    answer(&request, payload, &server)
        .await
        .unwrap_or_else(refuse)
}

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    server: &Server,
) -> Result<HttpResponse, Refused> {
    let (principal, body) = read_post(request, payload, server).await?;
    let invalid = |why: &str| answered(None, Err(&RpcError::invalid_request(why)));
    Ok(match decode(&body, &server.options.inbound.limits) {
        Ok(Incoming::Request(request)) => answered(
            Some(&request.id),
            call(server, principal, &request).await.as_deref(),
        ),
        // An answer is wanted and nobody could pair it: silence would hide the mistake.
        Ok(Incoming::Notification(Notification { method, .. })) if method == METHOD => {
            invalid("`tools/call` must have an `id`")
        }
        Ok(Incoming::Notification(_)) => HttpResponse::Accepted().finish(),
        Ok(Incoming::Response(_)) => invalid("a response that nobody waits for"),
        Err(refusal) => answered(refusal.id.as_ref(), Err(&RpcError::from(&refusal))),
    })
}

async fn call(server: &Server, mut principal: Principal, request: &Request<'_>) -> Outcome {
    if request.method != METHOD {
        return Err(RpcError::method_not_found(
            "unsupported method: only `tools/call` is served",
        ));
    }
    let sent =
        read_call(request.params).map_err(|error| RpcError::invalid_params(error.to_string()))?;
    if let Some(purpose) = sent.meta.purpose {
        principal = principal.for_purpose(purpose);
    }
    let deadline_max = server.options.inbound.call_deadline;
    let patience = sent
        .meta
        .patience
        .map_or(deadline_max, |patience| patience.min(deadline_max));
    let trace = sent
        .meta
        .trace
        .as_ref()
        .map_or_else(TraceContext::root, TraceContext::child);
    let call = CallMeta {
        hops: sent.meta.hops,
        trace,
        ..CallMeta::new(Arc::new(principal))
    };
    let (adapter, deadline) = (
        server.service.tasks.endpoint.adapter(),
        Instant::now() + patience,
    );
    let asked = adapter
        .ask(
            &sent.tool,
            sent.arguments.into_owned(),
            call.until(deadline),
        )
        .await;
    // A handler that ends because its deadline passed may still answer something: nobody can tell it from a reply.
    let late = || Err(Failure::timed_out(format!("no reply in {patience:?}")));
    let outcome = if Instant::now() < deadline {
        asked
    } else {
        late()
    };
    outcome.map_err(|failure| {
        if failure.kind == FailureKind::Internal {
            // Without its message, which may quote data.
            let agent = &*adapter.agent_name;
            callboard_message::log::warn!(by: agent, agent, %trace, "a call failed by a bug");
        }
        to_rpc(failure)
    })
}

fn answered(id: Option<&Id>, outcome: Result<&RawValue, &RpcError>) -> HttpResponse {
    reply::json(
        StatusCode::OK,
        JSON,
        encode_response(id, outcome, Nulls::Emit),
    )
}

fn refuse(refused: Refused) -> HttpResponse {
    let error = RpcError::invalid_request(refused.message);
    reply::refuse(
        refused,
        JSON,
        encode_response(None, Err(&error), Nulls::Emit),
    )
}
