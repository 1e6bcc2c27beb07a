use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callboard_message::capabilities::CallTool;
use callboard_message::{Failure, RawObject, ToolResult};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{Agent, Context, Handlers, SyncHandler};
use serde_json::{Value, json};

use super::kit::{Counts, Peer, error_code};
use crate::inbound::modern::pending_elicitations::{
    URL_ELICITATION_ROUNDS_MAX, URL_ELICITATIONS_MAX,
};
use crate::inbound::options::InboundOptions;

/// Stands for a server of 2025-11-25. Refuses a number of times, each time with a number of URLs.
#[derive(Clone)]
struct Gate {
    addresses: usize,
    refusals: usize,
    calls: Arc<AtomicUsize>,
}

impl Agent for Gate {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<CallTool>();
    }
}

impl SyncHandler<CallTool> for Gate {
    fn handle(&mut self, _: CallTool, _: &mut Context) -> Result<ToolResult, Failure> {
        if self.calls.fetch_add(1, Ordering::SeqCst) >= self.refusals {
            return Ok(ToolResult::text("in"));
        }
        let visit = |n| json!({ "mode": "url", "message": "Sign in", "elicitationId": n, "url": "https://a.example" });
        let elicitations: Vec<Value> = (0..self.addresses).map(|n| visit(n.to_string())).collect();
        let rpc = json!({ "code": -32042, "message": "visit first", "data": { "elicitations": elicitations } });
        Err(Failure::no_responder("visit first").with_data(json!({ "rpc": rpc })))
    }
}

fn with_gate(addresses: usize, refusals: usize, test: impl AsyncFnOnce(Peer, Arc<AtomicUsize>)) {
    run_with_paused_time(async |system| {
        let gate = Gate {
            addresses,
            refusals,
            calls: Arc::default(),
        };
        let calls = gate.calls.clone();
        test(
            Peer::of(
                system.spawn(gate),
                Counts::default(),
                InboundOptions::default(),
            ),
            calls,
        )
        .await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

async fn call(peer: &Peer, more: Value) -> Value {
    let mut params = json!({ "name": "enter", "arguments": {} });
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    peer.post_as(
        "tools/call",
        params,
        json!({ "elicitation": { "url": {} } }),
    )
    .await
    .1
}

/// Returns the retry that answers every question of `response` with this action.
fn retry(response: &Value, action: &str) -> Value {
    let requests = response["result"]["inputRequests"].as_object().unwrap();
    let answers: RawObject = requests.keys().fold(RawObject::new(), |all, key| {
        all.with(key, json!({ "action": action }))
    });
    json!({ "requestState": response["result"]["requestState"], "inputResponses": answers })
}

/// Goal: required URL visits become questions of the call, which is then repeated. Method: two
/// URLs, required twice.
#[test]
fn addresses_are_visited_first() {
    with_gate(2, 2, async |peer, calls| {
        let mut response = call(&peer, json!({})).await;
        for _ in 0..2 {
            let asked = &response["result"]["inputRequests"]["q1"];
            assert!(
                asked.is_null() || asked["params"]["url"] == "https://a.example",
                "{response}"
            );
            assert_eq!(
                response["result"]["inputRequests"]
                    .as_object()
                    .unwrap()
                    .len(),
                2
            );
            response = call(&peer, retry(&response, "accept")).await;
        }
        assert_eq!(response["result"]["content"][0]["text"], "in", "{response}");
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    });
}

/// Goal: a client that declines gets the refusal, and nothing is repeated. Method: one URL,
/// declined.
#[test]
fn who_declines_is_refused() {
    with_gate(1, 1, async |peer, calls| {
        let response = call(&peer, json!({})).await;
        let response = call(&peer, retry(&response, "decline")).await;
        assert_eq!(error_code(&response), -7, "{response}");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    });
}

/// Goal: both limits are exact. Method: as many URLs as allowed and one more; as many rounds and
/// one more.
#[test]
fn visits_are_bounded() {
    with_gate(URL_ELICITATIONS_MAX + 1, 1, async |peer, _| {
        assert_eq!(error_code(&call(&peer, json!({})).await), -7);
    });
    for (refusals, ends_well) in [
        (URL_ELICITATION_ROUNDS_MAX, true),
        (URL_ELICITATION_ROUNDS_MAX + 1, false),
    ] {
        with_gate(1, refusals, async |peer, calls| {
            let mut response = call(&peer, json!({})).await;
            for _ in 0..URL_ELICITATION_ROUNDS_MAX {
                response = call(&peer, retry(&response, "accept")).await;
            }
            assert_eq!(
                response["result"]["content"][0]["text"] == "in",
                ends_well,
                "{response}"
            );
            assert_eq!(calls.load(Ordering::SeqCst), URL_ELICITATION_ROUNDS_MAX + 1);
        });
    }
    with_gate(URL_ELICITATIONS_MAX, 1, async |peer, _| {
        let response = call(&peer, json!({})).await;
        assert_eq!(
            response["result"]["inputRequests"]
                .as_object()
                .unwrap()
                .len(),
            URL_ELICITATIONS_MAX
        );
        call(&peer, retry(&response, "accept")).await;
    });
}
