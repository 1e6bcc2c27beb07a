//! What stands between a call of a tool and its server: results that are known already, and another attempt.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callboard_message::RawObject;
use callboard_runtime::Cx;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::cache::{CACHE_BYTES_MAX_DEFAULT, CACHE_ENTRIES_MAX_DEFAULT, Results};
use super::retry::{Passing, RETRIES_AT_ONCE_MAX, RETRIES_MAX_DEFAULT, RETRY_PAUSE_DEFAULT, Watch, pause};
use crate::outbound::{Hints, ToolBook};

/// How an upstream's tools are called.
#[derive(Debug, Clone)]
pub struct ToolOptions {
    /// Most times that a call is sent again, where the server is away or has too much to do. Only of tools that say
    /// `idempotentHint` or `readOnlyHint`, within the call's deadline, and never once somebody was asked something. 0:
    /// never.
    pub retries_max: u32,
    /// The pause before the first of them.
    pub retry_pause: Duration,
    /// For how long results are kept, by tool or pattern ([`callboard_runtime::Patterns`]); zero: not at all. A tool
    /// that says `readOnlyHint` may say it itself, in seconds: `_meta["callboard/cache"]`.
    pub cache: HashMap<String, Duration>,
    /// Tools, or patterns, whose results are the same whoever asks. Those of others are kept for each principal.
    pub cache_shared: Vec<String>,
    /// Most results that are kept; 0: none.
    pub cache_entries_max: usize,
    /// Most bytes of results that are kept.
    pub cache_bytes_max: usize,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            retries_max: RETRIES_MAX_DEFAULT,
            retry_pause: RETRY_PAUSE_DEFAULT,
            cache: HashMap::new(),
            cache_shared: Vec::new(),
            cache_entries_max: CACHE_ENTRIES_MAX_DEFAULT,
            cache_bytes_max: CACHE_BYTES_MAX_DEFAULT,
        }
    }
}

/// One upstream's tools.
pub(crate) struct Tools {
    retries_max: u32,
    retry_pause: Duration,
    book: Arc<ToolBook>,
    results: Option<Results>,
    /// A place each for calls that are sent again.
    places: Semaphore,
    retried: AtomicU64,
}

impl Tools {
    /// `book` is what all connections to the server learn of its tools.
    pub(crate) fn new(options: &ToolOptions, book: Arc<ToolBook>) -> Self {
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
    pub(crate) async fn call_tool<E: Passing, Sent: Future<Output = Result<Box<RawValue>, E>>>(
        &self,
        params: &RawObject,
        cx: &Cx,
        send: impl Fn(Watch) -> Sent,
    ) -> Result<Box<RawValue>, E> {
        let watch = Watch::default();
        let tool = params.text("name").filter(|_| is_plain(params));
        let Some(tool) = tool else { return send(watch).await };
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

    async fn attempt<E: Passing, Sent: Future<Output = Result<Box<RawValue>, E>>>(
        &self,
        hints: Hints,
        tool: &str,
        cx: &Cx,
        watch: &Watch,
        send: impl Fn(Watch) -> Sent,
    ) -> Result<Box<RawValue>, E> {
        if self.retries_max == 0 {
            return send(watch.clone()).await;
        }
        let mut place = None;
        for retry in 0..self.retries_max {
            let error = match send(watch.clone()).await {
                Err(error) if error.may_pass() && !watch.was_asked() => error,
                decided => return decided,
            };
            // They may have become known by this very attempt.
            let may_repeat = hints.may_repeat() || self.book.hints(tool).0.may_repeat();
            let pause = pause(self.retry_pause, retry);
            let in_time = cx.deadline().is_none_or(|deadline| Instant::now() + pause < deadline);
            place = place.or_else(|| self.places.try_acquire().ok());
            if !may_repeat || !in_time || place.is_none() {
                return Err(error);
            }
            callboard_message::log::debug!(retry, "a tool is called again");
            sleep(pause).await;
            self.retried.fetch_add(1, Relaxed);
            watch.begin_again();
        }
        send(watch.clone()).await
    }

    /// What people see of it.
    pub(crate) fn observe(&self) -> serde_json::Value {
        let results = self.results.as_ref().map(Results::observe);
        serde_json::json!({ "retried": self.retried.load(Relaxed), "cache": results })
    }
}

/// Whether a call is a question and its answer, and no part of something longer (a task, answers to questions).
fn is_plain(params: &RawObject) -> bool {
    params.iter().all(|(name, _)| matches!(name, "name" | "arguments" | "_meta"))
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
