//! Delivery of one event to one receiver, with retries. [`WebhookClient`] checks whether the
//! address is allowed.

use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::{
    ClientTls, EgressError, PostOutcome, WebhookClient, WebhookClientError, WebhookClientOptions,
};
use rand::RngExt;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::sleep;
use url::Url;

use crate::inbound::options::PushOptions;
use crate::wire::TaskPushNotificationConfig;
use crate::{A2aError, Dialect};

/// Timeout for a receiver's response to one attempt.
/// At the limit: retried.
pub const PUSH_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of retries for one event.
/// At the limit: the event is dropped, with an audit entry. The delay is changed by
/// `PushOptions::retry_delay`.
pub const PUSH_RETRIES_MAX: u32 = 5;
/// Maximum delay that a receiver can request (`Retry-After`).
/// At the limit: the bound is used.
pub const PUSH_RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Header with the configuration's token, so that the receiver can recognise notifications that it
/// requested.
const TOKEN_HEADER: &str = "x-a2a-notification-token";
const VERSION_HEADER: &str = "a2a-version";

/// Result of delivering an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryOutcome {
    /// The receiver accepted the event.
    Delivered,
    /// The receiver responded with HTTP status 410: it wants no more events.
    Gone,
    /// The event was dropped after its retries, or because it can't be delivered. Contains the
    /// reason.
    Dropped(&'static str),
}

/// Reason why an attempt should be retried, and the delay that the receiver requested, if any.
type RetryReason = (Option<Duration>, &'static str);

/// Client that delivers events to receivers.
pub(super) struct PushSender {
    client: WebhookClient,
    retry_after: Duration,
}

impl PushSender {
    pub(super) fn new(options: &PushOptions) -> Result<Self, WebhookClientError> {
        let client = WebhookClient::new(&WebhookClientOptions {
            tls: ClientTls::default(),
            allowed_networks: options.allowed_networks.clone(),
            resolver: options.resolver.clone(),
            timeout: PUSH_TIMEOUT,
            retry_after_max: PUSH_RETRY_AFTER_MAX,
        })?;
        Ok(Self {
            client,
            retry_after: options.retry_delay,
        })
    }

    /// Checks that the egress rules allow a receiver's URL, and the addresses to which its host
    /// currently resolves. Fails with `InvalidParams`.
    pub(super) async fn check_receiver(&self, url: &str) -> Result<(), A2aError> {
        let judged = match Url::parse(url) {
            Ok(url) => self.client.resolve_url(&url).await,
            Err(_) => Err(EgressError::Url),
        };
        judged.map_err(|error| A2aError::invalid_params("url", &format!("is refused: {error}")))
    }

    /// Sends an event until the receiver accepts it, refuses further events, or the retries are
    /// used up.
    pub(super) async fn send(
        &self,
        config: &TaskPushNotificationConfig,
        dialect: Dialect,
        body: &str,
    ) -> DeliveryOutcome {
        let mut tries = 0;
        loop {
            let (asked, why) = match self.try_once(config, dialect, body).await {
                Ok(sent) => return sent,
                Err(again) => again,
            };
            if tries == PUSH_RETRIES_MAX {
                return DeliveryOutcome::Dropped(why);
            }
            let jitter = rand::rng().random();
            sleep(retry_delay(self.retry_after, tries, asked, jitter)).await;
            tries += 1;
        }
    }

    async fn try_once(
        &self,
        config: &TaskPushNotificationConfig,
        dialect: Dialect,
        body: &str,
    ) -> Result<DeliveryOutcome, RetryReason> {
        let Ok(url) = Url::parse(&config.url) else {
            return Ok(DeliveryOutcome::Dropped("no URL"));
        };
        let Some(headers) = push_headers(config, dialect) else {
            return Ok(DeliveryOutcome::Dropped("no header"));
        };
        classify_post(
            self.client
                .post(&url, headers, Bytes::copy_from_slice(body.as_bytes()))
                .await,
        )
    }
}

fn push_headers(config: &TaskPushNotificationConfig, dialect: Dialect) -> Option<HeaderMap> {
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

/// Classifies the outcome of one attempt to deliver. `Err` means that the attempt should be
/// retried.
fn classify_post(posted: PostOutcome) -> Result<DeliveryOutcome, RetryReason> {
    let (status, retry_after) = match posted {
        PostOutcome::Answered {
            status,
            retry_after,
        } => (status, retry_after),
        PostOutcome::NoAnswer => return Err((None, "no answer")),
        PostOutcome::NotAllowed => return Ok(DeliveryOutcome::Dropped("not allowed")),
    };
    match status.as_u16() {
        200..=299 => Ok(DeliveryOutcome::Delivered),
        410 => Ok(DeliveryOutcome::Gone),
        // Redirects aren't followed, and a retry would get the same one.
        300..=399 => Ok(DeliveryOutcome::Dropped("redirected")),
        _ => Err((retry_after, "refused")),
    }
}

/// Returns the delay before the next retry. It doubles with each retry, beginning with `first`, and
/// is at least `asked`. A random part of up to a quarter is added by `jitter` (0 to 1), so that
/// deliveries that failed together aren't retried together.
fn retry_delay(first: Duration, retries: u32, asked: Option<Duration>, jitter: f64) -> Duration {
    let own = first.saturating_mul(2_u32.saturating_pow(retries));
    own.max(asked.unwrap_or_default()) + own.mul_f64(jitter.clamp(0.0, 1.0) / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbound::options::PUSH_RETRY_DELAY_DEFAULT;

    /// Goal: each response has the right consequence. Method: a status of each kind, and no
    /// response.
    #[test]
    fn answers_are_judged() {
        let judged = |status: u16, retry_after| {
            classify_post(PostOutcome::Answered {
                status: status.try_into().unwrap(),
                retry_after,
            })
        };
        let seconds = Some(Duration::from_secs(7));
        for (status, retry_after, expected) in [
            (200, None, Ok(DeliveryOutcome::Delivered)),
            (204, None, Ok(DeliveryOutcome::Delivered)),
            (302, None, Ok(DeliveryOutcome::Dropped("redirected"))),
            (410, None, Ok(DeliveryOutcome::Gone)),
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
        assert_eq!(
            classify_post(PostOutcome::NoAnswer),
            Err((None, "no answer"))
        );
        assert_eq!(
            classify_post(PostOutcome::NotAllowed),
            Ok(DeliveryOutcome::Dropped("not allowed"))
        );
    }

    /// Goal: delays grow from the first, and a receiver can request longer ones. Method: rows.
    #[test]
    fn pauses_grow() {
        let seconds = Duration::from_secs;
        let of =
            |retries, asked, jitter| retry_delay(PUSH_RETRY_DELAY_DEFAULT, retries, asked, jitter);
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
