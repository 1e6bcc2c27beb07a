//! Tool calls of a bridge: result cache and retries.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use callboard_message::{Answer, Failure, FailureKind, Progress, Question, RawObject};
use callboard_runtime::{Backoff, Caller, Context, NamePatterns};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::options::BridgeToolOptions;
use super::result_cache::ResultCache;
use crate::outbound::{ToolCache, ToolHints, TransportError};

/// Sends tool calls to one upstream server, with cache and retries.
pub(crate) struct ToolCallRunner {
    retries_max: u32,
    retry_pause: Duration,
    /// Tools whose calls may be repeated although the server may have executed them.
    retry_tools: NamePatterns<()>,
    tool_cache: Arc<ToolCache>,
    results: Option<ResultCache>,
    /// Permits for concurrent retries.
    retry_permits: Semaphore,
    retried: AtomicU64,
}

impl ToolCallRunner {
    /// Creates a runner. `tool_cache` holds the tool list of the server, collected from all
    /// connections.
    pub fn new(options: &BridgeToolOptions, tool_cache: Arc<ToolCache>) -> Self {
        Self {
            retries_max: options.retries_max,
            retry_pause: options.retry_pause,
            retry_tools: options.retry_tools.iter().cloned().collect(),
            tool_cache,
            results: ResultCache::new(options),
            retry_permits: Semaphore::new(CONCURRENT_RETRIES_MAX),
            retried: AtomicU64::new(0),
        }
    }

    /// Executes `tools/call` with `params` for the call in `cx`: returns a cached result, or sends
    /// the request and retries it. The policy must have admitted the call. `send` makes one
    /// attempt, and must wrap the call's caller with [`AttemptMonitor::wrap`].
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn call_tool<Sent: Future<Output = AttemptResult>>(
        &self,
        params: &RawObject,
        cx: &Context,
        send: impl Fn(AttemptMonitor) -> Sent,
    ) -> AttemptResult {
        let watch = AttemptMonitor::default();
        let tool = params.text("name").filter(|_| is_plain_call(params));
        let Some(tool) = tool else {
            return send(watch).await;
        };
        let (hints, edition) = self.tool_cache.hints(&tool);
        let results = self.results.as_ref();
        let slot = results.and_then(|results| results.slot_for(&tool, &hints, edition, params, cx));
        if let (Some(results), Some(slot)) = (results, &slot)
            && let Some(result) = results.get(slot)
        {
            return Ok(result);
        }
        let result = self
            .call_with_retries(hints, &tool, cx, &watch, send)
            .await?;
        if let (Some(results), Some(slot)) = (results, slot)
            && !watch.was_asked()
            && self.tool_cache.hints(&tool).1 == edition
        {
            results.insert(slot, &result);
        }
        Ok(result)
    }

    async fn call_with_retries<Sent: Future<Output = AttemptResult>>(
        &self,
        hints: ToolHints,
        tool: &str,
        cx: &Context,
        watch: &AttemptMonitor,
        send: impl Fn(AttemptMonitor) -> Sent,
    ) -> AttemptResult {
        if self.retries_max == 0 {
            return send(watch.clone()).await;
        }
        let mut slot = None;
        for retry in 0..self.retries_max {
            let error = match send(watch.clone()).await {
                Err(error) if error.is_transient && !watch.was_asked() => error,
                decided => return decided,
            };
            // The tools may have been listed meanwhile.
            let is_idempotent =
                || hints.is_idempotent() || self.tool_cache.hints(tool).0.is_idempotent();
            let may_repeat = self.retry_tools.has(tool) || error.is_unsent && is_idempotent();
            let pause = backoff_pause(self.retry_pause, retry);
            let in_time = cx
                .deadline()
                .is_none_or(|deadline| Instant::now() + pause < deadline);
            slot = slot.or_else(|| self.retry_permits.try_acquire().ok());
            if !may_repeat || !in_time || slot.is_none() {
                return Err(error);
            }
            callboard_message::log::debug!(retry, "retrying a tool call");
            sleep(pause).await;
            self.retried.fetch_add(1, Relaxed);
            watch.start_attempt();
        }
        send(watch.clone()).await
    }

    /// Returns the runner's state as JSON for the admin page: retries and cache.
    pub fn observe(&self) -> serde_json::Value {
        let results = self.results.as_ref().map(ResultCache::observe);
        serde_json::json!({ "retried": self.retried.load(Relaxed), "cache": results })
    }
}

/// Returns true if `params` has no members besides `name`, `arguments` and `_meta`: the call starts
/// no task and carries no answers to questions. Other calls are neither cached nor retried.
fn is_plain_call(params: &RawObject) -> bool {
    params
        .iter()
        .all(|(name, _)| matches!(name, "name" | "arguments" | "_meta"))
}

/// Longest pause before a retry.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of calls of one server that are being retried at a time, so that an overloaded
/// server isn't loaded further.
pub const CONCURRENT_RETRIES_MAX: usize = 16;

/// Result of sending a call once.
pub(crate) type AttemptResult = Result<Box<RawValue>, AttemptError>;

/// Error of one attempt.
pub(crate) struct AttemptError {
    pub failure: Failure,
    /// True if a retry may succeed. False for a request that the bridge itself refused to send.
    pub is_transient: bool,
    /// True if the request surely wasn't sent, because no connection came about.
    pub is_unsent: bool,
}

impl From<Failure> for AttemptError {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            is_transient: false,
            is_unsent: false,
        }
    }
}

impl From<AttemptError> for Failure {
    fn from(error: AttemptError) -> Self {
        error.failure
    }
}

/// Returns true for errors after which a retry may succeed: the server is unavailable or
/// overloaded.
pub(crate) fn is_transient(error: &TransportError) -> bool {
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

/// Returns the pause before retry number `retry`, counted from 0: `first` doubled with each retry,
/// at most [`RETRY_PAUSE_MAX`]; half of it is random.
fn backoff_pause(first: Duration, retry: u32) -> Duration {
    Backoff {
        first,
        max: RETRY_PAUSE_MAX,
        jitter: 0.5,
    }
    .pause(retry)
}

/// Observes questions and progress of a call over all its attempts.
#[derive(Clone, Default)]
pub(crate) struct AttemptMonitor(Arc<AttemptState>);

#[derive(Default)]
struct AttemptState {
    asked: AtomicBool,
    attempt: AtomicU32,
    /// Highest progress reported so far, as the bits of an `f64`.
    furthest: AtomicU64,
}

impl AttemptMonitor {
    /// Wraps the call's caller so that the monitor sees questions and progress that are sent to it.
    /// Each attempt needs its own wrapper.
    pub fn wrap(&self, caller: Arc<dyn Caller>) -> Arc<dyn Caller> {
        Arc::new(MonitoredCaller {
            inner: caller,
            monitor: self.clone(),
            attempt: self.0.attempt.load(Relaxed),
        })
    }

    /// Returns true if the server has asked a question during the call. Such a call is neither
    /// retried nor cached.
    fn was_asked(&self) -> bool {
        self.0.asked.load(Relaxed)
    }

    fn start_attempt(&self) {
        self.0.attempt.fetch_add(1, Relaxed);
    }

    /// Returns true if the progress report `done` of an attempt may be passed on: always in the
    /// first attempt (0), later only if it exceeds all earlier reports.
    fn is_further_progress(&self, attempt: u32, done: f64) -> bool {
        let grow =
            |before: u64| (attempt == 0 || done > f64::from_bits(before)).then(|| done.to_bits());
        self.0.furthest.fetch_update(Relaxed, Relaxed, grow).is_ok()
    }
}

struct MonitoredCaller {
    inner: Arc<dyn Caller>,
    monitor: AttemptMonitor,
    attempt: u32,
}

impl Caller for MonitoredCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn progress(&self, progress: Progress) {
        // The caller sees one call, whose progress must increase (MCP, basic/utilities/progress).
        if self
            .monitor
            .is_further_progress(self.attempt, progress.done)
        {
            self.inner.progress(progress);
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.monitor.0.asked.store(true, Relaxed);
        self.inner.ask(question)
    }

    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        self.monitor.0.asked.store(true, Relaxed);
        self.inner.forward(method, params)
    }
}

#[cfg(test)]
mod retry_tests {
    use std::sync::Mutex;

    use callboard_rpc::RpcError;

    use super::*;
    use crate::wire::code;

    /// Goal: errors that a retry can't change aren't retried. Method: an error of each kind.
    #[test]
    fn errors_that_may_pass() {
        let rpc = |error_code| TransportError::Rpc {
            error: RpcError::new(error_code, "m"),
            status: None,
        };
        let failed = |kind| TransportError::Failed(Failure::new(kind, "m"));
        for error in [
            TransportError::Unreachable("m".into()),
            TransportError::Broken("m".into()),
            TransportError::SessionLost,
            TransportError::Status(429),
            TransportError::Status(502),
            TransportError::Status(503),
            rpc(code::OVERLOADED),
            rpc(code::UNAVAILABLE),
            failed(FailureKind::Unavailable),
        ] {
            assert!(is_transient(&error), "{error:?}");
        }
        for error in [
            TransportError::Status(400),
            TransportError::Status(413),
            TransportError::Status(500),
            TransportError::TooLarge(1),
            TransportError::Protocol("m".into()),
            TransportError::TimedOut(Duration::ZERO),
            rpc(-32602),
            rpc(-32603),
            failed(FailureKind::Cancelled),
        ] {
            assert!(!is_transient(&error), "{error:?}");
        }
    }

    /// Goal: pauses grow up to the longest, and are random. Method: many pauses of each retry.
    #[test]
    fn pauses() {
        let first = Duration::from_millis(200);
        for (retry, most) in [(0, 200), (1, 400), (2, 800), (5, 5_000), (u32::MAX, 5_000)] {
            let most = Duration::from_millis(most);
            let some: Vec<_> = (0..100).map(|_| backoff_pause(first, retry)).collect();
            assert!(
                some.iter().all(|pause| (most / 2..=most).contains(pause)),
                "{retry}"
            );
            assert!(some.iter().any(|pause| *pause != some[0]));
        }
    }

    #[derive(Default)]
    struct RecordingCaller(Mutex<Vec<f64>>, Mutex<Vec<String>>);

    impl Caller for RecordingCaller {
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

    /// Goal: all attempts are one call to the caller. Method: progress of two attempts, and in the
    /// second a question and the end of a URL elicitation.
    #[tokio::test]
    async fn attempts_are_one_call() {
        let (recorder, watch) = (
            Arc::new(RecordingCaller::default()),
            AttemptMonitor::default(),
        );
        let tell = |caller: &Arc<dyn Caller>, done| {
            caller.progress(Progress {
                done,
                ..Progress::default()
            })
        };
        let first = watch.wrap(recorder.clone());
        [1.0, 1.0, 2.0]
            .into_iter()
            .for_each(|done| tell(&first, done));
        watch.start_attempt();
        let second = watch.wrap(recorder.clone());
        [1.0, 2.0, 3.0]
            .into_iter()
            .for_each(|done| tell(&second, done));
        assert_eq!(*recorder.0.lock().unwrap(), [1.0, 1.0, 2.0, 3.0]);
        assert!(!watch.was_asked());
        second.ask(Question::roots()).await.unwrap_err();
        assert!(watch.was_asked());
        second.elicitation_done("there");
        assert_eq!(*recorder.1.lock().unwrap(), ["there"]);
    }
}
