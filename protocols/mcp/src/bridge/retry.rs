//! Which calls are sent again, and when.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use callboard_message::{Answer, Failure, FailureKind, Progress, Question};
use callboard_runtime::{Backoff, Caller};
use futures::future::BoxFuture;

use crate::outbound::LinkError;

/// Most times that one call is sent again, by default.
pub const RETRIES_MAX_DEFAULT: u32 = 2;
/// The pause before a call is sent again, by default; it doubles from one time to the next, and half of it is random.
pub const RETRY_PAUSE_DEFAULT: Duration = Duration::from_millis(200);
/// The longest pause before a call is sent again.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Most calls of one server that wait to be sent again, or have been: a server that fails under its load isn't given more.
pub const RETRIES_AT_ONCE_MAX: usize = 16;

/// Whether the same again may go well.
pub(crate) trait Passing {
    /// The server is away, or has too much to do.
    fn may_pass(&self) -> bool;
}

impl Passing for Failure {
    fn may_pass(&self) -> bool {
        matches!(self.kind, FailureKind::Unavailable | FailureKind::Overloaded)
    }
}

impl Passing for LinkError {
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Broken(_) | Self::SessionLost => true,
            Self::Status(status) => matches!(status, 429 | 502 | 503),
            Self::Rpc { .. } | Self::Failed(_) => Failure::from(self.clone()).may_pass(),
            _ => false,
        }
    }
}

/// The pause before retry number `retry`, from 0.
pub(super) fn pause(first: Duration, retry: u32) -> Duration {
    Backoff { first, max: RETRY_PAUSE_MAX, jitter: 0.5 }.pause(retry)
}

/// Sees what a call's caller is asked and told, in all its attempts.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Seen>);

#[derive(Default)]
struct Seen {
    asked: AtomicBool,
    attempt: AtomicU32,
    /// The bits of the furthest progress that was told.
    furthest: AtomicU64,
}

impl Watch {
    /// `caller`, watched. Every attempt of a call must have its questions and progress go here.
    pub(crate) fn over(&self, caller: Arc<dyn Caller>) -> Arc<dyn Caller> {
        Arc::new(Watched { inner: caller, watch: self.clone(), attempt: self.0.attempt.load(Relaxed) })
    }

    /// Somebody is asked something: the call is neither sent again nor remembered.
    pub(crate) fn set_asked(&self) {
        self.0.asked.store(true, Relaxed);
    }

    /// Whether anybody was asked.
    pub(crate) fn was_asked(&self) -> bool {
        self.0.asked.load(Relaxed)
    }

    pub(super) fn begin_again(&self) {
        self.0.attempt.fetch_add(1, Relaxed);
    }

    /// Whether a report goes further than those before. In the first attempt the server's own order counts.
    fn is_new(&self, attempt: u32, done: f64) -> bool {
        let grow = |before: u64| (attempt == 0 || done > f64::from_bits(before)).then(|| done.to_bits());
        self.0.furthest.fetch_update(Relaxed, Relaxed, grow).is_ok()
    }
}

struct Watched {
    inner: Arc<dyn Caller>,
    watch: Watch,
    attempt: u32,
}

impl Caller for Watched {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn progress(&self, progress: Progress) {
        // To the caller it is one call, whose progress only grows (MCP, basic/utilities/progress).
        if self.watch.is_new(self.attempt, progress.done) {
            self.inner.progress(progress);
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.watch.set_asked();
        self.inner.ask(question)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use callboard_rpc::RpcError;

    use super::*;
    use crate::wire::code;

    /// Goal: what another attempt can't change isn't attempted. Method: an error of each kind.
    #[test]
    fn errors_that_may_pass() {
        let rpc = |error_code| LinkError::Rpc { error: RpcError::new(error_code, "m"), status: None };
        let failed = |kind| LinkError::Failed(Failure::new(kind, "m"));
        for error in [
            LinkError::Unreachable("m"),
            LinkError::Broken("m"),
            LinkError::SessionLost,
            LinkError::Status(429),
            LinkError::Status(502),
            LinkError::Status(503),
            rpc(code::OVERLOADED),
            rpc(code::UNAVAILABLE),
            failed(FailureKind::Unavailable),
        ] {
            assert!(error.may_pass(), "{error:?}");
        }
        for error in [
            LinkError::Status(400),
            LinkError::Status(413),
            LinkError::Status(500),
            LinkError::TooLarge,
            LinkError::Protocol("m".into()),
            LinkError::TimedOut(Duration::ZERO),
            rpc(-32602),
            rpc(-32603),
            failed(FailureKind::Cancelled),
        ] {
            assert!(!error.may_pass(), "{error:?}");
        }
    }

    /// Goal: pauses grow, up to the longest, and no two callers keep step. Method: many of each retry.
    #[test]
    fn pauses() {
        let first = Duration::from_millis(200);
        for (retry, most) in [(0, 200), (1, 400), (2, 800), (5, 5_000), (u32::MAX, 5_000)] {
            let most = Duration::from_millis(most);
            let some: Vec<_> = (0..100).map(|_| pause(first, retry)).collect();
            assert!(some.iter().all(|pause| (most / 2..=most).contains(pause)), "{retry}");
            assert!(some.iter().any(|pause| *pause != some[0]));
        }
    }

    #[derive(Default)]
    struct Told(Mutex<Vec<f64>>, Mutex<Vec<String>>);

    impl Caller for Told {
        fn progress(&self, progress: Progress) {
            self.0.lock().unwrap().push(progress.done);
        }

        fn elicitation_done(&self, id: &str) {
            self.1.lock().unwrap().push(id.to_owned());
        }

        fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
            Box::pin(async { Err(Failure::invalid("no")) })
        }
    }

    /// Goal: to the caller all attempts are one call. Method: progress of two attempts, and in the second a question and word
    /// that a person is done elsewhere.
    #[tokio::test]
    async fn attempts_are_one_call() {
        let (told, watch) = (Arc::new(Told::default()), Watch::default());
        let tell = |caller: &Arc<dyn Caller>, done| caller.progress(Progress { done, ..Progress::default() });
        let first = watch.over(told.clone());
        [1.0, 1.0, 2.0].into_iter().for_each(|done| tell(&first, done));
        watch.begin_again();
        let second = watch.over(told.clone());
        [1.0, 2.0, 3.0].into_iter().for_each(|done| tell(&second, done));
        assert_eq!(*told.0.lock().unwrap(), [1.0, 1.0, 2.0, 3.0]);
        assert!(!watch.was_asked());
        second.ask(Question::roots()).await.unwrap_err();
        assert!(watch.was_asked());
        second.elicitation_done("there");
        assert_eq!(*told.1.lock().unwrap(), ["there"]);
    }
}
