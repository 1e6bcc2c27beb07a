//! Approvals in the key-value store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::{Failure, Principal, PrincipalKind, encode_hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wildmatch::WildMatch;

use crate::journal::JournalResult;
use crate::kv_store::{KvEntry, KvError, KvStore, to_body};
use crate::policy::access::ApprovalTerms;

/// Maximum number of uses that wait for an approval, or whose decision is kept. One more is refused.
pub const APPROVALS_MAX: usize = 1_000;
/// Maximum number of uses of one principal that wait for an approval, or whose decision is kept. One more is refused.
pub const APPROVALS_PER_PRINCIPAL_MAX: usize = 100;
/// Maximum size of the arguments of a use that needs an approval, in bytes. With larger ones it is refused.
pub const APPROVAL_ARGUMENTS_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of the reason of a decision, in bytes.
pub const APPROVAL_REASON_BYTES_MAX: usize = 1_024;
/// Space of the approvals.
pub(super) const SPACE: &str = "approvals";
/// Number of entries that are read at once.
const PAGE_ENTRIES: usize = 100;

/// Use of a tool that needs an approval.
pub(crate) struct ToolUse<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// Name of the tool.
    pub tool: &'a str,
    /// Arguments as they are sent, as JSON.
    pub arguments: &'a str,
}

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
    /// Arguments, as JSON, as they were sent.
    #[debug(skip)]
    pub arguments: String,
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
    #[error("it has been decided about already")]
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

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Returns the key of a use: the same for each call with the same arguments by the same principal, whose
/// credential opens the same data.
pub(super) fn key(requester: &Principal, used: &ToolUse<'_>) -> String {
    let mut hash = Sha256::new();
    let scopes = requester.data_scopes().join(" ");
    for part in [
        requester.kind.as_str(),
        &requester.id,
        &scopes,
        requester.purpose.as_deref().unwrap_or_default(),
        used.agent,
        used.tool,
        used.arguments,
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    encode_hex(&hash.finalize()[..16])
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
            arguments: used.arguments.to_owned(),
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

/// Uses up an approval, so that it permits one run.
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
        expires_s: 0,
        ..approval.clone()
    };
    used.write(store, key, version).await?;
    // An expired entry counts as none, so nothing is lost if it stays.
    if let Err(error) = store.remove(SPACE, key).await {
        callboard_message::log::warn!(%error, "failed to remove a used approval");
    }
    Ok(())
}

/// Removes expired entries, and checks that there is room for a request of this principal.
///
/// # Errors
/// `Overloaded` if there is none; `Unavailable` if the store fails.
pub(super) async fn make_room(store: &dyn KvStore, requester: &Principal) -> Result<(), Failure> {
    let now = SystemTime::now();
    let (mut all, mut own) = (0, 0);
    for entry in read(store).await.map_err(unavailable)? {
        match entry.record::<Approval>() {
            Some(approval) if !approval.is_expired(now) => {
                all += 1;
                own += usize::from(
                    approval.requester_kind == requester.kind && is_requester(requester, &approval),
                );
            }
            _ => drop(store.remove(SPACE, &entry.key).await.map_err(unavailable)?),
        }
    }
    if own >= APPROVALS_PER_PRINCIPAL_MAX || all >= APPROVALS_MAX {
        return Err(Failure::overloaded(format!(
            "too many uses of tools wait for approvals (at most {APPROVALS_PER_PRINCIPAL_MAX} of one principal, {APPROVALS_MAX} of all): wait until some are decided or expire"
        )));
    }
    Ok(())
}

async fn read(store: &dyn KvStore) -> JournalResult<Vec<KvEntry>> {
    let mut entries: Vec<KvEntry> = Vec::new();
    loop {
        let after = entries.last().map(|entry| entry.key.clone());
        let page = store.list(SPACE, after.as_deref(), PAGE_ENTRIES).await?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

/// Returns the uses that a principal may decide about and that nobody has decided about, the oldest first. The
/// operator gets all.
///
/// # Errors
/// Those of the store.
pub async fn approvals(store: &dyn KvStore, by: &Principal) -> JournalResult<Vec<Approval>> {
    let now = SystemTime::now();
    let entries = read(store).await?;
    let known = entries.iter().filter_map(KvEntry::record::<Approval>);
    let mut pending: Vec<Approval> = known
        .filter(|approval| approval.state == ApprovalState::Pending && !approval.is_expired(now))
        .filter(|approval| approval.may_decide(by) && !is_requester(by, approval))
        .collect();
    pending.sort_by(|one, other| {
        let key = |approval: &Approval| (approval.requested_s, approval.id.clone());
        key(one).cmp(&key(other))
    });
    Ok(pending)
}

/// Decides about a use. An approval counts for one run within as much time as the request had.
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
    if reason
        .as_ref()
        .is_some_and(|reason| reason.len() > APPROVAL_REASON_BYTES_MAX)
    {
        return Err(ApprovalError::Reason);
    }
    let is_hex = |key: &&str| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = id.split_once('-').map(|(key, _)| key).filter(is_hex);
    let key = key.ok_or(ApprovalError::Unknown)?;
    let entry = store.get(SPACE, key).await.map_err(KvError::from)?;
    let now = SystemTime::now();
    let entry = entry.ok_or(ApprovalError::Unknown)?;
    let approval: Approval = entry.record().ok_or(ApprovalError::Unknown)?;
    if approval.id != id || approval.is_expired(now) || !approval.may_decide(by) {
        return Err(ApprovalError::Unknown);
    }
    if is_requester(by, &approval) {
        return Err(ApprovalError::Own);
    }
    if approval.state != ApprovalState::Pending {
        return Err(ApprovalError::Decided);
    }
    let time = Duration::from_secs(approval.expires_s.saturating_sub(approval.requested_s));
    let decided = Approval {
        state: match decision.is_approved {
            true => ApprovalState::Approved,
            false => ApprovalState::Denied,
        },
        expires_s: unix_s(now + time),
        decided_by: Some(format!("{}:{}", by.kind, by.id)),
        reason,
        ..approval
    };
    decided.write(store, key, entry.version).await?;
    Ok(decided)
}

/// Returns the failure of an error of the store.
pub(super) fn unavailable(error: impl std::fmt::Display) -> Failure {
    callboard_message::log::error!(%error, "the approvals can't be read or written");
    Failure::unavailable("the node can't read what is approved: try again later")
}

/// Returns whether a principal is the one that an approval is for, whatever its credential.
fn is_requester(principal: &Principal, approval: &Approval) -> bool {
    principal.id == approval.requester
}

/// Returns whether a principal is the operator, who may decide about all.
fn is_operator(principal: &Principal) -> bool {
    principal.kind == PrincipalKind::LocalOperator
}
