//! Bytes of gRPC requests, counted in the node's budget of buffered bytes.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use callboard_rpc::ListenerBuffers;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::StreamExt;
use http_body_util::{BodyStream, StreamBody};
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;

/// Service whose requests count for the address of their client while they are received and
/// performed. A request that the budget doesn't allow fails with `RESOURCE_EXHAUSTED`.
#[derive(Clone)]
pub(super) struct CountedService<S> {
    pub(super) inner: S,
    pub(super) buffers: ListenerBuffers,
}

impl<S: NamedService> NamedService for CountedService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for CountedService<S>
where
    S: Service<http::Request<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<S::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let connection = request.extensions().get::<TcpConnectInfo>();
        let peer = connection.and_then(TcpConnectInfo::remote_addr);
        // The principal is known only after the message was received.
        let owner = self
            .buffers
            .budget()
            .owner(None, peer.map(|peer| peer.ip()));
        let held = Arc::new(Mutex::new(self.buffers.account(owner).reservation()));
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
            response
        }
        .boxed()
    }
}
