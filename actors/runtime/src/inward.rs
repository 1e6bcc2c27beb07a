//! What a server does around each message that comes in for an agent.

use std::sync::Arc;

use callboard_message::{Failure, Named, RawReply};
use serde_json::value::RawValue;

use crate::call::CallMeta;
use crate::handle::AgentRef;
use crate::policy::{Crossing, Direction};

/// Whether the message may come in for `agent`, which the policy knows by `name`.
///
/// # Errors
/// The policy's, and where the call has used up its hops.
pub async fn admit(
    agent: &AgentRef,
    name: &str,
    message: &str,
    payload: &RawValue,
    call: &CallMeta,
) -> Result<(), Failure> {
    if call.hops > call.hops_max {
        return Err(Failure::rejected("the call passed through too many agents"));
    }
    let (direction, principal, call) = (Direction::Inbound, &*call.principal, call.id);
    let crossing = Crossing {
        direction,
        principal,
        call,
        agent: name,
        message,
        payload,
    };
    agent.system().policy().judge(crossing).await
}

/// The reply of `agent` to `sent`, which was let in as `message`, if the policy lets it out. What is asked and answered in the
/// course of the call is shown to the policy too. Dropped, it cancels whatever the call caused elsewhere.
///
/// # Errors
/// The failure that came in its place, or the policy's.
pub async fn ask(
    agent: &AgentRef,
    name: &str,
    message: &str,
    sent: Named,
    call: CallMeta,
) -> RawReply {
    let (principal, id, system) = (call.principal.clone(), call.id, agent.system());
    let call = call.judged(system, Direction::Inbound, name);
    let gone = call.cancel.clone().drop_guard();
    let reply = agent
        .ask_named(sent.name, sent.payload, Some(Arc::new(call)))
        .await;
    gone.disarm();
    let (direction, payload) = (Direction::Inbound, RawValue::NULL);
    let crossing = Crossing {
        direction,
        principal: &principal,
        call: id,
        agent: name,
        message,
        payload,
    };
    system.policy().judge_reply(crossing, reply).await
}
