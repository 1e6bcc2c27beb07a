//! The JSON-RPC binding, of all versions: the method says which.

use actix_web::http::StatusCode;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::{
    DecodeError, Id, Incoming, Notification, Nulls, Refusal, Request, RpcError, code, decode, encode_response,
};

use super::admit::{self, Head};
use super::operations::Asked;
use super::reply::{self, Binding};
use super::server::{Door, Exchange};
use crate::{A2aError, Dialect, ErrorKind};

pub(super) async fn post(door: &Door, request: &HttpRequest, payload: Payload, busy: Busy) -> HttpResponse {
    let nobody = Binding::Rpc(None);
    let options = &door.server.options;
    let head = match Head::of(request, options) {
        Ok(head) => head,
        Err(refused) => return nobody.refuse(refused),
    };
    let body = match admit::body(request, payload, options).await {
        Ok(body) => body,
        Err(refused) => return nobody.refuse(refused),
    };
    let (id, method, params) = match decode(&body, &options.limits) {
        Ok(Incoming::Request(Request { id, method, params })) => (Some(id), method, params),
        Ok(Incoming::Notification(Notification { method, params })) => (None, method, params),
        Ok(Incoming::Response(_)) => return not_a_request("a response that nobody waits for"),
        Err(refusal) => return malformed(&refusal),
    };
    let (binding, is_request) = (Binding::Rpc(id.clone()), id.is_some());
    let Some((dialect, operation)) = Dialect::of_method(&method) else {
        if !is_request {
            // A notification of whatever sort: it wants no answer (JSON-RPC 2.0, section 4.1).
            return reply::taken();
        }
        // In the newest dialect's words: what was meant is unknown.
        return binding.error(&A2aError::new(ErrorKind::MethodNotFound, "no such method"), Dialect::V10);
    };
    let exchange = Exchange { door, request, head, binding, dialect, busy };
    exchange
        .perform(|| {
            let asked = Asked::read(dialect, operation, params)?;
            // An answer is wanted and nobody could pair it: silence would hide the mistake.
            let missing = || A2aError::new(ErrorKind::InvalidRequest, "a request must have an `id`");
            is_request.then_some(asked).ok_or_else(missing)
        })
        .await
}

/// A message of JSON-RPC that asks nothing.
fn not_a_request(why: &str) -> HttpResponse {
    refusal(StatusCode::OK, None, &RpcError::new(code::INVALID_REQUEST, why))
}

fn malformed(refused: &Refusal) -> HttpResponse {
    // Whoever sends several messages at once waits for several answers, which an error in their place isn't: HTTP says so too.
    let status = if refused.error == DecodeError::Batch { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    refusal(status, refused.id.as_ref(), &RpcError::from(refused))
}

fn refusal(status: StatusCode, id: Option<&Id>, error: &RpcError) -> HttpResponse {
    reply::rpc(status, encode_response(id, Err(error), Nulls::Omit))
}
