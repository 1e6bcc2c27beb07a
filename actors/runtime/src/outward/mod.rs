//! What an agent that stands for something outside does around each exchange with it.

mod flaw;

use callboard_message::surface::ListTools;
use callboard_message::{CallId, Failure, Message, Named, RawReply};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

pub use flaw::is_disguised;

use crate::agent::cx::Cx;
use crate::policy::{Crossing, Direction};

/// Sends `message` to `server` with `work`, until `deadline` and as long as the call `cx` is wanted; the policy judges both
/// the message and the reply.
///
/// # Errors
/// The policy's, those of `work`, `TimedOut` or `Cancelled`; `Rejected` where the call has used up its hops.
pub async fn exchange<Work: Future<Output = RawReply>>(
    message: Named,
    cx: &Cx,
    server: &str,
    deadline: impl FnOnce() -> Instant,
    work: impl FnOnce(Named) -> Work,
) -> RawReply {
    if cx.call().is_some_and(|call| call.hops >= call.hops_max) {
        return Err(Failure::rejected("the call passed through too many agents"));
    }
    let (name, policy) = (message.name.clone(), cx.system().policy());
    policy
        .judge(crossing(&name, &message.payload, cx, server))
        .await?;
    // Pinned where it is: it is large, and would be moved at each step otherwise.
    let work = std::pin::pin!(work(message));
    let mut reply = bounded(cx, deadline(), work).await;
    if name == ListTools::NAME {
        // Of tools it lists those that mislead nobody.
        reply = flaw::without_flawed(reply, server);
    }
    policy
        .judge_reply(crossing(&name, RawValue::NULL, cx, server), reply)
        .await
}

fn crossing<'a>(
    message: &'a str,
    payload: &'a RawValue,
    cx: &'a Cx,
    server: &'a str,
) -> Crossing<'a> {
    Crossing {
        direction: Direction::Outbound,
        principal: cx.principal(),
        call: cx.call().map_or_else(CallId::fresh, |call| call.id),
        agent: server,
        message,
        payload,
    }
}

/// What `work` comes to, until `deadline` and as long as the call `cx` is wanted.
///
/// # Errors
/// Its own, `TimedOut` or `Cancelled`.
async fn bounded(cx: &Cx, deadline: Instant, work: impl Future<Output = RawReply>) -> RawReply {
    let timed_out = || Failure::timed_out("no response in time");
    tokio::select! {
        // The deadline cancels too.
        () = cx.cancelled() => Err(match Instant::now() < deadline {
            true => Failure::cancelled("the call was cancelled"),
            false => timed_out(),
        }),
        done = timeout_at(deadline, work) => done.unwrap_or_else(|_| Err(timed_out())),
    }
}
