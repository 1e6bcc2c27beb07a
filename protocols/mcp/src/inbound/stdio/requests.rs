//! The requests of one pipe: all run at once, in the serving task itself.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use callboard_message::{Principal, RawObject};
use callboard_rpc::{
    Body, Id, Incoming, Notification, Nulls, Refusal, Request, RpcError, code, decode, decode_body, encode_response,
};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::pipe::Pipe;
use crate::inbound::endpoint::Endpoint;
use crate::inbound::link::Link;
use crate::inbound::{legacy, modern};
use crate::wire::Revision;
use crate::wire::code as mcp;

/// Refusals that may wait for room beside the requests that run, before no more is read.
const REFUSALS_WAITING_MAX: usize = 64;

/// What runs for the peer of one pipe.
pub(in crate::inbound) struct Requests {
    endpoint: Arc<Endpoint>,
    principal: Arc<Principal>,
    session: Arc<legacy::Session>,
    pipe: Arc<Pipe>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    running_max: usize,
    stateless: Arc<InFlight>,
}

/// The requests of the stateless era that run, so that they can be cancelled.
#[derive(Default)]
struct InFlight(Mutex<HashMap<Id, CancellationToken>>);

impl Requests {
    pub(in crate::inbound) fn new(
        endpoint: Arc<Endpoint>,
        principal: Arc<Principal>,
        pipe: Arc<Pipe>,
        running_max: usize,
    ) -> Self {
        let session = legacy::Session::open(endpoint.clone(), principal.clone(), pipe.clone());
        let (running, stateless) = (FuturesUnordered::new(), Arc::default());
        Self { endpoint, principal, session, pipe, running, running_max: running_max.max(1), stateless }
    }

    /// Whether another line may be read.
    pub(in crate::inbound) fn have_room(&self) -> bool {
        self.running.len() < self.running_max.saturating_add(REFUSALS_WAITING_MAX)
    }

    /// Does some of the work. Never ends while there is none.
    pub(in crate::inbound) async fn work(&mut self) {
        match self.running.next().await {
            Some(()) => {}
            None => pending().await,
        }
    }

    /// Ends when nothing runs any more.
    pub(in crate::inbound) async fn finish(&mut self) {
        while self.running.next().await.is_some() {}
    }

    /// Cancels everything that runs.
    pub(in crate::inbound) fn cancel_all(&self) {
        self.session.close();
        self.stateless.cancel_all();
    }

    /// Begins what a line asks for.
    pub(in crate::inbound) fn begin(&mut self, line: Bytes) {
        let limits = self.endpoint.options.limits;
        if self.session.revision() == Some(Revision::V2025_03_26) && line.trim_ascii_start().starts_with(b"[") {
            return self.begin_batch(line);
        }
        match decode(&line, &limits) {
            Ok(Incoming::Request(request)) => self.begin_request(request),
            Ok(Incoming::Notification(notification)) => self.notified(notification),
            Ok(Incoming::Response(response)) => self.session.response(response),
            Err(refusal) => self.refuse_under(refusal.id.as_ref(), &RpcError::from(&refusal)),
        }
    }

    /// Says what is wrong with a line that has no id.
    pub(in crate::inbound) fn refuse(&mut self, error: &RpcError) {
        self.refuse_under(None, error);
    }

    fn refuse_under(&mut self, id: Option<&Id>, error: &RpcError) {
        let (pipe, answer) = (self.pipe.clone(), encode_response(id, Err(error), Nulls::Omit));
        self.run(async move { pipe.deliver(answer).await });
    }

    fn notified(&self, notification: Notification<'_>) {
        if notification.method == "notifications/cancelled"
            && let Some(params) = notification.params
            && let Some(id) = RawObject::parse(params).ok().and_then(|params| Id::read(params.get("requestId")?))
            && self.stateless.cancel(&id)
        {
            return;
        }
        self.session.notification(notification);
    }

    fn begin_request(&mut self, request: Request<'_>) {
        if self.running.len() >= self.running_max {
            let error = RpcError::new(mcp::OVERLOADED, "too many requests are running");
            return self.refuse_under(Some(&request.id), &error);
        }
        let Request { id, method, params } = request;
        let params = params.map(RawValue::to_owned);
        let link: Arc<dyn Link> = self.pipe.clone();
        let pipe = self.pipe.clone();
        if !modern::is_modern(params.as_deref()) {
            let session = self.session.clone();
            return self.run(async move {
                let request = Request { id, method, params: params.as_deref() };
                if let Some(answer) = session.request(request, link).await {
                    pipe.deliver(answer).await;
                }
            });
        }
        let Some(entry) = InFlight::enter(&self.stateless, id.clone()) else {
            let error = RpcError::new(code::INVALID_REQUEST, "a request with that `id` is running");
            return self.refuse_under(Some(&id), &error);
        };
        let (endpoint, principal) = (self.endpoint.clone(), self.principal.clone());
        self.run(async move {
            let request = Request { id, method, params: params.as_deref() };
            let cancel = entry.cancel.clone();
            let answering = modern::request(&endpoint, principal, request, link, cancel.clone());
            let answer = tokio::select! {
                biased;
                // Of a request that was cancelled nothing more is said (2026-07-28, stdio).
                () = cancel.cancelled() => return,
                answer = answering => answer,
            };
            drop(entry);
            pipe.deliver(answer.body).await;
        });
    }

    fn begin_batch(&mut self, line: Bytes) {
        if self.running.len() >= self.running_max {
            let error = RpcError::new(mcp::OVERLOADED, "too many requests are running");
            return self.refuse(&error);
        }
        let (session, pipe) = (self.session.clone(), self.pipe.clone());
        let limits = self.endpoint.options.limits;
        self.run(async move {
            let link: Arc<dyn Link> = pipe.clone();
            let answer = match decode_body(&line, &limits) {
                Ok(Body::Batch(entries)) => legacy::batch(&session, entries, &link).await,
                Ok(Body::One(_)) => None,
                Err(refusal) => Some(refusal_of(&refusal)),
            };
            if let Some(answer) = answer {
                pipe.deliver(answer).await;
            }
        });
    }

    /// Begins work. It gets its first turn here, so that what comes on the next line finds it begun.
    fn run(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = work.boxed();
        if (&mut work).now_or_never().is_none() {
            self.running.push(work);
        }
    }
}

fn refusal_of(refusal: &Refusal) -> Vec<u8> {
    encode_response(refusal.id.as_ref(), Err(&RpcError::from(refusal)), Nulls::Omit)
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

/// A request in the table, until this is dropped.
struct Entry {
    table: Arc<InFlight>,
    id: Id,
    cancel: CancellationToken,
}

impl InFlight {
    /// `None` where a request of that id runs.
    fn enter(table: &Arc<Self>, id: Id) -> Option<Entry> {
        let cancel = CancellationToken::new();
        let mut running = table.0.lock();
        if running.contains_key(&id) {
            return None;
        }
        running.insert(id.clone(), cancel.clone());
        drop(running);
        Some(Entry { table: table.clone(), id, cancel })
    }

    /// Whether there was one to cancel.
    fn cancel(&self, id: &Id) -> bool {
        let cancel = self.0.lock().get(id).cloned();
        cancel.inspect(CancellationToken::cancel).is_some()
    }

    fn cancel_all(&self) {
        let all: Vec<_> = self.0.lock().values().cloned().collect();
        all.iter().for_each(CancellationToken::cancel);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.table.0.lock().remove(&self.id);
    }
}
