//! The JSON-RPC binding, of all versions: the method says which.

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::{
    Body, Id, Incoming, Notification, Nulls, Refusal, Request, RpcError, code, decode_body, encode_response,
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
    let (id, method, params) = match decode_body(&body, &options.limits) {
        Ok(Body::One(Incoming::Request(Request { id, method, params }))) => (Some(id), method, params),
        Ok(Body::One(Incoming::Notification(Notification { method, params }))) => (None, method, params),
        Ok(Body::One(Incoming::Response(_))) => return not_a_request("a response that nobody waits for"),
        Ok(Body::Batch(_)) => return not_a_request("batches are not accepted"),
        Err(refusal) => return malformed(&refusal),
    };
    let (binding, is_request) = (Binding::Rpc(id.clone()), id.is_some());
    let Some((dialect, operation)) = Dialect::of_method(&method) else {
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
    refusal(None, &RpcError::new(code::INVALID_REQUEST, why))
}

fn malformed(refused: &Refusal) -> HttpResponse {
    refusal(refused.id.as_ref(), &RpcError::from(refused))
}

fn refusal(id: Option<&Id>, error: &RpcError) -> HttpResponse {
    reply::rpc(encode_response(id, Err(error), Nulls::Omit))
}
