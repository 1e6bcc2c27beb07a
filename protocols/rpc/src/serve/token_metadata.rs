//! Metadata for clients that send access tokens (RFC 9728), as a document of a listener.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, HeaderValue};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};

use super::guard::{self, JSON};
use super::http_response::json_response;
use crate::{RESOURCE_METADATA_PATH, TokenResource};

/// Adds the document's routes: at the well-known path, and below it for the path of each resource.
pub(super) fn configure(config: &mut ServiceConfig, resource: Arc<TokenResource>) {
    let below = format!("{RESOURCE_METADATA_PATH}/{{tail:.*}}");
    let document = web::resource([RESOURCE_METADATA_PATH.to_owned(), below])
        .app_data(Data::from(resource))
        .route(web::get().to(serve_metadata))
        .route(web::head().to(serve_metadata));
    config.service(document);
}

async fn serve_metadata(request: HttpRequest, resource: Data<TokenResource>) -> HttpResponse {
    let path = request.path().strip_prefix(RESOURCE_METADATA_PATH);
    let path = path.filter(|path| !path.is_empty()).unwrap_or("/");
    let (host, is_tls) = guard::request_origin(&request);
    let Some(document) = resource.metadata(host, is_tls, path) else {
        return HttpResponse::NotFound().finish();
    };
    let body = document.to_raw().get().as_bytes().to_vec();
    let mut response = json_response(StatusCode::OK, JSON, body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    // The document is public, and clients in browsers read it before they have a token.
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}
