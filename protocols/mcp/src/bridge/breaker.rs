//! Leaves a server alone that is away: what is asked of it meanwhile fails at once.

use std::time::Duration;

use callboard_message::Failure;
use callboard_runtime::Backoff;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::outbound::TransportError;

/// Counts what went wrong in a row.
pub(crate) struct Breaker {
    failures_max: u32,
    backoff: Backoff,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    failures: u32,
    /// When the last of them was counted: what began before that met the same trouble.
    counted: Option<Instant>,
    /// How often it opened in a row.
    opened: u32,
    /// Open until then; half open afterwards, until one attempt has ended.
    open_until: Option<Instant>,
    probing: bool,
    why: String,
}

/// Leave to try. Ended by [`Pass::settle`]; dropped, it says nothing of the server.
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
    began: Instant,
    /// The one attempt on which everything hangs: it should be short.
    pub probes: bool,
}

impl Breaker {
    pub fn new(failures_max: u32, backoff: Backoff) -> Self {
        Self {
            failures_max: failures_max.max(1),
            backoff,
            state: Mutex::default(),
        }
    }

    /// Leave to try now, or why not.
    pub fn pass(&self, server: &str) -> Result<Pass<'_>, Failure> {
        let began = Instant::now();
        let mut state = self.state.lock();
        let probes = match state.open_until {
            None => false,
            Some(until) if until > began => {
                let wait = whole_seconds(until - began);
                let why = format!(
                    "{server} is away ({}); it is tried again in {wait} s",
                    state.why
                );
                return Err(Failure::unavailable(why));
            }
            Some(_) if state.probing => {
                let why = format!(
                    "{server} is away ({}); it is being tried again now",
                    state.why
                );
                return Err(Failure::unavailable(why));
            }
            Some(_) => {
                state.probing = true;
                true
            }
        };
        Ok(Pass {
            breaker: self,
            began,
            probes,
        })
    }

    /// When it is tried again; `None` while it isn't open.
    pub fn next_try(&self) -> Option<Instant> {
        self.state.lock().open_until
    }

    /// How many failures there were in a row.
    pub fn failures(&self) -> u32 {
        self.state.lock().failures
    }

    fn failed(&self, pass: &Pass<'_>, error: &TransportError) {
        let mut state = self.state.lock();
        if !pass.probes && state.counted.is_some_and(|counted| pass.began < counted) {
            return;
        }
        state.counted = Some(Instant::now());
        state.failures = state.failures.saturating_add(1);
        // Whoever doesn't even shake hands costs each caller the whole time-out.
        let hangs = matches!(error, TransportError::TimedOut(_));
        if pass.probes || hangs || state.failures >= self.failures_max {
            state.open_until = Some(Instant::now() + self.backoff.pause(state.opened));
            state.opened = state.opened.saturating_add(1);
            state.why = error.to_string();
        }
    }
}

impl Pass<'_> {
    /// Says how it went. Gives whether the server is back after it was away.
    pub fn settle<T>(self, outcome: &Result<T, TransportError>) -> bool {
        match outcome {
            Err(error) if is_away(error) => {
                self.breaker.failed(&self, error);
                false
            }
            // Of this side's own making.
            Err(TransportError::Failed(_) | TransportError::Auth(_)) => false,
            _ => {
                let mut state = self.breaker.state.lock();
                let was_open = state.open_until.is_some();
                // What began before it failed may still end well.
                if !was_open || self.probes {
                    *state = State::default();
                }
                was_open && self.probes
            }
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.probes {
            self.breaker.state.lock().probing = false;
        }
    }
}

/// Whether it says that the server isn't there, rather than what it thinks of a request.
fn is_away(error: &TransportError) -> bool {
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

    fn breaker() -> Breaker {
        Breaker::new(
            3,
            Backoff {
                first: PAUSE,
                max: 2 * PAUSE,
                jitter: 0.0,
            },
        )
    }

    fn gone() -> Result<(), TransportError> {
        Err(TransportError::Unreachable("can't connect to the server"))
    }

    async fn fail(breaker: &Breaker, times: u32) {
        for _ in 0..times {
            breaker.pass("s").unwrap().settle(&gone());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }

    /// Goal: it opens at the bound, says when it tries again, tries once, and closes. Method: paused time.
    #[tokio::test(start_paused = true)]
    async fn opens_and_closes() {
        let breaker = breaker();
        fail(&breaker, 2).await;
        assert!(breaker.next_try().is_none());
        fail(&breaker, 1).await;
        let refused = breaker.pass("files").err().unwrap();
        assert_eq!(refused.kind, FailureKind::Unavailable);
        assert_eq!(
            refused.message,
            "files is away (can't connect to the server); it is tried again in 3 s"
        );
        tokio::time::advance(PAUSE).await;
        let probe = breaker.pass("files").unwrap();
        assert!(probe.probes);
        assert!(
            breaker
                .pass("files")
                .err()
                .unwrap()
                .message
                .ends_with("it is being tried again now")
        );
        assert!(!probe.settle(&gone()));
        tokio::time::advance(PAUSE).await;
        assert!(breaker.pass("files").is_err(), "the second pause is longer");
        tokio::time::advance(PAUSE).await;
        assert!(breaker.pass("files").unwrap().settle(&Ok(())));
        assert_eq!((breaker.failures(), breaker.next_try()), (0, None));
        assert!(!breaker.pass("files").unwrap().probes);
    }

    /// Goal: one crash under many calls is one failure; one success ends the row; who is cancelled says nothing. Method:
    /// passes that overlap.
    #[tokio::test(start_paused = true)]
    async fn one_trouble_counts_once() {
        let breaker = breaker();
        let passes: Vec<_> = (0..9).map(|_| breaker.pass("s").unwrap()).collect();
        tokio::time::advance(Duration::from_millis(1)).await;
        let back = passes
            .into_iter()
            .map(|pass| pass.settle(&gone()))
            .filter(|back| *back)
            .count();
        assert_eq!(back, 0);
        assert_eq!(breaker.failures(), 1);
        drop(breaker.pass("s").unwrap());
        let own = TransportError::Failed(Failure::invalid("no"));
        breaker.pass("s").unwrap().settle(&Err::<(), _>(own));
        assert_eq!(breaker.failures(), 1);
        breaker
            .pass("s")
            .unwrap()
            .settle(&Err::<(), _>(TransportError::Status(500)));
        assert_eq!(breaker.failures(), 0);
    }

    /// Goal: a server that doesn't shake hands is left alone at once, and a probe that is given up leaves room for
    /// another. Method: a time-out; a dropped probe.
    #[tokio::test(start_paused = true)]
    async fn who_hangs_is_left_alone() {
        let breaker = breaker();
        breaker
            .pass("s")
            .unwrap()
            .settle(&Err::<(), _>(TransportError::TimedOut(PAUSE)));
        assert!(breaker.pass("s").is_err());
        tokio::time::advance(PAUSE).await;
        drop(breaker.pass("s").unwrap());
        assert!(breaker.pass("s").unwrap().probes);
    }
}
