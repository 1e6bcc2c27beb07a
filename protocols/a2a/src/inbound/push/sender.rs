//! Posts one event to one receiver, and tries again. Where it may connect is judged by [`Egress`]: before, and again when it
//! connects, to exactly the addresses that were judged.

use std::time::{Duration, SystemTime};

use callboard_rpc::{Egress, EgressError};
use rand::Rng;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use secrecy::ExposeSecret;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::inbound::options::PushOptions;
use crate::wire::TaskPushNotificationConfig;
use crate::{A2aError, Dialect};

/// How long a receiver may take to answer one post.
pub const PUSH_TIMEOUT: Duration = Duration::from_secs(15);
/// How often an event is posted again.
pub const PUSH_RETRIES_MAX: u32 = 5;
/// How long to wait before the first time, by default. Each further wait is twice as long.
pub const PUSH_RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// Longest wait that a receiver can ask for (`Retry-After`).
pub const PUSH_RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// How long a name may take to be looked up when a configuration is made.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The receiver's own token, so that it knows its configuration again.
const TOKEN_HEADER: &str = "x-a2a-notification-token";
const VERSION_HEADER: &str = "a2a-version";

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// The receiver has it.
    Delivered,
    /// The receiver wants no more: 410.
    Gone,
    /// It was given up; why.
    Dropped(&'static str),
}

/// What became of one post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    Done(Sent),
    /// Not before this has passed, where the receiver says so.
    Again(Option<Duration>, &'static str),
}

/// Posts events.
pub(super) struct Sender {
    /// Over `https`, anywhere in public and in the networks that are allowed.
    safe: Way,
    /// Over `http`, in those networks alone, if there are any.
    plain: Option<Way>,
    retry_after: Duration,
}

struct Way {
    egress: Egress,
    client: Client,
}

impl Way {
    fn new(egress: Egress, options: &PushOptions) -> Result<Self, reqwest::Error> {
        let egress = options.allow.iter().fold(egress, |egress, network| egress.with_network(*network));
        let egress = match &options.lookup {
            Some(lookup) => egress.with_lookup(lookup.clone()),
            None => egress,
        };
        let client = egress.client_builder().redirect(Policy::none()).timeout(PUSH_TIMEOUT).build()?;
        Ok(Self { egress, client })
    }
}

impl Sender {
    pub(super) fn new(options: &PushOptions) -> Result<Self, reqwest::Error> {
        let plain = (!options.allow.is_empty()).then(|| Way::new(Egress::nowhere(), options)).transpose()?;
        Ok(Self { safe: Way::new(Egress::public(), options)?, plain, retry_after: options.retry_after })
    }

    /// Whether there is a way to a receiver: by what its URL says, and by what its name leads to now. A name that can't be
    /// looked up now is judged when it is connected to.
    pub(super) async fn check(&self, url: &str) -> Result<(), A2aError> {
        let judged = async {
            let url = Url::parse(url).map_err(|_| EgressError::Url)?;
            let way = self.way(&url)?;
            match timeout(LOOKUP_TIMEOUT, way.egress.look_up(&url)).await {
                Ok(Err(error)) if error != EgressError::Lookup => Err(error),
                _ => Ok(()),
            }
        };
        judged.await.map_err(|error: EgressError| A2aError::invalid("url", &format!("is refused: {error}")))
    }

    /// Judged at each post anew: a client asks no name service about an address.
    fn way(&self, url: &Url) -> Result<&Way, EgressError> {
        let way = match url.scheme() {
            "https" => &self.safe,
            "http" => self.plain.as_ref().ok_or(EgressError::Scheme)?,
            _ => return Err(EgressError::Scheme),
        };
        way.egress.check(url).map(|()| way)
    }

    /// Posts an event until its receiver has it, wants no more, or it is given up.
    pub(super) async fn send(&self, config: &TaskPushNotificationConfig, dialect: Dialect, body: &str) -> Sent {
        let mut tries = 0;
        loop {
            let (asked, why) = match self.try_once(config, dialect, body).await {
                Tried::Done(sent) => return sent,
                Tried::Again(asked, why) => (asked, why),
            };
            if tries == PUSH_RETRIES_MAX {
                return Sent::Dropped(why);
            }
            let jitter = rand::rng().random();
            sleep(pause(self.retry_after, tries, asked, jitter)).await;
            tries += 1;
        }
    }

    async fn try_once(&self, config: &TaskPushNotificationConfig, dialect: Dialect, body: &str) -> Tried {
        let Ok(url) = Url::parse(&config.url) else { return Tried::Done(Sent::Dropped("no URL")) };
        let Ok(way) = self.way(&url) else { return Tried::Done(Sent::Dropped("not allowed")) };
        let Some(headers) = headers(config, dialect) else { return Tried::Done(Sent::Dropped("no header")) };
        // The answer's body isn't read: nothing of it concerns us, and it may have no end.
        match way.client.post(url).headers(headers).body(body.to_owned()).send().await {
            Ok(answer) => judge(answer.status(), answer.headers(), SystemTime::now()),
            Err(error) => match EgressError::among_causes(&error) {
                None | Some(EgressError::Lookup) => Tried::Again(None, "no answer"),
                Some(_) => Tried::Done(Sent::Dropped("not allowed")),
            },
        }
    }
}

fn headers(config: &TaskPushNotificationConfig, dialect: Dialect) -> Option<HeaderMap> {
    let secret = |value: &str| {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some(value)
    };
    let content_type = if dialect == Dialect::V10 { "application/a2a+json" } else { "application/json" };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(VERSION_HEADER, HeaderValue::from_static(dialect.version()));
    if !config.token.expose_secret().is_empty() {
        headers.insert(TOKEN_HEADER, secret(config.token.expose_secret())?);
    }
    if let Some(shown) = &config.authentication {
        let value = format!("{} {}", shown.scheme, shown.credentials.expose_secret());
        headers.insert(AUTHORIZATION, secret(value.trim_end())?);
    }
    Some(headers)
}

/// What an answer means.
fn judge(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Tried {
    match status.as_u16() {
        200..=299 => Tried::Done(Sent::Delivered),
        410 => Tried::Done(Sent::Gone),
        // It would say the same again, and nobody goes where it points.
        300..=399 => Tried::Done(Sent::Dropped("redirected")),
        _ => Tried::Again(asked_pause(headers, now), "refused"),
    }
}

/// `Retry-After`: seconds, or a date.
fn asked_pause(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(asked.min(PUSH_RETRY_AFTER_MAX))
}

/// How long to wait after so many retries: twice as long each time, and up to a quarter longer, so that what failed together
/// doesn't come back together.
fn pause(first: Duration, retries: u32, asked: Option<Duration>, jitter: f64) -> Duration {
    let own = first.saturating_mul(2_u32.saturating_pow(retries));
    own.max(asked.unwrap_or_default()) + own.mul_f64(jitter.clamp(0.0, 1.0) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an answer means what it says. Method: a status of each kind, and both shapes of `Retry-After`.
    #[test]
    fn answers_are_judged() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        let judged = |status: u16, retry_after: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = retry_after {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            }
            judge(StatusCode::from_u16(status).unwrap(), &headers, now)
        };
        let seconds = |seconds| Tried::Again(Some(Duration::from_secs(seconds)), "refused");
        for (status, retry_after, expected) in [
            (200, None, Tried::Done(Sent::Delivered)),
            (204, None, Tried::Done(Sent::Delivered)),
            (302, None, Tried::Done(Sent::Dropped("redirected"))),
            (410, None, Tried::Done(Sent::Gone)),
            (404, None, Tried::Again(None, "refused")),
            (500, None, Tried::Again(None, "refused")),
            (503, Some("7"), seconds(7)),
            (429, Some("Wed, 21 Oct 2015 07:28:30 GMT"), seconds(30)),
            (429, Some("60"), seconds(60)),
            (429, Some("61"), seconds(60)),
            (429, Some("soon"), Tried::Again(None, "refused")),
        ] {
            assert_eq!(judged(status, retry_after), expected, "{status} {retry_after:?}");
        }
    }

    /// Goal: waits grow from the first, and a receiver can ask for longer ones. Method: rows.
    #[test]
    fn pauses_grow() {
        let seconds = Duration::from_secs;
        let of = |retries, asked, jitter| pause(PUSH_RETRY_AFTER_DEFAULT, retries, asked, jitter);
        let all: Vec<_> = (0..PUSH_RETRIES_MAX).map(|retries| of(retries, None, 0.0)).collect();
        assert_eq!(all, [1, 2, 4, 8, 16].map(seconds));
        assert_eq!(of(2, None, 1.0), seconds(5));
        assert_eq!((of(1, Some(seconds(30)), 0.0), of(4, Some(seconds(3)), 0.0)), (seconds(30), seconds(16)));
    }
}
