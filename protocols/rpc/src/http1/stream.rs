//! An event stream as the messages on it, and where it can be taken up again.

use std::time::Duration;

use super::Response;
use crate::{SseDecoder, SseError, SseEvent, SseLimits};

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
        self.retry.unwrap_or(RETRY_DEFAULT).clamp(RETRY_MIN, RETRY_MAX)
    }
}

impl EventStream {
    /// Reads events whose messages have at most `message_bytes_max` bytes. `place`: where an earlier stream broke off.
    pub fn new(response: Response, message_bytes_max: usize, place: Place) -> Self {
        let bytes_max = message_bytes_max.saturating_add(EVENT_EXTRA_BYTES);
        let limits = SseLimits { line_bytes_max: bytes_max, event_bytes_max: bytes_max };
        Self { response, decoder: SseDecoder::new(&limits), place }
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
