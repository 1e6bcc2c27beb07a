//! HTTP responses: head, streamed body, and event streams.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::http::response::Parts;

use super::NetError;
use super::connection::{HttpConnection, IdleConnections};
use crate::{ReadPacer, SseDecoder, SseError, SseEvent, SseLimits};

/// Reason why a response body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body is longer than the limit that the caller has set.
    #[error("the response's body is larger than the caller accepts")]
    TooLarge,
    /// The connection broke.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// HTTP response whose head has arrived; the body is read from it. If it is dropped before the end
/// of the body, the connection is closed.
pub struct ClientResponse {
    head: Parts,
    body: Incoming,
    /// Connection that delivers the body. It returns to the pool at the end of the body.
    connection: Option<HttpConnection>,
    idle: Arc<IdleConnections>,
}

impl ClientResponse {
    pub(crate) fn new(
        (response, connection): (hyper::Response<Incoming>, HttpConnection),
        idle: &Arc<IdleConnections>,
    ) -> Self {
        let (head, body) = response.into_parts();
        let mut response = Self {
            head,
            body,
            connection: Some(connection),
            idle: idle.clone(),
        };
        response.release_if_complete();
        response
    }

    /// Returns the status code.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Returns the response headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// Returns the number of bytes of the body that have not been read; `None` if its length is
    /// unknown.
    pub fn content_length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Returns the media type of the body, in lower case and without parameters; empty if the
    /// response has none.
    pub fn media_type(&self) -> String {
        let kind = self
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        kind.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    }

    /// Returns whether the body is an event stream (`text/event-stream`).
    pub fn is_event_stream(&self) -> bool {
        self.media_type() == "text/event-stream"
    }

    /// Reads the whole body, which may have at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] as soon as the limit is exceeded; [`BodyError::Net`] if the
    /// connection broke.
    pub async fn body(mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        if self
            .content_length()
            .is_some_and(|declared| declared > bytes_max as u64)
        {
            return Err(BodyError::TooLarge);
        }
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > bytes_max {
                return Err(BodyError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the next chunk of the body; `None` at its end.
    ///
    /// # Errors
    /// [`NetError::Broken`] if the connection broke.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        loop {
            let frame = poll_fn(|cx| {
                let Some(connection) = &mut self.connection else {
                    return Poll::Ready(None);
                };
                // Data that has arrived already is returned without driving the connection.
                if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                connection.poll_io(cx);
                Pin::new(&mut self.body).poll_frame(cx)
            })
            .await;
            match frame {
                Some(Ok(frame)) => {
                    self.release_if_complete();
                    // Trailers are ignored.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(_)) => {
                    self.connection = None;
                    return Err(NetError::Broken);
                }
                None => {
                    self.release_connection();
                    return Ok(None);
                }
            }
        }
    }

    fn release_if_complete(&mut self) {
        if self.body.is_end_stream() {
            self.release_connection();
        }
    }

    fn release_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.idle.put(connection);
        }
    }
}

/// Delay before a client reconnects to an event stream if the server has set none.
pub const STREAM_RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// Maximum delay before a client reconnects to an event stream. A longer delay set by the server is
/// shortened.
pub const STREAM_RETRY_MAX: Duration = Duration::from_secs(60);
/// Minimum delay before a client reconnects to an event stream. A shorter delay set by the server
/// is lengthened.
const STREAM_RETRY_MIN: Duration = Duration::from_millis(20);
/// Bytes by which an event may exceed the maximum size of its message, for type, id and line ends.
const EVENT_OVERHEAD_BYTES: usize = 1_024;

/// Reader of Server-Sent Events from a response body.
pub struct SseStream {
    response: ClientResponse,
    decoder: SseDecoder,
    position: StreamPosition,
    pacer: ReadPacer,
    /// Whether the latest chunk has completed an event.
    has_event: bool,
}

/// Position in an event stream at which a client can resume it, with the reconnection delay.
#[derive(Debug, Clone, Default)]
pub struct StreamPosition {
    last_event_id: Option<String>,
    retry: Option<Duration>,
}

impl StreamPosition {
    /// Returns the value for the header `Last-Event-ID`; `None` if no event had an id, so that the
    /// stream can't be resumed.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Returns the delay before the client reconnects, between 20 ms and [`STREAM_RETRY_MAX`].
    pub fn retry_delay(&self) -> Duration {
        self.retry
            .unwrap_or(STREAM_RETRY_DEFAULT)
            .clamp(STREAM_RETRY_MIN, STREAM_RETRY_MAX)
    }
}

impl SseStream {
    /// Creates a reader of a response's events. An event's data may have at most
    /// `message_bytes_max` bytes. `position` is the position at which an earlier stream is resumed,
    /// or the default for a new stream.
    pub fn new(
        response: ClientResponse,
        message_bytes_max: usize,
        position: StreamPosition,
    ) -> Self {
        let bytes_max = message_bytes_max.saturating_add(EVENT_OVERHEAD_BYTES);
        let limits = SseLimits {
            line_bytes_max: bytes_max,
            event_bytes_max: bytes_max,
        };
        Self {
            response,
            decoder: SseDecoder::new(&limits),
            position,
            pacer: ReadPacer::default(),
            has_event: true,
        }
    }

    /// Returns the next event with non-empty data; `None` if the stream has ended or the connection
    /// broke. At most [`READS_PER_SECOND_MAX`](crate::READS_PER_SECOND_MAX) events, or chunks that
    /// complete none, are read in a second.
    ///
    /// # Errors
    /// [`SseError`] if a line or an event exceeds its limit.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, SseError> {
        loop {
            // Before anything is taken, so that nothing is lost if the caller stops waiting.
            self.pacer.wait().await;
            let event = self.decoder.next()?;
            if let Some(id) = self.decoder.last_event_id() {
                self.position.last_event_id = Some(id.to_owned());
            }
            self.position.retry = self.decoder.retry().or(self.position.retry);
            if let Some(event) = event {
                self.pacer.count();
                self.has_event = true;
                if event.data.is_empty() {
                    continue;
                }
                return Ok(Some(event));
            }
            let Ok(Some(chunk)) = self.response.chunk().await else {
                return Ok(None);
            };
            if !std::mem::take(&mut self.has_event) {
                self.pacer.count();
            }
            self.decoder.push(&chunk);
        }
    }

    /// Doesn't count the latest event towards the limit of a second, because it is a response that
    /// somebody waited for.
    pub fn discount(&mut self) {
        self.pacer.discount();
    }

    /// Returns the position at which the stream can be resumed.
    pub fn position(&self) -> &StreamPosition {
        &self.position
    }

    /// Consumes the reader and returns the position at which the stream can be resumed.
    pub fn into_position(self) -> StreamPosition {
        self.position
    }
}
