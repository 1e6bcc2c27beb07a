//! Notes that members save.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::mail::{MAIL_MEMORY_BYTES_MAX, SaveMemory, SavedMemory};
use callboard_message::time::format_rfc3339;
use callboard_message::{Failure, RawObject};
use callboard_runtime::{Context, KV_KEY_BYTES_MAX, KvError, KvStore};
use uuid::Uuid;

use crate::members::directory::MemberDirectory;

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
                "at most {TAGS_MAX} `tags` of {TAG_CHARS_MAX} characters"
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
        match self
            .kv
            .put(&format!("memory/{}", identity.id), &key, body, None)
            .await
        {
            Ok(version) => Ok(SavedMemory { key, version }),
            Err(KvError::Journal(error)) => Err(error.into()),
            Err(error) => Err(Failure::internal(error.to_string())),
        }
    }
}
