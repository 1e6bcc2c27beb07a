//! Agent through which people approve uses of tools that rules of the node hold back.

use std::time::{Duration, UNIX_EPOCH};

use callboard_macros::Message;
use callboard_message::time::format_rfc3339;
use callboard_message::{Elicitation, Failure, FailureKind};
use callboard_runtime::{
    Agent, AgentProfile, Approval, ApprovalDecision, ApprovalError, AuditEntry, ConcurrentHandler,
    Context, Handlers, PRINCIPAL_SHARE_PERCENT_DEFAULT, approvals, decide_approval, find_approval,
    visible,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Maximum number of uses in one list. The oldest are listed; the rest are counted. Fixed.
pub const APPROVALS_LISTED_MAX: usize = 50;
/// Maximum number of requests of one kind that the agent handles at once. Fixed.
const APPROVAL_HANDLERS_MAX: u32 = 16;

/// Lists the uses of tools that wait for an approval which you may give.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "list_approvals", reply = ApprovalList, fallible, title = "List approvals", read_only, idempotent, open_world = false)]
#[serde(deny_unknown_fields)]
pub struct ListApprovals {}

/// Approves or denies a use of a tool. Before it is approved, you are asked and see its tool, arguments and requester.
#[derive(Debug, Clone, PartialEq, Eq, Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "decide_approval", reply = DecidedApproval, fallible, title = "Decide about an approval", destructive = true, open_world = false)]
#[serde(deny_unknown_fields)]
pub struct DecideApproval {
    /// Id of the approval, from the list.
    pub id: String,
    /// Whether the tool may run, once, with these arguments.
    pub approve: bool,
    /// Reason, which the requester of a denied use is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Uses of tools that wait for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    /// Uses, the oldest first.
    pub approvals: Vec<PendingApproval>,
    /// Number of further uses, which are listed when these are decided.
    pub more: usize,
}

/// Use of a tool that waits for an approval.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, derive_more::Debug)]
pub struct PendingApproval {
    /// Id for the decision.
    pub id: String,
    /// Kind and id of the principal that wants to use the tool.
    pub requester: String,
    /// Agent.
    pub agent: String,
    /// Tool.
    pub tool: String,
    /// Purpose that the requester states; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purpose: String,
    /// Arguments, as JSON. Control and invisible characters are escaped.
    #[debug(skip)]
    pub arguments: String,
    /// Rule of the node that demands the approval.
    pub rule: String,
    /// Time of the request (RFC 3339).
    pub requested_at: String,
    /// Time at which the request expires (RFC 3339).
    pub expires_at: String,
}

/// Decision as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecidedApproval {
    /// Id of the approval.
    pub id: String,
    /// Whether the tool may run.
    pub approved: bool,
    /// Time until which the decision counts (RFC 3339).
    pub expires_at: String,
}

impl From<&Approval> for PendingApproval {
    fn from(approval: &Approval) -> Self {
        Self {
            id: approval.id.clone(),
            requester: visible(&format!(
                "{}:{}",
                approval.requester_kind, approval.requester
            )),
            agent: visible(&approval.agent),
            tool: visible(&approval.tool),
            purpose: visible(&approval.purpose),
            arguments: visible(&approval.arguments),
            rule: approval.rule.clone(),
            requested_at: to_text(approval.requested_s),
            expires_at: to_text(approval.expires_s),
        }
    }
}

fn to_text(unix_s: u64) -> String {
    format_rfc3339(UNIX_EPOCH + Duration::from_secs(unix_s))
}

/// Agent that lists the uses of tools that wait for approvals, and records decisions about them. Each principal
/// sees and decides what its scopes permit, and nothing of its own.
#[derive(Debug, Clone, Default)]
pub struct Approvals;

impl Agent for Approvals {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<ListApprovals>(APPROVAL_HANDLERS_MAX);
        on.concurrent::<DecideApproval>(APPROVAL_HANDLERS_MAX);
    }

    /// Returns the agent's profile: an approver who leaves questions open leaves room for others.
    fn profile() -> AgentProfile {
        AgentProfile::default().principal_share(PRINCIPAL_SHARE_PERCENT_DEFAULT)
    }
}

impl ConcurrentHandler<ListApprovals> for Approvals {
    fn handle(
        &mut self,
        _: ListApprovals,
        cx: Context,
    ) -> impl Future<Output = Result<ApprovalList, Failure>> + Send + 'static {
        async move {
            let pending = approvals(&*cx.system().store().kv, cx.principal()).await;
            let pending =
                pending.map_err(|error| to_failure(&ApprovalError::Store(error.into())))?;
            let listed = pending.iter().take(APPROVALS_LISTED_MAX);
            Ok(ApprovalList {
                approvals: listed.map(PendingApproval::from).collect(),
                more: pending.len().saturating_sub(APPROVALS_LISTED_MAX),
            })
        }
    }
}

impl ConcurrentHandler<DecideApproval> for Approvals {
    fn handle(
        &mut self,
        decision: DecideApproval,
        cx: Context,
    ) -> impl Future<Output = Result<DecidedApproval, Failure>> + Send + 'static {
        async move {
            let DecideApproval {
                id,
                approve,
                reason,
            } = decision;
            let is_approved = approve;
            let (store, by) = (&*cx.system().store().kv, cx.principal());
            if is_approved {
                let wanted = find_approval(store, &id, by).await;
                until_confirmed(&cx, &wanted.map_err(|error| to_failure(&error))?).await?;
            }
            let decision = ApprovalDecision {
                is_approved,
                reason,
            };
            let decided = decide_approval(store, &id, decision, by).await;
            let decided = decided.map_err(|error| to_failure(&error))?;
            let entry = AuditEntry::new("approval.decided")
                .with_agent(decided.agent.clone())
                .with_principal(by)
                .with_outcome(if is_approved { "approved" } else { "denied" })
                .with_detail("approval", decided.id.clone())
                .with_detail("tool", decided.tool.clone());
            cx.system().audit().enqueue(entry).await;
            Ok(DecidedApproval {
                id: decided.id,
                approved: is_approved,
                expires_at: to_text(decided.expires_s),
            })
        }
    }
}

/// Asks the person at the caller, who sees what would run.
///
/// # Errors
/// `NoResponder` if the caller can't ask a person; `Rejected` if the person doesn't approve.
async fn until_confirmed(cx: &Context, wanted: &Approval) -> Result<(), Failure> {
    let schema = json!({
        "type": "object",
        "properties": {
            "approve": { "type": "boolean", "title": "Let the tool run, once, with these arguments", "default": false }
        },
        "required": ["approve"]
    });
    let asked = cx
        .elicit(Elicitation::form(wanted.describe(), schema))
        .await;
    let answer = asked.map_err(|failure| match failure.kind {
        FailureKind::NoResponder => Failure::no_responder(
            "a person must see what is approved: use a client that can ask its user (elicitation), or `callboard approvals approve`",
        ),
        _ => failure,
    })?;
    match answer
        .content()
        .is_some_and(|content| content["approve"] == true)
    {
        true => Ok(()),
        false => Err(Failure::rejected(
            "the person at the client didn't approve: nothing has been decided",
        )),
    }
}

fn to_failure(error: &ApprovalError) -> Failure {
    let text = error.to_string();
    match error {
        ApprovalError::Own => Failure::denied(text),
        ApprovalError::Store(error) => {
            callboard_message::log::error!(%error, "the approvals can't be read or written");
            Failure::unavailable("the node can't read or write approvals: try again later")
        }
        ApprovalError::Reason => Failure::invalid(text),
        _ => Failure::not_found(text),
    }
}
