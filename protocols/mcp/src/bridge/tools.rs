//! What stands between a call of a tool and its server: results that are known already, and another attempt.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use callboard_message::{Answer, Failure, FailureKind, Progress, Question, RawObject};
use callboard_runtime::{Backoff, Caller, Cx};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::cache::Results;
use super::options::ToolOptions;
use crate::outbound::{Hints, ToolCache, TransportError};

/// One upstream's tools.
pub(crate) struct Tools {
    retries_max: u32,
    retry_pause: Duration,
    book: Arc<ToolCache>,
    results: Option<Results>,
    /// A place each for calls that are sent again.
    places: Semaphore,
    retried: AtomicU64,
}

impl Tools {
    /// `book` is what all connections to the server learn of its tools.
    pub fn new(options: &ToolOptions, book: Arc<ToolCache>) -> Self {
        Self {
            retries_max: options.retries_max,
            retry_pause: options.retry_pause,
            book,
            results: Results::new(options),
            places: Semaphore::new(RETRIES_AT_ONCE_MAX),
            retried: AtomicU64::new(0),
        }
    }

    /// Does `tools/call` with `params` for the call `cx`, which a policy has let pass. `send` sends it once; every
    /// question and report that comes of that must go through [`Watch::over`].
    ///
    /// # Errors
    /// Those of `send`: the last attempt's.
    pub async fn call_tool<Sent: Future<Output = Attempt>>(
        &self,
        params: &RawObject,
        cx: &Cx,
        send: impl Fn(Watch) -> Sent,
    ) -> Attempt {
        let watch = Watch::default();
        let tool = params.text("name").filter(|_| is_plain(params));
        let Some(tool) = tool else {
            return send(watch).await;
        };
        let (hints, edition) = self.book.hints(&tool);
        let results = self.results.as_ref();
        let place = results.and_then(|results| results.place(&tool, &hints, edition, params, cx));
        if let (Some(results), Some(place)) = (results, &place)
            && let Some(result) = results.get(place)
        {
            return Ok(result);
        }
        let result = self.attempt(hints, &tool, cx, &watch, send).await?;
        if let (Some(results), Some(place)) = (results, place)
            && !watch.was_asked()
            && self.book.hints(&tool).1 == edition
        {
            results.keep(place, &result);
        }
        Ok(result)
    }

    async fn attempt<Sent: Future<Output = Attempt>>(
        &self,
        hints: Hints,
        tool: &str,
        cx: &Cx,
        watch: &Watch,
        send: impl Fn(Watch) -> Sent,
    ) -> Attempt {
        if self.retries_max == 0 {
            return send(watch.clone()).await;
        }
        let mut place = None;
        for retry in 0..self.retries_max {
            let trouble = match send(watch.clone()).await {
                Err(trouble) if trouble.may_pass && !watch.was_asked() => trouble,
                decided => return decided,
            };
            // They may have become known by this very attempt.
            let may_repeat = hints.may_repeat() || self.book.hints(tool).0.may_repeat();
            let pause = pause(self.retry_pause, retry);
            let in_time = cx
                .deadline()
                .is_none_or(|deadline| Instant::now() + pause < deadline);
            place = place.or_else(|| self.places.try_acquire().ok());
            if !may_repeat || !in_time || place.is_none() {
                return Err(trouble);
            }
            callboard_message::log::debug!(retry, "a tool is called again");
            sleep(pause).await;
            self.retried.fetch_add(1, Relaxed);
            watch.begin_again();
        }
        send(watch.clone()).await
    }

    /// What people see of it.
    pub fn observe(&self) -> serde_json::Value {
        let results = self.results.as_ref().map(Results::observe);
        serde_json::json!({ "retried": self.retried.load(Relaxed), "cache": results })
    }
}

/// Whether a call is a question and its answer, and no part of something longer (a task, answers to questions).
fn is_plain(params: &RawObject) -> bool {
    params
        .iter()
        .all(|(name, _)| matches!(name, "name" | "arguments" | "_meta"))
}

/// The longest pause before a call is sent again.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Most calls of one server that wait to be sent again, or have been: a server that fails under its load isn't given more.
pub const RETRIES_AT_ONCE_MAX: usize = 16;

/// What sending a call once comes to.
pub(crate) type Attempt = Result<Box<RawValue>, Trouble>;

/// Why a request came to nothing.
pub(crate) struct Trouble {
    pub failure: Failure,
    /// The same again may go well. Not where it wasn't even sent: that was this side's decision.
    pub may_pass: bool,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            may_pass: false,
        }
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        trouble.failure
    }
}

/// Whether the same again may go well: the server is away, or has too much to do.
pub(crate) fn may_pass(error: &TransportError) -> bool {
    match error {
        TransportError::Unreachable(_)
        | TransportError::Broken(_)
        | TransportError::SessionLost => true,
        TransportError::Status(status) => matches!(status, 429 | 502 | 503),
        TransportError::Rpc { .. } | TransportError::Failed(_) => {
            matches!(
                Failure::from(error.clone()).kind,
                FailureKind::Unavailable | FailureKind::Overloaded
            )
        }
        _ => false,
    }
}

/// The pause before retry number `retry`, from 0.
fn pause(first: Duration, retry: u32) -> Duration {
    Backoff {
        first,
        max: RETRY_PAUSE_MAX,
        jitter: 0.5,
    }
    .pause(retry)
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
    pub fn over(&self, caller: Arc<dyn Caller>) -> Arc<dyn Caller> {
        Arc::new(Watched {
            inner: caller,
            watch: self.clone(),
            attempt: self.0.attempt.load(Relaxed),
        })
    }

    /// Whether anybody was asked something: then the call is neither sent again nor remembered.
    fn was_asked(&self) -> bool {
        self.0.asked.load(Relaxed)
    }

    fn begin_again(&self) {
        self.0.attempt.fetch_add(1, Relaxed);
    }

    /// Whether a report goes further than those before. In the first attempt the server's own order counts.
    fn is_new(&self, attempt: u32, done: f64) -> bool {
        let grow =
            |before: u64| (attempt == 0 || done > f64::from_bits(before)).then(|| done.to_bits());
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
        self.watch.0.asked.store(true, Relaxed);
        self.inner.ask(question)
    }
}

#[cfg(test)]
mod retry_tests {
    use std::sync::Mutex;

    use callboard_rpc::RpcError;

    use super::*;
    use crate::wire::code;

    /// Goal: what another attempt can't change isn't attempted. Method: an error of each kind.
    #[test]
    fn errors_that_may_pass() {
        let rpc = |error_code| TransportError::Rpc {
            error: RpcError::new(error_code, "m"),
            status: None,
        };
        let failed = |kind| TransportError::Failed(Failure::new(kind, "m"));
        for error in [
            TransportError::Unreachable("m"),
            TransportError::Broken("m"),
            TransportError::SessionLost,
            TransportError::Status(429),
            TransportError::Status(502),
            TransportError::Status(503),
            rpc(code::OVERLOADED),
            rpc(code::UNAVAILABLE),
            failed(FailureKind::Unavailable),
        ] {
            assert!(may_pass(&error), "{error:?}");
        }
        for error in [
            TransportError::Status(400),
            TransportError::Status(413),
            TransportError::Status(500),
            TransportError::TooLarge,
            TransportError::Protocol("m".into()),
            TransportError::TimedOut(Duration::ZERO),
            rpc(-32602),
            rpc(-32603),
            failed(FailureKind::Cancelled),
        ] {
            assert!(!may_pass(&error), "{error:?}");
        }
    }

    /// Goal: pauses grow, up to the longest, and no two callers keep step. Method: many of each retry.
    #[test]
    fn pauses() {
        let first = Duration::from_millis(200);
        for (retry, most) in [(0, 200), (1, 400), (2, 800), (5, 5_000), (u32::MAX, 5_000)] {
            let most = Duration::from_millis(most);
            let some: Vec<_> = (0..100).map(|_| pause(first, retry)).collect();
            assert!(
                some.iter().all(|pause| (most / 2..=most).contains(pause)),
                "{retry}"
            );
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
        let tell = |caller: &Arc<dyn Caller>, done| {
            caller.progress(Progress {
                done,
                ..Progress::default()
            })
        };
        let first = watch.over(told.clone());
        [1.0, 1.0, 2.0]
            .into_iter()
            .for_each(|done| tell(&first, done));
        watch.begin_again();
        let second = watch.over(told.clone());
        [1.0, 2.0, 3.0]
            .into_iter()
            .for_each(|done| tell(&second, done));
        assert_eq!(*told.0.lock().unwrap(), [1.0, 1.0, 2.0, 3.0]);
        assert!(!watch.was_asked());
        second.ask(Question::roots()).await.unwrap_err();
        assert!(watch.was_asked());
        second.elicitation_done("there");
        assert_eq!(*told.1.lock().unwrap(), ["there"]);
    }
}
