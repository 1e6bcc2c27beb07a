//! Worker threads, each with an actix-web application, which can't leave its thread.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc as std_mpsc};

use actix_http::Request;
use actix_service::{IntoServiceFactory, Service, ServiceFactory};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::rt::Runtime;
use actix_web::{Error, HttpResponse};
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use http_body::Body;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::body::{MountedBody, SentPayload, payload_of};
use super::head;

/// Maximum number of requests that wait for one worker thread of a mounted service. Further ones wait
/// in the host.
const WORKER_REQUESTS_QUEUED_MAX: usize = 64;
/// Maximum number of chunks of a response that wait for the host. Further ones are made when it has taken
/// these.
pub(super) const RESPONSE_CHUNKS_QUEUED_MAX: usize = 1;

/// A request on its way to a worker, and the way back for its response.
pub(super) struct Exchange {
    head: Parts,
    payload: SentPayload,
    base_path: Arc<str>,
    /// Sender that is closed once the client has gone.
    respond: oneshot::Sender<http::Response<MountedBody>>,
}

impl Exchange {
    pub(super) fn new<B>(
        request: http::Request<B>,
        base_path: Arc<str>,
    ) -> (Self, oneshot::Receiver<http::Response<MountedBody>>)
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let (head, body) = request.into_parts();
        let (respond, response) = oneshot::channel();
        let exchange = Self {
            head,
            payload: payload_of(body),
            base_path,
            respond,
        };
        (exchange, response)
    }

    /// Answers the request by `service`. Stops as soon as the client has gone.
    async fn answer<S>(self, service: Rc<S>)
    where
        S: Service<Request, Response = ServiceResponse, Error = Error>,
    {
        let Self {
            head,
            payload,
            base_path,
            mut respond,
        } = self;
        let version = head.version;
        let Some(request) = head::actix_request(head, &base_path, payload) else {
            // The client may have gone.
            let _ = respond.send(head::empty_response(StatusCode::BAD_REQUEST));
            return;
        };
        let response = tokio::select! {
            biased;
            () = respond.closed() => return,
            response = call(&*service, request) => response,
        };
        let (response, body) = response.into_parts();
        let size = body.size();
        match body.try_into_bytes() {
            Ok(bytes) => {
                let body = MountedBody::whole(bytes);
                let _ = respond.send(head::host_response(&response, version, body));
            }
            Err(body) => {
                let (sender, chunks) = mpsc::channel(RESPONSE_CHUNKS_QUEUED_MAX);
                let stream = MountedBody::stream(chunks, size);
                let response = head::host_response(&response, version, stream);
                if respond.send(response).is_ok() {
                    send_chunks(body, &sender).await;
                }
            }
        }
    }
}

async fn call<S>(service: &S, request: Request) -> HttpResponse
where
    S: Service<Request, Response = ServiceResponse, Error = Error>,
{
    let called = match poll_fn(|cx| service.poll_ready(cx)).await {
        Ok(()) => service.call(request).await,
        Err(error) => Err(error),
    };
    match called {
        Ok(response) => response.into_parts().1,
        Err(error) => error.error_response(),
    }
}

/// Sends the chunks of a body, as fast as the host takes them, and then `None`, unless the body fails.
async fn send_chunks(mut body: BoxBody, chunks: &mpsc::Sender<Option<Bytes>>) {
    // Without room no chunk is taken from the body.
    while let Ok(room) = chunks.reserve().await {
        let next = tokio::select! {
            biased;
            () = chunks.closed() => return,
            next = poll_fn(|cx| body.as_pin_mut().poll_next(cx)) => next,
        };
        match next {
            Some(Ok(chunk)) => room.send(Some(chunk)),
            Some(Err(_)) => return,
            None => return room.send(None),
        }
    }
}

/// Starts a worker thread with the application that `app` returns, and waits until it is ready. It handles
/// at most `requests_max` requests at once, and ends once all clones of the queue are dropped and all
/// responses have ended.
///
/// # Errors
/// The I/O error if the thread or its runtime can't be created; another one if the application can't
/// start.
pub(super) fn start<I, S>(
    app: impl FnOnce() -> I + Send + 'static,
    requests_max: usize,
) -> io::Result<mpsc::Sender<Exchange>>
where
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse, Error = Error>,
    S::Service: 'static,
{
    let (queue, requests) = mpsc::channel(WORKER_REQUESTS_QUEUED_MAX);
    let (ready, outcome) = std_mpsc::channel();
    // A runtime must not be dropped on the caller's thread, which may have one, so none is made there.
    let run = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let serving = serve::<I, S>(app, requests, requests_max, ready);
            Runtime::from(runtime).block_on(serving);
        }
        Err(error) => {
            // The caller waits for it.
            let _ = ready.send(Err(error));
        }
    };
    std::thread::Builder::new()
        .name("callboard-http".into())
        .spawn(run)?;
    let ended = |_| Err(io::Error::other("it ended before it was ready"));
    outcome.recv().unwrap_or_else(ended)?;
    Ok(queue)
}

async fn serve<I, S>(
    app: impl FnOnce() -> I,
    mut requests: mpsc::Receiver<Exchange>,
    requests_max: usize,
    ready: std_mpsc::Sender<io::Result<()>>,
) where
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse, Error = Error>,
    S::Service: 'static,
{
    let factory = app().into_factory();
    let Ok(service) = factory.new_service(AppConfig::default()).await else {
        let _ = ready.send(Err(io::Error::other("its application failed to start")));
        return;
    };
    let _ = ready.send(Ok(()));
    let service = Rc::new(service);
    let permits = requests_max.clamp(1, Semaphore::MAX_PERMITS);
    let permits = Arc::new(Semaphore::new(permits));
    let running = TaskTracker::new();
    // A request stays in the queue until there is a permit for it. The semaphore is never closed.
    while let Ok(permit) = permits.clone().acquire_owned().await
        && let Some(exchange) = requests.recv().await
    {
        let answered = exchange.answer(service.clone());
        running.spawn_local(async move {
            answered.await;
            drop(permit);
        });
    }
    running.close();
    running.wait().await;
}
