//! Approvals: uses of tools that wait until a person has decided about them.
//!
//! The person at the caller is asked by a question. A use that waits for somebody with a scope is an entry
//! in the key-value store, which outlives the call and the process: its requester repeats the call.

mod arguments;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{
    Answer, Elicitation, Failure, Principal, PrincipalKind, Progress, Question,
};
use serde_json::json;
use tokio::time::Instant;

pub use arguments::visible;
pub(crate) use arguments::{ToolUse, shown_arguments};
pub use store::{
    APPROVAL_ARGUMENTS_BYTES_MAX, APPROVAL_REASON_BYTES_MAX, APPROVALS_PER_PRINCIPAL_MAX, Approval,
    ApprovalDecision, ApprovalError, ApprovalState, approvals, decide_approval, find_approval,
};

use super::access::ApprovalTerms;
use crate::audit::AuditEntry;
use crate::call::{CallContext, Caller};
use crate::kv_store::{KvEntry, KvError, KvStore};
use crate::store::AuditLog;
use crate::sync::Mutex;
use arguments::describe;

/// Interval at which a waiting use reads whether somebody has decided.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of calls of one principal that wait at a time. Further ones end at once, and are repeated later.
pub const APPROVAL_WAITS_PER_PRINCIPAL_MAX: usize = 16;
/// Time before a call's deadline at which it ends, so that its caller hears of the approval.
const DEADLINE_MARGIN: Duration = Duration::from_millis(500);
/// Progress at the one report of a call that waits. The tool's own reports are larger, but for one of nothing.
const WAIT_PROGRESS: f64 = 1e-6;

/// Numbers of calls that wait for an approval, by principal.
#[derive(Default)]
pub(crate) struct WaitingCalls(Mutex<HashMap<(PrincipalKind, String), usize>>);

/// A call that waits. Its place is freed when it is dropped.
struct WaitingCall<'a> {
    calls: &'a WaitingCalls,
    principal: (PrincipalKind, String),
}

impl WaitingCalls {
    /// Returns a place for a call; `None` if the principal has [`APPROVAL_WAITS_PER_PRINCIPAL_MAX`].
    fn begin(&self, principal: &Principal) -> Option<WaitingCall<'_>> {
        let principal = (principal.kind, principal.id.clone());
        let mut numbers = self.0.lock();
        let number = numbers.entry(principal.clone()).or_default();
        if *number >= APPROVAL_WAITS_PER_PRINCIPAL_MAX {
            return None;
        }
        *number += 1;
        let calls = self;
        Some(WaitingCall { calls, principal })
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut numbers = self.calls.0.lock();
        if let Some(number) = numbers.get_mut(&self.principal) {
            *number -= 1;
            if *number == 0 {
                numbers.remove(&self.principal);
            }
        }
    }
}

/// Place of approvals: their store, the audit, and the calls that wait.
#[derive(Clone, Copy)]
pub(crate) struct ApprovalPlace<'a> {
    pub store: &'a dyn KvStore,
    pub audit: &'a AuditLog,
    pub waiting: &'a WaitingCalls,
}

/// Waits until the use of a tool in a call is approved on these terms.
///
/// # Errors
/// `Denied` if somebody decided so, or nobody in time; `TimedOut` at the call's deadline, or if too many calls of the
/// principal wait; `NoResponder` if the caller can't ask a person; `InvalidInput` if the arguments are too large;
/// `Overloaded` if too many uses wait.
pub(crate) async fn obtain(
    place: ApprovalPlace<'_>,
    call: &CallContext,
    terms: &ApprovalTerms,
    used: &ToolUse<'_>,
) -> Result<(), Failure> {
    if used.arguments.len() > APPROVAL_ARGUMENTS_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "this tool needs an approval, and a person can't read arguments of more than {APPROVAL_ARGUMENTS_BYTES_MAX} bytes: send less"
        )));
    }
    let requested = PendingUse {
        place,
        call,
        terms,
        used,
    };
    match terms.approvers.is_empty() {
        true => {
            ask_caller(call, used).await?;
            requested.record_used(None).await
        }
        false => requested.until_decided().await,
    }
}

/// Asks the person at the caller.
async fn ask_caller(call: &CallContext, used: &ToolUse<'_>) -> Result<(), Failure> {
    let able = |caller: &&Arc<dyn Caller>| caller.capabilities().has_elicitation_form();
    let Some(caller) = call.own_caller().filter(able) else {
        return Err(Failure::no_responder(
            "this tool runs only when a person at the client has approved it: call from a client that can ask its user (elicitation)",
        ));
    };
    let schema = json!({
        "type": "object",
        "properties": {
            "approve": { "type": "boolean", "title": "Run the tool with these arguments", "default": false }
        },
        "required": ["approve"]
    });
    let Principal {
        kind, id, purpose, ..
    } = &*call.principal;
    let purpose = purpose.as_deref().unwrap_or_default();
    let question = Elicitation::form(describe(&format!("{kind}:{id}"), purpose, used), schema);
    let answer = tokio::select! {
        biased;
        answer = caller.ask(Question::Elicit(question)) => answer?,
        () = call.wait_until_over() => return Err(over(call)),
    };
    match answer {
        Answer::Elicit(answer)
            if answer
                .content()
                .is_some_and(|content| content["approve"] == true) =>
        {
            Ok(())
        }
        _ => Err(Failure::denied(
            "the person at the client didn't approve this use of the tool: leave it, or ask that person first",
        )),
    }
}

/// Returns the failure of a call that ended before a decision.
fn over(call: &CallContext) -> Failure {
    match call.cancel.is_cancelled() {
        true => Failure::cancelled("the call was cancelled"),
        false => Failure::timed_out(
            "nobody has approved this use of the tool in time: call it again when somebody is there",
        ),
    }
}

/// Use of a tool that needs an approval.
struct PendingUse<'a> {
    place: ApprovalPlace<'a>,
    call: &'a CallContext,
    terms: &'a ApprovalTerms,
    used: &'a ToolUse<'a>,
}

impl PendingUse<'_> {
    /// Waits until somebody with a scope has decided.
    async fn until_decided(&self) -> Result<(), Failure> {
        let secret = store::secret(self.place.store).await;
        let secret = secret.map_err(store::unavailable)?;
        let key = store::key(&secret, &self.call.principal, self.terms, self.used);
        let Some(mut approval) = self.look(&key, None).await? else {
            return Ok(());
        };
        let Some(_waiting) = self.place.waiting.begin(&self.call.principal) else {
            return Err(still_pending(&approval));
        };
        self.report(&approval);
        let end = self.call.deadline;
        let end = end.map(|deadline| deadline.checked_sub(DEADLINE_MARGIN).unwrap_or(deadline));
        loop {
            let next = Instant::now() + POLL_INTERVAL;
            if end.is_some_and(|end| end <= next) {
                return Err(still_pending(&approval));
            }
            tokio::select! {
                biased;
                () = self.call.cancel.cancelled() => return Err(over(self.call)),
                () = tokio::time::sleep_until(next) => {}
            }
            approval = match self.look(&key, Some(&approval.id)).await? {
                None => return Ok(()),
                Some(approval) => approval,
            };
        }
    }

    fn report(&self, approval: &Approval) {
        if let Some(caller) = &self.call.caller {
            caller.progress(Progress {
                done: WAIT_PROGRESS,
                total: None,
                message: Some(format!("waits for the approval {}", approval.id)),
            });
        }
    }

    /// Reads the entry of the use, and creates it if there is none. Returns the approval that it waits for; `None` if
    /// it was approved, which is used up then. `awaited` is the id for which the call has waited.
    ///
    /// # Errors
    /// `Denied` if somebody decided so, or the awaited approval has expired.
    async fn look(&self, key: &str, awaited: Option<&str>) -> Result<Option<Approval>, Failure> {
        let (store, principal) = (self.place.store, &self.call.principal);
        loop {
            let entry = store.get(store::SPACE, key).await;
            let entry = entry.map_err(store::unavailable)?;
            let known: Option<Approval> = entry.as_ref().and_then(KvEntry::record);
            let version = entry.map_or(0, |entry| entry.version);
            let is_expired = |known: &Approval| known.is_expired(SystemTime::now());
            let is_awaited = |known: &Approval| Some(&*known.id) == awaited;
            let written = match known {
                Some(known) if is_expired(&known) && is_awaited(&known) && known.is_pending() => {
                    return Err(Failure::denied(format!(
                        "nobody has approved this use of the tool in time ({}): call it again",
                        known.id
                    )));
                }
                Some(approval) if !is_expired(&approval) => match approval.state {
                    ApprovalState::Pending => return Ok(Some(approval)),
                    ApprovalState::Denied => return Err(self.denied(&approval)),
                    // Another node, or another call with the same arguments, may use it first.
                    ApprovalState::Approved => {
                        let used = store::use_up(store, key, &approval, version).await;
                        if used.is_ok() {
                            self.record_used(Some(&approval)).await?;
                            return Ok(None);
                        }
                        used
                    }
                },
                _ => {
                    store::check_room(store, key).await?;
                    let approval = Approval::new(key, principal, self.terms, self.used);
                    let written = store::create(store, &approval, key, version).await?;
                    if written.is_ok() {
                        let requested =
                            self.entry(AuditEntry::new("approval.requested"), &approval);
                        self.place.audit.enqueue(requested).await;
                    }
                    written
                }
            };
            match written {
                Ok(()) | Err(KvError::VersionConflict { .. }) => {}
                Err(error) => return Err(store::unavailable(error)),
            }
        }
    }

    /// Records that the use may run, before it does.
    ///
    /// # Errors
    /// `Unavailable` if it can't be recorded.
    async fn record_used(&self, approval: Option<&Approval>) -> Result<(), Failure> {
        let entry = AuditEntry::new("approval.used");
        let entry = match approval {
            Some(approval) => self.entry(entry, approval),
            None => self.of_call(entry).with_detail("by", "caller"),
        };
        let recorded = self.place.audit.record(entry).await;
        recorded.map(drop).map_err(|error| {
            Failure::unavailable(format!(
                "failed to record the approval in the audit: {error}"
            ))
        })
    }

    fn of_call(&self, entry: AuditEntry) -> AuditEntry {
        entry
            .with_agent(self.used.agent)
            .with_principal(&self.call.principal)
            .with_call(self.call.id)
            .with_detail("tool", self.used.tool.to_owned())
            .with_detail("rule", self.terms.rule.clone())
    }

    fn entry(&self, entry: AuditEntry, approval: &Approval) -> AuditEntry {
        let entry = self
            .of_call(entry)
            .with_detail("approval", approval.id.clone());
        match &approval.decided_by {
            Some(by) => entry.with_detail("by", by.clone()),
            None => entry,
        }
    }

    /// Returns the failure of a denied use, which is recorded with who decided.
    fn denied(&self, approval: &Approval) -> Failure {
        let entry = self.entry(AuditEntry::new("approval.denied"), approval);
        self.place.audit.try_enqueue(entry);
        let why = match &approval.reason {
            Some(reason) => format!(": {reason}"),
            None => String::new(),
        };
        Failure::denied(format!(
            "this use of the tool was not approved ({}){why}",
            approval.id
        ))
    }
}

fn still_pending(approval: &Approval) -> Failure {
    Failure::timed_out(format!(
        "this use of the tool waits for the approval {id} by somebody with {scopes}: when it is given, repeat the call with the same arguments",
        id = approval.id,
        scopes = approval.approvers.join(" or "),
    ))
    .with_data(json!({ "reason": "approval", "approval": approval.id }))
}
