//! Rolling memory: what an agent asked of others, and what they answered. What others ask of it is never here.
//!
//! It is bounded by count, age and size, and lasts as long as the store does ([`Notes`], space `memory/AGENT`). Of data that
//! may be clinical nothing is kept.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::text::cut_bytes;
use callboard_message::{DataClass, Failure, RawObject, TaskState};
use callboard_runtime::{Note, NoteError, Notes};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Most requests that are remembered; the oldest go first.
pub const MEMORY_REQUESTS_MAX: usize = 100;
/// How long a request is remembered.
pub const MEMORY_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Most of a request, and of its answer, that is remembered, in bytes.
pub const MEMORY_TEXT_BYTES_MAX: usize = 4 * 1024;
/// Most bytes of a task's id in a note's key; the whole id is in the note.
const KEY_ID_BYTES_MAX: usize = 200;
/// Stands for what was left out.
const LEFT_OUT: &str = "…";
/// Most notes that one look takes: more are there only while several are put at once.
const LOOK_NOTES_MAX: usize = 2 * MEMORY_REQUESTS_MAX;

/// A request that went out, and what came back so far.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
// What is said may be anybody's data.
#[debug("Outgoing({} to {}, {:?})", task, to, state)]
pub struct Outgoing {
    /// The task, as whoever works on it names it, else as we do.
    pub task: String,
    /// Who was asked: an agent's id.
    pub to: String,
    /// What was asked.
    pub request: String,
    /// What was answered, once it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Where the task stands, as far as we heard.
    pub state: TaskState,
    /// When it was sent, in milliseconds since 1970.
    pub at_ms: u64,
}

/// What one agent asked of others. Clones are the same memory.
#[derive(derive_more::Debug, Clone)]
#[debug("Memory {{ space: {space:?}, keeps: {keeps:?}, .. }}")]
pub struct Memory {
    notes: Arc<dyn Notes>,
    space: Arc<str>,
    keeps: bool,
    /// One change at a time, so that each sees what there is.
    turn: Arc<Mutex<()>>,
}

impl Memory {
    /// The memory of the agent of that id, whose data is of that class.
    pub fn new(notes: Arc<dyn Notes>, agent: &str, class: DataClass) -> Self {
        let keeps = class < DataClass::Clinical;
        Self {
            notes,
            space: format!("memory/{agent}").into(),
            keeps,
            turn: Arc::default(),
        }
    }

    /// Remembers a request. What is too old, or one too many, is forgotten.
    ///
    /// # Errors
    /// The store's.
    pub async fn remember(&self, outgoing: Outgoing) -> Result<(), Failure> {
        if !self.keeps {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        self.put(&outgoing).await?;
        let there = self.look().await?;
        let surplus = there.len().saturating_sub(MEMORY_REQUESTS_MAX);
        for (nth, (key, kept)) in there.iter().enumerate() {
            if nth < surplus || is_too_old(kept.at_ms) {
                self.notes.remove(&self.space, key).await?;
            }
        }
        Ok(())
    }

    /// Notes where a task stands now, and what it answered where it has. Nothing where it isn't remembered (any more).
    ///
    /// # Errors
    /// The store's.
    pub async fn update(
        &self,
        task: &str,
        state: TaskState,
        answer: Option<String>,
    ) -> Result<(), Failure> {
        let _turn = self.turn.lock().await;
        let Some(before) = self.get(task).await? else {
            return Ok(());
        };
        let answer = answer.or(before.answer);
        self.put(&Outgoing {
            state,
            answer,
            ..before
        })
        .await
    }

    /// The same for a task that had another name until it was answered: `outgoing` stands in the place of what is remembered
    /// under `before`, or is new.
    ///
    /// # Errors
    /// The store's.
    pub async fn settle(&self, before: &str, outgoing: Outgoing) -> Result<(), Failure> {
        if !self.keeps {
            return Ok(());
        }
        let turn = self.turn.lock().await;
        let there = self
            .look()
            .await?
            .into_iter()
            .rev()
            .find(|(_, kept)| kept.task == before);
        match there {
            Some((key, kept)) => {
                self.put_at(
                    &key,
                    &Outgoing {
                        at_ms: kept.at_ms,
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

    /// What is remembered, oldest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<Outgoing>, Failure> {
        let there = self.look().await?.into_iter().map(|(_, kept)| kept);
        let mut fresh: Vec<_> = there.filter(|kept| !is_too_old(kept.at_ms)).collect();
        fresh.drain(..fresh.len().saturating_sub(MEMORY_REQUESTS_MAX));
        Ok(fresh)
    }

    /// One of them, by its task: the latest of that name.
    ///
    /// # Errors
    /// The store's.
    pub async fn get(&self, task: &str) -> Result<Option<Outgoing>, Failure> {
        Ok(self
            .list()
            .await?
            .into_iter()
            .rev()
            .find(|kept| kept.task == task))
    }

    /// Forgets all, and answers how many there were.
    ///
    /// # Errors
    /// The store's.
    pub async fn clear(&self) -> Result<u64, Failure> {
        let _turn = self.turn.lock().await;
        Ok(self.notes.clear(&self.space).await?)
    }

    async fn put(&self, outgoing: &Outgoing) -> Result<(), Failure> {
        let id = cut_bytes(&outgoing.task, KEY_ID_BYTES_MAX).replace('\0', "");
        self.put_at(&format!("{:020}-{id}", outgoing.at_ms), outgoing)
            .await
    }

    async fn put_at(&self, key: &str, outgoing: &Outgoing) -> Result<(), Failure> {
        let kept = Outgoing {
            request: shortened(&outgoing.request),
            answer: outgoing.answer.as_deref().map(shortened),
            ..outgoing.clone()
        };
        let raw = serde_json::value::to_raw_value(&kept).and_then(|raw| RawObject::parse(&raw));
        let raw = raw.map_err(|_| Failure::internal("a request can't be written down"))?;
        self.notes
            .put(&self.space, key, raw, None)
            .await
            .map(drop)
            .map_err(unkept)
    }

    /// All that is kept, by key: oldest first. What can't be read is left out.
    async fn look(&self) -> Result<Vec<(String, Outgoing)>, Failure> {
        let notes = self.notes.list(&self.space, None, LOOK_NOTES_MAX).await?;
        Ok(notes.into_iter().filter_map(read).collect())
    }
}

fn read(note: Note) -> Option<(String, Outgoing)> {
    Some((
        note.key,
        serde_json::from_str(note.body.to_raw().get()).ok()?,
    ))
}

/// Failure of a note that wasn't kept.
pub(crate) fn unkept(error: NoteError) -> Failure {
    match error {
        NoteError::Journal(error) => error.into(),
        other => Failure::internal(other.to_string()),
    }
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn is_too_old(at_ms: u64) -> bool {
    Duration::from_millis(now_ms().saturating_sub(at_ms)) > MEMORY_AGE_MAX
}

/// What is kept of a text.
fn shortened(text: &str) -> String {
    if text.len() <= MEMORY_TEXT_BYTES_MAX {
        return text.to_owned();
    }
    format!(
        "{}{LEFT_OUT}",
        cut_bytes(text, MEMORY_TEXT_BYTES_MAX - LEFT_OUT.len())
    )
}
