//! Notes that members save.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::mail::{
    MAIL_MEMORY_BYTES_MAX, MAIL_MEMORY_PAGE_MAX, MemoryEntry, MemoryPage, ReadMemory, SaveMemory,
    SavedMemory,
};
use callboard_message::time::format_rfc3339;
use callboard_message::{Failure, RawObject};
use callboard_runtime::{Context, KV_KEY_BYTES_MAX, KvEntry, KvError, KvStore};
use uuid::Uuid;

use crate::members::directory::MemberDirectory;
use crate::members::identity::MemberIdentity;

/// Maximum number of entries that one request with a tag examines. The caller continues on the next
/// page.
const SCANNED_ENTRIES_MAX: usize = 1_000;
/// Maximum number of tags of a saved note (`SaveMemory`). A note with more tags is rejected as
/// invalid.
const TAGS_MAX: usize = 16;
/// Maximum length of one tag of a saved note, in characters. A longer tag is rejected as invalid.
const TAG_CHARS_MAX: usize = 64;

/// Stores the notes of members, each in a key space of its own.
pub(crate) struct MemoryService {
    pub kv: Arc<dyn KvStore>,
    pub directory: Arc<MemberDirectory>,
}

impl MemoryService {
    pub async fn save_memory(
        self: Arc<Self>,
        message: SaveMemory,
        cx: Context,
    ) -> Result<SavedMemory, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        if message.content.is_empty() || message.content.len() > MAIL_MEMORY_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "`content` must be 1 to {MAIL_MEMORY_BYTES_MAX} bytes"
            )));
        }
        let tags = &message.tags;
        if tags.len() > TAGS_MAX || tags.iter().any(|tag| tag.chars().count() > TAG_CHARS_MAX) {
            return Err(Failure::invalid(format!(
                "`tags` may be at most {TAGS_MAX}, of at most {TAG_CHARS_MAX} characters each"
            )));
        }
        // Generated keys are in chronological order.
        let key = message.key.unwrap_or_else(|| Uuid::now_v7().to_string());
        if key.is_empty() || key.len() > KV_KEY_BYTES_MAX {
            return Err(Failure::invalid(format!(
                "`key` must be 1 to {KV_KEY_BYTES_MAX} bytes"
            )));
        }
        let body = RawObject::single("content", &message.content).with("tags", tags);
        let body = body.with("at", format_rfc3339(SystemTime::now()));
        match self.kv.put(&space_of(&identity), &key, body, None).await {
            Ok(version) => Ok(SavedMemory { key, version }),
            Err(KvError::Journal(error)) => Err(error.into()),
            Err(error) => Err(Failure::internal(error.to_string())),
        }
    }

    pub async fn read_memory(
        self: Arc<Self>,
        message: ReadMemory,
        cx: Context,
    ) -> Result<MemoryPage, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        match message.key {
            Some(key) => Ok(MemoryPage {
                entries: vec![self.find_entry(&identity, &key).await?],
                next: None,
            }),
            None => {
                self.list_entries(&identity, message.tag.as_deref(), message.after)
                    .await
            }
        }
    }

    /// Returns the entry that `identity` has saved under `key`.
    ///
    /// # Errors
    /// `NotFound` if there is none; failures of the store.
    pub async fn find_entry(
        &self,
        identity: &MemberIdentity,
        key: &str,
    ) -> Result<MemoryEntry, Failure> {
        let unknown = || Failure::not_found("you have saved nothing under this `key`");
        if key.is_empty() || key.len() > KV_KEY_BYTES_MAX || key.contains('\0') {
            return Err(unknown());
        }
        let entry = self.kv.get(&space_of(identity), key).await?;
        entry.and_then(memory_entry).ok_or_else(unknown)
    }

    /// Returns a page of up to [`MAIL_MEMORY_PAGE_MAX`] entries that `identity` has saved, those
    /// with the tag `tag` if one is given, after the key `after`, in order of keys. If few entries
    /// have the tag, the page may be short or empty although `next` is set: at most
    /// [`SCANNED_ENTRIES_MAX`] entries are examined, rounded up to a page.
    ///
    /// # Errors
    /// `InvalidInput` if `after` can't be a key; failures of the store.
    pub async fn list_entries(
        &self,
        identity: &MemberIdentity,
        tag: Option<&str>,
        mut after: Option<String>,
    ) -> Result<MemoryPage, Failure> {
        if after
            .as_ref()
            .is_some_and(|after| after.len() > KV_KEY_BYTES_MAX || after.contains('\0'))
        {
            return Err(Failure::invalid("`after` must be the `next` of a page"));
        }
        let space = space_of(identity);
        let (mut entries, mut scanned) = (Vec::new(), 0);
        loop {
            let page = self
                .kv
                .list(&space, after.as_deref(), MAIL_MEMORY_PAGE_MAX + 1)
                .await?;
            let is_last = page.len() <= MAIL_MEMORY_PAGE_MAX;
            scanned += page.len();
            for found in page {
                if entries.len() == MAIL_MEMORY_PAGE_MAX {
                    return Ok(MemoryPage {
                        entries,
                        next: after,
                    });
                }
                after = Some(found.key.clone());
                let has_tag = |entry: &MemoryEntry| {
                    tag.is_none_or(|tag| entry.tags.iter().any(|known| known == tag))
                };
                entries.extend(memory_entry(found).filter(has_tag));
            }
            if is_last || scanned >= SCANNED_ENTRIES_MAX {
                let next = after.filter(|_| !is_last);
                return Ok(MemoryPage { entries, next });
            }
        }
    }
}

/// Returns the key space with the notes of a member.
fn space_of(identity: &MemberIdentity) -> String {
    format!("memory/{}", identity.id)
}

/// Converts a stored note; `None` if it has no text.
fn memory_entry(
    KvEntry {
        key, version, body, ..
    }: KvEntry,
) -> Option<MemoryEntry> {
    Some(MemoryEntry {
        content: body.text("content")?,
        tags: body.read("tags").unwrap_or_default(),
        saved: body.text("at"),
        key,
        version,
    })
}
