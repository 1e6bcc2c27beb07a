//! Approvals in the key-value store.

use std::time::{Duration, SystemTime};

use callboard_message::{Failure, Principal, PrincipalKind};
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::arguments::{ToolUse, describe};
use crate::journal::{JournalError, JournalResult};
use crate::kv_store::{KvEntry, KvError, KvStore, keyed_hash, kv_secret, list_all, to_body};
use crate::policy::access::ApprovalTerms;
use crate::policy::unix_s;

/// Maximum number of uses of one principal that wait for an approval, or whose decision is kept. One more is refused.
pub const APPROVALS_PER_PRINCIPAL_MAX: usize = 100;
/// Maximum size of the arguments of a use that needs an approval, in bytes. With larger ones it is refused.
pub const APPROVAL_ARGUMENTS_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of the reason of a decision, in bytes.
pub const APPROVAL_REASON_BYTES_MAX: usize = 1_024;
/// Space of the approvals.
pub(super) const SPACE: &str = "approvals";
/// Number of a principal's entries that are read at once.
const PAGE_ENTRIES: usize = 100;
/// Number of characters of a key that stand for the principal.
const PRINCIPAL_KEY_CHARS: usize = 8;
/// Number of characters of a key.
const KEY_CHARS: usize = 32;
/// Time for which an expired entry stays, so that none is removed that somebody is about to decide about.
const EXPIRED_TIME_S: u64 = 60;
/// Maximum number of expired entries that one request removes.
const EXPIRED_REMOVALS_MAX: usize = 256;
/// Space of the secret of the keys, which all nodes on the store share.
const SECRET_SPACE: &str = "approvals-secret";

/// State of a use that needs an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has decided.
    Pending,
    /// It may run once.
    Approved,
    /// It may not run.
    Denied,
}

/// Use of a tool that waits for an approval, or has been decided about.
#[derive(Clone, PartialEq, Serialize, Deserialize, derive_more::Debug)]
pub struct Approval {
    /// Id, which is different for each request.
    pub id: String,
    /// Kind of the requester's credential.
    pub requester_kind: PrincipalKind,
    /// Id of the requester.
    pub requester: String,
    /// Name of the agent.
    pub agent: String,
    /// Name of the tool.
    pub tool: String,
    /// Arguments, as JSON; empty once the approval is used up.
    #[debug(skip)]
    pub arguments: String,
    /// Purpose that the requester states; empty without one.
    #[serde(default)]
    pub purpose: String,
    /// Id of the rule that demands the approval.
    pub rule: String,
    /// Scopes or patterns of scopes, of which an approver needs one.
    pub approvers: Vec<String>,
    /// Time of the request, in seconds since the Unix epoch.
    pub requested_s: u64,
    /// Time after which the request, or the decision, counts no more, in seconds since the Unix epoch.
    pub expires_s: u64,
    /// State of the use.
    pub state: ApprovalState,
    /// Kind and id of the approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Reason of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Decision about a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// Whether the use may run.
    pub is_approved: bool,
    /// Reason, which the requester of a denied use is told.
    pub reason: Option<String>,
}

/// Error of a decision about a use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalError {
    /// There is none with this id, it has expired, or the principal may not decide about it.
    #[error(
        "no use of a tool waits for this approval: it has expired or run, or isn't yours to decide"
    )]
    Unknown,
    /// Somebody has decided already.
    #[error("it has been decided about already: list the uses that wait")]
    Decided,
    /// The requester itself would decide.
    #[error("whoever requests the use can't approve it: ask another one")]
    Own,
    /// The reason has more than [`APPROVAL_REASON_BYTES_MAX`] bytes.
    #[error("the reason may have at most {APPROVAL_REASON_BYTES_MAX} bytes")]
    Reason,
    /// The store failed, or somebody decided at the same time.
    #[error(transparent)]
    Store(#[from] KvError),
}

/// Returns the secret of the keys.
///
/// # Errors
/// Those of the store.
pub(super) async fn secret(store: &dyn KvStore) -> Result<String, KvError> {
    kv_secret(store, SECRET_SPACE).await
}

/// Returns the key of a use: the same for each call with the same arguments by the same principal, whose
/// credential opens the same data, on the same terms. It begins with what stands for the principal.
pub(super) fn key(
    secret: &str,
    requester: &Principal,
    terms: &ApprovalTerms,
    used: &ToolUse<'_>,
) -> String {
    let who = [requester.kind.as_str(), &requester.id];
    let (scopes, approvers) = (requester.data_scopes().join(" "), terms.approvers.join(" "));
    let purpose = requester.purpose.as_deref().unwrap_or_default();
    let of_use = [&scopes, purpose, used.agent, used.tool, &used.arguments];
    let of_terms = [&*terms.rule, &approvers];
    let mut key = keyed_hash(secret, who);
    key.truncate(PRINCIPAL_KEY_CHARS);
    key += &keyed_hash(secret, [&who[..], &of_use, &of_terms].concat());
    key.truncate(KEY_CHARS);
    key
}

impl Approval {
    /// Creates the request of an approval.
    pub(super) fn new(
        key: &str,
        requester: &Principal,
        terms: &ApprovalTerms,
        used: &ToolUse<'_>,
    ) -> Self {
        let now = unix_s(SystemTime::now());
        Self {
            // The second part tells this request from earlier ones with the same arguments.
            id: format!("{key}-{:08x}", rand::random::<u32>()),
            requester_kind: requester.kind,
            requester: requester.id.clone(),
            agent: used.agent.to_owned(),
            tool: used.tool.to_owned(),
            arguments: used.arguments.clone(),
            purpose: requester.purpose.clone().unwrap_or_default(),
            rule: terms.rule.clone(),
            approvers: terms.approvers.clone(),
            requested_s: now,
            expires_s: now + u64::from(terms.minutes) * 60,
            state: ApprovalState::Pending,
            decided_by: None,
            reason: None,
        }
    }

    /// Returns whether the request, or the decision, counts no more.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        unix_s(now) >= self.expires_s
    }

    /// Returns whether nobody has decided.
    pub(super) fn is_pending(&self) -> bool {
        self.state == ApprovalState::Pending
    }

    /// Returns what an approver reads: requester, agent, tool, purpose and all of the arguments.
    pub fn describe(&self) -> String {
        let used = ToolUse {
            agent: &self.agent,
            tool: &self.tool,
            arguments: self.arguments.clone(),
        };
        let requester = format!("{}:{}", self.requester_kind, self.requester);
        describe(&requester, &self.purpose, &used)
    }

    /// Returns whether a principal may decide about the use, if it isn't the requester.
    fn may_decide(&self, principal: &Principal) -> bool {
        let has = |pattern: &String| {
            let pattern = WildMatch::new(pattern);
            principal.scopes.iter().any(|scope| pattern.matches(scope))
        };
        is_operator(principal) || self.approvers.iter().any(has)
    }

    pub(super) async fn write(
        &self,
        store: &dyn KvStore,
        key: &str,
        expected: u64,
    ) -> Result<(), KvError> {
        let body = to_body(self);
        store.put(SPACE, key, body, Some(expected)).await.map(drop)
    }
}

/// Uses up an approval, so that it permits one run. What is left of it has no arguments.
///
/// # Errors
/// A conflict if another call has used it; those of the store.
pub(super) async fn use_up(
    store: &dyn KvStore,
    key: &str,
    approval: &Approval,
    version: u64,
) -> Result<(), KvError> {
    let used = Approval {
        arguments: String::new(),
        expires_s: unix_s(SystemTime::now()),
        ..approval.clone()
    };
    used.write(store, key, version).await
}

/// Checks that there is room for one more request of the principal of a key, and removes its expired ones.
///
/// # Errors
/// `Overloaded` if there is none; `Unavailable` if the store fails.
pub(super) async fn check_room(store: &dyn KvStore, key: &str) -> Result<(), Failure> {
    let principal: String = key.chars().take(PRINCIPAL_KEY_CHARS).collect();
    let (mut after, mut own) = (principal.clone(), 0);
    loop {
        let page = store.list(SPACE, Some(&after), PAGE_ENTRIES).await;
        let mut page = page.map_err(unavailable)?;
        page.retain(|entry| entry.key.starts_with(&principal));
        let Some(last) = page.last() else {
            return Ok(());
        };
        after.clone_from(&last.key);
        let removed = remove_expired(store, &page).await.map_err(unavailable)?;
        own += page.len().saturating_sub(removed);
        if own >= APPROVALS_PER_PRINCIPAL_MAX {
            return Err(Failure::overloaded(format!(
                "{APPROVALS_PER_PRINCIPAL_MAX} of your uses of tools wait for approvals, were denied or ran just now: wait until some are decided or expire"
            )));
        }
    }
}

/// Writes a new request. If the store has no room, removes expired ones and tries once more.
///
/// # Errors
/// `Overloaded` if there is still none; `Unavailable` if they can't be removed. The inner error is that of the write.
pub(super) async fn create(
    store: &dyn KvStore,
    approval: &Approval,
    key: &str,
    version: u64,
) -> Result<Result<(), KvError>, Failure> {
    let is_full = |written: &Result<(), KvError>| {
        matches!(written, Err(KvError::Journal(JournalError::Full { .. })))
    };
    let written = approval.write(store, key, version).await;
    if !is_full(&written) {
        return Ok(written);
    }
    let entries = list_all(store, SPACE).await.map_err(unavailable)?;
    remove_expired(store, &entries).await.map_err(unavailable)?;
    let written = approval.write(store, key, version).await;
    match is_full(&written) {
        true => Err(Failure::overloaded(
            "too many uses of tools wait for approvals: wait until some are decided or expire",
        )),
        false => Ok(written),
    }
}

/// Removes entries that have been expired for some time, at most [`EXPIRED_REMOVALS_MAX`]. Returns their number.
async fn remove_expired(store: &dyn KvStore, entries: &[KvEntry]) -> JournalResult<usize> {
    let before = unix_s(SystemTime::now()).saturating_sub(EXPIRED_TIME_S);
    let is_old = |entry: &KvEntry| {
        let approval: Option<Approval> = entry.record();
        approval.is_some_and(|approval| approval.expires_s < before)
    };
    let mut removed = 0;
    let old = entries.iter().filter(|entry| is_old(entry));
    for entry in old.take(EXPIRED_REMOVALS_MAX) {
        // It may have been requested again since it was read.
        let now = store.get(SPACE, &entry.key).await?;
        if now.is_some_and(|now| is_old(&now)) {
            removed += usize::from(store.remove(SPACE, &entry.key).await?);
        }
    }
    Ok(removed)
}

/// Returns the uses that a principal may decide about and that nobody has decided about, the oldest first. The
/// operator gets all. Removes what has been expired for a minute.
///
/// # Errors
/// Those of the store.
pub async fn approvals(store: &dyn KvStore, by: &Principal) -> JournalResult<Vec<Approval>> {
    let now = SystemTime::now();
    let entries = list_all(store, SPACE).await?;
    remove_expired(store, &entries).await?;
    let known = entries.iter().filter_map(KvEntry::record::<Approval>);
    let mut pending: Vec<Approval> = known
        .filter(|approval| approval.is_pending() && !approval.is_expired(now))
        .filter(|approval| approval.may_decide(by) && !is_requester(by, approval))
        .collect();
    pending.sort_by(|one, other| {
        let key = |approval: &Approval| (approval.requested_s, approval.id.clone());
        key(one).cmp(&key(other))
    });
    Ok(pending)
}

/// Returns the use that waits for an approval, and the version of its entry.
///
/// # Errors
/// [`ApprovalError`] if there is none that the principal may decide about.
async fn find(
    store: &dyn KvStore,
    id: &str,
    by: &Principal,
) -> Result<(Approval, u64), ApprovalError> {
    let is_key =
        |key: &&str| key.len() == KEY_CHARS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = id.split_once('-').map(|(key, _)| key).filter(is_key);
    let key = key.ok_or(ApprovalError::Unknown)?;
    let entry = store.get(SPACE, key).await.map_err(KvError::from)?;
    let entry = entry.ok_or(ApprovalError::Unknown)?;
    let approval: Approval = entry.record().ok_or(ApprovalError::Unknown)?;
    let is_over = approval.is_expired(SystemTime::now());
    if approval.id != id || is_over || !approval.may_decide(by) {
        return Err(ApprovalError::Unknown);
    }
    match is_requester(by, &approval) {
        true => Err(ApprovalError::Own),
        false => Ok((approval, entry.version)),
    }
}

/// Returns the use with this id, to be shown to whoever decides about it.
///
/// # Errors
/// [`ApprovalError`] if there is none that the principal may decide about.
pub async fn find_approval(
    store: &dyn KvStore,
    id: &str,
    by: &Principal,
) -> Result<Approval, ApprovalError> {
    find(store, id, by).await.map(|(approval, _)| approval)
}

/// Decides about a use. An approval counts for one run within as much time as the request had; until it is used, it
/// can be denied.
///
/// # Errors
/// [`ApprovalError`].
pub async fn decide_approval(
    store: &dyn KvStore,
    id: &str,
    decision: ApprovalDecision,
    by: &Principal,
) -> Result<Approval, ApprovalError> {
    let reason = decision.reason.filter(|reason| !reason.is_empty());
    let is_long = |reason: &String| reason.len() > APPROVAL_REASON_BYTES_MAX;
    if reason.as_ref().is_some_and(is_long) {
        return Err(ApprovalError::Reason);
    }
    let (approval, version) = find(store, id, by).await?;
    let state = match (approval.state, decision.is_approved) {
        (ApprovalState::Pending, true) => ApprovalState::Approved,
        (ApprovalState::Pending | ApprovalState::Approved, false) => ApprovalState::Denied,
        _ => return Err(ApprovalError::Decided),
    };
    let time = Duration::from_secs(approval.expires_s.saturating_sub(approval.requested_s));
    let decided = Approval {
        state,
        expires_s: unix_s(SystemTime::now() + time),
        decided_by: Some(format!("{}:{}", by.kind, by.id)),
        reason,
        ..approval
    };
    let key: String = id.chars().take(KEY_CHARS).collect();
    match decided.write(store, &key, version).await {
        Ok(()) => Ok(decided),
        Err(KvError::VersionConflict { .. }) => Err(ApprovalError::Decided),
        Err(error) => Err(error.into()),
    }
}

/// Returns the failure of an error of the store.
pub(super) fn unavailable(error: impl std::fmt::Display) -> Failure {
    callboard_message::log::error!(%error, "the approvals can't be read or written");
    Failure::unavailable("the node can't read what is approved: try again later")
}

/// Returns whether a principal is the one that an approval is for: its id is the same, whatever the kind of its
/// credential. The operator is only itself.
fn is_requester(principal: &Principal, approval: &Approval) -> bool {
    let is_same_kind = principal.kind == approval.requester_kind;
    principal.id == approval.requester && (is_same_kind || !is_operator(principal))
}

/// Returns whether a principal is the operator, who may decide about all.
fn is_operator(principal: &Principal) -> bool {
    principal.kind == PrincipalKind::LocalOperator
}
