//! Rate limits of a member: messages, broadcasts and searches for duplicates.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use callboard_message::Failure;
use callboard_message::mail::RETRY_AFTER_DATA_KEY;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde_json::json;

use crate::options::MailroomOptions;

/// Rate limits of one sender: messages, broadcasts and repetitions.
pub(crate) struct MemberRateLimit {
    messages: MessageQuota,
    broadcasts: MessageQuota,
    /// Limit of repeated messages, each of which makes the mailroom search the store for the
    /// earlier message.
    repeats: DefaultDirectRateLimiter,
}

/// Rate limit of messages or of broadcasts, with the number of refunded ones, which are used up
/// first.
struct MessageQuota {
    limiter: DefaultDirectRateLimiter,
    refunded: AtomicU32,
}

impl MemberRateLimit {
    pub fn new(options: &MailroomOptions) -> Self {
        Self {
            messages: MessageQuota::of(Quota::per_second(options.messages_per_second)),
            broadcasts: MessageQuota::of(Quota::per_minute(options.broadcasts_per_minute)),
            repeats: RateLimiter::direct(Quota::per_second(options.messages_per_second)),
        }
    }

    /// Deducts one message, and also one broadcast if `is_broadcast`. If only the broadcast is
    /// rejected, the message stays deducted.
    ///
    /// # Errors
    /// `Overloaded` if a limit is exceeded, with the seconds to wait under
    /// [`RETRY_AFTER_DATA_KEY`].
    pub fn acquire(&self, is_broadcast: bool) -> Result<(), Failure> {
        // The limit that recovers soonest is checked first, so that a rejection by it doesn't use
        // up the other.
        self.messages.acquire("messages")?;
        if is_broadcast {
            self.broadcasts.acquire("broadcasts")?;
        }
        Ok(())
    }

    /// Deducts one repetition of an earlier message. Returns `false` if too many were sent; as many
    /// repetitions as messages a second are permitted.
    pub fn try_repeat(&self) -> bool {
        self.repeats.check().is_ok()
    }

    /// Refunds a message that was a repetition, and also a broadcast if `is_broadcast`. Has no
    /// effect once the limit of repetitions is exceeded.
    pub fn refund(&self, is_broadcast: bool) {
        if self.try_repeat() {
            self.messages.refunded.fetch_add(1, Relaxed);
            self.broadcasts
                .refunded
                .fetch_add(u32::from(is_broadcast), Relaxed);
        }
    }
}

impl MessageQuota {
    fn of(quota: Quota) -> Self {
        Self {
            limiter: RateLimiter::direct(quota),
            refunded: AtomicU32::new(0),
        }
    }

    fn acquire(&self, what: &str) -> Result<(), Failure> {
        if self
            .refunded
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
        Err(Failure::overloaded(why).with_data(json!({ RETRY_AFTER_DATA_KEY: seconds })))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use callboard_message::FailureKind;

    use super::*;

    /// Goal: one message over the limit is rejected, with the time to wait. Method: a burst of
    /// broadcasts, whose limit doesn't recover during a pause of the machine.
    /// Rows: P-41.
    #[test]
    fn one_too_many() {
        let two = NonZeroU32::new(2).unwrap();
        let limit = MemberRateLimit::new(&MailroomOptions {
            broadcasts_per_minute: two,
            ..MailroomOptions::default()
        });
        assert!((0..2).all(|_| limit.acquire(true).is_ok()));
        let refused = limit.acquire(true).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Overloaded);
        assert!(
            (1..=30).contains(
                &refused.data.unwrap()[RETRY_AFTER_DATA_KEY]
                    .as_u64()
                    .unwrap()
            )
        );
        limit.acquire(false).unwrap();
    }

    /// Goal: a broadcast that is rejected as a message uses up no broadcast. Method: one message an
    /// hour, used; then broadcasts are rejected as messages, and one broadcast is still left.
    #[test]
    fn refused_once() {
        let one = NonZeroU32::new(1).unwrap();
        let an_hour = || Quota::per_hour(one);
        let limit = MemberRateLimit {
            messages: MessageQuota::of(an_hour()),
            broadcasts: MessageQuota::of(an_hour()),
            repeats: RateLimiter::direct(an_hour()),
        };
        limit.acquire(false).unwrap();
        for _ in 0..3 {
            let refused = limit.acquire(true).unwrap_err();
            assert!(refused.message.contains("messages"), "{}", refused.message);
        }
        assert!(limit.broadcasts.acquire("broadcasts").is_ok());
    }

    /// Goal: refunded messages can be used again, as often as repetition is permitted. Method: one
    /// an hour of each, refunded twice.
    #[test]
    fn given_back() {
        let an_hour = || Quota::per_hour(NonZeroU32::new(1).unwrap());
        let limit = MemberRateLimit {
            messages: MessageQuota::of(an_hour()),
            broadcasts: MessageQuota::of(an_hour()),
            repeats: RateLimiter::direct(an_hour()),
        };
        for is_refused in [false, false, true] {
            assert_eq!(limit.acquire(true).is_err(), is_refused);
            limit.refund(true);
        }
    }
}
