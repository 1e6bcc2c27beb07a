//! Identity of tasks and their owners.

use callboard_message::{Principal, PrincipalKind};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::journal::{JournalError, JournalResult};

/// Maximum length of a task id, in bytes.
const TASK_ID_BYTES_MAX: usize = 128;
/// Maximum length of a task's idempotency key, in bytes.
pub(crate) const TASK_KEY_BYTES_MAX: usize = 128;

/// Id of a task: random, or chosen by the client of a protocol.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[serde(transparent)]
pub struct TaskId(String);

impl TaskId {
    /// Generates a random id that can't be guessed (UUID version 4, RFC 9562).
    pub fn generate() -> Self {
        Self(Uuid::new_v4().to_string())
    }

    /// Creates a task id from text that a client chose.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] if it is empty, longer than 128 bytes or contains a control
    /// character.
    pub fn new(id: impl Into<String>) -> JournalResult<Self> {
        let id = id.into();
        if id.is_empty() || id.len() > TASK_ID_BYTES_MAX || id.chars().any(char::is_control) {
            return Err(JournalError::Invalid(
                "a task's id must have 1 to 128 bytes and no control characters",
            ));
        }
        Ok(Self(id))
    }

    /// Returns the id as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Owner of a task. Other principals can't see the task.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display,
)]
#[serde(transparent)]
pub struct TaskOwner(String);

impl TaskOwner {
    /// Returns the owner for tasks of a principal. Credentials of a principal that open other data
    /// ([`Principal::data_scopes`], such as tenant, patient and scopes of HMCP) don't see each other's tasks.
    /// The owner has a hash of these without a key. It keeps them from being read at a glance; whoever has
    /// the store can find a patient's id by trying out all.
    ///
    /// For an anonymous principal, that is its `session` if there is one, given as
    /// `{run}:{session}` to be unique across runs. (Without a session, only the unguessable task id
    /// protects the task.)
    pub fn from_principal(principal: &Principal, session: Option<&str>) -> Self {
        match session.filter(|_| principal.kind == PrincipalKind::Anonymous) {
            Some(session) => Self(["session:", session].concat()),
            None => {
                let mut owner = [principal.kind.as_str(), ":", &principal.id].concat();
                let scopes = principal.data_scopes();
                if !scopes.is_empty() {
                    let hash = Sha256::digest(scopes.join(" "));
                    owner.push(' ');
                    owner.push_str(&callboard_message::encode_hex(&hash[..16]));
                }
                Self(owner)
            }
        }
    }

    /// Creates an owner from the text that [`TaskOwner::as_str`] returns, for searches.
    pub fn from_text(owner: impl Into<String>) -> Self {
        Self(owner.into())
    }

    /// Returns the owner as text, for example `api_key:alice`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: tasks belong to the principal and the data that its credential opens, which the owner doesn't
    /// name. Method: credentials of one principal with different scopes.
    #[test]
    fn owners() {
        let of = |scopes: &[&str]| {
            let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            let principal = Principal {
                kind: PrincipalKind::ApiKey,
                scopes,
                ..Principal::agent("alice")
            };
            TaskOwner::from_principal(&principal, None).0
        };
        assert_eq!(of(&[]), "api_key:alice");
        assert_eq!(of(&["a", "mail.watch", "role:x"]), "api_key:alice");
        let bound = [
            &["patient:PT1"][..],
            &["patient:PT2"],
            &["tenant:a"],
            &["hmcp:read"],
            &["patient.identity"],
            &["purpose:treatment"],
            &["patient/hmcp:read", "patient:PT1"],
        ];
        let owners: std::collections::BTreeSet<_> = bound.into_iter().map(of).collect();
        assert_eq!(owners.len(), bound.len());
        for owner in owners {
            assert!(
                owner.starts_with("api_key:alice ") && !owner.contains("PT"),
                "{owner}"
            );
        }
        assert_eq!(
            of(&["a", "patient:PT1", "tenant:a"]),
            of(&["tenant:a", "patient:PT1"])
        );
        let of_session = TaskOwner::from_principal(&Principal::anonymous(), Some("1:2"));
        assert_eq!(of_session.as_str(), "session:1:2");
    }
}
