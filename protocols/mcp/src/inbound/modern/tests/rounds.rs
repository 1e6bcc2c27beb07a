use std::sync::atomic::Ordering;
use std::time::Duration;

use callboard_runtime::testkit::{eventually, run_with_paused_time};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::kit::{Counts, ImpatientAgent, Peer, error_code, named, with_options, with_peer};
use crate::inbound::modern::suspended_requests::{
    RETAINED_OUTCOME_BYTES_MAX, RETAINED_OUTCOMES_MAX,
};
use crate::inbound::options::{InboundOptions, ModernOptions};

const SOON: Duration = Duration::from_secs(5);

async fn asked(peer: &Peer) -> Value {
    let first = peer.tool("ask_name", json!({})).await;
    json!({ "requestState": first["requestState"], "inputResponses": { "user_name": named("Alice") } })
}

fn is_refused(response: &Value) -> bool {
    error_code(response) == -32602 && response.get("result").is_none()
}

/// Goal: a state that was changed, or issued for another principal, tool, arguments or method, is
/// rejected alike, and does no harm. Method: each, then the right one.
#[test]
fn states_that_are_not_good_here() {
    with_peer(async |peer| {
        let retry = asked(&peer).await;
        let mut refusals = Vec::new();
        let mut tampered = retry.clone();
        tampered["requestState"] =
            format!("{}-TAMPERED", retry["requestState"].as_str().unwrap()).into();
        refusals.push(peer.call("ask_name", tampered.clone()).await.1);
        tampered["requestState"] = "".into();
        refusals.push(peer.call("ask_name", tampered).await.1);
        refusals.push(
            peer.other("mallory")
                .call("ask_name", retry.clone())
                .await
                .1,
        );
        refusals.push(peer.call("ask_twice", retry.clone()).await.1);
        let mut other = retry.clone();
        other["arguments"] = json!({ "greeting": "Bye" });
        refusals.push(peer.call("ask_name", other).await.1);
        let mut prompt = retry.clone();
        prompt["name"] = "ask_name".into();
        refusals.push(peer.post("prompts/get", prompt).await.1);
        assert!(refusals.iter().all(is_refused), "{refusals:?}");
        let said: std::collections::HashSet<_> = refusals
            .iter()
            .map(|r| r["error"]["message"].to_string())
            .collect();
        assert_eq!(
            said.len(),
            1,
            "no refusal tells more than another: {said:?}"
        );
        assert_eq!(
            peer.tool("ask_name", retry).await["content"][0]["text"],
            " Alice"
        );
        assert_eq!(peer.counts.greeted.load(Ordering::SeqCst), 1);
    });
}

/// Goal: a repeated retry has one effect and one outcome, also while the first runs. Method: twice
/// at once, once later, and the first state after the second.
#[test]
fn a_repeated_retry_has_one_effect() {
    with_peer(async |peer| {
        let retry = asked(&peer).await;
        let (a, b) = futures::join!(
            peer.tool("ask_name", retry.clone()),
            peer.tool("ask_name", retry.clone())
        );
        let later = peer.tool("ask_name", retry).await;
        assert_eq!(a["content"][0]["text"], " Alice");
        assert_eq!((&a, &a), (&b, &later));
        assert_eq!(peer.counts.greeted.load(Ordering::SeqCst), 1);

        let first = peer.tool("ask_twice", json!({})).await;
        let retry = json!({ "requestState": first["requestState"], "inputResponses": { "q1": named("A") } });
        let second = peer.tool("ask_twice", retry.clone()).await;
        assert_eq!(
            peer.tool("ask_twice", retry.clone()).await,
            second,
            "the same questions, the same state"
        );
        let last = json!({ "requestState": second["requestState"], "inputResponses": { "q2": named("B") } });
        assert_eq!(
            peer.tool("ask_twice", last).await["content"][0]["text"],
            "A B"
        );
        assert!(
            is_refused(&peer.call("ask_twice", retry).await.1),
            "two rounds old"
        );
    });
}

/// Goal: a call without answers is cancelled, and its state rejected. Method: time, to the limit
/// and past it.
#[test]
fn an_unanswered_call_expires() {
    with_peer(async |peer| {
        let retry = asked(&peer).await;
        sleep(Duration::from_secs(299)).await;
        assert_eq!(peer.service.calls.waiting(), 1);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(peer.service.calls.waiting(), 0);
        let cancelled = peer.counts.cancelled.clone();
        eventually("the call is cancelled", SOON, || {
            cancelled.load(Ordering::SeqCst) == 1
        })
        .await;
        let (_, response) = peer.call("ask_name", retry).await;
        assert!(
            is_refused(&response)
                && response["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains("expired")
        );
    });
}

/// Goal: a call whose agent gives its question up ends then, though its client never comes back, and
/// a later retry is told why. Method: an agent that runs in its caller's task and waits five seconds;
/// a little more, then a retry.
#[test]
fn an_unanswered_call_ends_with_its_agent() {
    run_with_paused_time(async |system| {
        let counts = Counts::default();
        let agent = ImpatientAgent::spawn(system, counts.clone());
        // Starts it: only then it runs in its callers' tasks.
        agent.observe().await;
        let peer = Peer::of(agent, counts.clone(), InboundOptions::default());
        let retry = asked(&peer).await;
        sleep(ImpatientAgent::PATIENCE / 2).await;
        assert_eq!(counts.cancelled.load(Ordering::SeqCst), 0);
        sleep(ImpatientAgent::PATIENCE).await;
        assert_eq!(counts.cancelled.load(Ordering::SeqCst), 1);
        let (_, response) = peer.call("ask_name", retry).await;
        assert!(
            response.to_string().contains("no answer came in time"),
            "{response}"
        );
        assert_eq!(peer.service.calls.waiting(), 0);
        system.shutdown(SOON).await;
    });
}

/// Goal: an outcome is kept as long as its state is valid, not longer. Method: a repeated retry
/// before and after.
#[test]
fn an_outcome_is_kept_for_a_while() {
    with_peer(async |peer| {
        let retry = asked(&peer).await;
        let outcome = peer.tool("ask_name", retry.clone()).await;
        sleep(Duration::from_secs(200)).await;
        assert_eq!(peer.tool("ask_name", retry.clone()).await, outcome);
        sleep(Duration::from_secs(101)).await;
        assert!(is_refused(&peer.call("ask_name", retry).await.1));
    });
}

/// Goal: suspended calls are limited exactly, and a further one is cancelled. Method: limit and
/// limit + 1, then room again.
#[test]
fn parked_calls_are_bounded() {
    let modern = ModernOptions {
        suspended_calls_max: 2,
        ..ModernOptions::default()
    };
    with_options(
        InboundOptions {
            modern,
            ..InboundOptions::default()
        },
        async |peer| {
            let retry = asked(&peer).await;
            asked(&peer).await;
            let (status, response) = peer.call("ask_name", json!({})).await;
            assert_eq!((status, error_code(&response)), (200, -3));
            let cancelled = peer.counts.cancelled.clone();
            eventually("the one more is cancelled", SOON, || {
                cancelled.load(Ordering::SeqCst) == 1
            })
            .await;
            peer.tool("ask_name", retry).await;
            assert_eq!(
                peer.tool("ask_name", json!({})).await["resultType"],
                "input_required"
            );
        },
    );
}

/// Goal: one principal can't hold every place. Method: the share of one, one more of theirs, one of
/// another's; then room again.
#[test]
fn parked_calls_of_one_principal_are_bounded() {
    let modern = ModernOptions {
        suspended_calls_max: 3,
        ..ModernOptions::default()
    };
    with_options(
        InboundOptions {
            modern,
            principal_share_percent: 34,
            ..InboundOptions::default()
        },
        async |peer| {
            let other = peer.other("b");
            let retries = [asked(&peer).await, asked(&peer).await];
            let (_, refused) = peer.call("ask_name", json!({})).await;
            assert_eq!(
                (error_code(&refused), refused["error"]["message"].as_str()),
                (
                    -3,
                    Some(
                        "too many calls wait for answers: 2 of 3 are in use, 2 by this principal; the last 1 are for others (`principal_share_percent`): end one first"
                    )
                )
            );
            asked(&other).await;
            assert_eq!(
                error_code(&other.call("ask_name", json!({})).await.1),
                -3,
                "all places are taken"
            );
            for retry in retries {
                peer.tool("ask_name", retry).await;
            }
            asked(&peer).await;
        },
    );
}

/// Goal: disconnecting cancels, in the first request and in a retry. Method: both, with a call that
/// doesn't end.
#[test]
fn hanging_up_cancels() {
    with_peer(async |peer| {
        let cancelled = peer.counts.cancelled.clone();
        let hang_up = async {
            sleep(Duration::from_secs(1)).await;
            peer.hung_up.cancel();
        };
        let ((_, response), ()) = futures::join!(peer.call("hang", json!({})), hang_up);
        assert_eq!(error_code(&response), -8);
        eventually("it is cancelled", SOON, || {
            cancelled.load(Ordering::SeqCst) == 1
        })
        .await;

        let dropped = peer.other("b");
        tokio::time::timeout(Duration::from_secs(1), dropped.call("hang", json!({})))
            .await
            .unwrap_err();
        eventually("a request that is dropped too", SOON, || {
            cancelled.load(Ordering::SeqCst) == 2
        })
        .await;
    });
}

/// Goal: closing the endpoint cancels suspended calls. Method: one call.
#[test]
fn closing_cancels_what_waits() {
    with_peer(async |peer| {
        let retry = asked(&peer).await;
        peer.service.close();
        let cancelled = peer.counts.cancelled.clone();
        eventually("it is cancelled", SOON, || {
            cancelled.load(Ordering::SeqCst) == 1
        })
        .await;
        assert!(is_refused(&peer.call("ask_name", retry).await.1));
    });
}

/// Goal: progress of a resumed call goes to the request that resumed it. Method: a token in each.
#[test]
fn progress_goes_to_the_open_request() {
    with_peer(async |peer| {
        let first = peer
            .tool("ask_name", json!({ "_meta": { "progressToken": "first" } }))
            .await;
        let answers = json!({ "user_name": named("Alice") });
        let retry = json!({ "requestState": first["requestState"], "inputResponses": answers, "_meta": { "progressToken": 2 } });
        peer.tool("ask_name", retry).await;
        let sent = peer.link.take();
        assert_eq!(sent.len(), 1);
        assert_eq!(
            sent[0]["params"],
            json!({ "progressToken": 2, "progress": 1, "message": "greeted" })
        );
    });
}

/// Goal: kept outcomes are limited, in number and size; without one a repeated retry is rejected,
/// not executed again. Method: limit and limit + 1 calls; a result that is too large.
#[test]
fn kept_outcomes_are_bounded() {
    with_peer(async |peer| {
        let retry = asked(&peer).await;
        peer.tool("ask_name", retry.clone()).await;
        for n in 1..=RETAINED_OUTCOMES_MAX {
            let kept = peer.call("ask_name", retry.clone()).await.1;
            assert!(kept.get("result").is_some(), "{n}");
            let next = asked(&peer).await;
            peer.tool("ask_name", next).await;
        }
        assert!(is_refused(&peer.call("ask_name", retry).await.1));

        let arguments = json!({ "greeting": "a".repeat(RETAINED_OUTCOME_BYTES_MAX) });
        let first = peer
            .tool("ask_name", json!({ "arguments": arguments }))
            .await;
        let answers = json!({ "user_name": named("Alice") });
        let retry = json!({ "arguments": arguments, "requestState": first["requestState"], "inputResponses": answers });
        assert!(
            peer.call("ask_name", retry.clone())
                .await
                .1
                .get("result")
                .is_some()
        );
        let greeted = peer.counts.greeted.load(Ordering::SeqCst);
        assert!(is_refused(&peer.call("ask_name", retry).await.1));
        assert_eq!(peer.counts.greeted.load(Ordering::SeqCst), greeted);
    });
}
