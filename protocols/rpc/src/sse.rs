//! Server-Sent Events (WHATWG HTML, section 9.2.6), read from chunks of any size and written so that no text can
//! forge an event.

use derive_more::Debug;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use memchr::{memchr, memchr2};

use crate::BODY_BYTES_MAX_DEFAULT;

/// What keeps an idle stream open: a comment, which no reader shows.
pub const SSE_KEEP_ALIVE: &[u8] = b":\n\n";

/// How large the parts of an event stream may be. Each bound is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseLimits {
    /// Bytes of one line, its end not counted.
    /// Default: 1 KiB more than a body may have, 4,097 KiB.
    pub line_bytes_max: usize,
    /// Bytes of an event's data (line breaks between its lines included), name and id together.
    /// Default: 1 KiB more than a body may have, 4,097 KiB.
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

/// Why an event stream can't be read on. Close it: the peer sends more than is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// A line has no end in sight.
    #[error("a line of more than {max} bytes in the event stream")]
    LineOver {
        /// [`SseLimits::line_bytes_max`].
        max: usize,
    },
    /// An event has no end in sight.
    #[error("an event of more than {max} bytes in the event stream")]
    EventOver {
        /// [`SseLimits::event_bytes_max`].
        max: usize,
    },
}

/// One event, read or to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
// Data may hold patient text: it is never printed.
#[debug("SseEvent({} bytes, id: {}, retry: {retry:?})", data.len(), id.is_some())]
pub struct SseEvent {
    /// What kind of event; `None` is `message`.
    pub event: Option<String>,
    /// UTF-8, if the peer keeps to the standard: [`decode`](crate::decode) looks. May be empty.
    pub data: Vec<u8>,
    /// Where a reader that comes back goes on (`Last-Event-ID`). Read: the `id` that stood in this very event.
    pub id: Option<String>,
    /// How long a reader waits before it comes back, in whole milliseconds.
    pub retry: Option<Duration>,
}

impl SseEvent {
    /// An event of the kind `message`, without an id.
    pub fn message(data: impl Into<Vec<u8>>) -> Self {
        Self {
            data: data.into(),
            ..Self::default()
        }
    }

    /// The same event under an id.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What kind of event: `message` where nothing else was said.
    pub fn kind(&self) -> &str {
        self.event.as_deref().unwrap_or("message")
    }
}

/// Reads an event stream from chunks: [`push`](Self::push) one, then take events with [`next`](Self::next) until there
/// is none. How the stream was cut into chunks makes no difference.
///
/// An event that the stream ends in is incomplete and never comes, as the standard says.
#[derive(Debug, Default)]
#[debug("SseDecoder({} bytes pending, broken: {broken:?})", pending.len() + event_bytes)]
pub struct SseDecoder {
    limits: SseLimits,
    pending: BytesMut,
    /// So many bytes of `pending` are known to hold no line end.
    searched: usize,
    /// The last line ended with CR: an LF now belongs to it.
    after_cr: bool,
    /// The first line has been read: no byte order mark may come any more.
    has_begun: bool,
    event: SseEvent,
    has_data: bool,
    /// Bytes of data, name and id in `event`.
    event_bytes: usize,
    last_event_id: Option<String>,
    retry: Option<Duration>,
    broken: Option<SseError>,
}

impl SseDecoder {
    /// Reads a stream from its beginning.
    pub fn new(limits: &SseLimits) -> Self {
        Self {
            limits: *limits,
            ..Self::default()
        }
    }

    /// Takes the next chunk. Take the events out of it before the next one: memory is bounded by the limits and one
    /// chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        if self.broken.is_none() {
            self.pending.extend_from_slice(chunk);
        }
    }

    /// The next event that is complete; `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`SseError`] when a limit is passed; then for ever, as nothing after it can be trusted.
    #[expect(
        clippy::should_implement_trait,
        reason = "a decoder that is pushed to ends no iteration with `None`"
    )]
    pub fn next(&mut self) -> Result<Option<SseEvent>, SseError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let next = self.read();
        if let Err(error) = next {
            self.broken = Some(error);
            self.pending = BytesMut::new();
            self.event = SseEvent::default();
        }
        next
    }

    /// The id to send as `Last-Event-ID` when the stream breaks off now: that of the last event that was taken and had
    /// one. `None` also after an empty id, which takes it back.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref().filter(|id| !id.is_empty())
    }

    /// How long the server wants readers to wait before they come back, as far as it was read. Not bounded.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn read(&mut self) -> Result<Option<SseEvent>, SseError> {
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
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
            } else {
                self.field(line)?;
            }
        }
    }

    fn field(&mut self, line: &[u8]) -> Result<(), SseError> {
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
                self.grow(value.len() + usize::from(self.has_data))?;
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
                self.grow(bytes)?;
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
            // Comments begin with the colon, so their name is empty; other names are to be ignored.
            _ => {}
        }
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), SseError> {
        self.event_bytes += bytes;
        let max = self.limits.event_bytes_max;
        if self.event_bytes > max {
            Err(SseError::EventOver { max })
        } else {
            Ok(())
        }
    }

    /// Ends an event. Without a `data` line there is none, but an id counts.
    fn dispatch(&mut self) -> Option<SseEvent> {
        let mut event = std::mem::take(&mut self.event);
        self.event_bytes = 0;
        if event.id.is_some() {
            self.last_event_id.clone_from(&event.id);
        }
        event.event = event.event.filter(|kind| !kind.is_empty());
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

/// Writes an event, always with data, that reads back as one event.
///
/// CRLF, CR and LF in the data begin a new `data` line each (read back as LF: in JSON they are only white space). A
/// name or id that holds one of them, or NUL, can't be written and is left out whole.
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
