//! Entries of counters in the key-value store: a space for each quota, an entry for each owner.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::counter::{CounterDraft, CounterKey, StoredUsage, Usage};
use super::rule::Quota;
use super::window::{QuotaWindow, to_time};
use crate::journal::JournalResult;
use crate::kv_store::{KvEntry, KvError, KvStore, list_all, to_body};
use crate::policy::unix_s;

/// Prefix of the spaces of quotas.
const SPACE_PREFIX: &str = "quotas/";
/// Maximum number of entries of earlier windows that are removed at once. The next write removes further ones.
pub(super) const EXPIRED_REMOVALS_MAX: u64 = 256;

/// Counter as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct CounterRecord {
    /// Name of the owner.
    principal: String,
    window: QuotaWindow,
    /// Beginning of the window, in seconds since the Unix epoch.
    window_start: u64,
    #[serde(flatten)]
    usage: Usage,
}

/// Usage of a quota in the current window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Kind and id of the principal; `all` for all together, `others` for those that share a counter because
    /// there are too many.
    pub principal: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of tokens.
    pub tokens: u64,
    /// Money in millionths of a US dollar.
    pub micro_usd: u64,
    /// End of the window.
    pub resets_at: SystemTime,
}

fn space(quota: &str) -> String {
    format!("{SPACE_PREFIX}{quota}")
}

/// Reads the store's entry for a counter. An entry of another window has no usage.
pub(super) async fn read(store: &dyn KvStore, key: &CounterKey) -> JournalResult<StoredUsage> {
    let entry = store
        .get(&space(&key.quota), &key.owner.store_key())
        .await?;
    let Some(entry) = entry else {
        return Ok(StoredUsage::default());
    };
    let record = entry.record::<CounterRecord>();
    let record = record.filter(|record| record.window == key.window);
    Ok(StoredUsage {
        version: entry.version,
        start_s: record.as_ref().map_or(0, |record| record.window_start),
        usage: record.map(|record| record.usage).unwrap_or_default(),
    })
}

/// Writes the entry of a counter and returns its version.
pub(super) async fn write(
    store: &dyn KvStore,
    key: &CounterKey,
    draft: &CounterDraft,
) -> Result<u64, KvError> {
    let record = CounterRecord {
        principal: key.owner.name(),
        window: key.window,
        window_start: draft.span.start_s,
        usage: draft.usage,
    };
    let (space, key) = (space(&key.quota), key.owner.store_key());
    store
        .put(&space, &key, to_body(&record), Some(draft.version))
        .await
}

/// Removes up to [`EXPIRED_REMOVALS_MAX`] entries of a quota whose window is over, and returns their number.
pub(super) async fn sweep(store: &dyn KvStore, quota: &str, now_s: u64) -> JournalResult<u64> {
    let space = space(quota);
    let mut removed = 0;
    for entry in list_all(store, &space).await? {
        if removed == EXPIRED_REMOVALS_MAX {
            break;
        }
        if !is_expired(&entry, now_s) {
            continue;
        }
        // Read again, because another node may have written it for a new window.
        let current = store.get(&space, &entry.key).await?;
        if current.is_some_and(|current| is_expired(&current, now_s)) {
            removed += u64::from(store.remove(&space, &entry.key).await?);
        }
    }
    Ok(removed)
}

fn is_expired(entry: &KvEntry, now_s: u64) -> bool {
    let record = entry.record::<CounterRecord>();
    let end_s = record.map(|record| record.window.span_at(record.window_start).end_s);
    end_s.is_some_and(|end_s| end_s <= now_s)
}

/// Returns the usage of a quota that is stored for the window of `now`, by principal in alphabetical order.
///
/// # Errors
/// Those of the store.
pub async fn quota_usage(
    store: &dyn KvStore,
    quota: &Quota,
    now: SystemTime,
) -> JournalResult<Vec<QuotaUsage>> {
    let span = quota.window.span_at(unix_s(now));
    let entries = list_all(store, &space(&quota.id)).await?;
    let records = entries.iter().filter_map(KvEntry::record::<CounterRecord>);
    let mut used: Vec<_> = records
        .filter(|record| record.window == quota.window && record.window_start == span.start_s)
        .map(|record| QuotaUsage {
            principal: record.principal,
            calls: record.usage.calls,
            tokens: record.usage.tokens,
            micro_usd: record.usage.micro_usd,
            resets_at: to_time(span.end_s),
        })
        .collect();
    used.sort_unstable_by(|one, other| one.principal.cmp(&other.principal));
    Ok(used)
}
