//! How often a member may say something.

use callboard_message::mail::RETRY_AFTER_S;
use callboard_message::{Failure, FailureKind};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde_json::json;

use super::options::MailroomOptions;

/// What one member may still say.
pub(super) struct Limit {
    messages: DefaultDirectRateLimiter,
    broadcasts: DefaultDirectRateLimiter,
}

impl Limit {
    pub(super) fn new(options: &MailroomOptions) -> Self {
        Self {
            messages: RateLimiter::direct(Quota::per_second(options.messages_a_second)),
            broadcasts: RateLimiter::direct(Quota::per_minute(options.broadcasts_a_minute)),
        }
    }

    /// One message more, to all or to a group where `is_broadcast`.
    ///
    /// # Errors
    /// `Overloaded`, with the seconds to wait under [`RETRY_AFTER_S`].
    pub(super) fn take(&self, is_broadcast: bool) -> Result<(), Failure> {
        // First what is there again soonest: whoever is refused by it loses none of the other.
        take(&self.messages, "messages")?;
        if is_broadcast {
            take(&self.broadcasts, "broadcasts")?;
        }
        Ok(())
    }
}

fn take(limiter: &DefaultDirectRateLimiter, what: &str) -> Result<(), Failure> {
    let Err(not_until) = limiter.check() else { return Ok(()) };
    let seconds = not_until.wait_time_from(DefaultClock::default().now()).as_secs_f64().ceil().max(1.0) as u64;
    let why = format!("you sent too many {what}: try again in {seconds} s");
    Err(Failure::new(FailureKind::Overloaded, why).with_data(json!({ RETRY_AFTER_S: seconds })))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    /// Goal: one message over the limit is refused, and whoever sends it is told how long to wait. Method: a burst of
    /// broadcasts, whose limit no pause of the machine fills up again.
    #[test]
    fn one_too_many() {
        let two = NonZeroU32::new(2).unwrap();
        let limit = Limit::new(&MailroomOptions { broadcasts_a_minute: two, ..MailroomOptions::default() });
        assert!((0..2).all(|_| limit.take(true).is_ok()));
        let refused = limit.take(true).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);
        assert!((1..=30).contains(&refused.data.unwrap()[RETRY_AFTER_S].as_u64().unwrap()));
        limit.take(false).unwrap();
    }

    /// Goal: a broadcast that is refused as a message uses up none of the broadcasts. Method: one message an hour, taken; then
    /// broadcasts are refused, each as a message, and there is still one.
    #[test]
    fn refused_once() {
        let one = NonZeroU32::new(1).unwrap();
        let an_hour = || RateLimiter::direct(Quota::per_hour(one));
        let limit = Limit { messages: an_hour(), broadcasts: an_hour() };
        limit.take(false).unwrap();
        for _ in 0..3 {
            let refused = limit.take(true).unwrap_err();
            assert!(refused.message.contains("messages"), "{}", refused.message);
        }
        assert!(limit.broadcasts.check().is_ok());
    }
}
