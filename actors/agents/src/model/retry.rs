//! When a request is sent again.

use std::time::{Duration, SystemTime};

use rand::Rng;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

use super::config::Retries;
use super::trouble::Trouble;

/// Tries, and tries again while it may help and there is time until `end`: a pause that would not end by then isn't begun.
///
/// # Errors
/// The last trouble.
pub(super) async fn with_retries<T, F>(
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
        let Some(pause) = pause(retries, tried, &trouble, rand::rng().random()) else { return Err(trouble) };
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
    match trouble.retry_after() {
        Some(pause) => (pause <= longest).then_some(pause),
        None => {
            let doubled = retries.pause_ms.saturating_mul(1_u64.checked_shl(tried).unwrap_or(u64::MAX));
            let pause = Duration::from_millis(doubled.min(retries.pause_ms_max));
            // So that those who met the limit together don't meet again.
            Some(pause.mul_f64(1.0 + chance / 2.0).min(longest))
        }
    }
}

/// How long the provider wants to be left alone (RFC 9110, section 10.2.3: seconds or a date; OpenAI's `retry-after-ms`).
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
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
    use super::*;
    use callboard_runtime::testkit;

    fn limited(retry_after: Option<Duration>) -> Trouble {
        Trouble::Status { status: 429, code: None, retry_after }
    }

    fn retries(retries_max: u32, pause_ms: u64, pause_ms_max: u64) -> Retries {
        Retries { retries_max, pause_ms, pause_ms_max }
    }

    /// Goal: pauses double up to their longest, and a provider's own word counts. Method: rows.
    #[test]
    fn pauses() {
        let retries = retries(3, 100, 350);
        let pause = |tried, trouble: &Trouble, chance| pause(&retries, tried, trouble, chance).map(|p| p.as_millis());
        assert_eq!(
            [0, 1, 2, 3].map(|tried| pause(tried, &limited(None), 0.0)),
            [Some(100), Some(200), Some(350), None]
        );
        assert_eq!(pause(0, &limited(None), 1.0), Some(150));
        assert_eq!(pause(0, &limited(Some(Duration::from_millis(350))), 1.0), Some(350));
        assert_eq!(pause(0, &limited(Some(Duration::from_millis(351))), 1.0), None, "longer than it waits");
        assert_eq!(pause(0, &Trouble::Cut, 0.0), None, "no use");
        let quota = Trouble::Status { status: 429, code: Some("insufficient_quota".to_owned()), retry_after: None };
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
                async move { if tried < 3 { Err(limited(Some(Duration::from_secs(7)))) } else { Ok(tried) } }
            });
            assert_eq!(done.await, Ok(3));
            assert_eq!(begun.elapsed(), Duration::from_secs(14));

            let failed: Result<(), _> =
                with_retries(&retries(5, 1, 60_000), end, || async { Err(limited(Some(Duration::from_secs(6)))) })
                    .await;
            assert_eq!(failed, Err(limited(Some(Duration::from_secs(6)))));
            assert_eq!(begun.elapsed(), Duration::from_secs(14), "a pause that ends at the end isn't begun");
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
        assert_eq!(read("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(read("retry-after", "Wed, 21 Oct 2015 07:27:30 GMT"), Some(Duration::ZERO));
        assert_eq!(read("retry-after", "soon"), None);
        assert_eq!(read("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
    }
}
