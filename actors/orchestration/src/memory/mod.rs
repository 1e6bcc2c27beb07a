//! Log of requests that an agent delegated to others, with the answers. Incoming requests are never
//! logged here.
//!
//! The log is bounded by count, age and size and lives in the key-value store ([`KvStore`], space
//! `memory/AGENT`). Nothing is stored for clinical data.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::text::cut_bytes;
use callboard_message::{DataClass, Failure, RawObject, TaskState};
use callboard_runtime::{KvEntry, KvError, KvStore};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Maximum number of logged requests. The oldest are removed first. Fixed.
pub const MEMORY_REQUESTS_MAX: usize = 100;
/// Maximum age of a logged request. Older ones are removed. Fixed.
pub const MEMORY_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Maximum bytes stored of a request, and of an answer. The rest is cut. Fixed.
pub const MEMORY_TEXT_BYTES_MAX: usize = 4 * 1024;
/// Maximum bytes of a task id in the key of a log entry. A longer one is cut there; the entry
/// itself holds the whole id.
const KEY_ID_BYTES_MAX: usize = 200;
/// Mark appended to a cut text.
const ELLIPSIS: &str = "…";
/// Maximum log entries read from the store at once. It exceeds [`MEMORY_REQUESTS_MAX`], because
/// several requests may be added at the same time.
const NOTES_PER_READ_MAX: usize = 2 * MEMORY_REQUESTS_MAX;

/// Delegated request with its state and answer.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
// `Debug` omits texts: they may contain user data.
#[debug("Outgoing({} to {}, {:?})", task, to, state)]
pub struct DelegatedRequest {
    /// Task id at the other agent. Until the other agent's id is known, this orchestrator's own id
    /// for the request.
    pub task: String,
    /// Id of the agent that was asked.
    pub to: String,
    /// Text of the request.
    pub request: String,
    /// Text of the answer, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Last known state of the task.
    pub state: TaskState,
    /// Send time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Log of one agent's delegated requests. Clones share the log.
#[derive(derive_more::Debug, Clone)]
#[debug("Memory {{ space: {space:?}, keeps: {keeps:?}, .. }}")]
pub struct DelegatedRequestLog {
    notes: Arc<dyn KvStore>,
    space: Arc<str>,
    keeps: bool,
    /// Lock that serializes changes, so that each change sees the result of the previous one.
    write_lock: Arc<Mutex<()>>,
}

impl DelegatedRequestLog {
    /// Creates the log of the agent `agent`. With data of the class `Clinical`, nothing is stored.
    pub fn new(notes: Arc<dyn KvStore>, agent: &str, class: DataClass) -> Self {
        let keeps = class < DataClass::Clinical;
        Self {
            notes,
            space: format!("memory/{agent}").into(),
            keeps,
            write_lock: Arc::default(),
        }
    }

    /// Stores a request and removes entries beyond the limits of count and age.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn remember(&self, outgoing: DelegatedRequest) -> Result<(), Failure> {
        if !self.keeps {
            return Ok(());
        }
        let _turn = self.write_lock.lock().await;
        self.put(&outgoing).await?;
        let there = self.load().await?;
        let surplus = there.len().saturating_sub(MEMORY_REQUESTS_MAX);
        for (nth, (key, entry)) in there.iter().enumerate() {
            if nth < surplus || is_too_old(entry.at_ms) {
                self.notes.remove(&self.space, key).await?;
            }
        }
        Ok(())
    }

    /// Updates the state of a delegated task, and its answer if `answer` is given. Does nothing for
    /// an unknown task.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn update(
        &self,
        task: &str,
        state: TaskState,
        answer: Option<String>,
    ) -> Result<(), Failure> {
        let _turn = self.write_lock.lock().await;
        let Some(before) = self.get(task).await? else {
            return Ok(());
        };
        let answer = answer.or(before.answer);
        self.put(&DelegatedRequest {
            state,
            answer,
            ..before
        })
        .await
    }

    /// Replaces the entry of the task `before` with `outgoing`, keeping its send time. Adds
    /// `outgoing` if there is no such entry. Used once a task's id at the other agent is known.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn replace(&self, before: &str, outgoing: DelegatedRequest) -> Result<(), Failure> {
        if !self.keeps {
            return Ok(());
        }
        let turn = self.write_lock.lock().await;
        let there = self
            .load()
            .await?
            .into_iter()
            .rev()
            .find(|(_, entry)| entry.task == before);
        match there {
            Some((key, entry)) => {
                self.put_under(
                    &key,
                    &DelegatedRequest {
                        at_ms: entry.at_ms,
                        ..outgoing
                    },
                )
                .await
            }
            None => {
                drop(turn);
                self.remember(outgoing).await
            }
        }
    }

    /// Returns all logged requests within the limits, oldest first.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn list(&self) -> Result<Vec<DelegatedRequest>, Failure> {
        let there = self.load().await?.into_iter().map(|(_, entry)| entry);
        let mut fresh: Vec<_> = there.filter(|entry| !is_too_old(entry.at_ms)).collect();
        fresh.drain(..fresh.len().saturating_sub(MEMORY_REQUESTS_MAX));
        Ok(fresh)
    }

    /// Returns the latest request with this task id; `None` if there is none within the limits.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn get(&self, task: &str) -> Result<Option<DelegatedRequest>, Failure> {
        Ok(self
            .list()
            .await?
            .into_iter()
            .rev()
            .find(|entry| entry.task == task))
    }

    /// Deletes all entries and returns their number.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn clear(&self) -> Result<u64, Failure> {
        let _turn = self.write_lock.lock().await;
        Ok(self.notes.clear(&self.space).await?)
    }

    async fn put(&self, outgoing: &DelegatedRequest) -> Result<(), Failure> {
        let id = cut_bytes(&outgoing.task, KEY_ID_BYTES_MAX).replace('\0', "");
        self.put_under(&format!("{:020}-{id}", outgoing.at_ms), outgoing)
            .await
    }

    async fn put_under(&self, key: &str, outgoing: &DelegatedRequest) -> Result<(), Failure> {
        let entry = DelegatedRequest {
            request: truncate_text(&outgoing.request),
            answer: outgoing.answer.as_deref().map(truncate_text),
            ..outgoing.clone()
        };
        let raw = serde_json::value::to_raw_value(&entry).and_then(|raw| RawObject::parse(&raw));
        let raw =
            raw.map_err(|_| Failure::internal("failed to encode a delegated request as JSON"))?;
        self.notes
            .put(&self.space, key, raw, None)
            .await
            .map(drop)
            .map_err(note_failure)
    }

    /// Loads the readable entries with their keys, oldest first, at most [`NOTES_PER_READ_MAX`].
    ///
    /// # Errors
    /// Failures of the store.
    async fn load(&self) -> Result<Vec<(String, DelegatedRequest)>, Failure> {
        let notes = self
            .notes
            .list(&self.space, None, NOTES_PER_READ_MAX)
            .await?;
        Ok(notes.into_iter().filter_map(parse_note).collect())
    }
}

fn parse_note(note: KvEntry) -> Option<(String, DelegatedRequest)> {
    Some((
        note.key,
        serde_json::from_str(note.body.to_raw().get()).ok()?,
    ))
}

/// Converts an error of the key-value store to a failure for the caller: `Internal` unless the
/// store itself failed.
pub(crate) fn note_failure(error: KvError) -> Failure {
    match error {
        KvError::Journal(error) => error.into(),
        other => Failure::internal(other.to_string()),
    }
}

/// Returns the current time in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn is_too_old(at_ms: u64) -> bool {
    Duration::from_millis(now_ms().saturating_sub(at_ms)) > MEMORY_AGE_MAX
}

/// Cuts a text to [`MEMORY_TEXT_BYTES_MAX`] bytes, including the mark `…` at a cut.
fn truncate_text(text: &str) -> String {
    if text.len() <= MEMORY_TEXT_BYTES_MAX {
        return text.to_owned();
    }
    format!(
        "{}{ELLIPSIS}",
        cut_bytes(text, MEMORY_TEXT_BYTES_MAX - ELLIPSIS.len())
    )
}
