//! Two servers on one store, one after the other.

use std::sync::Arc;

use callboard_runtime::{MemoryTaskStore, Store};
use serde_json::json;

use crate::blocking::state;
use crate::kit::{Seen, Served, said, soon};

/// Goal: tasks of a stopped server are available from the next: ended ones unchanged, running ones
/// as failed, with their history. Method: two servers on one store, in turn; the second is
/// subscribed to with the last event of the first.
#[tokio::test]
async fn the_next_server_knows() {
    let store = Store {
        tasks: Arc::new(MemoryTaskStore::default()),
        ..Store::in_memory()
    };
    let mut first = Served::with(|options| options.tasks.store = Some(store.clone())).await;
    let peer = first.client().with("A2A-Version", "1.0");
    let done = peer
        .result(
            "SendMessage",
            json!({ "message": said("m-1", "hello", "echo") }),
        )
        .await["task"]
        .clone();
    let mut stream = peer
        .stream(
            "SendStreamingMessage",
            json!({ "message": said("m-2", "{}", "linger") }),
        )
        .await;
    let left = stream.event().await.unwrap()["result"]["task"].clone();
    assert_eq!(first.watched.watch.event().await, Seen::Began);
    drop(stream);
    first.stop().await;

    let second = Served::with(|options| options.tasks.store = Some(store)).await;
    let peer = second.client().with("A2A-Version", "1.0");
    assert_eq!(
        peer.result("GetTask", json!({ "id": done["id"] })).await,
        done
    );
    let now = soon(async {
        loop {
            let now = peer.result("GetTask", json!({ "id": left["id"] })).await;
            if state(&now) == "failed" {
                return now;
            }
        }
    })
    .await;
    assert_eq!(now["history"][0]["messageId"], "m-2");
    let said = now["status"]["message"]["parts"][0]["text"]
        .as_str()
        .unwrap();
    assert!(
        said.contains("whether the agent acted is unknown"),
        "{said}"
    );
    let mut missed = peer
        .with("Last-Event-ID", "1")
        .stream("SubscribeToTask", json!({ "id": left["id"] }))
        .await;
    let told = missed.results().await;
    assert_eq!(told[0]["task"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(
        told.last().unwrap()["statusUpdate"]["status"]["state"],
        "TASK_STATE_FAILED"
    );
    second.stop().await;
}
