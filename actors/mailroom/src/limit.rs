//! Rate limits of a member: messages, broadcasts and looks for what was sent before.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use callboard_message::Failure;
use callboard_message::mail::RETRY_AFTER_S;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde_json::json;

use super::options::MailroomOptions;

/// Rate limits of one member.
pub(super) struct Limit {
    messages: Quantity,
    broadcasts: Quantity,
    /// Looks for what was said before: they cost a look into the store each.
    repeats: DefaultDirectRateLimiter,
}

/// Rate limit of one kind of message, with the messages that were given back.
struct Quantity {
    limiter: DefaultDirectRateLimiter,
    given_back: AtomicU32,
}

impl Limit {
    pub fn new(options: &MailroomOptions) -> Self {
        Self {
            messages: Quantity::of(Quota::per_second(options.messages_a_second)),
            broadcasts: Quantity::of(Quota::per_minute(options.broadcasts_a_minute)),
            repeats: RateLimiter::direct(Quota::per_second(options.messages_a_second)),
        }
    }

    /// One message more, to all or to a group where `is_broadcast`.
    ///
    /// # Errors
    /// `Overloaded`, with the seconds to wait under [`RETRY_AFTER_S`].
    pub fn take(&self, is_broadcast: bool) -> Result<(), Failure> {
        // First what is there again soonest: whoever is refused by it loses none of the other.
        self.messages.take("messages")?;
        if is_broadcast {
            self.broadcasts.take("broadcasts")?;
        }
        Ok(())
    }

    /// Whether it may be looked, where there is no message left, for what was said before: as often as something is said.
    pub fn may_repeat(&self) -> bool {
        self.repeats.check().is_ok()
    }

    /// What was taken was said before: it counts as a look for that, as long as there are any left.
    pub fn give_back(&self, is_broadcast: bool) {
        if self.may_repeat() {
            self.messages.given_back.fetch_add(1, Relaxed);
            self.broadcasts
                .given_back
                .fetch_add(u32::from(is_broadcast), Relaxed);
        }
    }
}

impl Quantity {
    fn of(quota: Quota) -> Self {
        Self {
            limiter: RateLimiter::direct(quota),
            given_back: AtomicU32::new(0),
        }
    }

    fn take(&self, what: &str) -> Result<(), Failure> {
        if self
            .given_back
            .fetch_update(Relaxed, Relaxed, |given| given.checked_sub(1))
            .is_ok()
        {
            return Ok(());
        }
        let Err(not_until) = self.limiter.check() else {
            return Ok(());
        };
        let seconds = not_until
            .wait_time_from(DefaultClock::default().now())
            .as_secs_f64()
            .ceil()
            .max(1.0) as u64;
        let why = format!("you sent too many {what}: try again in {seconds} s");
        Err(Failure::overloaded(why).with_data(json!({ RETRY_AFTER_S: seconds })))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use callboard_message::FailureKind;

    use super::*;

    /// Goal: one message over the limit is refused, and whoever sends it is told how long to wait. Method: a burst of
    /// broadcasts, whose limit no pause of the machine fills up again.
    #[test]
    fn one_too_many() {
        let two = NonZeroU32::new(2).unwrap();
        let limit = Limit::new(&MailroomOptions {
            broadcasts_a_minute: two,
            ..MailroomOptions::default()
        });
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
        let an_hour = || Quota::per_hour(one);
        let limit = Limit {
            messages: Quantity::of(an_hour()),
            broadcasts: Quantity::of(an_hour()),
            repeats: RateLimiter::direct(an_hour()),
        };
        limit.take(false).unwrap();
        for _ in 0..3 {
            let refused = limit.take(true).unwrap_err();
            assert!(refused.message.contains("messages"), "{}", refused.message);
        }
        assert!(limit.broadcasts.take("broadcasts").is_ok());
    }

    /// Goal: what is given back can be taken again, as often as something may be repeated. Method: one an hour of each, given
    /// back twice.
    #[test]
    fn given_back() {
        let an_hour = || Quota::per_hour(NonZeroU32::new(1).unwrap());
        let limit = Limit {
            messages: Quantity::of(an_hour()),
            broadcasts: Quantity::of(an_hour()),
            repeats: RateLimiter::direct(an_hour()),
        };
        for is_refused in [false, false, true] {
            assert_eq!(limit.take(true).is_err(), is_refused);
            limit.give_back(true);
        }
    }
}
