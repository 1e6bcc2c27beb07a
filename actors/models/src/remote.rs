//! A model that answers over HTTP.

use std::future::ready;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use callboard_message::text::cut_bytes;
use callboard_message::{Artifact, Content};
use callboard_runtime::Cx;
use eventsource_stream::{EventStreamError, Eventsource};
use futures::{Stream, StreamExt, TryStreamExt, future};
use parking_lot::Mutex;
use rand::Rng;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, redirect};
use tokio::time::{Instant, timeout};

use super::config::{ModelError, Place, Remote, Retries};
use super::request::{Draft, Request};
use super::trouble::Trouble;
use super::wire::{Ask, Framing, error_code};

/// Most bytes of one request as the provider gets it.
pub const MODEL_REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes that are read of a provider's error.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// A model behind a provider's API.
#[derive(derive_more::Debug)]
// Headers hold the key.
#[debug("Provider {{ url: {:?}, model: {:?}, .. }}", place.url.as_str(), config.model)]
pub(super) struct Provider {
    client: Client,
    place: Place,
    /// Without the key: that is among the headers, marked as sensitive.
    config: Remote,
}

/// One try's surroundings.
pub(super) struct Try<'a> {
    pub request: &'a Request,
    pub tokens_max: u32,
    /// Told after each piece.
    pub pieces: &'a (dyn Fn(&Draft) + Sync),
}

impl Provider {
    pub fn open(config: &Remote, place: Place) -> Result<Self, ModelError> {
        if config.timeouts.connect_ms == 0
            || config.timeouts.silence_ms == 0
            || config.timeouts.whole_ms == 0
        {
            return Err(ModelError::Setting {
                setting: "timeouts",
                rule: "a time is at least a millisecond",
            });
        }
        // Both would take the key, and what is said, where nobody configured them to go.
        let client = Client::builder()
            .connect_timeout(Duration::from_millis(config.timeouts.connect_ms))
            .tcp_nodelay(true)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(ModelError::Client)?;
        Ok(Self {
            client,
            place,
            config: Remote {
                key: None,
                ..config.clone()
            },
        })
    }

    /// When an answer has to be there that is asked for now.
    pub fn end(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.config.timeouts.whole_ms)
    }

    /// Asks until there is an answer, or no use in asking. Dropped, it closes the connection.
    pub async fn answer(&self, once: &Try<'_>, end: Instant) -> Result<Draft, Trouble> {
        let ask = Ask {
            model: &self.config.model,
            tokens_max: once.tokens_max,
            stream: self.config.stream,
        };
        let body = Bytes::from(self.place.wire.body(once.request, ask)?);
        if body.len() > MODEL_REQUEST_BYTES_MAX {
            return Err(Trouble::Unfit("so long a conversation"));
        }
        let tries = with_retries(&self.config.retries, end, || {
            self.attempt(body.clone(), once)
        });
        let mut draft = tokio::time::timeout_at(end, tries)
            .await
            .unwrap_or(Err(Trouble::TimedOut))?;
        if !self.place.wire.knows_stop_sequences() {
            draft.cut_before(&once.request.stop);
        }
        Ok(draft)
    }

    async fn attempt(&self, body: Bytes, once: &Try<'_>) -> Result<Draft, Trouble> {
        let request = self
            .client
            .post(self.place.url.clone())
            .headers(self.place.headers.clone())
            .body(body);
        let sent = async { request.send().await.map_err(|error| trouble_of(&error)) };
        let response = if self.config.stream {
            timeout(self.silence(), sent)
                .await
                .unwrap_or(Err(Trouble::Silent))
        } else {
            sent.await
        }?;
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        let is_stream = self.config.stream && !is_json(&response);
        let mut draft = Draft::default();
        (once.pieces)(&draft);
        let bytes = bounded(response, self.config.limits.answer_bytes_max);
        let wire = self.place.wire;
        match (is_stream, wire.framing()) {
            (false, _) => wire.whole(&all(bytes).await?, &mut draft)?,
            (true, Framing::Events) => self.follow(events(bytes), &mut draft, once).await?,
            (true, Framing::Lines) => self.follow(lines(bytes), &mut draft, once).await?,
        }
        if draft.is_whole {
            Ok(draft)
        } else {
            Err(Trouble::Cut)
        }
    }

    fn silence(&self) -> Duration {
        Duration::from_millis(self.config.timeouts.silence_ms)
    }

    async fn follow(
        &self,
        pieces: impl Stream<Item = Result<String, Trouble>>,
        draft: &mut Draft,
        once: &Try<'_>,
    ) -> Result<(), Trouble> {
        let mut pieces = std::pin::pin!(pieces);
        while let Some(piece) = timeout(self.silence(), pieces.next())
            .await
            .map_err(|_| Trouble::Silent)?
        {
            let is_last = self.place.wire.piece(&piece?, draft)?;
            (once.pieces)(draft);
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

/// A server that doesn't stream answers in one piece.
fn is_json(response: &Response) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    kind.split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

async fn refused(response: Response) -> Trouble {
    let (status, pause) = (
        response.status().as_u16(),
        retry_after(response.headers(), SystemTime::now()),
    );
    // An error's body may be missing, cut or huge: the status is enough.
    let body = all(bounded(response, ERROR_BYTES_MAX))
        .await
        .unwrap_or_default();
    Trouble::Status {
        status,
        code: error_code(&body),
        retry_after: pause,
    }
}

/// What the HTTP client says, without the address in it.
fn trouble_of(error: &reqwest::Error) -> Trouble {
    match error {
        error if error.is_connect() => Trouble::Connect,
        error if error.is_timeout() => Trouble::TimedOut,
        _ => Trouble::Cut,
    }
}

/// The body, until it is over `bytes_max`.
fn bounded(response: Response, bytes_max: usize) -> impl Stream<Item = Result<Bytes, Trouble>> {
    let mut left = bytes_max;
    response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|_| Trouble::Cut)?;
        left = left.checked_sub(chunk.len()).ok_or(Trouble::TooLarge)?;
        Ok(chunk)
    })
}

async fn all(bytes: impl Stream<Item = Result<Bytes, Trouble>>) -> Result<Vec<u8>, Trouble> {
    bytes.map_ok(Vec::from).try_concat().await
}

/// The data of each event.
fn events(
    bytes: impl Stream<Item = Result<Bytes, Trouble>>,
) -> impl Stream<Item = Result<String, Trouble>> {
    bytes.eventsource().filter_map(|event| {
        future::ready(match event {
            Ok(event) if event.data.is_empty() => None,
            Ok(event) => Some(Ok(event.data)),
            Err(EventStreamError::Transport(trouble)) => Some(Err(trouble)),
            Err(_) => Some(Err(Trouble::Malformed("it is no event stream"))),
        })
    })
}

/// Each line that isn't empty, the last one too where nothing ends it.
fn lines(
    bytes: impl Stream<Item = Result<Bytes, Trouble>>,
) -> impl Stream<Item = Result<String, Trouble>> {
    let ended = futures::stream::once(ready(Ok(Bytes::from_static(b"\n"))));
    let mut held = Vec::new();
    let split = move |chunk: Result<Bytes, Trouble>| -> Result<Vec<String>, Trouble> {
        held.extend_from_slice(&chunk?);
        let Some(end) = held.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = held.split_off(end + 1);
        let text = String::from_utf8(std::mem::replace(&mut held, rest));
        let text = text.map_err(|_| Trouble::Malformed("it isn't UTF-8"))?;
        Ok(text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(str::to_owned)
            .collect())
    };
    bytes
        .chain(ended)
        .map(split)
        .map_ok(|lines| futures::stream::iter(lines.into_iter().map(Ok)))
        .try_flatten()
}

/// Id of the artifact that a caller with [`STREAM_KEY`](crate::STREAM_KEY) gets: the one under which a result is kept, so that
/// the whole answer comes to stand in its place.
pub const STREAM_ARTIFACT: &str = "result";
/// Longest piece, in bytes.
pub const STREAM_PIECE_BYTES_MAX: usize = 4 * 1024;
/// How often a piece is given, at most.
pub const STREAM_PIECE_EVERY: Duration = Duration::from_millis(50);

/// Gives the caller what is written so far.
pub(super) struct Pieces<'a> {
    cx: &'a Cx,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    /// Of the text, in bytes.
    bytes: usize,
    /// Whether the caller has seen any.
    any: bool,
    last: Option<Instant>,
}

impl<'a> Pieces<'a> {
    /// `None` where the caller doesn't want them.
    pub fn wanted(request: &Request, cx: &'a Cx) -> Option<Self> {
        request.stream.then(|| Self {
            cx,
            given: Mutex::default(),
        })
    }

    /// The text has come so far.
    pub fn written(&self, text: &str) {
        // White space around an answer is none of it: what is given must be its beginning.
        let text = text.trim();
        let mut given = self.given.lock();
        if text.len() < given.bytes {
            // Another try begins anew: an artifact that isn't appended stands in the place of what was there.
            self.cx
                .artifact(Artifact::new(STREAM_ARTIFACT, [Content::text("")]));
            given.bytes = 0;
        }
        let is_early = given
            .last
            .is_some_and(|last| last.elapsed() < STREAM_PIECE_EVERY);
        // The end of a text is the reply's: here it may still change.
        let new = text.get(given.bytes..).unwrap_or_default();
        let piece = cut_bytes(new, STREAM_PIECE_BYTES_MAX);
        if is_early || piece.is_empty() {
            return;
        }
        let artifact = Artifact::new(STREAM_ARTIFACT, [Content::text(piece)]);
        self.cx.artifact(if given.any {
            artifact.appended(false)
        } else {
            artifact
        });
        *given = Given {
            bytes: given.bytes + piece.len(),
            any: true,
            last: Some(Instant::now()),
        };
    }
}

/// Tries, and tries again while it may help and there is time until `end`: a pause that would not end by then isn't begun.
///
/// # Errors
/// The last trouble.
async fn with_retries<T, F>(
    retries: &Retries,
    end: Instant,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let mut tried = 0;
    loop {
        let trouble = match attempt().await {
            Ok(done) => return Ok(done),
            Err(trouble) => trouble,
        };
        let Some(pause) = pause(retries, tried, &trouble, rand::rng().random()) else {
            return Err(trouble);
        };
        if Instant::now() + pause >= end {
            return Err(trouble);
        }
        callboard_message::log::debug!(
            ?trouble,
            pause_ms = pause.as_millis() as u64,
            "a model's provider is asked again"
        );
        tokio::time::sleep(pause).await;
        tried += 1;
    }
}

/// How long to wait after so many retries; `None` where another try is no use. `chance` is from 0 to 1.
fn pause(retries: &Retries, tried: u32, trouble: &Trouble, chance: f64) -> Option<Duration> {
    if tried >= retries.retries_max || !trouble.may_pass() {
        return None;
    }
    let longest = Duration::from_millis(retries.pause_ms_max);
    if let Trouble::Status {
        retry_after: Some(pause),
        ..
    } = trouble
    {
        return (*pause <= longest).then_some(*pause);
    }
    let doubled = retries
        .pause_ms
        .saturating_mul(1_u64.checked_shl(tried).unwrap_or(u64::MAX));
    let pause = Duration::from_millis(doubled.min(retries.pause_ms_max));
    // So that those who met the limit together don't meet again.
    Some(pause.mul_f64(1.0 + chance / 2.0).min(longest))
}

/// How long the provider wants to be left alone (RFC 9110, section 10.2.3: seconds or a date; OpenAI's `retry-after-ms`).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    if let Some(millis) = text("retry-after-ms").and_then(|value| value.parse().ok()) {
        return Some(Duration::from_millis(millis));
    }
    let value = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    // A date that has passed means now.
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use callboard_runtime::testkit;

    use super::*;

    fn limited(retry_after: Option<Duration>) -> Trouble {
        Trouble::Status {
            status: 429,
            code: None,
            retry_after,
        }
    }

    fn retries(retries_max: u32, pause_ms: u64, pause_ms_max: u64) -> Retries {
        Retries {
            retries_max,
            pause_ms,
            pause_ms_max,
        }
    }

    /// Goal: pauses double up to their longest, and a provider's own word counts. Method: rows.
    #[test]
    fn pauses() {
        let retries = retries(3, 100, 350);
        let pause = |tried, trouble: &Trouble, chance| {
            pause(&retries, tried, trouble, chance).map(|p| p.as_millis())
        };
        assert_eq!(
            [0, 1, 2, 3].map(|tried| pause(tried, &limited(None), 0.0)),
            [Some(100), Some(200), Some(350), None]
        );
        assert_eq!(pause(0, &limited(None), 1.0), Some(150));
        assert_eq!(
            pause(0, &limited(Some(Duration::from_millis(350))), 1.0),
            Some(350)
        );
        assert_eq!(
            pause(0, &limited(Some(Duration::from_millis(351))), 1.0),
            None,
            "longer than it waits"
        );
        assert_eq!(pause(0, &Trouble::Cut, 0.0), None, "no use");
        let quota = Trouble::Status {
            status: 429,
            code: Some("insufficient_quota".to_owned()),
            retry_after: None,
        };
        assert_eq!(pause(0, &quota, 0.0), None, "a used-up quota stays so");
    }

    /// Goal: a limit is waited out for just as long as the provider says, and never past the end. Method: paused time.
    #[test]
    fn waits_as_told_and_no_longer() {
        testkit::paused(async |_| {
            let begun = Instant::now();
            let mut tries = 0;
            let end = begun + Duration::from_secs(20);
            let patient = retries(5, 1, 60_000);
            let done = with_retries(&patient, end, || {
                tries += 1;
                let tried = tries;
                async move {
                    if tried < 3 {
                        Err(limited(Some(Duration::from_secs(7))))
                    } else {
                        Ok(tried)
                    }
                }
            });
            assert_eq!(done.await, Ok(3));
            assert_eq!(begun.elapsed(), Duration::from_secs(14));

            let failed: Result<(), _> = with_retries(&retries(5, 1, 60_000), end, || async {
                Err(limited(Some(Duration::from_secs(6))))
            })
            .await;
            assert_eq!(failed, Err(limited(Some(Duration::from_secs(6)))));
            assert_eq!(
                begun.elapsed(),
                Duration::from_secs(14),
                "a pause that ends at the end isn't begun"
            );
        });
    }

    /// Goal: `retry-after` is read as seconds and as a date. Method: rows.
    #[test]
    fn both_shapes_of_retry_after() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        let read = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(
            read("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT"),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            read("retry-after", "Wed, 21 Oct 2015 07:27:30 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(read("retry-after", "soon"), None);
        assert_eq!(
            read("retry-after-ms", "1500"),
            Some(Duration::from_millis(1500))
        );
    }
}
