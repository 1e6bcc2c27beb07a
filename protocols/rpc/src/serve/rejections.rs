//! Delay of responses to requests whose credential was rejected, against guessing.

use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::RETRY_AFTER;
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse};

use crate::{AUTH_FAILURE_DELAY_MAX, AuthFailureResponse, AuthFailures, CredentialError};

/// Mark of a request whose credential was rejected.
#[derive(Clone, Copy)]
struct RejectedCredential(CredentialError);

/// Marks a request whose credential was rejected, so that its response is delayed if its address
/// fails too often.
pub(crate) fn mark_rejected(request: &HttpRequest, reason: CredentialError) {
    request.extensions_mut().insert(RejectedCredential(reason));
}

/// Passes a request on, and holds back its response if its credential was rejected, as
/// [`AuthFailures`] says.
pub(crate) async fn delay_rejections(
    failures: Arc<AuthFailures>,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let response = next.call(request).await?;
    let marked = response
        .request()
        .extensions()
        .get::<RejectedCredential>()
        .copied();
    let Some(RejectedCredential(reason)) = marked else {
        return Ok(response);
    };
    let peer = response.request().peer_addr().map(|address| address.ip());
    Ok(match failures.penalize(peer, reason).await {
        AuthFailureResponse::Reject => response,
        AuthFailureResponse::TooMany => {
            let retry_s = AUTH_FAILURE_DELAY_MAX.as_secs().to_string();
            let too_many = HttpResponse::TooManyRequests()
                .insert_header((RETRY_AFTER, retry_s))
                .body("too many requests with a wrong key: send a valid one, later");
            response.into_response(too_many)
        }
    })
}
