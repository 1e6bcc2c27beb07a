//! HTTP client of a model provider.

use std::error::Error;
use std::fs::File;
use std::future::ready;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use callboard_message::text::cut_bytes;
use callboard_message::{Artifact, Content};
use callboard_runtime::Context;
use eventsource_stream::{EventStreamError, Eventsource};
use futures::{Stream, StreamExt, TryStreamExt, future};
use parking_lot::Mutex;
use rand::RngExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Certificate, Client, ClientBuilder, Response, Url, redirect};
use tokio::time::{Instant, timeout};

use super::config::{ApiEndpoint, ModelError, ModelRetries, RemoteModelConfig};
use super::provider_failure::ProviderFailure;
use super::request::{AnswerDraft, ModelRequest};
use super::vector::Embedding;
use super::wire::{BodyOptions, Framing, embeddings, error_code};

/// Maximum bytes of one request to a provider. Longer ones fail as `Rejected`. Fixed.
pub const MODEL_REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum bytes read of a provider's error response. A longer one is reported by its status only.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of the file of `ca`, in bytes. A model with a larger one doesn't start. Fixed.
pub const CA_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Client of one model behind a provider's API.
#[derive(derive_more::Debug)]
// `Debug` omits the headers: they contain the API key.
#[debug("Provider {{ url: {:?}, model: {:?}, .. }}", endpoint.url.as_str(), config.model)]
pub(super) struct ProviderClient {
    client: Client,
    endpoint: ApiEndpoint,
    /// Configuration without the API key. The key is kept among the headers, marked as sensitive.
    config: RemoteModelConfig,
}

/// Parameters of one attempt.
pub(super) struct AttemptContext<'a> {
    pub request: &'a ModelRequest,
    pub tokens_max: u32,
    /// Callback that gets the answer so far, after each piece of it.
    pub on_piece: &'a (dyn Fn(&AnswerDraft) + Sync),
}

impl ProviderClient {
    pub fn open(config: &RemoteModelConfig, place: ApiEndpoint) -> Result<Self, ModelError> {
        if config.timeouts.connect_ms == 0
            || config.timeouts.silence_ms == 0
            || config.timeouts.whole_ms == 0
        {
            return Err(ModelError::InvalidSetting {
                setting: "timeouts",
                rule: "`connect_ms`, `silence_ms` and `whole_ms` must each be at least 1",
            });
        }
        // Redirects and proxies could send key and prompts to hosts that the operator didn't
        // configure.
        let client = trusting(Client::builder(), config.ca.as_deref())?
            .connect_timeout(Duration::from_millis(config.timeouts.connect_ms))
            .tcp_nodelay(true)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(ModelError::HttpClient)?;
        Ok(Self {
            client,
            endpoint: place,
            config: RemoteModelConfig {
                key: None,
                ..config.clone()
            },
        })
    }

    /// Returns the deadline of an answer that is requested now, by
    /// [`ModelTimeouts::whole_ms`](crate::ModelTimeouts::whole_ms).
    pub fn deadline_from_now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.config.timeouts.whole_ms)
    }

    /// Requests an answer, with retries until `end`. Dropping the future closes the connection.
    ///
    /// # Errors
    /// `Unsupported` for a request that the provider can't take, `RequestTooLarge` for one of more
    /// than [`MODEL_REQUEST_BYTES_MAX`] bytes, `TimedOut` if `end` passes, else the last failure.
    pub async fn answer(
        &self,
        once: &AttemptContext<'_>,
        end: Instant,
    ) -> Result<AnswerDraft, ProviderFailure> {
        let ask = BodyOptions {
            model: &self.config.model,
            tokens_max: once.tokens_max,
            stream: self.config.stream,
        };
        let body = Bytes::from(self.endpoint.wire_format.request_body(once.request, ask)?);
        if body.len() > MODEL_REQUEST_BYTES_MAX {
            return Err(ProviderFailure::RequestTooLarge {
                bytes: body.len(),
                bytes_max: MODEL_REQUEST_BYTES_MAX,
            });
        }
        let tries = with_retries(&self.config.retries, end, || {
            self.attempt(body.clone(), once)
        });
        let mut draft = tokio::time::timeout_at(end, tries)
            .await
            .unwrap_or(Err(ProviderFailure::TimedOut))?;
        if !self.endpoint.wire_format.knows_stop_sequences() {
            draft.truncate_at_stop(&once.request.stop_sequences);
        }
        Ok(draft)
    }

    /// Requests the vectors of texts, with retries until `end`. Returns them in the order of the
    /// texts, and the number of input tokens if the provider says it. Dropping the future closes the
    /// connection.
    ///
    /// # Errors
    /// `Unsupported` for a provider without embeddings, `TimedOut` if `end` passes, else the last
    /// failure.
    pub async fn embed(
        &self,
        texts: &[&str],
        end: Instant,
    ) -> Result<(Vec<Embedding>, Option<u64>), ProviderFailure> {
        let Some(url) = &self.endpoint.embeddings_url else {
            return Err(ProviderFailure::Unsupported("embeddings"));
        };
        let body = Bytes::from(embeddings::request_body(&self.config.model, texts));
        let tries = with_retries(&self.config.retries, end, || {
            self.attempt_embedding(url, body.clone(), texts.len())
        });
        tokio::time::timeout_at(end, tries)
            .await
            .unwrap_or(Err(ProviderFailure::TimedOut))
    }

    async fn attempt_embedding(
        &self,
        url: &Url,
        body: Bytes,
        count: usize,
    ) -> Result<(Vec<Embedding>, Option<u64>), ProviderFailure> {
        let headers = self.endpoint.headers.clone();
        let request = self.client.post(url.clone()).headers(headers).body(body);
        let sent = request.send().await;
        let response = sent.map_err(|error| failure_of_http(&error))?;
        if !response.status().is_success() {
            return Err(status_failure(response).await);
        }
        let bytes = limit_bytes(response, self.config.limits.answer_bytes_max);
        embeddings::read_answer(&read_all(bytes).await?, count)
    }

    async fn attempt(
        &self,
        body: Bytes,
        once: &AttemptContext<'_>,
    ) -> Result<AnswerDraft, ProviderFailure> {
        let request = self
            .client
            .post(self.endpoint.url.clone())
            .headers(self.endpoint.headers.clone())
            .body(body);
        let sent = async {
            request
                .send()
                .await
                .map_err(|error| failure_of_http(&error))
        };
        let response = if self.config.stream {
            timeout(self.idle_timeout(), sent)
                .await
                .unwrap_or(Err(ProviderFailure::IdleTimeout))
        } else {
            sent.await
        }?;
        if !response.status().is_success() {
            return Err(status_failure(response).await);
        }
        let is_stream = self.config.stream && !is_json(&response);
        let mut draft = AnswerDraft::default();
        (once.on_piece)(&draft);
        let bytes = limit_bytes(response, self.config.limits.answer_bytes_max);
        let wire = self.endpoint.wire_format;
        match (is_stream, wire.framing()) {
            (false, _) => wire.read_answer(&read_all(bytes).await?, &mut draft)?,
            (true, Framing::ServerSentEvents) => {
                self.read_stream(event_data(bytes), &mut draft, once)
                    .await?
            }
            (true, Framing::JsonLines) => {
                self.read_stream(non_empty_lines(bytes), &mut draft, once)
                    .await?
            }
        }
        if draft.is_complete {
            Ok(draft)
        } else {
            Err(ProviderFailure::Disconnected)
        }
    }

    fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeouts.silence_ms)
    }

    async fn read_stream(
        &self,
        pieces: impl Stream<Item = Result<String, ProviderFailure>>,
        draft: &mut AnswerDraft,
        once: &AttemptContext<'_>,
    ) -> Result<(), ProviderFailure> {
        let mut pieces = std::pin::pin!(pieces);
        while let Some(piece) = timeout(self.idle_timeout(), pieces.next())
            .await
            .map_err(|_| ProviderFailure::IdleTimeout)?
        {
            let is_last = self.endpoint.wire_format.read_piece(&piece?, draft)?;
            (once.on_piece)(draft);
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

/// Whether the response is plain JSON. Servers that don't support streaming send the whole answer
/// as one JSON document.
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

async fn status_failure(response: Response) -> ProviderFailure {
    let (status, pause) = (
        response.status().as_u16(),
        retry_after(response.headers(), SystemTime::now()),
    );
    // The status suffices if the body is missing, cut or too long.
    let body = read_all(limit_bytes(response, ERROR_BYTES_MAX))
        .await
        .unwrap_or_default();
    ProviderFailure::Status {
        status,
        code: error_code(&body),
        retry_after: pause,
    }
}

/// Returns the builder of a client that trusts the authorities of a PEM file in place of the public
/// ones; unchanged without a file.
fn trusting(builder: ClientBuilder, ca: Option<&Path>) -> Result<ClientBuilder, ModelError> {
    let Some(path) = ca else {
        return Ok(builder);
    };
    let wrong = |why: String| ModelError::Ca {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut pem = Vec::new();
    file.take(CA_FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut pem)
        .map_err(|error| wrong(error.to_string()))?;
    if pem.len() > CA_FILE_BYTES_MAX {
        return Err(wrong(format!("it has more than {CA_FILE_BYTES_MAX} bytes")));
    }
    let authorities =
        Certificate::from_pem_bundle(&pem).map_err(|_| wrong("it isn't valid PEM".to_owned()))?;
    if authorities.is_empty() {
        return Err(wrong("it holds no certificate in PEM".to_owned()));
    }
    let builder = builder.tls_built_in_root_certs(false);
    Ok(authorities
        .into_iter()
        .fold(builder, ClientBuilder::add_root_certificate))
}

/// Returns whether the TLS library refused the server's certificate. An [`io::Error`] isn't the
/// source of its own content, so that is searched too.
fn is_refused_certificate(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        if error.to_string().starts_with("invalid peer certificate") {
            return true;
        }
        let content = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match content {
            Some(content) => Some(content),
            None => error.source(),
        };
    }
    false
}

/// Converts an error of the HTTP client to `Certificate`, `Connect`, `TimedOut` or else
/// `Disconnected`. The URL in the error is left out.
fn failure_of_http(error: &reqwest::Error) -> ProviderFailure {
    match error {
        error if is_refused_certificate(error) => ProviderFailure::Certificate,
        error if error.is_connect() => ProviderFailure::Connect,
        error if error.is_timeout() => ProviderFailure::TimedOut,
        _ => ProviderFailure::Disconnected,
    }
}

/// Streams the body, and fails with `TooLarge` beyond `bytes_max` bytes.
fn limit_bytes(
    response: Response,
    bytes_max: usize,
) -> impl Stream<Item = Result<Bytes, ProviderFailure>> {
    let mut left = bytes_max;
    response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|_| ProviderFailure::Disconnected)?;
        left = left
            .checked_sub(chunk.len())
            .ok_or(ProviderFailure::TooLarge)?;
        Ok(chunk)
    })
}

async fn read_all(
    bytes: impl Stream<Item = Result<Bytes, ProviderFailure>>,
) -> Result<Vec<u8>, ProviderFailure> {
    bytes.map_ok(Vec::from).try_concat().await
}

/// Extracts the data of each server-sent event from a stream of bytes. Events without data are left
/// out.
///
/// # Errors
/// `Malformed` if it is no event stream; failures of the stream.
fn event_data(
    bytes: impl Stream<Item = Result<Bytes, ProviderFailure>>,
) -> impl Stream<Item = Result<String, ProviderFailure>> {
    bytes.eventsource().filter_map(|event| {
        future::ready(match event {
            Ok(event) if event.data.is_empty() => None,
            Ok(event) => Some(Ok(event.data)),
            Err(EventStreamError::Transport(trouble)) => Some(Err(trouble)),
            Err(_) => Some(Err(ProviderFailure::Malformed(
                "it is no event stream (check `url`)",
            ))),
        })
    })
}

/// Splits a stream of bytes into its non-empty lines, including an unterminated last one.
///
/// # Errors
/// `Malformed` if a line isn't UTF-8; failures of the stream.
fn non_empty_lines(
    bytes: impl Stream<Item = Result<Bytes, ProviderFailure>>,
) -> impl Stream<Item = Result<String, ProviderFailure>> {
    let ended = futures::stream::once(ready(Ok(Bytes::from_static(b"\n"))));
    let mut held = Vec::new();
    let split =
        move |chunk: Result<Bytes, ProviderFailure>| -> Result<Vec<String>, ProviderFailure> {
            held.extend_from_slice(&chunk?);
            let Some(end) = held.iter().rposition(|byte| *byte == b'\n') else {
                return Ok(Vec::new());
            };
            let rest = held.split_off(end + 1);
            let text = String::from_utf8(std::mem::replace(&mut held, rest));
            let text = text.map_err(|_| ProviderFailure::Malformed("it isn't UTF-8"))?;
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

/// Id of the artifact that streams the answer to a caller with [`STREAM_KEY`](crate::STREAM_KEY).
/// It is the id under which a result is stored, so that the final answer replaces it.
pub const STREAM_ARTIFACT: &str = "result";
/// Maximum bytes of one streamed piece. Longer text follows in further pieces. Fixed.
pub const STREAM_PIECE_BYTES_MAX: usize = 4 * 1024;
/// Minimum interval between two streamed pieces. Fixed.
pub const STREAM_PIECE_INTERVAL: Duration = Duration::from_millis(50);

/// Stream of the answer's text to the caller.
pub(super) struct AnswerStreamer<'a> {
    cx: &'a Context,
    progress: Mutex<StreamProgress>,
}

#[derive(Default)]
struct StreamProgress {
    /// Bytes of the text sent so far.
    bytes: usize,
    /// Whether any piece of the answer was sent.
    any: bool,
    last: Option<Instant>,
}

impl<'a> AnswerStreamer<'a> {
    /// Creates a streamer if the caller requested one with [`STREAM_KEY`](crate::STREAM_KEY); else
    /// `None`.
    pub fn if_requested(request: &ModelRequest, cx: &'a Context) -> Option<Self> {
        request.stream.then(|| Self {
            cx,
            progress: Mutex::default(),
        })
    }

    /// Sends the unsent beginning of the answer so far, `text`, as an artifact piece: at most one
    /// piece per [`STREAM_PIECE_INTERVAL`], of up to [`STREAM_PIECE_BYTES_MAX`] bytes. The rest is
    /// sent by later calls or comes with the final reply. A text shorter than the one sent restarts
    /// the artifact.
    pub fn send_new_text(&self, text: &str) {
        // The final answer is trimmed, and the streamed text must be its beginning.
        let text = text.trim();
        let mut given = self.progress.lock();
        if text.len() < given.bytes {
            // A retry starts anew: an artifact that isn't appended replaces the earlier text.
            self.cx
                .artifact(Artifact::new(STREAM_ARTIFACT, [Content::text("")]));
            given.bytes = 0;
        }
        let is_early = given
            .last
            .is_some_and(|last| last.elapsed() < STREAM_PIECE_INTERVAL);
        // The remainder stays for the final reply, because the end of the text may still change.
        let new = text.get(given.bytes..).unwrap_or_default();
        let piece = cut_bytes(new, STREAM_PIECE_BYTES_MAX);
        if is_early || piece.is_empty() {
            return;
        }
        let artifact = Artifact::new(STREAM_ARTIFACT, [Content::text(piece)]);
        self.cx.artifact(if given.any {
            artifact.appending(false)
        } else {
            artifact
        });
        *given = StreamProgress {
            bytes: given.bytes + piece.len(),
            any: true,
            last: Some(Instant::now()),
        };
    }
}

/// Repeats an attempt after transient failures, until `end`. A pause that would exceed `end` isn't
/// begun.
///
/// # Errors
/// The last failure.
async fn with_retries<T, F>(
    retries: &ModelRetries,
    end: Instant,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ProviderFailure>
where
    F: Future<Output = Result<T, ProviderFailure>>,
{
    let mut tried = 0;
    loop {
        let trouble = match attempt().await {
            Ok(done) => return Ok(done),
            Err(trouble) => trouble,
        };
        let Some(pause) = retry_delay(retries, tried, &trouble, rand::rng().random()) else {
            return Err(trouble);
        };
        if Instant::now() + pause >= end {
            return Err(trouble);
        }
        callboard_message::log::debug!(
            ?trouble,
            pause_ms = pause.as_millis() as u64,
            "retrying a model request"
        );
        tokio::time::sleep(pause).await;
        tried += 1;
    }
}

/// Returns the pause before the next attempt, after `tried` retries; `None` if another attempt is
/// useless: the retries are used up, the failure isn't transient, or the provider asks for too long
/// a pause. `chance` is a random number from 0 to 1.
fn retry_delay(
    retries: &ModelRetries,
    tried: u32,
    trouble: &ProviderFailure,
    chance: f64,
) -> Option<Duration> {
    if tried >= retries.retries_max || !trouble.is_transient() {
        return None;
    }
    let longest = Duration::from_millis(retries.pause_ms_max);
    if let ProviderFailure::Status {
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
    // Jitter keeps clients that hit the limit together from retrying together.
    Some(pause.mul_f64(1.0 + chance / 2.0).min(longest))
}

/// Returns the pause requested by the provider: `retry-after` as seconds or a date (RFC 9110,
/// section 10.2.3), or OpenAI's `retry-after-ms`. It is zero for a date before `now`, and `None`
/// without a valid header.
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
    // A date in the past means no pause.
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use callboard_runtime::testkit;

    use super::*;

    fn limited(retry_after: Option<Duration>) -> ProviderFailure {
        ProviderFailure::Status {
            status: 429,
            code: None,
            retry_after,
        }
    }

    fn retries(retries_max: u32, pause_ms: u64, pause_ms_max: u64) -> ModelRetries {
        ModelRetries {
            retries_max,
            pause_ms,
            pause_ms_max,
        }
    }

    /// Goal: pauses double up to the maximum, and the provider's own pause takes precedence.
    /// Method: rows.
    #[test]
    fn pauses() {
        let retries = retries(3, 100, 350);
        let pause = |tried, trouble: &ProviderFailure, chance| {
            retry_delay(&retries, tried, trouble, chance).map(|p| p.as_millis())
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
        assert_eq!(
            pause(0, &ProviderFailure::Disconnected, 0.0),
            None,
            "no use"
        );
        let quota = ProviderFailure::Status {
            status: 429,
            code: Some("insufficient_quota".to_owned()),
            retry_after: None,
        };
        assert_eq!(pause(0, &quota, 0.0), None, "a used-up quota stays so");
    }

    /// Goal: a retry waits as long as the provider demands, and never beyond the end. Method:
    /// paused time.
    #[test]
    fn waits_as_told_and_no_longer() {
        testkit::run_with_paused_time(async |_| {
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
