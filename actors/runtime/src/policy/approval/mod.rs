//! Approvals: uses of tools that wait until a person has decided about them.
//!
//! The person at the caller is asked by a question. A use that waits for somebody with a scope is an entry
//! in the key-value store, which outlives the call and the process: its requester repeats the call.

mod store;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use callboard_message::text::is_invisible;
use callboard_message::{Answer, Elicitation, Failure, Principal, Progress, Question};
use serde_json::json;
use tokio::time::Instant;

pub(crate) use store::ToolUse;
pub use store::{
    APPROVAL_ARGUMENTS_BYTES_MAX, APPROVAL_REASON_BYTES_MAX, APPROVALS_MAX,
    APPROVALS_PER_PRINCIPAL_MAX, Approval, ApprovalDecision, ApprovalError, ApprovalState,
    approvals, decide_approval,
};

use super::access::ApprovalTerms;
use crate::audit::AuditEntry;
use crate::call::CallContext;
use crate::kv_store::{KvEntry, KvError, KvStore};
use crate::store::AuditLog;

/// Interval at which a waiting use reads whether somebody has decided.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Number of polls between two progress reports to a caller that waits.
const PROGRESS_INTERVAL_POLLS: u32 = 10;
/// Time before a call's deadline at which it ends, so that its caller hears of the approval.
const DEADLINE_MARGIN: Duration = Duration::from_millis(500);
/// Step between two progress reports. The reports of the tool itself are larger.
const PROGRESS_STEP: f64 = 1e-6;

/// Waits until the use of a tool in a call is approved on these terms.
///
/// # Errors
/// `Denied` if somebody decided so, or the approval has expired; `TimedOut` at the call's deadline; `NoResponder`
/// if the caller can't ask a person; `InvalidInput` if the arguments are too large; `Overloaded` if too many uses wait.
pub(crate) async fn obtain(
    store: &dyn KvStore,
    audit: &AuditLog,
    call: &CallContext,
    terms: &ApprovalTerms,
    used: &ToolUse<'_>,
) -> Result<(), Failure> {
    if used.arguments.len() > APPROVAL_ARGUMENTS_BYTES_MAX {
        return Err(Failure::invalid(format!(
            "this tool needs an approval, and a person can't read arguments of more than {APPROVAL_ARGUMENTS_BYTES_MAX} bytes: send less"
        )));
    }
    match terms.approvers.is_empty() {
        true => ask_caller(call, used).await,
        false => {
            let waiting = PendingUse {
                store,
                audit,
                call,
                terms,
                used,
            };
            waiting.until_decided().await
        }
    }
}

/// Asks the person at the caller.
async fn ask_caller(call: &CallContext, used: &ToolUse<'_>) -> Result<(), Failure> {
    let able = |caller: &&std::sync::Arc<dyn crate::call::Caller>| {
        caller.capabilities().has_elicitation_form()
    };
    let Some(caller) = call.caller.as_ref().filter(able) else {
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
    let question = Elicitation::form(describe(&call.principal, used), schema);
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
            "the person at the client didn't approve this use of the tool",
        )),
    }
}

/// Returns what an approver reads: requester, agent, tool and all of the arguments.
fn describe(requester: &Principal, used: &ToolUse<'_>) -> String {
    let text = format!(
        "{}:{} wants to run the tool {} of {} with these arguments: {}",
        requester.kind, requester.id, used.tool, used.agent, used.arguments
    );
    visible(&text)
}

/// Returns a text in which control and invisible characters are escaped, so that nothing in it is hidden.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || is_invisible(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

/// Returns the failure of a call that ended before a decision.
fn over(call: &CallContext) -> Failure {
    match call.cancel.is_cancelled() {
        true => Failure::cancelled("the call was cancelled"),
        false => Failure::timed_out("nobody has approved this use of the tool in time"),
    }
}

/// Use of a tool that waits for somebody with a scope.
struct PendingUse<'a> {
    store: &'a dyn KvStore,
    audit: &'a AuditLog,
    call: &'a CallContext,
    terms: &'a ApprovalTerms,
    used: &'a ToolUse<'a>,
}

/// State of a use after a look at its entry.
enum Progressed {
    Approved,
    Waiting(Approval),
}

impl PendingUse<'_> {
    /// Waits until somebody has decided.
    async fn until_decided(&self) -> Result<(), Failure> {
        let end = self.call.deadline;
        let end = end.map(|deadline| deadline.checked_sub(DEADLINE_MARGIN).unwrap_or(deadline));
        for poll in 0_u32.. {
            let approval = match self.look().await? {
                Progressed::Approved => return Ok(()),
                Progressed::Waiting(approval) => approval,
            };
            if poll % PROGRESS_INTERVAL_POLLS == 0 {
                self.report(poll, &approval);
            }
            let next = Instant::now() + POLL_INTERVAL;
            if end.is_some_and(|end| end <= next) {
                return Err(still_pending(&approval));
            }
            tokio::select! {
                biased;
                () = self.call.cancel.cancelled() => return Err(over(self.call)),
                () = tokio::time::sleep_until(next) => {}
            }
        }
        Err(over(self.call))
    }

    fn report(&self, poll: u32, approval: &Approval) {
        if let Some(caller) = &self.call.caller {
            caller.progress(Progress {
                done: f64::from(poll + 1) * PROGRESS_STEP,
                total: None,
                message: Some(format!("waits for the approval {}", approval.id)),
            });
        }
    }

    /// Reads the entry of the use, and creates it if there is none. A granted approval is used up.
    async fn look(&self) -> Result<Progressed, Failure> {
        let store = self.store;
        let key = store::key(&self.call.principal, self.used);
        loop {
            let entry = store
                .get(store::SPACE, &key)
                .await
                .map_err(store::unavailable)?;
            let known: Option<Approval> = entry.as_ref().and_then(KvEntry::record);
            let version = entry.map_or(0, |entry| entry.version);
            let current = known.filter(|known| !known.is_expired(SystemTime::now()));
            let written = match current {
                Some(approval) => match approval.state {
                    ApprovalState::Pending => return Ok(Progressed::Waiting(approval)),
                    ApprovalState::Denied => return Err(denied(&approval)),
                    // Another node, or another call with the same arguments, may use it first.
                    ApprovalState::Approved => {
                        let used = store::use_up(store, &key, &approval, version).await;
                        if used.is_ok() {
                            self.record(AuditEntry::new("approval.used"), &approval);
                            return Ok(Progressed::Approved);
                        }
                        used
                    }
                },
                None => {
                    store::make_room(store, &self.call.principal).await?;
                    let approval = Approval::new(&key, &self.call.principal, self.terms, self.used);
                    let written = approval.write(store, &key, version).await;
                    if written.is_ok() {
                        self.record(AuditEntry::new("approval.requested"), &approval);
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

    fn record(&self, entry: AuditEntry, approval: &Approval) {
        let entry = entry
            .with_agent(self.used.agent)
            .with_principal(&self.call.principal)
            .with_call(self.call.id)
            .with_detail("approval", approval.id.clone())
            .with_detail("tool", self.used.tool.to_owned())
            .with_detail("rule", self.terms.rule.clone());
        let entry = match &approval.decided_by {
            Some(by) => entry.with_detail("by", by.clone()),
            None => entry,
        };
        self.audit.try_enqueue(entry);
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

fn denied(approval: &Approval) -> Failure {
    let why = match &approval.reason {
        Some(reason) => format!(": {reason}"),
        None => String::new(),
    };
    Failure::denied(format!(
        "this use of the tool was not approved ({}){why}",
        approval.id
    ))
}
