//! Worker threads, each with an actix-web application, which can't leave its thread.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

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
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::body::{MountedBody, SentPayload, payload_of};
use super::head;

/// Maximum number of requests that wait for one worker thread of a mounted service. Further ones wait
/// in the host. Fixed.
const WORKER_REQUESTS_QUEUED_MAX: usize = 64;
/// Maximum number of chunks of a response that wait for the host. Further ones are made when it has taken
/// these.
const RESPONSE_CHUNKS_QUEUED_MAX: usize = 1;

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
        let Some(request) = head::actix_request(&head, &base_path, payload) else {
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
                let _ = respond.send(head::host_response(&response, head.version, body));
            }
            Err(body) => {
                let (sender, chunks) = mpsc::channel(RESPONSE_CHUNKS_QUEUED_MAX);
                let stream = MountedBody::stream(chunks, size);
                let made = head::host_response(&response, head.version, stream);
                if respond.send(made).is_ok() {
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

/// Starts a worker thread with the application that `app` returns. It ends once all clones of the queue
/// are dropped and all responses have ended.
///
/// # Errors
/// The I/O error if the thread or its runtime can't be created.
pub(super) fn start<I, S>(
    app: impl FnOnce() -> I + Send + 'static,
) -> io::Result<mpsc::Sender<Exchange>>
where
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse, Error = Error>,
    S::Service: 'static,
{
    let (queue, requests) = mpsc::channel(WORKER_REQUESTS_QUEUED_MAX);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("callboard-http".into())
        .spawn(move || Runtime::from(runtime).block_on(serve::<I, S>(app(), requests)))?;
    Ok(queue)
}

async fn serve<I, S>(app: I, mut requests: mpsc::Receiver<Exchange>)
where
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse, Error = Error>,
    S::Service: 'static,
{
    let factory = app.into_factory();
    let Ok(service) = factory.new_service(AppConfig::default()).await else {
        callboard_message::log::error!("failed to start a worker of a mounted service");
        return;
    };
    let service = Rc::new(service);
    let running = TaskTracker::new();
    while let Some(exchange) = requests.recv().await {
        running.spawn_local(exchange.answer(service.clone()));
    }
    running.close();
    running.wait().await;
}
