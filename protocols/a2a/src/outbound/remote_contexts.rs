//! Conversations of callers, and their ids at a remote agent.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::{DataClass, Principal, PrincipalKind};
use callboard_runtime::{AuditLog, TaskOwner};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use url::Url;
use uuid::{Builder, Uuid};

/// Maximum number of conversations of one remote agent whose ids differ from the proposed ones.
/// At the limit: the one that was used least recently is forgotten and begins anew.
const CONTEXTS_MAX: usize = 4_096;
/// Maximum length of a conversation's id at the agent, in bytes.
/// At the limit: it isn't remembered.
const CONTEXT_ID_BYTES_MAX: usize = 1_024;

/// Ids of conversations at a remote agent, by the ids that this client proposed for them. Those
/// that the agent accepted aren't in it.
#[derive(Default)]
pub(super) struct RemoteContexts(Mutex<ContextTable>);

#[derive(Default)]
struct ContextTable {
    by_proposed: HashMap<String, KnownContext>,
    uses: u64,
}

struct KnownContext {
    id: String,
    /// Number of the latest use.
    used: u64,
}

/// Conversation of a caller, bound to one of a remote agent.
pub(super) struct ContextBinding {
    contexts: Arc<RemoteContexts>,
    proposed: String,
}

impl ContextBinding {
    /// Binds the conversation `context` of `owner` to one of the agent at `url`.
    ///
    /// The proposed id is a keyed hash of all three. So it is the same after a restart with the
    /// same store, and nobody else can reach the conversation by it, nor learn the caller's id.
    pub(super) fn new(
        contexts: Arc<RemoteContexts>,
        audit: &AuditLog,
        owner: &TaskOwner,
        url: &Url,
        context: &str,
    ) -> Self {
        let mut hash = Sha256::new();
        for part in ["context", url.as_str(), owner.as_str(), context] {
            // The length prefix keeps different lists of parts from hashing alike.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let keyed = audit.digest(DataClass::Personal, &hash.finalize()).hash;
        // Some agents accept only UUIDs.
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&Sha256::digest(keyed)[..16]);
        Self {
            contexts,
            proposed: Builder::from_random_bytes(bytes).into_uuid().to_string(),
        }
    }

    /// Returns the id to send: the agent's, if it has chosen another than the proposed one.
    pub(super) fn id(&self) -> String {
        let mut table = self.contexts.0.lock();
        table.uses += 1;
        let used = table.uses;
        match table.by_proposed.get_mut(&self.proposed) {
            Some(known) => {
                known.used = used;
                known.id.clone()
            }
            None => self.proposed.clone(),
        }
    }

    /// Remembers the id that the agent uses. An empty one is ignored.
    pub(super) fn learn(&self, id: &str) {
        if id.is_empty() || id.len() > CONTEXT_ID_BYTES_MAX {
            return;
        }
        if id == self.proposed {
            return self.forget();
        }
        let mut table = self.contexts.0.lock();
        table.uses += 1;
        let known = KnownContext {
            id: id.to_owned(),
            used: table.uses,
        };
        table.by_proposed.insert(self.proposed.clone(), known);
        if table.by_proposed.len() > CONTEXTS_MAX {
            let oldest = table.by_proposed.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(proposed, _)| proposed.clone()) {
                table.by_proposed.remove(&oldest);
            }
        }
    }

    /// Forgets the agent's id, which it doesn't accept any more.
    pub(super) fn forget(&self) {
        self.contexts.0.lock().by_proposed.remove(&self.proposed);
    }
}

/// Returns whether nobody but `principal` means a conversation by its id `context`. Callers may
/// choose ids, and all anonymous callers count as one owner: theirs must be UUIDs, which no two
/// choose by accident.
pub(super) fn identifies_conversation(principal: &Principal, context: &str) -> bool {
    match principal.kind {
        PrincipalKind::Anonymous => Uuid::try_parse(context).is_ok_and(|id| !id.is_nil()),
        _ => !context.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use callboard_message::Principal;
    use callboard_runtime::System;

    use super::*;

    fn bound(
        contexts: &Arc<RemoteContexts>,
        system: &System,
        owner: &str,
        context: &str,
    ) -> ContextBinding {
        let owner = TaskOwner::from_principal(&Principal::agent(owner), None);
        let url = "https://a.example".parse().unwrap();
        ContextBinding::new(contexts.clone(), system.audit(), &owner, &url, context)
    }

    /// Goal: a conversation has one id at the agent, which no other owner or conversation shares;
    /// an id of the agent's own replaces it until it is forgotten, and one that is too long never
    /// does. Method: the same conversation twice, each other part changed, each step.
    #[tokio::test]
    async fn conversations_have_ids() {
        let system = System::start(1).unwrap();
        let contexts = Arc::default();
        let of = |owner, context| bound(&contexts, &system, owner, context);
        let own = of("ann", "c").id();
        assert_eq!(own, of("ann", "c").id());
        for (owner, context) in [("eve", "c"), ("ann", "d"), ("an", "nc")] {
            assert_ne!(own, of(owner, context).id(), "{owner} {context}");
        }
        assert!(Uuid::try_parse(&own).is_ok(), "{own}");
        of("ann", "c").learn("theirs");
        assert_eq!(of("ann", "c").id(), "theirs");
        assert_ne!(of("eve", "c").id(), "theirs");
        of("ann", "c").learn("");
        of("ann", "c").learn(&"x".repeat(CONTEXT_ID_BYTES_MAX + 1));
        assert_eq!(of("ann", "c").id(), "theirs");
        of("ann", "c").learn(&"x".repeat(CONTEXT_ID_BYTES_MAX));
        assert_eq!(of("ann", "c").id().len(), CONTEXT_ID_BYTES_MAX);
        of("ann", "c").forget();
        assert_eq!(of("ann", "c").id(), own);
        system.shutdown(Duration::ZERO).await;
    }

    /// Goal: anonymous callers share no conversation because they chose the same id for it; others
    /// may choose any. Method: ids of each kind for both.
    #[test]
    fn anonymous_conversations_need_uuids() {
        let uuid = Uuid::new_v4().to_string();
        for (context, anonymous, known) in [
            ("", false, false),
            ("c", false, true),
            ("default", false, true),
            ("00000000-0000-0000-0000-000000000000", false, true),
            (&*uuid, true, true),
        ] {
            let of = |principal| identifies_conversation(&principal, context);
            assert_eq!(of(Principal::anonymous()), anonymous, "{context}");
            assert_eq!(of(Principal::agent("ann")), known, "{context}");
        }
    }

    /// Goal: the number of remembered ids is limited; the one used least recently is forgotten.
    /// Method: one more than the limit, after a use of the first.
    #[tokio::test]
    async fn ids_are_bounded() {
        let system = System::start(1).unwrap();
        let contexts = Arc::default();
        let of = |nth: usize| bound(&contexts, &system, "ann", &nth.to_string());
        (0..CONTEXTS_MAX).for_each(|nth| of(nth).learn("theirs"));
        assert_eq!(of(0).id(), "theirs");
        assert_eq!(contexts.0.lock().by_proposed.len(), CONTEXTS_MAX);
        of(CONTEXTS_MAX).learn("theirs");
        assert_eq!(contexts.0.lock().by_proposed.len(), CONTEXTS_MAX);
        assert_eq!(of(0).id(), "theirs");
        assert_eq!(of(CONTEXTS_MAX).id(), "theirs");
        assert_ne!(of(1).id(), "theirs");
        system.shutdown(Duration::ZERO).await;
    }
}
