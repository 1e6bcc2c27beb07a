//! Audit log: actor, action, target and outcome of each event, without message bodies.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::{CallId, DataClass, Principal, PrincipalKind, encode_hex};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::journal::JournalResult;
use crate::sync::Mutex;

/// Maximum number of audit entries that wait in memory to be written to the store.
pub const AUDIT_QUEUED_MAX: usize = 4_096;

/// Event of entries with lines about calls.
pub const CALLS_EVENT: &str = "calls";
/// Name of the detail with the lines of an entry of [`CALLS_EVENT`]. Each is a call: time in Unix milliseconds,
/// kind and id of the principal, agent, tool, outcome, milliseconds, and id of the call, with spaces in between.
/// Names are as [`call_line_name`] returns them.
pub const CALLS_LINES_DETAIL: &str = "lines";
/// Maximum length of a name in a line about a call, in bytes. A longer one is cut, and ends with a part of its hash.
const CALL_NAME_BYTES_MAX: usize = 128;
/// Number of hexadecimal digits of the hash at the end of a cut name.
const CUT_NAME_DIGITS: usize = 8;

/// Returns a name as lines about calls have it, so that different names stay different: spaces, control
/// characters, `"`, `\`, `%` and `~` are percent-encoded. If it has more than 128 bytes then, it is cut, and ends
/// with `~` and 8 hexadecimal digits of the SHA-256 of the whole name. An empty name is `-`.
pub fn call_line_name(name: &str) -> Cow<'_, str> {
    let is_plain =
        |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\\' | '%' | '~');
    if name.is_empty() {
        return Cow::Borrowed("-");
    }
    if name.len() <= CALL_NAME_BYTES_MAX && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let mut encoded = String::with_capacity(CALL_NAME_BYTES_MAX);
    let mut cut = 0;
    for c in name.chars() {
        if is_plain(c) {
            encoded.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a text can't fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        if encoded.len() < CALL_NAME_BYTES_MAX - CUT_NAME_DIGITS {
            cut = encoded.len();
        } else if encoded.len() > CALL_NAME_BYTES_MAX {
            let mut hash = encode_hex(&Sha256::digest(name));
            hash.truncate(CUT_NAME_DIGITS);
            encoded.truncate(cut);
            encoded.push('~');
            encoded.push_str(&hash);
            break;
        }
    }
    Cow::Owned(encoded)
}

/// Append-only store of audit entries.
#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// Appends `entries` in order, all or none, and returns the number of the last one. Entries are
    /// numbered in one chain for each writer, the name under which a process opens the store.
    ///
    /// # Errors
    /// [`JournalError::Invalid`](crate::JournalError::Invalid) from a store on disk if `entries` is
    /// empty; errors of the store. After `JournalError::Unknown` they may have been written.
    async fn append(&self, entries: Vec<AuditEntry>) -> JournalResult<u64>;

    /// Appends entries of the event [`CALLS_EVENT`], whose lines tell who called what. A store may keep them
    /// in a chain of their own, for a shorter time.
    ///
    /// # Errors
    /// Those of [`AuditStore::append`].
    async fn append_calls(&self, entries: Vec<AuditEntry>) -> JournalResult<()> {
        self.append(entries).await.map(drop)
    }

    /// Returns size and hash of a message body. The hash is keyed with the store's own key if
    /// [`DataClass::is_keyed`].
    fn digest(&self, class: DataClass, body: &[u8]) -> BodyDigest;
}

/// Size and hash of a message body. An audit entry holds them in place of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyDigest {
    /// Size of the body, in bytes.
    pub bytes: u64,
    /// Hash of the body: `sha256:HEX` or `hmac-sha256:HEX`.
    pub hash: String,
}

impl BodyDigest {
    /// Computes the digest of a body: HMAC-SHA-256 with `key` if [`DataClass::is_keyed`], else
    /// plain SHA-256.
    pub fn compute(class: DataClass, body: &[u8], key: &[u8; 32]) -> Self {
        let hash = match Hmac::<Sha256>::new_from_slice(key) {
            Ok(mut mac) if class.is_keyed() => {
                mac.update(body);
                format!("hmac-sha256:{}", encode_hex(&mac.finalize().into_bytes()))
            }
            _ => format!("sha256:{}", encode_hex(&Sha256::digest(body))),
        };
        Self {
            bytes: body.len() as u64,
            hash,
        }
    }
}

/// Value in [`AuditEntry::details`]: a name, count, rule id or flag. Never message content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, derive_more::Display)]
#[serde(untagged)]
#[display("{_0:?}")]
pub enum AuditValue {
    /// A name or identifier.
    Text(String),
    /// A count or other integer.
    Number(i64),
    /// A boolean.
    Flag(bool),
    /// A list of names.
    List(Vec<String>),
}

macro_rules! audit_value_from {
    ($($from:ty: $value:pat => $made:expr;)*) => {$(
        impl From<$from> for AuditValue {
            fn from($value: $from) -> Self {
                $made
            }
        }
    )*};
}

audit_value_from! {
    &str: text => Self::Text(text.to_owned());
    String: text => Self::Text(text);
    i64: number => Self::Number(number);
    u64: number => Self::Number(i64::try_from(number).unwrap_or(i64::MAX));
    u32: number => Self::Number(number.into());
    u16: number => Self::Number(number.into());
    usize: number => Self::Number(i64::try_from(number).unwrap_or(i64::MAX));
    bool: flag => Self::Flag(flag);
    Vec<String>: list => Self::List(list);
}

/// Audit entry that hasn't been numbered and stored yet.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Kind of event, for example `message` or `denied`.
    pub event: Cow<'static, str>,
    /// Time of the event.
    pub at: SystemTime,
    /// Name of the local agent that the event concerns.
    pub agent: Option<String>,
    /// Name of the message that the event concerns.
    pub message: Option<String>,
    /// Name of the other party: the agent or peer that the event is to or from.
    pub peer: Option<String>,
    /// Id of the call that the event belongs to.
    pub call: Option<CallId>,
    /// Kind and id of the principal that caused the event.
    pub principal: Option<(PrincipalKind, String)>,
    /// Data class of the message body.
    pub class: DataClass,
    /// Size and hash of the message body.
    pub body: Option<BodyDigest>,
    /// Outcome of the event, for example `ok` or `accepted`.
    pub outcome: Option<Cow<'static, str>>,
    /// Further details by name.
    pub details: BTreeMap<&'static str, AuditValue>,
}

impl AuditEntry {
    /// Creates an entry for `event` at the current time, with all other fields empty.
    pub fn new(event: impl Into<Cow<'static, str>>) -> Self {
        Self {
            event: event.into(),
            at: SystemTime::now(),
            agent: None,
            message: None,
            peer: None,
            call: None,
            principal: None,
            class: DataClass::default(),
            body: None,
            outcome: None,
            details: BTreeMap::new(),
        }
    }

    /// Sets the name of the local agent that the event concerns.
    pub fn with_agent(self, agent: impl Into<String>) -> Self {
        Self {
            agent: Some(agent.into()),
            ..self
        }
    }

    /// Sets the name of the message that the event is about.
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// Sets the name of the other party, an agent or peer.
    pub fn with_peer(self, peer: impl Into<String>) -> Self {
        Self {
            peer: Some(peer.into()),
            ..self
        }
    }

    /// Sets the id of the call that the event belongs to.
    pub fn with_call(self, call: CallId) -> Self {
        Self {
            call: Some(call),
            ..self
        }
    }

    /// Sets kind and id of the principal that caused the event.
    pub fn with_principal(self, principal: &Principal) -> Self {
        Self {
            principal: Some((principal.kind, principal.id.clone())),
            ..self
        }
    }

    /// Sets the data class of the message body.
    pub fn with_class(self, class: DataClass) -> Self {
        Self { class, ..self }
    }

    /// Sets size and hash of the message body, which isn't stored itself.
    pub fn with_body(self, body: BodyDigest) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    /// Sets the outcome of the event, for example `accepted`.
    pub fn with_outcome(self, outcome: impl Into<Cow<'static, str>>) -> Self {
        Self {
            outcome: Some(outcome.into()),
            ..self
        }
    }

    /// Returns the lines about calls of an entry of [`CALLS_EVENT`].
    pub fn call_lines(&self) -> &[String] {
        match self.details.get(CALLS_LINES_DETAIL) {
            Some(AuditValue::List(lines)) => lines,
            _ => &[],
        }
    }

    /// Adds a detail to [`AuditEntry::details`]. Replaces an existing detail of the same name.
    pub fn with_detail(mut self, name: &'static str, value: impl Into<AuditValue>) -> Self {
        self.details.insert(name, value.into());
        self
    }
}

/// Maximum number of entries that [`MemoryAuditStore`] keeps. The oldest are dropped; numbers
/// continue.
const MEMORY_AUDIT_ENTRIES_MAX: usize = 10_000;

/// In-memory audit store with a random digest key. It keeps the latest 10,000 entries; they and the
/// key are lost when the process ends.
pub struct MemoryAuditStore {
    key: [u8; 32],
    state: Mutex<AuditState>,
}

#[derive(Default)]
struct AuditState {
    last: u64,
    latest: VecDeque<AuditEntry>,
}

impl Default for MemoryAuditStore {
    fn default() -> Self {
        Self {
            key: rand::random(),
            state: Mutex::default(),
        }
    }
}

impl MemoryAuditStore {
    /// Returns the stored entries, oldest first. Only the latest 10 000 are kept.
    pub fn entries(&self) -> Vec<AuditEntry> {
        self.state.lock().latest.iter().cloned().collect()
    }
}

#[async_trait]
impl AuditStore for MemoryAuditStore {
    async fn append(&self, entries: Vec<AuditEntry>) -> JournalResult<u64> {
        let mut state = self.state.lock();
        state.last += entries.len() as u64;
        state.latest.extend(entries);
        let over = state.latest.len().saturating_sub(MEMORY_AUDIT_ENTRIES_MAX);
        state.latest.drain(..over);
        Ok(state.last)
    }

    fn digest(&self, class: DataClass, body: &[u8]) -> BodyDigest {
        BodyDigest::compute(class, body, &self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: different names have different texts in a line, of a bounded length. Method: characters that are encoded,
    /// their code itself, the longest name and one byte more.
    #[test]
    fn names_in_lines() {
        let longest = "x".repeat(CALL_NAME_BYTES_MAX);
        let cut = format!("{}~0ec9eb33", &longest[..119]);
        for (name, expected) in [
            ("a_b", "a_b"),
            ("a b", "a%20b"),
            ("a%20b", "a%2520b"),
            ("a~", "a%7E"),
            ("é", "é"),
            ("", "-"),
            (&longest, &longest),
            (&format!("{longest}x"), &cut),
        ] {
            assert_eq!(call_line_name(name), expected);
        }
    }
}
