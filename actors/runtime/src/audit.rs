//! The audit: who did what, to whom, and how it ended. Never what was said.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::{CallId, DataClass, Principal, PrincipalKind, hex};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::journal::JournalResult;
use crate::sync::Mutex;

/// Entries that wait to be kept, at most.
pub const AUDIT_QUEUED_MAX: usize = 4_096;

/// Where the audit is kept: append only.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Keeps entries, all or none, one after the other, and answers the last one's number in this writer's chain.
    async fn append(&self, entries: Vec<AuditEntry>) -> JournalResult<u64>;

    /// What stands for a body: its size and its hash, under a key of this store's where the plain one could be guessed.
    fn mark(&self, class: DataClass, body: &[u8]) -> BodyMark;
}

/// What stands for a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyMark {
    /// Its size, in bytes.
    pub bytes: u64,
    /// `sha256:HEX` or `hmac-sha256:HEX`.
    pub hash: String,
}

impl BodyMark {
    /// The mark of a body of `class`: keyed with `key` where [`DataClass::is_keyed`].
    pub fn of(class: DataClass, body: &[u8], key: &[u8; 32]) -> Self {
        let hash = match Hmac::<Sha256>::new_from_slice(key) {
            Ok(mut mac) if class.is_keyed() => {
                mac.update(body);
                format!("hmac-sha256:{}", hex(&mac.finalize().into_bytes()))
            }
            _ => format!("sha256:{}", hex(&Sha256::digest(body))),
        };
        Self {
            bytes: body.len() as u64,
            hash,
        }
    }
}

/// A value of [`AuditEntry::more`]: names, counts, rule ids. Never what was said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, derive_more::Display)]
#[serde(untagged)]
#[display("{_0:?}")]
pub enum AuditValue {
    /// A name.
    Text(String),
    /// A count.
    Number(i64),
    /// Whether.
    Flag(bool),
    /// Names.
    List(Vec<String>),
}

macro_rules! values {
    ($($from:ty: $value:pat => $made:expr;)*) => {$(
        impl From<$from> for AuditValue {
            fn from($value: $from) -> Self {
                $made
            }
        }
    )*};
}

values! {
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

/// One entry of the audit, before it has its number.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// What happened, for example `message` or `denied`.
    pub event: Cow<'static, str>,
    /// When.
    pub at: SystemTime,
    /// The agent of ours that it concerns.
    pub agent: Option<String>,
    /// The message's name.
    pub message: Option<String>,
    /// Whoever is on the other side.
    pub peer: Option<String>,
    /// The call that it belongs to.
    pub call: Option<CallId>,
    /// Who is behind it: kind and id.
    pub principal: Option<(PrincipalKind, String)>,
    /// What the body may hold.
    pub class: DataClass,
    /// What stands for the body.
    pub body: Option<BodyMark>,
    /// How it ended.
    pub outcome: Option<Cow<'static, str>>,
    /// What else there is to say, by name.
    pub more: BTreeMap<&'static str, AuditValue>,
}

impl AuditEntry {
    /// `event` happened now.
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
            more: BTreeMap::new(),
        }
    }

    /// The same, of an agent of ours.
    pub fn with_agent(self, agent: impl Into<String>) -> Self {
        Self {
            agent: Some(agent.into()),
            ..self
        }
    }

    /// The same, about a message.
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// The same, with somebody on the other side.
    pub fn with_peer(self, peer: impl Into<String>) -> Self {
        Self {
            peer: Some(peer.into()),
            ..self
        }
    }

    /// The same, as part of a call.
    pub fn with_call(self, call: CallId) -> Self {
        Self {
            call: Some(call),
            ..self
        }
    }

    /// The same, with who is behind it.
    pub fn with_principal(self, principal: &Principal) -> Self {
        Self {
            principal: Some((principal.kind, principal.id.clone())),
            ..self
        }
    }

    /// The same, about a body of `class`.
    pub fn with_class(self, class: DataClass) -> Self {
        Self { class, ..self }
    }

    /// The same, with what stands for the body.
    pub fn with_body(self, body: BodyMark) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    /// The same, with how it ended.
    pub fn with_outcome(self, outcome: impl Into<Cow<'static, str>>) -> Self {
        Self {
            outcome: Some(outcome.into()),
            ..self
        }
    }

    /// The same, with something more.
    pub fn with(mut self, name: &'static str, value: impl Into<AuditValue>) -> Self {
        self.more.insert(name, value.into());
        self
    }
}

/// Entries that [`MemoryAudit`] holds: older ones are only counted.
const MEMORY_AUDIT_ENTRIES_MAX: usize = 10_000;

/// An audit that lasts as long as the process, with a key that does too.
pub struct MemoryAudit {
    key: [u8; 32],
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    last: u64,
    latest: VecDeque<AuditEntry>,
}

impl Default for MemoryAudit {
    fn default() -> Self {
        Self {
            key: rand::random(),
            kept: Mutex::default(),
        }
    }
}

impl MemoryAudit {
    /// The latest entries, oldest first; at most `MEMORY_AUDIT_ENTRIES_MAX`.
    pub fn entries(&self) -> Vec<AuditEntry> {
        self.kept.lock().latest.iter().cloned().collect()
    }
}

#[async_trait]
impl Audit for MemoryAudit {
    async fn append(&self, entries: Vec<AuditEntry>) -> JournalResult<u64> {
        let mut kept = self.kept.lock();
        kept.last += entries.len() as u64;
        kept.latest.extend(entries);
        let over = kept.latest.len().saturating_sub(MEMORY_AUDIT_ENTRIES_MAX);
        kept.latest.drain(..over);
        Ok(kept.last)
    }

    fn mark(&self, class: DataClass, body: &[u8]) -> BodyMark {
        BodyMark::of(class, body, &self.key)
    }
}
