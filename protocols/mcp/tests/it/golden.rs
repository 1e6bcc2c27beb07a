use callboard_mcp::bare::BareClientOptions;
use callboard_message::FailureKind;
use serde_json::json;

use crate::kit::{Client, GetPatient, Patient, Record, Server, call};

const ID: &str = "\"550e8400-e29b-41d4-a716-446655440000\"";

/// Goal: the document's request gets the document's response. Method: its bytes.
/// Rows: C-11, C-14, X-40.
#[tokio::test]
async fn get_patient() {
    let server = Server::start().await;
    let reply = server
        .post(call(ID, "get_patient", r#"{"patient_id":"CARD-001"}"#))
        .await;
    assert_eq!(reply.status, 200);
    insta::assert_snapshot!(reply.body, @r#"{"jsonrpc":"2.0","id":"550e8400-e29b-41d4-a716-446655440000","result":{"patient":{"patient_id":"CARD-001","condition":"Hypertension"}},"error":null}"#);
    server.stop().await;
}

/// Goal: missing items are rejected with the document's codes. Method: unknown tool, patient,
/// method; bad arguments.
/// Rows: C-13, C-16, C-17, X-39.
#[tokio::test]
async fn errors() {
    let server = Server::start().await;
    let body = |reply: crate::kit::Reply| {
        assert_eq!(reply.status, 200);
        reply.body
    };
    insta::assert_snapshot!(body(server.post(call("1", "dump_all", "{}")).await));
    insta::assert_snapshot!(body(
        server
            .post(call("1", "get_patient", r#"{"patient_id":"CARD-999"}"#))
            .await
    ));
    insta::assert_snapshot!(body(
        server
            .post(r#"{"jsonrpc":"2.0","id":"x","method":"tools/delete"}"#)
            .await
    ));
    insta::assert_snapshot!(body(server.post(call("1", "get_patient", "{}")).await));
    insta::assert_snapshot!(body(
        server
            .post(call(
                "1",
                "get_patient",
                r#"{"patient_id":"CARD-001","all":1}"#
            ))
            .await
    ));
    server.stop().await;
}

/// Goal: a remote agent behaves like a local one. Method: the same typed ask, and its failure.
#[tokio::test]
async fn remote_looks_local() {
    let server = Server::start().await;
    let client = server.client();
    let record = client
        .agent
        .ask(GetPatient {
            patient_id: "CARD-001".into(),
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        record,
        Record {
            patient: Patient {
                patient_id: "CARD-001".into(),
                condition: "Hypertension".into()
            }
        }
    );
    let failure = client
        .agent
        .ask(GetPatient {
            patient_id: "CARD-999".into(),
        })
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::NotFound, "unknown patient")
    );
    let failure = client.ask("dump_all", json!({}), None).await.unwrap_err();
    assert_eq!(
        (failure.kind, &failure.data.unwrap()["code"]),
        (FailureKind::NotFound, &json!(-32602))
    );
    client.stop().await;
    server.stop().await;
}

/// Goal: a clinic that is down is -32000. Method: a port without listener.
/// Rows: C-18.
#[tokio::test]
async fn network_failure() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let client = Client::of(
        &format!("http://127.0.0.1:{port}/mcp"),
        BareClientOptions::default(),
    );
    let failure = client
        .ask("list_patients", json!({}), None)
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert_eq!(
        failure.message,
        "network failure during HTTP dispatch: can't connect"
    );
    assert_eq!(failure.data, Some(json!({ "code": -32000 })));
    client.stop().await;
}
