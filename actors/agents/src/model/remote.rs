//! A model that answers over HTTP.

use std::future::ready;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use eventsource_stream::{EventStreamError, Eventsource};
use futures::{Stream, StreamExt, TryStreamExt, future};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use tokio::time::{Instant, timeout};

use super::config::{Remote, Retries, Timeouts};
use super::draft::Draft;
use super::error::ModelError;
use super::place::Place;
use super::request::Request;
use super::retry::{retry_after, with_retries};
use super::trouble::Trouble;
use super::wire::{Ask, Framing, Wire, error_code};

/// Most bytes of one request as the provider gets it.
pub const MODEL_REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes that are read of a provider's error.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// A model behind a provider's API.
#[derive(derive_more::Debug)]
// Headers hold the key.
#[debug("Provider {{ url: {:?}, model: {model:?}, .. }}", url.as_str())]
pub(super) struct Provider {
    client: Client,
    url: Url,
    /// The key is among them, marked as sensitive.
    headers: HeaderMap,
    wire: Wire,
    model: String,
    stream: bool,
    answer_bytes_max: usize,
    timeouts: Timeouts,
    retries: Retries,
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
        if config.timeouts.connect_ms == 0 || config.timeouts.silence_ms == 0 || config.timeouts.whole_ms == 0 {
            return Err(ModelError::Setting { setting: "timeouts", rule: "a time is at least a millisecond" });
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
            url: place.url,
            headers: place.headers,
            wire: place.wire,
            model: config.model.clone(),
            stream: config.stream,
            answer_bytes_max: config.limits.answer_bytes_max,
            timeouts: config.timeouts,
            retries: config.retries,
        })
    }

    /// When an answer has to be there that is asked for now.
    pub fn end(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.timeouts.whole_ms)
    }

    /// Asks until there is an answer, or no use in asking. Dropped, it closes the connection.
    pub async fn answer(&self, once: &Try<'_>, end: Instant) -> Result<Draft, Trouble> {
        let ask = Ask { model: &self.model, tokens_max: once.tokens_max, stream: self.stream };
        let body = Bytes::from(self.wire.body(once.request, ask)?);
        if body.len() > MODEL_REQUEST_BYTES_MAX {
            return Err(Trouble::Unfit("so long a conversation"));
        }
        let tries = with_retries(&self.retries, end, || self.attempt(body.clone(), once));
        let mut draft = tokio::time::timeout_at(end, tries).await.unwrap_or(Err(Trouble::TimedOut))?;
        if !self.wire.knows_stop_sequences() {
            draft.cut_before(&once.request.stop);
        }
        Ok(draft)
    }

    async fn attempt(&self, body: Bytes, once: &Try<'_>) -> Result<Draft, Trouble> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let silence = self.silence();
        let sent = async { request.send().await.map_err(|error| trouble_of(&error)) };
        let response = match silence {
            Some(silence) => timeout(silence, sent).await.map_err(|_| Trouble::Silent)??,
            None => sent.await?,
        };
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        let is_stream = self.stream && !is_json(&response);
        let mut draft = Draft::default();
        (once.pieces)(&draft);
        let bytes = bounded(response, self.answer_bytes_max);
        match (is_stream, self.wire.framing()) {
            (false, _) => self.wire.whole(&all(bytes).await?, &mut draft)?,
            (true, Framing::Events) => self.follow(events(bytes), &mut draft, once).await?,
            (true, Framing::Lines) => self.follow(lines(bytes), &mut draft, once).await?,
        }
        match draft.is_whole {
            true => Ok(draft),
            false => Err(Trouble::Cut),
        }
    }

    fn silence(&self) -> Option<Duration> {
        self.stream.then(|| Duration::from_millis(self.timeouts.silence_ms))
    }

    async fn follow(
        &self,
        pieces: impl Stream<Item = Result<String, Trouble>>,
        draft: &mut Draft,
        once: &Try<'_>,
    ) -> Result<(), Trouble> {
        let mut pieces = std::pin::pin!(pieces);
        let silence = Duration::from_millis(self.timeouts.silence_ms);
        while let Some(piece) = timeout(silence, pieces.next()).await.map_err(|_| Trouble::Silent)? {
            let is_last = self.wire.piece(&piece?, draft)?;
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
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

async fn refused(response: Response) -> Trouble {
    let (status, pause) = (response.status().as_u16(), retry_after(response.headers(), SystemTime::now()));
    // An error's body may be missing, cut or huge: the status is enough.
    let body = all(bounded(response, ERROR_BYTES_MAX)).await.unwrap_or_default();
    Trouble::Status { status, code: error_code(&body), retry_after: pause }
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
    let gather = |mut all: Vec<u8>, chunk: Bytes| {
        all.extend_from_slice(&chunk);
        ready(Ok(all))
    };
    bytes.try_fold(Vec::new(), gather).await
}

/// The data of each event.
fn events(bytes: impl Stream<Item = Result<Bytes, Trouble>>) -> impl Stream<Item = Result<String, Trouble>> {
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
fn lines(bytes: impl Stream<Item = Result<Bytes, Trouble>>) -> impl Stream<Item = Result<String, Trouble>> {
    let ended = futures::stream::once(ready(Ok(Bytes::from_static(b"\n"))));
    let mut held = Vec::new();
    let split = move |chunk: Result<Bytes, Trouble>| -> Result<Vec<String>, Trouble> {
        held.extend_from_slice(&chunk?);
        let Some(end) = held.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let rest = held.split_off(end + 1);
        let text = String::from_utf8(std::mem::replace(&mut held, rest));
        let text = text.map_err(|_| Trouble::Malformed("it isn't UTF-8"))?;
        Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
    };
    bytes.chain(ended).map(split).map_ok(|lines| futures::stream::iter(lines.into_iter().map(Ok))).try_flatten()
}

/// The headers that every request has.
pub(super) fn headers_of_all() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream, application/x-ndjson"));
    headers
}
