//! Policy checks around each message that a server receives for an agent.

use std::sync::Arc;

use callboard_message::{
    CallId, Failure, FailureKind, Principal, PrincipalKind, RawMessage, RawReply,
};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::access_log::AccessEntry;
use crate::agent::context::Context;
use crate::call::{CallContext, HandlerPlace};
use crate::handle::AgentRef;
use crate::policy::access::{AccessItem, AccessTarget, ApprovalTerms};
use crate::policy::approval::{self, ApprovalPlace, ToolUse, shown_arguments};
use crate::policy::{Direction, PolicyRequest, RULES_MEMBER, has_reason};
use crate::shares::SharePermit;
use crate::system::System;

/// Checks with the system's policies whether an inbound message may be delivered to `agent`.
/// Policies know the agent as `name`.
///
/// # Errors
/// The policy's failure; `Overloaded` if a quota of the principal is used up; `Rejected` if the call has used up its hops. Only the local operator
/// gets the ids of the rules that blocked a message; others get the id of the call as a reference.
pub async fn admit(
    agent: &AgentRef,
    name: &str,
    message: &str,
    payload: &RawValue,
    call: &CallContext,
) -> Result<(), Failure> {
    if call.hops > call.hops_max {
        return Err(Failure::rejected(format!(
            "the call passed through more than {} agents: look for a loop",
            call.hops_max
        )));
    }
    let (direction, principal) = (Direction::Inbound, &*call.principal);
    let request = PolicyRequest {
        direction,
        principal,
        call: call.id,
        agent: name,
        message,
        payload,
    };
    let policy = agent.system().policy();
    let authorized = match agent.authorizes_itself() {
        true => Ok(()),
        // An approval is obtained within the call (`ask`).
        false => policy.authorize(request).await.map(drop),
    };
    let checked = match authorized {
        Ok(()) => policy.check(None, request).await,
        denied => denied,
    };
    // Last, so that what is refused otherwise doesn't count.
    let checked = match checked {
        Ok(()) if !agent.authorizes_itself() => {
            policy.count_call(&agent.system().store().kv, request).await
        }
        checked => checked,
    };
    if let Err(failure) = &checked
        && let Some(entry) = AccessEntry::begin(agent.system(), &request, call)
    {
        entry.finish(&RawReply::Err(failure.clone()));
    }
    checked.map_err(|failure| withhold_rules(failure, principal, call.id))
}

/// Sends `sent` to `agent`, which policies know as `name`, and returns the reply if the policies
/// permit it. Doesn't check the message itself: call [`admit`] before, with the same `message`.
/// Questions and answers during the call are checked too. Dropping the future cancels the whole
/// call.
///
/// If principals share the agent's handlers, waits for one, as [`ask_in_share`] does.
///
/// # Errors
/// As [`ask_in_share`]; also the policy's failure, as for [`admit`].
pub async fn ask(
    agent: &AgentRef,
    name: &str,
    message: &str,
    sent: RawMessage,
    call: CallContext,
) -> RawReply {
    let (principal, id, system) = (call.principal.clone(), call.id, agent.system());
    let begun = PolicyRequest {
        direction: Direction::Inbound,
        principal: &principal,
        call: id,
        agent: name,
        message,
        payload: &sent.payload,
    };
    let mut call = call;
    call.trace = system.node_events().sampled(call.trace);
    let entry = AccessEntry::begin(system, &begun, &call);
    let mut call = call.with_policy(system, Direction::Inbound, name);
    if system.node_events().is_on() {
        // The agent's part of the call has a span of its own.
        call.trace = call.trace.child();
    }
    let gone = call.cancel.clone().drop_guard();
    let is_approved = match agent.authorizes_itself() {
        true => Ok(()),
        false => until_approved(system, name, &sent, &call).await,
    };
    let reply = match is_approved {
        Ok(()) => ask_in_share(agent, sent, Arc::new(call)).await,
        Err(failure) => Err(failure),
    };
    gone.disarm();
    let (direction, payload) = (Direction::Inbound, RawValue::NULL);
    let request = PolicyRequest {
        direction,
        principal: &principal,
        call: id,
        agent: name,
        message,
        payload,
    };
    let mut reply = system.policy().check_reply(request, reply).await;
    if !agent.authorizes_itself() {
        reply = system.policy().without_denied(request, reply);
    }
    if let Some(entry) = entry {
        entry.finish(&reply);
    }
    reply.map_err(|failure| withhold_rules(failure, &principal, id))
}

/// Waits until the rules of `system` permit a message of a call to the agent that policies know as `name`. If
/// they demand an approval, that is when somebody has given it.
///
/// # Errors
/// `Denied` by the rules, or those of [`approval::obtain`].
async fn until_approved(
    system: &System,
    name: &str,
    sent: &RawMessage,
    call: &CallContext,
) -> Result<(), Failure> {
    if !system.policy().may_need_approval(&call.principal) {
        return Ok(());
    }
    let request = PolicyRequest {
        direction: Direction::Inbound,
        principal: &call.principal,
        call: call.id,
        agent: name,
        message: &sent.name,
        payload: &sent.payload,
    };
    // Judged again, as the agent reads the message: an adapter may have judged it in another form.
    let approval = system.policy().authorize(request).await?;
    obtain_approval(system, request, approval, call).await
}

/// Waits until somebody has given the approval that a request needs, if any.
async fn obtain_approval(
    system: &System,
    request: PolicyRequest<'_>,
    approval: Option<(Arc<ApprovalTerms>, AccessItem<'_>)>,
    call: &CallContext,
) -> Result<(), Failure> {
    let Some((terms, AccessItem::Tool { name, arguments })) = approval else {
        return Ok(());
    };
    let used = ToolUse {
        agent: request.agent,
        tool: &name,
        arguments: shown_arguments(request.message, request.payload, arguments),
    };
    let policy = system.policy();
    let place = ApprovalPlace {
        store: &*system.store().kv,
        audit: system.audit(),
        waiting: policy.waiting_calls(),
    };
    let obtained = approval::obtain(place, call, &terms, &used).await;
    if let Err(failure) = &obtained
        && failure.kind == FailureKind::Denied
    {
        policy.tell_rejected(None, request, failure).await;
    }
    obtained?;
    // The rules may be other ones by now.
    let now = policy.authorize(request).await?;
    match now.is_none_or(|(now, _)| now == terms) {
        true => Ok(()),
        false => Err(Failure::denied(
            "the rules about this tool have changed while it waited for its approval: call it again",
        )),
    }
}

/// Sends `sent` to `agent` and returns the reply, without any check by policies. If principals share
/// the agent's handlers ([`AgentProfile::principal_share_percent`]), waits for one until the call's
/// deadline. The handler counts as the principal's until it ends, also if this future is dropped
/// before.
///
/// [`AgentProfile::principal_share_percent`]: crate::AgentProfile::principal_share_percent
///
/// # Errors
/// The agent's failure; `Overloaded` if the call gets no handler.
pub async fn ask_in_share(
    agent: &AgentRef,
    sent: RawMessage,
    mut call: Arc<CallContext>,
) -> RawReply {
    let permit = acquire_handler(agent, &sent.name, &call)
        .await?
        .map(Arc::new);
    if let Some(permit) = &permit {
        Arc::make_mut(&mut call).handler = HandlerPlace::new(permit);
    }
    agent.0.clone().ask_named(sent, Some(call)).await
}

/// Checks that the principal of `cx` may send a message to `agent`, which policies know as `name`, and for
/// which the agent of `cx` stands
/// ([`AgentProfile::authorizes_itself`](crate::AgentProfile::authorizes_itself)). Lists and descriptions
/// are permitted: what they tell is decided item by item ([`may_use`]). If the rules demand an approval, waits
/// for it.
///
/// # Errors
/// `Denied` by the rules of the system, or if the use isn't approved; `Overloaded` if a quota of the principal is
/// used up.
pub async fn authorize_for(
    cx: &Context,
    agent: &AgentRef,
    name: &str,
    message: &str,
    payload: &RawValue,
) -> Result<(), Failure> {
    if agent.authorizes_itself() || AccessItem::is_of_agent(message) {
        return Ok(());
    }
    let request = PolicyRequest {
        direction: Direction::Inbound,
        principal: cx.principal(),
        call: cx.call().map_or_else(CallId::generate, |call| call.id),
        agent: name,
        message,
        payload,
    };
    let policy = cx.system().policy();
    let approval = policy.authorize(request).await?;
    policy.count_call(&cx.system().store().kv, request).await?;
    match cx.call() {
        Some(call) => obtain_approval(cx.system(), request, approval, call).await,
        None if approval.is_none() => Ok(()),
        None => Err(Failure::denied(
            "this tool needs an approval, which a message outside of a call can't wait for: call it",
        )),
    }
}

/// Returns whether some use by a principal of `agent`, which policies know as `name`, may need an approval: of a tool, or
/// with `None` of any.
pub fn may_need_approval(
    agent: &AgentRef,
    name: &str,
    principal: &Principal,
    tool: Option<&str>,
) -> bool {
    let item = tool.map_or(AccessItem::Agent, AccessItem::tool);
    let target = AccessTarget { agent: name, item };
    agent
        .system()
        .policy()
        .may_demand_approval(principal, &target)
}

/// Returns whether it matters by which name a principal uses something, so that ambiguous ones are refused.
pub fn judges_names(agent: &AgentRef, principal: &Principal) -> bool {
    let policy = agent.system().policy();
    policy.binds(principal) || policy.quotas().has_quotas()
}

/// Returns whether rules bind a principal, so that what one may list another may not.
pub fn binds(agent: &AgentRef, principal: &Principal) -> bool {
    agent.system().policy().binds(principal)
}

/// Returns whether a principal may use an item of `agent`, which policies know as `name`, so that it may
/// be listed.
pub fn may_use(agent: &AgentRef, name: &str, principal: &Principal, item: AccessItem<'_>) -> bool {
    let target = AccessTarget { agent: name, item };
    agent.authorizes_itself() || agent.system().policy().permits(principal, &target)
}

/// Member of a block's data that stands for the rule ids: the id of the call in log and audit.
const REFERENCE_MEMBER: &str = "reference";

/// Removes the rule ids from the block of a policy, which would help its sender to evade the rules.
/// A reference takes their place, by which the operator finds them. The local operator gets them.
fn withhold_rules(mut failure: Failure, sender: &Principal, call: CallId) -> Failure {
    let is_block =
        matches!(failure.kind, FailureKind::Blocked | FailureKind::Denied) && has_reason(&failure);
    if is_block
        && sender.kind != PrincipalKind::LocalOperator
        && let Some(Value::Object(data)) = &mut failure.data
        && data.remove(RULES_MEMBER).is_some()
    {
        data.insert(REFERENCE_MEMBER.to_owned(), call.to_string().into());
    }
    failure
}

/// Waits for one of the agent's handlers, if principals share them. A cancelled call doesn't wait:
/// the agent refuses it.
async fn acquire_handler(
    agent: &AgentRef,
    message: &str,
    call: &CallContext,
) -> Result<Option<SharePermit>, Failure> {
    let Some(handlers) = agent.0.handler_shares(message) else {
        return Ok(None);
    };
    tokio::select! {
        biased;
        permit = handlers.acquire(&*call.principal, call.deadline) => match permit {
            Ok(permit) => Ok(Some(permit)),
            Err(error) => {
                let why = format!("{agent}: no handler is free: {error}");
                Err(Failure::overloaded(why))
            }
        },
        () = call.cancel.cancelled() => Ok(None),
    }
}
