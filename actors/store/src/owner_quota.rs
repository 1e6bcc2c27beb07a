//! Bytes of each owner in the store: one owner can't fill it for the others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use callboard_runtime::{JournalError, JournalResult};
use parking_lot::Mutex;

use crate::backend::ReadPool;
use crate::sql::args;

/// Interval at which the owners' bytes are read from the database while quotas are enforced.
const USAGE_READ_INTERVAL: Duration = Duration::from_secs(30);
/// The owners' bytes are also read again once the store has grown by its size limit over this
/// divisor, because data grows after it was admitted: a task by its result and events.
const USAGE_READ_GROWTH_DIVISOR: u64 = 32;
/// Maximum number of owners whose bytes are read, those with most bytes first.
const COUNTED_OWNERS_MAX: u64 = 65_536;
/// Bytes by owner and kind. Mail counts for its sender.
const USAGE: &str = "SELECT 't', owner, CAST(sum(bytes) AS BIGINT) FROM task GROUP BY owner \
     UNION ALL SELECT 'm', sender, CAST(sum(bytes) AS BIGINT) FROM letter WHERE body IS NOT NULL GROUP BY sender \
     ORDER BY 3 DESC LIMIT $1";

/// Kind of data that an owner's quota counts. Each kind has the whole quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OwnedKind {
    /// Tasks, by owner.
    Task,
    /// Bodies of mail messages, by sender.
    Mail,
}

/// Check of new data against its owner's quota. Enforced once the store is half full, so that a
/// store with room costs no reads.
pub(crate) struct OwnerQuota {
    /// Size limit of the store, in bytes.
    size_max: u64,
    /// Maximum bytes of one owner and kind.
    bytes_max: u64,
    state: Mutex<UsageState>,
    /// Held during the first read, for which all wait: without it nobody's bytes are known.
    first_read: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct UsageState {
    bytes: HashMap<(OwnedKind, String), u64>,
    /// Time of the last read and size of the store then; `None` before the first, and after one that failed.
    read_at: Option<(Instant, u64)>,
    /// Whether the bytes were read at least once.
    is_known: bool,
}

impl OwnerQuota {
    /// Creates the quota of a store with this size limit. Without `bytes_max`, it is a quarter of
    /// the limit.
    pub(crate) fn new(size_max: u64, bytes_max: Option<u64>) -> Self {
        Self {
            size_max,
            bytes_max: bytes_max.unwrap_or(size_max / 4),
            state: Mutex::default(),
            first_read: tokio::sync::Mutex::default(),
        }
    }

    /// Counts `bytes` of new data for their owner. `size` is the size of the store in bytes.
    ///
    /// # Errors
    /// [`JournalError::OwnerLimit`] if the store is at least half full and the owner's data exceeds
    /// the quota; the store's error if the owners' bytes can't be read.
    pub(crate) async fn admit(
        &self,
        readers: &ReadPool,
        size: u64,
        (kind, owner): (OwnedKind, &str),
        bytes: u64,
    ) -> JournalResult<()> {
        if size.saturating_add(bytes) < self.size_max / 2 {
            return Ok(());
        }
        if !self.state.lock().is_known {
            let _first = self.first_read.lock().await;
            if !self.state.lock().is_known {
                self.read_usage(readers, size).await?;
            }
        } else if self.state.lock().begins_read(size, self.size_max) {
            // Others go on with the earlier numbers meanwhile.
            self.read_usage(readers, size).await?;
        }
        let bytes_max = self.bytes_max;
        let mut state = self.state.lock();
        let used = state.bytes.entry((kind, owner.to_owned())).or_default();
        if used.saturating_add(bytes) > bytes_max {
            return Err(JournalError::OwnerLimit { bytes_max });
        }
        *used += bytes;
        Ok(())
    }

    /// Takes deleted data off its owner's bytes, with what was added to it since it was admitted. So the number may be
    /// too low until the next read, which comes at the latest with the growth of [`USAGE_READ_GROWTH_DIVISOR`].
    pub(crate) fn release(&self, owned: (OwnedKind, String), bytes: u64) {
        if let Some(used) = self.state.lock().bytes.get_mut(&owned) {
            *used = used.saturating_sub(bytes);
        }
    }

    async fn read_usage(&self, readers: &ReadPool, size: u64) -> JournalResult<()> {
        let rows = readers
            .read(USAGE, &args![COUNTED_OWNERS_MAX], |row| {
                let (kind, owner, bytes): (&str, &str, i64) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                let kind = match kind {
                    "t" => OwnedKind::Task,
                    _ => OwnedKind::Mail,
                };
                Ok(((kind, owner.to_owned()), bytes.unsigned_abs()))
            })
            .await;
        let mut state = self.state.lock();
        match rows {
            Ok(rows) => {
                state.bytes = rows.into_iter().collect();
                state.read_at = Some((Instant::now(), size));
                state.is_known = true;
                Ok(())
            }
            Err(error) => {
                state.read_at = None;
                Err(error)
            }
        }
    }
}

impl UsageState {
    /// Returns whether the owners' bytes are to be read again, and if so, counts that as a read, so that
    /// one caller reads.
    fn begins_read(&mut self, size: u64, size_max: u64) -> bool {
        let growth = size_max / USAGE_READ_GROWTH_DIVISOR;
        let is_due = self.read_at.is_none_or(|(at, size_then)| {
            at.elapsed() >= USAGE_READ_INTERVAL || size >= size_then.saturating_add(growth)
        });
        if is_due {
            self.read_at = Some((Instant::now(), size));
        }
        is_due
    }
}
