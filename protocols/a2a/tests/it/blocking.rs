//! Blocking and non-blocking messages, in every dialect.

use callboard_a2a::Operation as Op;
use serde_json::{Value, json};

use crate::kit::{Seen, Served, serving, soon};
use crate::tongue::{About, Tongue};

/// Returns a task's state in the format of 1.0.
pub fn state(task: &Value) -> String {
    let state = task["status"]["state"].as_str().unwrap_or_default();
    let name = state
        .trim_start_matches("TASK_STATE_")
        .to_lowercase()
        .replace('-', "_");
    if name == "cancelled" {
        "canceled".into()
    } else {
        name
    }
}

/// Goal: sending waits for the end by default, in every dialect; a non-blocking message gets the
/// running task at once. Method: a call that waits until it is released.
#[tokio::test]
async fn waits_unless_told_otherwise() {
    for tongue in Tongue::ALL {
        let (mut served, peer) = serving(|_| {}).await;
        // 0.1 can't express non-blocking messages.
        if tongue != Tongue::Rpc01 {
            let about = About {
                skill: "linger",
                text: "{}",
                waits: false,
                ..About::default()
            };
            let task = tongue.task(&tongue.result(&peer, Op::SendMessage, about).await);
            assert_eq!(state(&task), "working", "{tongue:?}");
            assert_eq!(served.watched.watch.event().await, Seen::Began);
            let id = task["id"].as_str().unwrap();
            let task = tongue
                .result(
                    &peer,
                    Op::CancelTask,
                    About {
                        task: id,
                        ..About::default()
                    },
                )
                .await;
            assert_eq!(state(&task), "canceled", "{tongue:?}");
            assert_eq!(served.watched.watch.event().await, Seen::Cancelled);
        }
        let about = About {
            skill: "linger",
            text: "{}",
            message: "m-2",
            task: own_id(tongue),
            ..About::default()
        };
        let waiting = {
            let peer = peer.clone();
            tokio::spawn(async move { tongue.result(&peer, Op::SendMessage, about).await })
        };
        assert_eq!(served.watched.watch.event().await, Seen::Began);
        served.watched.watch.go_on.send(true).unwrap();
        let task = tongue.task(&soon(waiting).await.unwrap());
        assert_eq!(state(&task), "completed", "{tongue:?}: {task}");
        served.stop().await;
    }
}

/// Returns the task id that a client of 0.1 assigns; other dialects have none.
fn own_id(tongue: Tongue) -> &'static str {
    if tongue == Tongue::Rpc01 { "mine" } else { "" }
}

/// Goal: a client that disconnects while waiting doesn't end the call. Method: a request whose
/// connection is closed; the task continues and is found in the list.
#[tokio::test]
async fn who_goes_away_ends_nothing() {
    let mut served = Served::start().await;
    let peer = served.client().with("A2A-Version", "1.0");
    let waiting = {
        let peer = peer.clone();
        tokio::spawn(async move {
            let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "{}" }], "metadata": { "skill": "linger" } });
            peer.rpc("SendMessage", json!({ "message": message })).await
        })
    };
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    waiting.abort();
    served.watched.watch.go_on.send(true).unwrap();
    assert_eq!(served.watched.watch.event().await, Seen::Finished);
    soon(async {
        loop {
            let listed = peer.result("ListTasks", json!({})).await;
            if listed["tasks"][0]["status"]["state"] == "TASK_STATE_COMPLETED" {
                return;
            }
        }
    })
    .await;
    served.stop().await;
}
