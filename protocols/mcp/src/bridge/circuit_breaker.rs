//! Circuit breaker: rejects requests to an unavailable server at once, until it is tried again.

use std::time::Duration;

use callboard_message::Failure;
use callboard_runtime::Backoff;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::outbound::TransportError;

/// Circuit breaker of one server. Opens after `failures_max` consecutive failures.
pub(crate) struct CircuitBreaker {
    failures_max: u32,
    backoff: Backoff,
    state: Mutex<BreakerState>,
}

#[derive(Default)]
struct BreakerState {
    failures: u32,
    /// Time of the last counted failure. Failures of attempts that began before it aren't counted,
    /// because they belong to the same outage.
    last_failure_at: Option<Instant>,
    /// Number of times the breaker has opened since it was last closed. Determines the length of
    /// the next pause.
    opened_in_a_row: u32,
    /// Time until which the breaker is open and rejects all attempts. After it, the breaker is half
    /// open and admits one probe at a time. `None` while closed.
    open_until: Option<Instant>,
    probing: bool,
    /// True while the operator has turned the server off.
    is_disabled: bool,
    why: String,
}

/// Permission to send one request to the server. [`BreakerPermit::record_outcome`] reports the
/// outcome; a permit dropped without that call counts neither as success nor as failure.
pub(crate) struct BreakerPermit<'a> {
    breaker: &'a CircuitBreaker,
    began: Instant,
    /// True if the attempt is the probe of a half-open breaker. Other attempts are rejected until
    /// the probe has ended, so it should be short.
    pub is_probe: bool,
}

impl CircuitBreaker {
    pub fn new(failures_max: u32, backoff: Backoff) -> Self {
        Self {
            failures_max: failures_max.max(1),
            backoff,
            state: Mutex::default(),
        }
    }

    /// Returns a permit for one attempt. Fails with `Unavailable` while the breaker is open, with
    /// the seconds until the next attempt in the message, or while a probe runs.
    pub fn acquire(&self, server: &str) -> Result<BreakerPermit<'_>, Failure> {
        let began = Instant::now();
        let mut state = self.state.lock();
        if state.is_disabled {
            return Err(Failure::unavailable(format!(
                "{server} is turned off by the operator of this node"
            )));
        }
        let probes = match state.open_until {
            None => false,
            Some(until) if until > began => {
                let wait = whole_seconds(until - began);
                let why = format!(
                    "{server} is unavailable ({}); next attempt in {wait} s",
                    state.why
                );
                return Err(Failure::unavailable(why));
            }
            Some(_) if state.probing => {
                let why = format!(
                    "{server} is unavailable ({}); an attempt is running",
                    state.why
                );
                return Err(Failure::unavailable(why));
            }
            Some(_) => {
                state.probing = true;
                true
            }
        };
        Ok(BreakerPermit {
            breaker: self,
            began,
            is_probe: probes,
        })
    }

    /// Returns the time from which an open breaker admits a probe; it may have passed. `None` while
    /// closed.
    pub fn next_attempt_at(&self) -> Option<Instant> {
        self.state.lock().open_until
    }

    /// Makes the breaker admit the next attempt at once, however often attempts have failed. Returns false if it was
    /// closed.
    pub fn retry_now(&self) -> bool {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.open_until = state.open_until.map(|until| until.min(now));
        state.open_until.is_some()
    }

    /// Rejects all attempts from now on, or no more.
    pub fn set_disabled(&self, is_disabled: bool) {
        self.state.lock().is_disabled = is_disabled;
    }

    /// Returns whether the operator has turned the server off.
    pub fn is_disabled(&self) -> bool {
        self.state.lock().is_disabled
    }

    pub fn consecutive_failures(&self) -> u32 {
        self.state.lock().failures
    }

    fn record_failure(&self, permit: &BreakerPermit<'_>, error: &TransportError) {
        let mut state = self.state.lock();
        if !permit.is_probe
            && state
                .last_failure_at
                .is_some_and(|counted| permit.began < counted)
        {
            return;
        }
        state.last_failure_at = Some(Instant::now());
        state.failures = state.failures.saturating_add(1);
        // Each further call to a server that doesn't complete the handshake would take the whole
        // time limit.
        let hangs = matches!(error, TransportError::TimedOut(_));
        if permit.is_probe || hangs || state.failures >= self.failures_max {
            state.open_until = Some(Instant::now() + self.backoff.pause(state.opened_in_a_row));
            state.opened_in_a_row = state.opened_in_a_row.saturating_add(1);
            state.why = error.to_string();
        }
    }
}

impl BreakerPermit<'_> {
    /// Reports the outcome of the attempt to the breaker. Returns true if the attempt was a probe
    /// whose success closed the breaker.
    pub fn record_outcome<T>(self, outcome: &Result<T, TransportError>) -> bool {
        match outcome {
            Err(error) if is_unavailable(error) => {
                self.breaker.record_failure(&self, error);
                false
            }
            // These errors arise on this side and don't show whether the server is available.
            Err(TransportError::Failed(_) | TransportError::Auth(_)) => false,
            _ => {
                let mut state = self.breaker.state.lock();
                let was_open = state.open_until.is_some();
                // An attempt that began before the outage may still succeed.
                if !was_open || self.is_probe {
                    *state = BreakerState {
                        is_disabled: state.is_disabled,
                        ..BreakerState::default()
                    };
                }
                was_open && self.is_probe
            }
        }
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.state.lock().probing = false;
        }
    }
}

/// Returns true for errors that mean that the server is unreachable: connection errors, time-outs,
/// and HTTP status 502 to 504. Returns false if the server answered with a rejection.
fn is_unavailable(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::Unreachable(_)
            | TransportError::Broken(_)
            | TransportError::TimedOut(_)
            | TransportError::Status(502..=504)
    )
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callboard_message::FailureKind;

    const PAUSE: Duration = Duration::from_millis(2_500);

    fn breaker() -> CircuitBreaker {
        CircuitBreaker::new(
            3,
            Backoff {
                first: PAUSE,
                max: 2 * PAUSE,
                jitter: 0.0,
            },
        )
    }

    fn unreachable_error() -> Result<(), TransportError> {
        Err(TransportError::Unreachable(
            "can't connect to the server".into(),
        ))
    }

    async fn fail(breaker: &CircuitBreaker, times: u32) {
        for _ in 0..times {
            breaker
                .acquire("s")
                .unwrap()
                .record_outcome(&unreachable_error());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }

    /// Goal: it opens at the limit, states the time of the next attempt, allows one probe, and
    /// closes. Method: paused time.
    #[tokio::test(start_paused = true)]
    async fn opens_and_closes() {
        let breaker = breaker();
        fail(&breaker, 2).await;
        assert!(breaker.next_attempt_at().is_none());
        fail(&breaker, 1).await;
        let refused = breaker.acquire("files").err().unwrap();
        assert_eq!(refused.kind, FailureKind::Unavailable);
        assert_eq!(
            refused.message,
            "files is unavailable (can't connect to the server); next attempt in 3 s"
        );
        tokio::time::advance(PAUSE).await;
        let probe = breaker.acquire("files").unwrap();
        assert!(probe.is_probe);
        assert!(
            breaker
                .acquire("files")
                .err()
                .unwrap()
                .message
                .ends_with("an attempt is running")
        );
        assert!(!probe.record_outcome(&unreachable_error()));
        tokio::time::advance(PAUSE).await;
        assert!(
            breaker.acquire("files").is_err(),
            "the second pause is longer"
        );
        tokio::time::advance(PAUSE).await;
        assert!(breaker.acquire("files").unwrap().record_outcome(&Ok(())));
        assert_eq!(
            (breaker.consecutive_failures(), breaker.next_attempt_at()),
            (0, None)
        );
        assert!(!breaker.acquire("files").unwrap().is_probe);
    }

    /// Goal: one crash under many calls is one failure, one success resets the count, and a
    /// cancelled call counts as nothing. Method: permits that overlap.
    #[tokio::test(start_paused = true)]
    async fn one_trouble_counts_once() {
        let breaker = breaker();
        let passes: Vec<_> = (0..9).map(|_| breaker.acquire("s").unwrap()).collect();
        tokio::time::advance(Duration::from_millis(1)).await;
        let back = passes
            .into_iter()
            .map(|permit| permit.record_outcome(&unreachable_error()))
            .filter(|back| *back)
            .count();
        assert_eq!(back, 0);
        assert_eq!(breaker.consecutive_failures(), 1);
        drop(breaker.acquire("s").unwrap());
        let own = TransportError::Failed(Failure::invalid("no"));
        breaker
            .acquire("s")
            .unwrap()
            .record_outcome(&Err::<(), _>(own));
        assert_eq!(breaker.consecutive_failures(), 1);
        breaker
            .acquire("s")
            .unwrap()
            .record_outcome(&Err::<(), _>(TransportError::Status(500)));
        assert_eq!(breaker.consecutive_failures(), 0);
    }

    /// Goal: a retry is admitted before its time, and only then; a server that is turned off gets no attempt, also after
    /// a success of one that had begun.
    #[tokio::test(start_paused = true)]
    async fn operator_retries_and_turns_off() {
        let breaker = breaker();
        assert!(!breaker.retry_now());
        fail(&breaker, 3).await;
        assert!(breaker.acquire("s").is_err());
        assert!(breaker.retry_now());
        let probe = breaker.acquire("s").unwrap();
        assert!(probe.is_probe);
        breaker.set_disabled(true);
        assert!(probe.record_outcome(&Ok(())));
        let refused = breaker.acquire("s").err().unwrap();
        assert_eq!(
            refused.message,
            "s is turned off by the operator of this node"
        );
        breaker.set_disabled(false);
        assert!(breaker.acquire("s").is_ok());
    }

    /// Goal: a server that doesn't complete the handshake opens the breaker at once, and a dropped
    /// probe makes room for another. Method: a time-out; a dropped probe.
    #[tokio::test(start_paused = true)]
    async fn who_hangs_is_left_alone() {
        let breaker = breaker();
        breaker
            .acquire("s")
            .unwrap()
            .record_outcome(&Err::<(), _>(TransportError::TimedOut(PAUSE)));
        assert!(breaker.acquire("s").is_err());
        tokio::time::advance(PAUSE).await;
        drop(breaker.acquire("s").unwrap());
        assert!(breaker.acquire("s").unwrap().is_probe);
    }
}
