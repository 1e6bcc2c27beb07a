//! A message of the modern era over HTTP: no session, and the end of the stream cancels the work.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::Principal;
use callboard_rpc::{Incoming, Nulls, Request, encode_response};
use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use super::body::{Done, Held, SseBody, Work};
use super::log::{EventLog, Kind};
use super::post::{BROKEN, Exchange};
use super::reply;
use crate::inbound::link::Link;
use crate::inbound::modern::{self, Field};
use crate::listen::guard::{Refused, refused};

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
    let Incoming::Request(Request { id, method, params }) = message else {
        return match message {
            Incoming::Notification(_) => Ok(reply::accepted()),
            _ => Err(refused(StatusCode::BAD_REQUEST, "a response that nobody waits for")),
        };
    };
    let headers = |name: &str| field(request.headers(), name);
    if let Err(error) = modern::check_headers(&exchange.server.endpoint, headers, &method, params) {
        return Ok(reply::json(400, encode_response(Some(&id), Err(&error), Nulls::Omit)));
    }
    let options = &exchange.server.options.streams;
    let log = EventLog::new(0, Kind::Once, exchange.accepts.events, options.limits);
    let (endpoint, link) = (exchange.server.endpoint.clone(), log.clone() as Arc<dyn Link>);
    let params = params.map(ToOwned::to_owned);
    let running = async move {
        let request = Request { id, method, params: params.as_deref() };
        let cancel = CancellationToken::new();
        let _gone = cancel.clone().drop_guard();
        let answer = modern::request(&endpoint, Arc::new(principal), request, link, cancel).await;
        Done { status: answer.status, body: Some(answer.body) }
    };
    let mut work = Work::new(running.boxed(), None);
    if let Some(done) = exchange.before_stream(&mut work, &log, None).await {
        return exchange.whole(done, &log);
    }
    let permits = exchange.server.permits(None)?;
    let held = Held::new(exchange.busy, permits, None);
    let reader = log.read(None).map_err(|_| BROKEN)?;
    Ok(reply::events(SseBody::new(reader, options.keep_alive, held).driving(work)))
}

/// A header by its name.
fn field<'h>(headers: &'h HeaderMap, name: &str) -> Field<'h> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Field::Missing,
        (Some(value), None) => Field::One(value.as_bytes()),
        _ => Field::Several,
    }
}
