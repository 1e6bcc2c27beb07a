//! A response: its head, and its body as it arrives.

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
use super::connection::{Connection, Idle};
use crate::{SseDecoder, SseError, SseEvent, SseLimits};

/// Why a body wasn't read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is longer than whoever reads it takes.
    #[error("the body is over the limit")]
    TooLarge,
    /// It broke off.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// A response, of which the head has arrived. Dropped before its end, it closes its connection.
pub struct Response {
    head: Parts,
    body: Incoming,
    /// Goes back to the idle ones with the body's end.
    connection: Option<Connection>,
    idle: Arc<Idle>,
}

impl Response {
    pub(crate) fn new(
        (response, connection): (hyper::Response<Incoming>, Connection),
        idle: &Arc<Idle>,
    ) -> Self {
        let (head, body) = response.into_parts();
        let mut response = Self {
            head,
            body,
            connection: Some(connection),
            idle: idle.clone(),
        };
        response.settle();
        response
    }

    /// What the server says came of the request.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Its head but for the status.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// How many bytes are left of the body, where its length is known.
    pub fn content_length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Its media type, lower-case and without parameters; empty where it says none.
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

    /// Whether its body is an event stream.
    pub fn is_event_stream(&self) -> bool {
        self.media_type() == "text/event-stream"
    }

    /// The whole body, held to `bytes_max` while it arrives.
    ///
    /// # Errors
    /// See [`BodyError`].
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

    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// [`NetError::Broken`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        loop {
            let frame = poll_fn(|cx| {
                let Some(connection) = &mut self.connection else {
                    return Poll::Ready(None);
                };
                // What has arrived already needs no look at the connection.
                if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                connection.drive(cx);
                Pin::new(&mut self.body).poll_frame(cx)
            })
            .await;
            match frame {
                Some(Ok(frame)) => {
                    self.settle();
                    // Trailers say nothing here.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(_)) => {
                    self.connection = None;
                    return Err(NetError::Broken);
                }
                None => {
                    self.end();
                    return Ok(None);
                }
            }
        }
    }

    fn settle(&mut self) {
        if self.body.is_end_stream() {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.idle.put(connection);
        }
    }
}

/// The pause before a stream is taken up again, where the server wants no other.
pub const RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// The longest such pause, whatever the server says.
pub const RETRY_MAX: Duration = Duration::from_secs(60);
/// The least wait before a stream is taken up again, whatever the server says.
const RETRY_MIN: Duration = Duration::from_millis(20);
/// What an event has beside its message: its name, its id, the ends of its lines.
const EVENT_EXTRA_BYTES: usize = 1_024;

/// Reads one response's event stream.
pub struct EventStream {
    response: Response,
    decoder: SseDecoder,
    place: Place,
}

/// Where a stream broke off.
#[derive(Debug, Clone, Default)]
pub struct Place {
    last_event_id: Option<String>,
    retry: Option<Duration>,
}

impl Place {
    /// What `Last-Event-ID` says; `None` where the stream can't be taken up again.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How long to wait before that.
    pub fn retry(&self) -> Duration {
        self.retry
            .unwrap_or(RETRY_DEFAULT)
            .clamp(RETRY_MIN, RETRY_MAX)
    }
}

impl EventStream {
    /// Reads events whose messages have at most `message_bytes_max` bytes. `place`: where an earlier stream broke off.
    pub fn new(response: Response, message_bytes_max: usize, place: Place) -> Self {
        let bytes_max = message_bytes_max.saturating_add(EVENT_EXTRA_BYTES);
        let limits = SseLimits {
            line_bytes_max: bytes_max,
            event_bytes_max: bytes_max,
        };
        Self {
            response,
            decoder: SseDecoder::new(&limits),
            place,
        }
    }

    /// The next event that says something; `None` where the stream has ended or broken.
    ///
    /// # Errors
    /// An event over the limit.
    pub async fn next(&mut self) -> Result<Option<SseEvent>, SseError> {
        loop {
            let event = self.decoder.next()?;
            if let Some(id) = self.decoder.last_event_id() {
                self.place.last_event_id = Some(id.to_owned());
            }
            self.place.retry = self.decoder.retry().or(self.place.retry);
            match event {
                Some(event) if event.data.is_empty() => {}
                Some(event) => return Ok(Some(event)),
                None => match self.response.chunk().await {
                    Ok(Some(chunk)) => self.decoder.push(&chunk),
                    Ok(None) | Err(_) => return Ok(None),
                },
            }
        }
    }

    /// Where it stands.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Where it stood at its end.
    pub fn into_place(self) -> Place {
        self.place
    }
}
