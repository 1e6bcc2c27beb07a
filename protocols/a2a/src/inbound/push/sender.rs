//! Posts one event to one receiver, and tries again. Where it may go is judged by [`Hooks`].

use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::{EgressError, HookOptions, Hooks, Posted};
use rand::Rng;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::sleep;
use url::Url;

use crate::inbound::options::PushOptions;
use crate::wire::TaskPushNotificationConfig;
use crate::{A2aError, Dialect};

/// How long a receiver may take to answer one post.
/// At the limit: posted again.
pub const PUSH_TIMEOUT: Duration = Duration::from_secs(15);
/// How often an event is posted again.
/// At the limit: given up, on record. Changed by `PushOptions::retry_after`.
pub const PUSH_RETRIES_MAX: u32 = 5;
/// Longest wait that a receiver can ask for (`Retry-After`).
/// At the limit: that long.
pub const PUSH_RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

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

/// Why a post is to be tried again, and not before when, where the receiver says so.
type Again = (Option<Duration>, &'static str);

/// Posts events.
pub(super) struct Sender {
    hooks: Hooks,
    retry_after: Duration,
}

impl Sender {
    pub(super) fn new(options: &PushOptions) -> Result<Self, reqwest::Error> {
        let hooks = Hooks::new(&HookOptions {
            allow: options.allow.clone(),
            lookup: options.lookup.clone(),
            timeout: PUSH_TIMEOUT,
            retry_after_max: PUSH_RETRY_AFTER_MAX,
        })?;
        Ok(Self {
            hooks,
            retry_after: options.retry_after,
        })
    }

    /// Whether there is a way to a receiver: by what its URL says, and by what its name leads to now.
    pub(super) async fn check(&self, url: &str) -> Result<(), A2aError> {
        let judged = match Url::parse(url) {
            Ok(url) => self.hooks.look_up(&url).await,
            Err(_) => Err(EgressError::Url),
        };
        judged.map_err(|error| A2aError::invalid("url", &format!("is refused: {error}")))
    }

    /// Posts an event until its receiver has it, wants no more, or it is given up.
    pub(super) async fn send(
        &self,
        config: &TaskPushNotificationConfig,
        dialect: Dialect,
        body: &str,
    ) -> Sent {
        let mut tries = 0;
        loop {
            let (asked, why) = match self.try_once(config, dialect, body).await {
                Ok(sent) => return sent,
                Err(again) => again,
            };
            if tries == PUSH_RETRIES_MAX {
                return Sent::Dropped(why);
            }
            let jitter = rand::rng().random();
            sleep(pause(self.retry_after, tries, asked, jitter)).await;
            tries += 1;
        }
    }

    async fn try_once(
        &self,
        config: &TaskPushNotificationConfig,
        dialect: Dialect,
        body: &str,
    ) -> Result<Sent, Again> {
        let Ok(url) = Url::parse(&config.url) else {
            return Ok(Sent::Dropped("no URL"));
        };
        let Some(headers) = headers(config, dialect) else {
            return Ok(Sent::Dropped("no header"));
        };
        judge(
            self.hooks
                .post(&url, headers, Bytes::copy_from_slice(body.as_bytes()))
                .await,
        )
    }
}

fn headers(config: &TaskPushNotificationConfig, dialect: Dialect) -> Option<HeaderMap> {
    let secret = |value: &str| {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some(value)
    };
    let content_type = if dialect == Dialect::V10 {
        "application/a2a+json"
    } else {
        "application/json"
    };
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

/// What a post means.
fn judge(posted: Posted) -> Result<Sent, Again> {
    let (status, retry_after) = match posted {
        Posted::Answered {
            status,
            retry_after,
        } => (status, retry_after),
        Posted::Silent => return Err((None, "no answer")),
        Posted::NotAllowed => return Ok(Sent::Dropped("not allowed")),
    };
    match status.as_u16() {
        200..=299 => Ok(Sent::Delivered),
        410 => Ok(Sent::Gone),
        // It would say the same again, and nobody goes where it points.
        300..=399 => Ok(Sent::Dropped("redirected")),
        _ => Err((retry_after, "refused")),
    }
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
    use crate::inbound::options::PUSH_RETRY_AFTER_DEFAULT;

    /// Goal: an answer means what it says. Method: a status of each kind, and no answer.
    #[test]
    fn answers_are_judged() {
        let judged = |status: u16, retry_after| {
            judge(Posted::Answered {
                status: status.try_into().unwrap(),
                retry_after,
            })
        };
        let seconds = Some(Duration::from_secs(7));
        for (status, retry_after, expected) in [
            (200, None, Ok(Sent::Delivered)),
            (204, None, Ok(Sent::Delivered)),
            (302, None, Ok(Sent::Dropped("redirected"))),
            (410, None, Ok(Sent::Gone)),
            (404, None, Err((None, "refused"))),
            (500, None, Err((None, "refused"))),
            (503, seconds, Err((seconds, "refused"))),
        ] {
            assert_eq!(
                judged(status, retry_after),
                expected,
                "{status} {retry_after:?}"
            );
        }
        assert_eq!(judge(Posted::Silent), Err((None, "no answer")));
        assert_eq!(judge(Posted::NotAllowed), Ok(Sent::Dropped("not allowed")));
    }

    /// Goal: waits grow from the first, and a receiver can ask for longer ones. Method: rows.
    #[test]
    fn pauses_grow() {
        let seconds = Duration::from_secs;
        let of = |retries, asked, jitter| pause(PUSH_RETRY_AFTER_DEFAULT, retries, asked, jitter);
        let all: Vec<_> = (0..PUSH_RETRIES_MAX)
            .map(|retries| of(retries, None, 0.0))
            .collect();
        assert_eq!(all, [1, 2, 4, 8, 16].map(seconds));
        assert_eq!(of(2, None, 1.0), seconds(5));
        assert_eq!(
            (of(1, Some(seconds(30)), 0.0), of(4, Some(seconds(3)), 0.0)),
            (seconds(30), seconds(16))
        );
    }
}
