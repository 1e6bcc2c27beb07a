//! Key-value store for small JSON objects by space and key, for the agent directory and agents'
//! memory.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::{RawObject, encode_hex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::journal::{JournalError, JournalResult};
use crate::sync::Mutex;

/// Maximum size of a value in a key-value store, in bytes.
pub const KV_VALUE_BYTES_MAX_DEFAULT: usize = 64 * 1024;
/// Maximum number of entries in one space of a key-value store.
pub const KV_SPACE_ENTRIES_MAX_DEFAULT: usize = 10_000;
/// Maximum length of a space name or key, in bytes.
pub const KV_KEY_BYTES_MAX: usize = 256;

/// Entry of a key-value space.
#[derive(Debug, Clone, PartialEq)]
pub struct KvEntry {
    /// Key within the space.
    pub key: String,
    /// Number of times that the entry was written since it was created, from 1.
    pub version: u64,
    /// Time of the latest write.
    pub at: SystemTime,
    /// Value of the entry, a JSON object.
    pub body: RawObject,
}

impl KvEntry {
    /// Returns the record in the entry; `None` if it is another one, or damaged.
    pub(crate) fn record<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.body.to_raw().get()).ok()
    }
}

/// Returns a record as the body of its entry.
pub(crate) fn to_body(record: &impl Serialize) -> RawObject {
    let body = serde_json::value::to_raw_value(record).ok();
    let body = body.and_then(|body| RawObject::parse(&body).ok());
    body.unwrap_or_default()
}

/// Number of entries that [`list_all`] reads at once.
const PAGE_ENTRIES: usize = 1_000;

/// Returns all entries of a space, in byte order of the keys.
///
/// # Errors
/// Those of the store.
pub async fn list_all(store: &dyn KvStore, space: &str) -> JournalResult<Vec<KvEntry>> {
    let mut entries: Vec<KvEntry> = Vec::new();
    loop {
        let after = entries.last().map(|entry| entry.key.clone());
        let page = store.list(space, after.as_deref(), PAGE_ENTRIES).await?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

/// Key of a space's secret, and of its member.
const SECRET_KEY: &str = "secret";

/// Returns the secret of a space, which is made at its first use, for [`keyed_hash`]. All nodes on the store share it.
///
/// # Errors
/// Those of the store.
pub async fn kv_secret(store: &dyn KvStore, space: &str) -> Result<String, KvError> {
    loop {
        if let Some(entry) = store.get(space, SECRET_KEY).await? {
            return Ok(entry.body.text(SECRET_KEY).unwrap_or_default());
        }
        let new = encode_hex(&rand::random::<[u8; 32]>());
        let body = RawObject::single(SECRET_KEY, &new);
        match store.put(space, SECRET_KEY, body, Some(0)).await {
            Ok(_) => return Ok(new),
            // Another call or node was first.
            Err(KvError::VersionConflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns a keyed hash of texts, in hexadecimal: nobody who reads it can try out what they are.
pub fn keyed_hash<'a>(secret: &str, parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut texts = format!("{secret}:");
    for part in parts {
        texts += &format!("{}:{part}", part.len());
    }
    encode_hex(&Sha256::digest(texts))
}

/// Error of writing an entry ([`KvStore::put`]).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The entry has been written or removed since the expected version. Read it again.
    #[error("the entry was changed meanwhile: read its version {version}, then write again")]
    VersionConflict {
        /// Current version; 0 if there is no entry.
        version: u64,
    },
    /// The store failed, or rejected the entry.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Key-value store, divided into spaces such as `directory` or `memory/AGENT`, each with its own
/// keys. Every method may fail with the store's error.
#[async_trait]
pub trait KvStore: Send + Sync + 'static {
    /// Returns the entry with this key; `None` if the space has none.
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<KvEntry>>;

    /// Writes an entry and returns its new version. With `expected`, the entry is written only if
    /// its current version is that one. Version 0 means that no entry exists.
    ///
    /// # Errors
    /// [`KvError::VersionConflict`] if `expected` isn't the current version; those of
    /// [`check_kv_entry`]; [`JournalError::Full`] if the space is full.
    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, KvError>;

    /// Removes an entry. Returns true if there was one.
    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool>;

    /// Returns up to `entries_max` entries of a space with keys after `after`, in byte order of the
    /// keys. A store may return fewer; list on until none is left.
    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        entries_max: usize,
    ) -> JournalResult<Vec<KvEntry>>;

    /// Removes all entries of a space and returns their number.
    async fn clear(&self, space: &str) -> JournalResult<u64>;
}

/// Checks that every store accepts this space, key and value.
///
/// # Errors
/// [`JournalError::Invalid`] if space or key is empty, longer than [`KV_KEY_BYTES_MAX`] or contains
/// a NUL character; [`JournalError::TooLarge`] if the value exceeds [`KV_VALUE_BYTES_MAX_DEFAULT`].
pub fn check_kv_entry(space: &str, key: &str, body: &RawObject) -> JournalResult<()> {
    let fits =
        |name: &str| !name.is_empty() && name.len() <= KV_KEY_BYTES_MAX && !name.contains('\0');
    if !fits(space) || !fits(key) {
        return Err(JournalError::Invalid(
            "an entry's space and key must have 1 to 256 bytes each, without NUL characters",
        ));
    }
    let bytes = body.to_raw().get().len();
    match bytes > KV_VALUE_BYTES_MAX_DEFAULT {
        true => Err(JournalError::TooLarge {
            bytes,
            bytes_max: KV_VALUE_BYTES_MAX_DEFAULT,
        }),
        false => Ok(()),
    }
}

/// In-memory key-value store; lasts as long as the process.
#[derive(Default)]
pub struct MemoryKvStore {
    spaces: Mutex<HashMap<String, BTreeMap<String, KvEntry>>>,
}

#[async_trait]
impl KvStore for MemoryKvStore {
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<KvEntry>> {
        Ok(self
            .spaces
            .lock()
            .get(space)
            .and_then(|entries| entries.get(key).cloned()))
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        check_kv_entry(space, key, &body)?;
        let mut spaces = self.spaces.lock();
        let entries = spaces.entry(space.to_owned()).or_default();
        let version = entries.get(key).map_or(0, |entry| entry.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(KvError::VersionConflict { version });
        }
        if version == 0 && entries.len() >= KV_SPACE_ENTRIES_MAX_DEFAULT {
            return Err(JournalError::Full {
                records_max: KV_SPACE_ENTRIES_MAX_DEFAULT,
            }
            .into());
        }
        let entry = KvEntry {
            key: key.to_owned(),
            version: version + 1,
            at: SystemTime::now(),
            body,
        };
        entries.insert(key.to_owned(), entry);
        Ok(version + 1)
    }

    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool> {
        Ok(self
            .spaces
            .lock()
            .get_mut(space)
            .is_some_and(|entries| entries.remove(key).is_some()))
    }

    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        entries_max: usize,
    ) -> JournalResult<Vec<KvEntry>> {
        let spaces = self.spaces.lock();
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = spaces.get(space).map(|entries| {
            let range = entries.range::<str, _>((after, Bound::Unbounded));
            range
                .map(|(_, entry)| entry.clone())
                .take(entries_max)
                .collect()
        });
        Ok(found.unwrap_or_default())
    }

    async fn clear(&self, space: &str) -> JournalResult<u64> {
        Ok(self
            .spaces
            .lock()
            .remove(space)
            .map_or(0, |entries| entries.len() as u64))
    }
}
