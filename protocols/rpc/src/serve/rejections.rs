//! Delay of responses to requests whose credential was rejected, against guessing.

use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse};

use super::client_address::client_address;
use crate::{AUTH_FAILURE_DELAY_MAX, AuthFailureResponse, AuthFailures, CredentialError};

/// Mark of a request whose credential was rejected.
#[derive(Clone, Copy)]
struct RejectedCredential(CredentialError);

/// Marks a request whose credential was rejected, so that its response is delayed if its address
/// fails too often.
pub(crate) fn mark_rejected(request: &HttpRequest, reason: CredentialError) {
    request.extensions_mut().insert(RejectedCredential(reason));
}

/// Passes a request on, and holds back its response as [`AuthFailures`] says if it is the rejection
/// of its credential. Public documents are served at once with any credential.
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
    if response.status().as_u16() != reason.http_status() {
        return Ok(response);
    }
    let peer = client_address(response.request());
    Ok(match failures.penalize(peer, reason).await {
        AuthFailureResponse::Reject => response,
        AuthFailureResponse::TooMany => {
            let retry_s = AUTH_FAILURE_DELAY_MAX.as_secs().to_string();
            let mut too_many = HttpResponse::TooManyRequests();
            too_many.force_close().insert_header((RETRY_AFTER, retry_s));
            for challenge in response.headers().get_all(WWW_AUTHENTICATE) {
                too_many.append_header((WWW_AUTHENTICATE, challenge.clone()));
            }
            let body = "too many requests with a wrong key: send a valid one, later";
            response.into_response(too_many.body(body))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use actix_web::http::{ConnectionType, StatusCode};
    use actix_web::middleware::from_fn;
    use actix_web::test::{TestRequest, call_service, init_service};
    use actix_web::{App, web};
    use callboard_message::Principal;
    use futures::future::join_all;
    use parking_lot::Mutex;

    use super::*;
    use crate::serve::guard;
    use crate::{
        ADDRESS_DELAYED_RESPONSES_MAX, AccessControl, BearerVerifier, UNDELAYED_AUTH_FAILURES_MAX,
    };

    /// Verifier that accepts no key.
    struct NoKey;

    impl BearerVerifier for NoKey {
        fn verify(&self, _: &[u8]) -> Option<Result<Principal, CredentialError>> {
            Some(Err(CredentialError::Wrong))
        }
    }

    async fn authenticate(request: &HttpRequest) -> HttpResponse {
        let access = AccessControl::Bearer(Arc::new([Box::new(NoKey)]));
        let rejected = guard::authenticate(request, None, &access)
            .await
            .unwrap_err();
        let mut response = HttpResponse::build(rejected.status);
        response.insert_header((WWW_AUTHENTICATE, &*rejected.challenge.unwrap()));
        response.finish()
    }

    async fn private(request: HttpRequest) -> HttpResponse {
        authenticate(&request).await
    }

    async fn public(request: HttpRequest) -> HttpResponse {
        let _ = authenticate(&request).await;
        HttpResponse::Ok().finish()
    }

    /// Goal: only rejections are counted and delayed; one too many is answered at once with 429, a
    /// challenge and the end of the connection. Method: many requests with a wrong key for a public
    /// document; then as many for a private one as are delayed at once, and one more; in paused
    /// time.
    #[tokio::test(start_paused = true)]
    async fn only_rejections_are_delayed() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let heard = reports.clone();
        let failures = AuthFailures::with_report(move |report| heard.lock().push(report));
        let failures = Arc::new(failures);
        let delay = move |request: ServiceRequest, next: Next<BoxBody>| {
            delay_rejections(failures.clone(), request, next)
        };
        let app = App::new()
            .wrap(from_fn(delay))
            .route("/public", web::get().to(public))
            .route("/private", web::get().to(private));
        let app = init_service(app).await;
        let get = |path: &str| {
            let request = TestRequest::get()
                .uri(path)
                .peer_addr(SocketAddr::from(([10, 0, 0, 7], 1_000)))
                .insert_header(("Authorization", "Bearer guess"));
            call_service(&app, request.to_request())
        };
        let begun = tokio::time::Instant::now();
        for _ in 0..=2 * UNDELAYED_AUTH_FAILURES_MAX {
            assert_eq!(get("/public").await.status(), StatusCode::OK);
        }
        assert_eq!((begun.elapsed().as_millis(), reports.lock().len()), (0, 0));
        for _ in 0..UNDELAYED_AUTH_FAILURES_MAX {
            assert_eq!(get("/private").await.status(), StatusCode::UNAUTHORIZED);
        }
        assert_eq!((begun.elapsed().as_millis(), reports.lock().len()), (0, 1));
        let guesses = (0..=ADDRESS_DELAYED_RESPONSES_MAX).map(|_| get("/private"));
        let mut responses = join_all(guesses).await;
        let last = responses.pop().unwrap();
        let unauthorized =
            |response: &ServiceResponse| response.status() == StatusCode::UNAUTHORIZED;
        assert!(responses.iter().all(unauthorized));
        assert_eq!(last.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(last.headers().contains_key(WWW_AUTHENTICATE));
        let connection = last.response().head().connection_type();
        assert_eq!(connection, ConnectionType::Close);
    }
}
