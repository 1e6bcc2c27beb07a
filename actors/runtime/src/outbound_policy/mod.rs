//! Policy checks around each exchange of a proxy agent with its remote peer.

mod tool_screening;

use std::borrow::Cow;

use callboard_message::capabilities::{CallTool, ListTools};
use callboard_message::{CallId, Failure, Message, RawMessage, RawObject, RawReply};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

pub use crate::policy::AWAY_META_KEY;
pub use tool_screening::{REMOTE_TOOL_NAME_CHARS_MAX, is_confusable};

use crate::agent::context::Context;
use crate::node_events::{CallOrigin, ExchangeKind, ExchangeScope, ExchangeStart};
use crate::policy::access::has_ambiguous_names;
use crate::policy::rate_limit::tool_name;
use crate::policy::{Direction, PolicyRequest};

/// Sends `message` to the remote `server` by the protocol of `origin`, by calling `work`, and returns the reply. The span of
/// the exchange is that of the call of `cx`, which the protocol sends as the parent. Stops at
/// `deadline`, or when the call of `cx` is cancelled. The system's policies check both message and
/// reply. Malformed and misleading tools are removed from the reply to `tools/list`.
///
/// # Errors
/// The failure of a policy or of `work`; `TimedOut`; `Cancelled`; or `Rejected` if the call has
/// used up its hops.
pub async fn exchange<Work: Future<Output = RawReply>>(
    message: RawMessage,
    cx: &Context,
    server: &str,
    origin: CallOrigin,
    deadline: impl FnOnce() -> Instant,
    work: impl FnOnce(RawMessage) -> Work,
) -> RawReply {
    if let Some(call) = cx.call().filter(|call| call.hops >= call.hops_max) {
        return Err(Failure::rejected(format!(
            "the call passed through more than {} agents: look for a loop",
            call.hops_max
        )));
    }
    let name = message.name.clone();
    let request = policy_request(&name, &message.payload, cx, server);
    let pins = cx.system().policy().tool_pins();
    let is_pinned = pins.has(server);
    let needs_tool = is_pinned || cx.system().node_events().is_on();
    let tool = needs_tool.then(|| tool_name(&request)).flatten();
    let scope = begin_exchange(cx, &request, tool.as_deref(), origin);
    let tool = tool.filter(|_| is_pinned).map(Cow::into_owned);
    let reply = exchange_checked(message, tool, cx, server, deadline, work).await;
    if let Some(scope) = scope {
        let failure = reply.as_ref().err().map(|failure| failure.kind);
        scope.finish(failure, reply.as_ref().map_or("", |reply| reply.get()));
    }
    reply
}

/// Checks, sends and checks again, as [`exchange`] says. `tool` is the one that the message calls, if the server's tools are
/// pinned.
async fn exchange_checked<Work: Future<Output = RawReply>>(
    message: RawMessage,
    tool: Option<String>,
    cx: &Context,
    server: &str,
    deadline: impl FnOnce() -> Instant,
    work: impl FnOnce(RawMessage) -> Work,
) -> RawReply {
    let (name, policy) = (message.name.clone(), cx.system().policy());
    let request = policy_request(&name, &message.payload, cx, server);
    let pins = policy.tool_pins();
    let is_pinned = pins.has(server);
    // Pins may have been set just now.
    if is_pinned && let Some(tool) = tool.or_else(|| tool_name(&request).map(Cow::into_owned)) {
        let is_call = name == CallTool::NAME;
        let checked = match is_call && has_ambiguous_names(&message.payload) {
            true => Err(Failure::invalid(
                "a member's name is that of another one but for its case: leave it out",
            )),
            false => {
                let store = &*cx.system().store().kv;
                pins.check_call(store, server, &tool).await
            }
        };
        if let Err(failure) = checked {
            policy.tell_rejected(None, request, &failure).await;
            return Err(failure);
        }
    }
    policy.check(None, request).await?;
    let cursor = match is_pinned && name == ListTools::NAME {
        true => RawObject::parse(&message.payload)
            .ok()
            .and_then(|list| list.text("cursor")),
        false => None,
    };
    // Pinned in place: it is large and would otherwise be moved repeatedly.
    let work = std::pin::pin!(work(message));
    let mut reply = run_until_deadline(cx, deadline(), work).await;
    if name == ListTools::NAME {
        reply = tool_screening::remove_unfit_tools(reply, server);
        if is_pinned {
            let (store, audit) = (cx.system().store(), cx.system().audit());
            let (page, removed) = pins
                .screen(&*store.kv, audit, server, cursor, reply)
                .await?;
            reply = Ok(tool_screening::tell_unapproved(page, server, removed));
        }
    }
    policy
        .check_reply(policy_request(&name, RawValue::NULL, cx, server), reply)
        .await
}

/// Records the beginning of an exchange with a peer, in place of the handler that carries it out. `None` outside of a
/// call, and if events aren't read.
fn begin_exchange(
    cx: &Context,
    request: &PolicyRequest<'_>,
    tool: Option<&str>,
    origin: CallOrigin,
) -> Option<ExchangeScope> {
    let call = cx.call()?;
    let system = cx.system();
    if !system.node_events().is_on() {
        return None;
    }
    // A second exchange of the same handler has a span of its own.
    let is_first = cx.hop.as_ref().is_some_and(|hop| hop.take_over());
    ExchangeScope::begin(
        system.node_events(),
        &ExchangeStart {
            kind: ExchangeKind::Outbound,
            call: call.id,
            trace: match is_first {
                true => call.trace,
                false => call.trace.child(),
            },
            principal: &call.principal,
            agent: request.agent,
            message: request.message,
            tool,
            origin,
            payload: request.payload.get(),
        },
    )
}

fn policy_request<'a>(
    message: &'a str,
    payload: &'a RawValue,
    cx: &'a Context,
    server: &'a str,
) -> PolicyRequest<'a> {
    PolicyRequest {
        direction: Direction::Outbound,
        principal: cx.principal(),
        call: cx.call().map_or_else(CallId::generate, |call| call.id),
        agent: server,
        message,
        payload,
    }
}

/// Awaits `work` until `deadline` or until the call of `cx` is cancelled.
///
/// # Errors
/// The failure of `work`, `TimedOut` or `Cancelled`.
async fn run_until_deadline(
    cx: &Context,
    deadline: Instant,
    work: impl Future<Output = RawReply>,
) -> RawReply {
    let timed_out =
        || Failure::timed_out("the server sent no response in time; whether it acted is unknown");
    tokio::select! {
        // The deadline also cancels the token.
        () = cx.cancelled() => Err(match Instant::now() < deadline {
            true => Failure::cancelled("the call was cancelled"),
            false => timed_out(),
        }),
        done = timeout_at(deadline, work) => done.unwrap_or_else(|_| Err(timed_out())),
    }
}
