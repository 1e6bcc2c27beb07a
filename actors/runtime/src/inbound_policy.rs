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
use crate::policy::access::{AccessItem, AccessTarget};
use crate::policy::{Direction, PolicyRequest, RULES_MEMBER, has_reason};
use crate::shares::SharePermit;

/// Checks with the system's policies whether an inbound message may be delivered to `agent`.
/// Policies know the agent as `name`.
///
/// # Errors
/// The policy's failure, or `Rejected` if the call has used up its hops. Only the local operator
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
        false => policy.authorize(request).await,
    };
    let checked = match authorized {
        Ok(()) => policy.check(None, request).await,
        denied => denied,
    };
    if checked.is_err()
        && let Some(entry) = AccessEntry::begin(&request)
    {
        entry.finish(principal, &checked);
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
    let entry = AccessEntry::begin(&PolicyRequest {
        direction: Direction::Inbound,
        principal: &principal,
        call: id,
        agent: name,
        message,
        payload: &sent.payload,
    });
    let call = call.with_policy(system, Direction::Inbound, name);
    let gone = call.cancel.clone().drop_guard();
    let reply = ask_in_share(agent, sent, Arc::new(call)).await;
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
        entry.finish(&principal, &reply);
    }
    reply.map_err(|failure| withhold_rules(failure, &principal, id))
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
/// are permitted: what they tell is decided item by item ([`may_use`]).
///
/// # Errors
/// `Denied` by the rules of the system.
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
    cx.system().policy().authorize(request).await
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
