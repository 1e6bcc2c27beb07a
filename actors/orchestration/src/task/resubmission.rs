//! Detection of requests that a user sends again with more detail, because the first answer missed
//! the point. Their share of all requests measures the clarifying questions (NP1).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use callboard_message::text::{cut_bytes, folded_words};
use quick_cache::sync::Cache;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::request::CONVERSATIONS_MAX;

/// Maximum time between a request and its repetition with more detail.
const RESUBMIT_WINDOW: Duration = Duration::from_secs(5 * 60);
/// Minimum share of the earlier request's words, 0 to 1, that its repetition contains.
const WORDS_SHARED_MIN: f64 = 0.8;
/// Maximum bytes of a request that are compared with the next one. The rest is ignored.
const COMPARED_BYTES_MAX: usize = 4 * 1024;

/// Counters of requests, and the latest request of each conversation.
pub(super) struct ResubmissionCounter {
    latest: Cache<(String, String), LatestRequest>,
    requests: AtomicU64,
    resubmitted: AtomicU64,
}

#[derive(Clone)]
struct LatestRequest {
    /// Folded words of the first [`COMPARED_BYTES_MAX`] bytes.
    words: HashSet<String>,
    at: Instant,
}

impl Default for ResubmissionCounter {
    fn default() -> Self {
        Self {
            latest: Cache::new(CONVERSATIONS_MAX),
            requests: AtomicU64::new(0),
            resubmitted: AtomicU64::new(0),
        }
    }
}

impl ResubmissionCounter {
    /// Counts a request of `owner` in the conversation `context`; an empty one stands for all
    /// requests without a conversation.
    pub fn count(&self, owner: &str, context: &str, request: &str) {
        self.requests.fetch_add(1, Relaxed);
        let words = request_words(request);
        let key = (owner.to_owned(), context.to_owned());
        let at = Instant::now();
        let is_resubmitted = self.latest.get(&key).is_some_and(|before| {
            at.duration_since(before.at) <= RESUBMIT_WINDOW && adds_detail(&before.words, &words)
        });
        if is_resubmitted {
            self.resubmitted.fetch_add(1, Relaxed);
        }
        self.latest.insert(key, LatestRequest { words, at });
    }

    /// Returns the numbers of requests (`received`) and of those that repeated an earlier one with
    /// more detail (`resubmitted`), as a JSON object.
    pub fn observe(&self) -> Value {
        json!({
            "received": self.requests.load(Relaxed),
            "resubmitted": self.resubmitted.load(Relaxed),
        })
    }
}

fn request_words(request: &str) -> HashSet<String> {
    let compared = cut_bytes(request, COMPARED_BYTES_MAX);
    folded_words(compared).into_iter().collect()
}

/// Returns whether a request with the words `now` has more words than an earlier one with the words
/// `before`, and at least the share [`WORDS_SHARED_MIN`] of the earlier words.
fn adds_detail(before: &HashSet<String>, now: &HashSet<String>) -> bool {
    let shared = before.intersection(now).count();
    !before.is_empty()
        && now.len() > before.len()
        && shared as f64 >= WORDS_SHARED_MIN * before.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a repetition with more detail is told from other requests. Method: rows of pairs.
    #[test]
    fn detail() {
        for (before, now, expect) in [
            ("the weather", "the weather in Rome", true),
            (
                "What's the weather?",
                "the weather: what's it in Rome?",
                true,
            ),
            ("a b c d e", "a b c d x y", true),
            ("a b c d", "a b c x y", false),
            ("the weather", "the weather", false),
            ("the weather", "The Weather!", false),
            ("the weather in Rome", "the weather", false),
            ("the weather", "and tomorrow?", false),
            ("", "the weather", false),
        ] {
            let is_repetition = adds_detail(&request_words(before), &request_words(now));
            assert_eq!(is_repetition, expect, "{before} / {now}");
        }
    }

    /// Goal: only the same sender's requests in one conversation count, within the time limit, and
    /// the number of conversations is bounded. Method: each limit and one more, in paused time.
    #[tokio::test(start_paused = true)]
    async fn bounded() {
        let counter = ResubmissionCounter::default();
        let resubmitted = || counter.observe()["resubmitted"].as_u64().unwrap();
        counter.count("ann", "c", "the weather");
        counter.count("bob", "c", "the weather in Rome");
        counter.count("ann", "other", "the weather in Rome");
        assert_eq!(resubmitted(), 0);
        tokio::time::advance(RESUBMIT_WINDOW).await;
        counter.count("ann", "c", "the weather in Rome");
        assert_eq!(resubmitted(), 1);
        tokio::time::advance(RESUBMIT_WINDOW + Duration::from_millis(1)).await;
        counter.count("ann", "c", "the weather in Rome today");
        assert_eq!(resubmitted(), 1);

        // Of a long request, the beginning is compared.
        let long: String = (0..COMPARED_BYTES_MAX / 5)
            .map(|nth| format!("{nth:04} "))
            .collect();
        counter.count("ann", "long", &format!("{long}one"));
        counter.count("ann", "long", &format!("{long}one two"));
        assert_eq!(resubmitted(), 1);

        for nth in 0..=CONVERSATIONS_MAX {
            counter.count("ann", &nth.to_string(), "x");
        }
        assert!(counter.latest.len() <= CONVERSATIONS_MAX);
    }
}
