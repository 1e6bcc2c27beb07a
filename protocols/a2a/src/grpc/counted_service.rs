//! Bytes of gRPC requests and responses, counted in the node's budget of buffered bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use callboard_rpc::ListenerBuffers;
use callboard_rpc::serve::buffers::UnreadChunk;
use callboard_rpc::serve::client_address::{FORWARDED_FOR, TrustedProxies};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::StreamExt;
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use super::{ConnectionInfo, RunningCall};

/// Service whose requests count for the address of their client while they are received and
/// performed, and whose large responses count until the client has read them. A request that the
/// budget doesn't allow fails with `RESOURCE_EXHAUSTED`.
#[derive(Clone)]
pub(super) struct CountedService<S> {
    pub(super) inner: S,
    pub(super) buffers: ListenerBuffers,
    /// Reverse proxies whose `X-Forwarded-For` names the client.
    pub(super) proxies: TrustedProxies,
}

impl<S: NamedService> NamedService for CountedService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for CountedService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<S::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let connection = request.extensions().get::<ConnectionInfo>();
        let forwarded = request.headers().get_all(FORWARDED_FOR);
        let forwarded = forwarded.iter().map(|value| value.as_bytes());
        let peer = connection.map(|connection| connection.client_address(&self.proxies, forwarded));
        let running = connection.map(|connection| connection.calls.begin());
        // The principal is known only after the message was received.
        let owner = self.buffers.budget().owner(None, peer);
        let account = self.buffers.account(owner);
        let held = Arc::new(Mutex::new(account.reservation()));
        let (counted, mut received) = (held.clone(), 0);
        let request = request.map(|body| {
            Body::new(StreamBody::new(BodyStream::new(body).map(move |frame| {
                let frame = frame?;
                received += frame.data_ref().map_or(0, |data| data.len());
                let resized = counted.lock().resize(received);
                resized.map_err(|full| Status::resource_exhausted(full.to_string()))?;
                Ok::<_, Status>(frame)
            })))
        });
        let performed = self.inner.call(request);
        async move {
            let response = performed.await;
            drop(held);
            response.map(|response| {
                response.map(|body| {
                    // An error is in the headers, which end the stream then.
                    if http_body::Body::is_end_stream(&body) {
                        return body;
                    }
                    let unread = UnreadChunk::new(&account);
                    Body::new(CountedBody {
                        body,
                        unread,
                        _running: running,
                    })
                })
            })
        }
        .boxed()
    }
}

/// Body of a response that passes large messages on in parts, as fast as the client reads. If the
/// budget closes it, the stream is reset.
struct CountedBody {
    body: Body,
    unread: Arc<UnreadChunk>,
    _running: Option<RunningCall>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let part = match this.unread.next_part() {
            Some(part) => Some(part),
            None => match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.unread.put(data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            },
        };
        let closed = |_| Status::resource_exhausted(callboard_rpc::BUFFERS_FULL);
        Poll::Ready(part.map(|part| part.map(Frame::data).map_err(closed)))
    }
}
