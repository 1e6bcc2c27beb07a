//! A message of the modern era over HTTP: no session, and the end of the stream cancels the work.

use std::sync::Arc;

use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::Principal;
use callboard_rpc::{Incoming, Nulls, Request, encode_response};
use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use super::body::{Done, LogEvents, Work};
use super::log::{EventLog, Kind};
use super::post::{BROKEN, Exchange};
use super::reply;
use crate::inbound::link::Link;
use crate::inbound::modern::{self, Field};
use callboard_rpc::serve::guard::Refused;

/// Whether a message's `_meta` names a revision.
pub(super) fn is_modern(message: &Incoming<'_>) -> bool {
    match message {
        Incoming::Request(request) => modern::is_modern(request.params),
        Incoming::Notification(notification) => modern::is_modern(notification.params),
        Incoming::Response(_) => false,
    }
}

pub(super) async fn post(
    exchange: Exchange<'_>,
    message: Incoming<'_>,
    principal: Principal,
    request: &HttpRequest,
) -> Result<HttpResponse, Refused> {
    let Request { id, method, params } = match message {
        Incoming::Request(request) => request,
        Incoming::Notification(_) => return Ok(reply::accepted()),
        Incoming::Response(_) => {
            let refused = modern::response_refused();
            return Ok(reply::json(refused.status, refused.body));
        }
    };
    let endpoint = exchange.server.endpoint.clone();
    let field = |name: &str| field(request.headers(), name);
    if let Err(error) = modern::check_headers(&endpoint, field, &method, params) {
        return Ok(reply::json(400, encode_response(Some(&id), Err(&error), Nulls::Omit)));
    }
    let options = &exchange.server.options.streams;
    let log = EventLog::new(0, Kind::Once, exchange.accepts.events, options.limits);
    let link: Arc<dyn Link> = log.clone();
    let params = params.map(ToOwned::to_owned);
    let running = async move {
        let request = Request { id, method, params: params.as_deref() };
        let answer = modern::request(&endpoint, Arc::new(principal), request, link, CancellationToken::new()).await;
        Done { status: answer.status, body: Some(answer.body) }
    };
    let mut work = Work::new(running.boxed(), None);
    if let Some(done) = exchange.before_stream(&mut work, &log, None).await {
        return exchange.whole(done, &log);
    }
    let permits = exchange.server.permits(None)?;
    let reader = log.read(None).map_err(|_| BROKEN)?;
    Ok(exchange.server.stream(request, LogEvents::new(reader).driving(work), (exchange.busy, permits)))
}

/// A header by its name, in bytes.
fn field<'h>(headers: &'h HeaderMap, name: &str) -> Field<'h> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Field::Missing,
        (Some(value), None) => Field::One(value.as_bytes()),
        _ => Field::Several,
    }
}
