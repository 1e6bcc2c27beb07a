//! Exact requests and responses.

use callboard_a2a::Operation as Op;
use serde_json::{Value, json};

use crate::kit::{Served, soon};
use crate::tongue::{About, Tongue};

/// Goal: clients of 0.1 are served as ever, and their tasks are visible in every version. Method:
/// T-B14 as written, to an agent with one skill that takes any text; then the task in 1.0 and in
/// 0.1.
/// Rows: B-43.
#[tokio::test]
async fn the_oldest_client() {
    let served = Served::answering().await;
    let peer = served.client();
    let sent = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/send","params":{"id":"t1","message":{"role":"user","parts":[{"type":"text","text":"What is the capital of France?"}]}}}"#;
    let answer: Value =
        serde_json::from_str(&soon(peer.post("", sent).await.text()).await.unwrap()).unwrap();
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"]),
        (&json!("2.0"), &json!(1))
    );
    assert_eq!(
        (
            &answer["result"]["id"],
            &answer["result"]["status"]["state"]
        ),
        (&json!("t1"), &json!("completed"))
    );
    let part = json!({ "type": "text", "text": "What is the capital of France?" });
    assert_eq!(
        answer["result"]["artifacts"][0]["parts"],
        json!([part]),
        "{answer}"
    );
    assert_eq!(answer["result"]["artifacts"][0]["index"], 0);
    let about = About {
        task: "t1",
        ..About::default()
    };
    let now = Tongue::Rpc10.result(&peer, Op::GetTask, about).await;
    assert_eq!(
        (&now["id"], &now["status"]["state"]),
        (&json!("t1"), &json!("TASK_STATE_COMPLETED"))
    );
    assert_eq!(
        now["artifacts"][0]["parts"],
        json!([{ "text": "What is the capital of France?" }]),
        "{now}"
    );
    // The request names no version: the task records its client's.
    let old = peer.result("tasks/get", json!({ "id": "t1" })).await;
    assert_eq!(old["artifacts"][0]["parts"], json!([part]), "{old}");
    assert!(
        old.get("history").is_none() && answer["result"].get("history").is_none(),
        "nobody asked for it: {old}"
    );
    let more = peer
        .result("tasks/get", json!({ "id": "t1", "historyLength": 1 }))
        .await;
    assert_eq!(more["history"][0]["parts"], json!([part]), "{more}");
    served.stop().await;
}
