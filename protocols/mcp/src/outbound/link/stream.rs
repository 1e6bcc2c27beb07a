//! An event stream as the messages on it, and where it can be taken up again.

use std::time::Duration;

use callboard_rpc::{Limits, SseDecoder, SseEvent, SseLimits};

use super::LinkError;
use super::http1::Response;
use crate::outbound::options::{RETRY_DEFAULT, RETRY_MAX};

/// The least wait before a stream is taken up again, whatever the server says.
const RETRY_MIN: Duration = Duration::from_millis(20);
/// What an event has beside its message: its name, its id, the ends of its lines.
const EVENT_EXTRA_BYTES: usize = 1_024;

/// Reads one response's event stream.
pub(super) struct EventStream {
    response: Response,
    decoder: SseDecoder,
    place: Place,
}

/// Where a stream broke off.
#[derive(Clone, Default)]
pub(in crate::outbound) struct Place {
    last_event_id: Option<String>,
    retry: Option<Duration>,
}

impl Place {
    /// What `Last-Event-ID` says; `None` where the stream can't be taken up again.
    pub(super) fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How long to wait before that.
    pub(super) fn retry(&self) -> Duration {
        self.retry.unwrap_or(RETRY_DEFAULT).clamp(RETRY_MIN, RETRY_MAX)
    }
}

impl EventStream {
    pub(super) fn new(response: Response, limits: &Limits, place: Place) -> Self {
        let bytes_max = limits.body_bytes_max + EVENT_EXTRA_BYTES;
        let limits = SseLimits { line_bytes_max: bytes_max, event_bytes_max: bytes_max };
        Self { response, decoder: SseDecoder::new(&limits), place }
    }

    /// The next event that says something; `None` where the stream has ended or broken.
    ///
    /// # Errors
    /// [`LinkError::TooLarge`].
    pub(super) async fn next(&mut self) -> Result<Option<SseEvent>, LinkError> {
        loop {
            let event = self.decoder.next().map_err(|_| LinkError::TooLarge)?;
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
    pub(super) fn into_place(self) -> Place {
        self.place
    }
}
