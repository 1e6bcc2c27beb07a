use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::inbound::ListenOptions;
use callboard_message::{Failure, FailureKind, Principal, TraceContext};
use callboard_runtime::{CallContext, Policy, PolicyRequest};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::Instant;

use crate::kit::{CallerInfo, Event, Fail, Server, call, operator, soon};

/// Goal: purpose, deadline, hops and trace arrive; the principal isn't transferred, the listener
/// determines it. Method: an agent that returns what it received, asked through the client.
#[tokio::test]
async fn what_belongs_to_a_call_travels() {
    let server = Server::with(operator(), &ListenOptions::default()).await;
    let client = server.client();
    let principal = Principal::agent("orchestrator").with_purpose("treatment");
    let mut meta = CallContext::new(Arc::new(principal))
        .with_deadline(Instant::now() + Duration::from_secs(5));
    meta.hops = 2;
    let trace: TraceContext = meta.trace;
    let seen = client.ask("whoami", json!({}), Some(meta)).await.unwrap();
    let seen: CallerInfo = serde_json::from_str(seen.get()).unwrap();
    assert_eq!(
        seen.principal,
        json!({"id": "operator", "kind": "local_operator", "purpose": "treatment"})
    );
    assert!(
        (1_000..=5_000).contains(&seen.patience_ms),
        "{}",
        seen.patience_ms
    );
    assert_eq!(
        (seen.hops, seen.trace_id),
        (3, format!("{:032x}", trace.trace_id()))
    );
    client.stop().await;
    server.stop().await;
}

/// Goal: a caller can neither claim a principal, nor wait longer than the server permits. Method:
/// attempts in the body.
#[tokio::test]
async fn bodies_grant_nothing() {
    let server = Server::start().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","principal":"operator","params":{"name":"whoami",
        "principal":{"id":"operator","kind":"local_operator"},"_meta":{"callboard/principal":"operator",
        "callboard/deadline-ms":99999999999,"traceparent":"broken"}}}"#;
    let seen: CallerInfo =
        serde_json::from_value(server.post(body).await.json()["result"].take()).unwrap();
    assert_eq!(
        seen.principal,
        json!({"id": "anonymous", "kind": "anonymous"})
    );
    assert!(seen.patience_ms <= 30_000);
    assert_eq!(seen.hops, 0);
    server.stop().await;
}

/// Goal: calls can't loop over the wire. Method: the last hop, and one more, on both sides.
#[tokio::test]
async fn hops_are_bounded() {
    let server = Server::start().await;
    let hops = |hops: u16| {
        let meta = format!(r#"{{"callboard/hops":{hops}}}"#);
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"whoami","_meta":{meta}}}}}"#
        )
    };
    assert_eq!(server.post(hops(16)).await.json()["result"]["hops"], 16);
    assert_eq!(
        server.post(hops(17)).await.json()["error"]["data"]["kind"],
        "rejected"
    );

    let client = server.client();
    let mut meta = CallContext::new(Arc::new(Principal::anonymous()));
    meta.hops = meta.hops_max;
    let failure = client
        .ask("whoami", json!({}), Some(meta))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Rejected);
    client.stop().await;
    server.stop().await;
}

/// Goal: a failure is the same on both sides of the wire. Method: every kind, through server and client.
#[tokio::test]
async fn failures_keep_their_kind() {
    use FailureKind::*;
    let server = Server::start().await;
    let client = server.client();
    for kind in [
        InvalidInput,
        NotFound,
        Denied,
        Blocked,
        Rejected,
        Overloaded,
        Unavailable,
        NoResponder,
    ] {
        let failure = soon(client.agent.ask(Fail { kind }))
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!((failure.kind, failure.message.as_str()), (kind, "as told"));
        let code = if matches!(kind, InvalidInput | NotFound) {
            -32602
        } else {
            -32000
        };
        assert_eq!(
            failure.data,
            Some(json!({"code": code, "detail": {"rule": "R1"}}))
        );
    }
    client.stop().await;
    server.stop().await;
}

/// Goal: a panic is -32000 without details, and the next call is served. Method: a panic with a
/// name in it.
#[tokio::test]
async fn panics_are_answered() {
    let server = Server::start().await;
    let mut connection = server.connect().await;
    let reply = connection.post(call("1", "panic", "{}")).await;
    assert_eq!((reply.status, reply.code()), (200, -32000));
    assert!(!reply.body.contains("Souza"));
    let next = connection
        .post(call("2", "get_patient", r#"{"patient_id":"CARD-001"}"#))
        .await;
    assert_eq!(next.json()["error"], json!(null));
    server.stop().await;
}

/// Goal: cancelling an ask reaches the remote handler. Method: drop the ask of a tool that hangs;
/// then cancel its call.
#[tokio::test]
async fn cancelling_crosses_the_wire() {
    let mut server = Server::start().await;
    let client = server.client();
    let asked = {
        let agent = client.agent.clone();
        tokio::spawn(async move { agent.ask(crate::kit::Hang {}).await })
    };
    assert_eq!(server.event().await, Event::Began);
    asked.abort();
    assert_eq!(server.event().await, Event::Cancelled);

    let meta = CallContext::new(Arc::new(Principal::anonymous()));
    let cancel = meta.cancel.clone();
    let asked = client.ask("hang", json!({}), Some(meta));
    let cancelled = async {
        assert_eq!(server.event().await, Event::Began);
        cancel.cancel();
        assert_eq!(server.event().await, Event::Cancelled);
    };
    let (answer, ()) = tokio::join!(asked, cancelled);
    assert_eq!(answer.unwrap_err().kind, FailureKind::Cancelled);
    client.stop().await;
    server.stop().await;
}

struct NoRecords;

impl Policy for NoRecords {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let blocked =
            crossing.message == "get_patient" && crossing.payload.get().contains("CARD-001");
        let why = Failure::new(FailureKind::Blocked, format!("{:?}", crossing.direction));
        Box::pin(std::future::ready(if blocked { Err(why) } else { Ok(()) }))
    }
}

/// Goal: the policy checks messages in both directions before they cross. Method: one that blocks a
/// record, on either side.
#[tokio::test]
async fn policies_judge_both_ways() {
    for (inbound, wanted) in [(true, "Inbound"), (false, "Outbound")] {
        let server = Server::start().await;
        let client = server.client();
        if inbound {
            &server.system
        } else {
            client.agent.system()
        }
        .policy()
        .push(NoRecords);
        let failure = client
            .ask("get_patient", json!({"patient_id": "CARD-001"}), None)
            .await
            .unwrap_err();
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (FailureKind::Blocked, wanted)
        );
        // A refusal on this side was never on the wire, and so has no code.
        assert_eq!(failure.data, inbound.then(|| json!({ "code": -32000 })));
        assert!(client.ask("whoami", json!({}), None).await.is_ok());
        client.stop().await;
        server.stop().await;
    }
}
