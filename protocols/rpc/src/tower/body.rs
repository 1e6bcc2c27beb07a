//! Bodies of requests and responses between the host and actix-web.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_http::error::PayloadError;
use actix_web::body::BodySize;
use bytes::Bytes;
use futures::{Stream, stream};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// Body of a request, which is read on a worker thread.
pub(super) type SentPayload = Pin<Box<dyn Stream<Item = Result<Bytes, PayloadError>> + Send>>;

/// Converts the body of a request. Trailers are left out.
pub(super) fn payload_of<B>(body: B) -> SentPayload
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let mut body = Box::pin(body);
    Box::pin(stream::poll_fn(move |cx| {
        loop {
            match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(PayloadError::Incomplete(None)))),
                None => return Poll::Ready(None),
            }
        }
    }))
}

/// Body of a response. Dropping it tells the worker thread that the client has gone.
pub struct MountedBody {
    content: BodyContent,
}

enum BodyContent {
    Ended,
    Whole(Bytes),
    Stream {
        /// Chunks, and `None` after the last one.
        chunks: mpsc::Receiver<Option<Bytes>>,
        /// Number of bytes that are left, if the length is known.
        left: Option<u64>,
    },
}

impl MountedBody {
    pub(super) fn whole(bytes: Bytes) -> Self {
        let content = match bytes.is_empty() {
            true => BodyContent::Ended,
            false => BodyContent::Whole(bytes),
        };
        Self { content }
    }

    /// Creates a body of the chunks that are received, and `None` after the last one. If the sender is
    /// dropped before that, the body ends with an error.
    pub(super) fn stream(chunks: mpsc::Receiver<Option<Bytes>>, size: BodySize) -> Self {
        let left = match size {
            BodySize::None => Some(0),
            BodySize::Sized(bytes) => Some(bytes),
            BodySize::Stream => None,
        };
        Self {
            content: BodyContent::Stream { chunks, left },
        }
    }
}

impl Body for MountedBody {
    type Data = Bytes;
    type Error = io::Error;

    /// Returns the next chunk, or [`ConnectionAborted`](io::ErrorKind::ConnectionAborted) if the rest of
    /// the body is lost.
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let content = &mut self.get_mut().content;
        let next: Option<io::Result<Bytes>> = match content {
            BodyContent::Ended => None,
            BodyContent::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *content = BodyContent::Ended;
                Some(Ok(bytes))
            }
            BodyContent::Stream { chunks, left } => match ready!(chunks.poll_recv(cx)) {
                Some(Some(chunk)) => {
                    *left = left.map(|left| left.saturating_sub(chunk.len() as u64));
                    Some(Ok(chunk))
                }
                Some(None) => {
                    *content = BodyContent::Ended;
                    None
                }
                None => {
                    *content = BodyContent::Ended;
                    Some(Err(io::ErrorKind::ConnectionAborted.into()))
                }
            },
        };
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, BodyContent::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Ended => SizeHint::with_exact(0),
            BodyContent::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyContent::Stream { left, .. } => left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Goal: a body of which a part is lost ends with an error, a whole one without. Method: senders
    /// that end with and without the mark of the end.
    #[tokio::test]
    async fn lost_chunks_are_errors() {
        for is_whole in [true, false] {
            let (sender, chunks) = mpsc::channel(2);
            let mut body = MountedBody::stream(chunks, BodySize::Sized(3));
            sender.send(Some(Bytes::from_static(b"abc"))).await.unwrap();
            if is_whole {
                sender.send(None).await.unwrap();
            }
            drop(sender);
            assert_eq!(body.size_hint().exact(), Some(3));
            let first = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            assert_eq!(first.unwrap().unwrap().into_data().unwrap(), "abc");
            assert_eq!(body.size_hint().exact(), Some(0));
            let last = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            assert_eq!(last.is_none(), is_whole);
            assert!(body.is_end_stream());
        }
    }
}
