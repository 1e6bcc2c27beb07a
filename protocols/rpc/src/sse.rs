//! Decoder and encoder of Server-Sent Events (WHATWG HTML, section 9.2.6). Input may come in chunks
//! of any size; output is written so that no text can forge an event.

use derive_more::Debug;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use memchr::{memchr, memchr2};

use crate::BODY_BYTES_MAX_DEFAULT;

/// Comment line that a server sends to keep an idle event stream open. Clients ignore it.
pub const SSE_KEEP_ALIVE: &[u8] = b":\n\n";

/// Limits of an event stream for a decoder. Each limit is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseLimits {
    /// Maximum length of one line without its line end, in bytes. Default: 4,097 KiB, 1 KiB more
    /// than the default maximum of a JSON-RPC body.
    pub line_bytes_max: usize,
    /// Maximum size of one event, in bytes: data (with the line breaks between its lines), type and
    /// id together. Default: 4,097 KiB, 1 KiB more than the default maximum of a JSON-RPC body.
    pub event_bytes_max: usize,
}

impl Default for SseLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: BODY_BYTES_MAX_DEFAULT + 1_024,
            event_bytes_max: BODY_BYTES_MAX_DEFAULT + 1_024,
        }
    }
}

/// Error after which an event stream can't be decoded any further. The caller should close the
/// stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// A line exceeds the limit.
    #[error("the event stream has a line of more than {max} bytes")]
    LineOver {
        /// Limit in bytes: [`SseLimits::line_bytes_max`].
        max: usize,
    },
    /// An event exceeds the limit.
    #[error("the event stream has an event of more than {max} bytes")]
    EventOver {
        /// Limit in bytes: [`SseLimits::event_bytes_max`].
        max: usize,
    },
}

/// Server-Sent Event, decoded or to be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
// Data may be confidential, so `Debug` never prints it.
#[debug("SseEvent({} bytes, id: {}, retry: {retry:?})", data.len(), id.is_some())]
pub struct SseEvent {
    /// Type of the event; `None` means `message`.
    pub event: Option<String>,
    /// Data of the event, possibly empty. It isn't checked to be UTF-8.
    pub data: Vec<u8>,
    /// Id of the event. A client resumes the stream after it, with `Last-Event-ID`. In a decoded
    /// event, it is `None` if the event itself has no `id` field.
    pub id: Option<String>,
    /// Delay before a client reconnects, in whole milliseconds; `None` if the event has no `retry`
    /// field.
    pub retry: Option<Duration>,
}

impl SseEvent {
    /// Creates an event of the default type (`message`), without an id.
    pub fn message(data: impl Into<Vec<u8>>) -> Self {
        Self {
            data: data.into(),
            ..Self::default()
        }
    }

    /// Sets the id and returns the event.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Returns the type of the event; `message` if it has none.
    pub fn kind(&self) -> &str {
        self.event.as_deref().unwrap_or("message")
    }
}

/// Decoder of an event stream. [`push`](Self::push) a chunk, then call [`next`](Self::next) until
/// it returns `None`. Events may extend over several chunks.
///
/// An event that is incomplete at the end of the stream is dropped, as the standard requires.
#[derive(Debug, Default)]
#[debug("SseDecoder({} bytes pending, broken: {broken:?})", pending.len() + event_bytes)]
pub struct SseDecoder {
    limits: SseLimits,
    pending: BytesMut,
    /// Number of bytes of `pending` that are known to contain no line end.
    searched: usize,
    /// Whether the last line ended with CR, so that a following LF belongs to it.
    after_cr: bool,
    /// Whether the first line has been read. A byte order mark is skipped only at its beginning.
    has_begun: bool,
    event: SseEvent,
    has_data: bool,
    /// Total length of data, type and id of `event`, in bytes.
    event_bytes: usize,
    last_event_id: Option<String>,
    retry: Option<Duration>,
    broken: Option<SseError>,
}

impl SseDecoder {
    /// Creates a decoder at the beginning of a stream.
    pub fn new(limits: &SseLimits) -> Self {
        Self {
            limits: *limits,
            ..Self::default()
        }
    }

    /// Adds the next chunk. To bound memory, call [`next`](Self::next) until it returns `None`
    /// before another chunk is added.
    pub fn push(&mut self, chunk: &[u8]) {
        if self.broken.is_none() {
            self.pending.extend_from_slice(chunk);
        }
    }

    /// Returns the next complete event; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`SseError`] if a limit is exceeded. Every later call returns the same error, because the
    /// rest of the stream can't be decoded.
    #[expect(
        clippy::should_implement_trait,
        reason = "a decoder that is pushed to ends no iteration with `None`"
    )]
    pub fn next(&mut self) -> Result<Option<SseEvent>, SseError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let next = self.parse_next();
        if let Err(error) = next {
            self.broken = Some(error);
            self.pending = BytesMut::new();
            self.event = SseEvent::default();
        }
        next
    }

    /// Returns the value of `Last-Event-ID` with which the stream can be resumed: the last id
    /// received. Returns `None` if no id was received, or the last one was empty.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the last reconnection delay that the server has set; `None` if it has set none. The
    /// value is not limited.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn parse_next(&mut self) -> Result<Option<SseEvent>, SseError> {
        loop {
            if self.after_cr && !self.pending.is_empty() {
                self.after_cr = false;
                if self.pending.first() == Some(&b'\n') {
                    self.pending.advance(1);
                }
            }
            let unsearched = self.pending.get(self.searched..).unwrap_or_default();
            let end = memchr2(b'\n', b'\r', unsearched).map(|at| self.searched + at);
            let bytes = end.unwrap_or(self.pending.len());
            if bytes > self.limits.line_bytes_max {
                return Err(SseError::LineOver {
                    max: self.limits.line_bytes_max,
                });
            }
            let Some(end) = end else {
                self.searched = self.pending.len();
                return Ok(None);
            };
            let line = self.pending.split_to(end);
            self.searched = 0;
            self.after_cr = self.pending.first() == Some(&b'\r');
            self.pending.advance(1);
            let had_begun = std::mem::replace(&mut self.has_begun, true);
            let line = line
                .strip_prefix(b"\xEF\xBB\xBF")
                .filter(|_| !had_begun)
                .unwrap_or(&line);
            if line.is_empty() {
                if let Some(event) = self.finish_event() {
                    return Ok(Some(event));
                }
            } else {
                self.parse_field(line)?;
            }
        }
    }

    fn parse_field(&mut self, line: &[u8]) -> Result<(), SseError> {
        let (name, value) = match memchr(b':', line) {
            Some(colon) => {
                let (name, rest) = line.split_at(colon);
                let value = rest.strip_prefix(b":").unwrap_or(rest);
                (name, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, b"".as_slice()),
        };
        match name {
            b"data" => {
                self.add_event_bytes(value.len() + usize::from(self.has_data))?;
                if self.has_data {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" | b"id" if name == b"event" || memchr(0, value).is_none() => {
                let place = if name == b"event" {
                    &mut self.event.event
                } else {
                    &mut self.event.id
                };
                let earlier = place.replace(String::from_utf8_lossy(value).into_owned());
                let bytes = place.as_ref().map_or(0, String::len);
                self.event_bytes -= earlier.map_or(0, |earlier| earlier.len());
                self.add_event_bytes(bytes)?;
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let ms = std::str::from_utf8(value)
                    .ok()
                    .and_then(|digits| digits.parse().ok());
                if let Some(ms) = ms {
                    self.retry = Some(Duration::from_millis(ms));
                    self.event.retry = self.retry;
                }
            }
            // Comments begin with a colon, so their name is empty. The standard requires to ignore
            // other names.
            _ => {}
        }
        Ok(())
    }

    fn add_event_bytes(&mut self, bytes: usize) -> Result<(), SseError> {
        self.event_bytes += bytes;
        let max = self.limits.event_bytes_max;
        if self.event_bytes > max {
            Err(SseError::EventOver { max })
        } else {
            Ok(())
        }
    }

    /// Ends the current event and returns it. Returns `None` if the event has no `data` line; its
    /// id still becomes the last event id.
    fn finish_event(&mut self) -> Option<SseEvent> {
        let mut event = std::mem::take(&mut self.event);
        self.event_bytes = 0;
        if event.id.is_some() {
            self.last_event_id.clone_from(&event.id);
        }
        event.event = event.event.filter(|kind| !kind.is_empty());
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

/// Encodes an event. It always gets a `data` line, so that clients decode it even if the data is
/// empty.
///
/// Each CRLF, CR or LF in the data begins a new `data` line and is decoded as LF; in JSON these
/// occur only as white space. A type or id that contains CR, LF or NUL can't be encoded and is left
/// out.
pub fn encode_event(event: &SseEvent) -> Vec<u8> {
    let mut out = Vec::with_capacity(event.data.len() + 64);
    let fields = [
        ("event: ", event.event.as_deref()),
        ("id: ", event.id.as_deref()),
    ];
    for (name, value) in fields {
        if let Some(value) = value.filter(|value| !value.contains(['\r', '\n', '\0'])) {
            push_line(&mut out, name, value.as_bytes());
        }
    }
    if let Some(retry) = event.retry {
        push_line(
            &mut out,
            "retry: ",
            retry.as_millis().to_string().as_bytes(),
        );
    }
    let mut rest = event.data.as_slice();
    while let Some(at) = memchr2(b'\r', b'\n', rest) {
        let (line, broken) = rest.split_at(at);
        push_line(&mut out, "data: ", line);
        rest = broken
            .strip_prefix(b"\r\n")
            .or_else(|| broken.get(1..))
            .unwrap_or_default();
    }
    push_line(&mut out, "data: ", rest);
    out.push(b'\n');
    out
}

fn push_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}
