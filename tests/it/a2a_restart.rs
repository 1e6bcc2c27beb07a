use callboard::a2a::inbound::{A2aOptions, A2aServer, ListenOptions, NamedAgents, serve};
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::kit::worker::{Killable, Workplace, served, two_keys};
use crate::kit::{Home, a2a, found, soon};

/// The process that is killed: it serves its skills until then.
#[tokio::test]
#[ignore = "a child of the tests of A2A's tasks"]
async fn child() {
    let Some(Workplace {
        system,
        worker,
        access,
        listener,
        address,
    }) = Workplace::of_child().await
    else {
        return;
    };
    let mut options = A2aOptions::new(format!("http://{address}").parse().unwrap());
    options.tasks.store = Some(system.store().clone());
    options.access = access;
    let server = A2aServer::new(worker, options);
    let serving = serve(
        listener,
        server,
        NamedAgents::default(),
        &ListenOptions::default(),
    )
    .unwrap();
    served(address, serving.server).await;
}

struct Served {
    process: Killable,
    url: String,
}

impl Served {
    async fn start(home: &Home, ends: bool) -> Self {
        let process = Killable::start(home, "a2a_restart::child", ends).await;
        let url = format!("http://{}/a2a", process.address);
        Self { process, url }
    }

    fn request(&self, key: &SecretString, method: &str, params: Value) -> RequestBuilder {
        a2a::request(&self.url, method, params).bearer_auth(key.expose_secret())
    }

    async fn ask(&self, key: &SecretString, method: &str, params: Value) -> Value {
        a2a::response(self.request(key, method, params)).await
    }

    /// The task that a message begins, or had begun.
    async fn begin(&self, key: &SecretString, skill: &str, once: &str) -> Value {
        let metadata = json!({ "skill": skill, "callboard/key": once });
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "{}" }], "metadata": metadata });
        let configuration = json!({ "returnImmediately": true });
        let begun = self
            .ask(
                key,
                "SendMessage",
                json!({ "message": message, "configuration": configuration }),
            )
            .await;
        assert!(begun["result"]["task"]["id"].is_string(), "{begun}");
        begun["result"]["task"].clone()
    }

    async fn until(&self, key: &SecretString, id: &Value, is_so: impl Fn(&Value) -> bool) -> Value {
        let look = async || {
            Some(self.ask(key, "GetTask", json!({ "id": id })).await["result"].take())
                .filter(&is_so)
        };
        found("a task's state", look).await
    }
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// Goal: a task outlives the process that it was begun in: what may be repeated is done again and completes, what may not has
/// failed and says that nobody knows; what it had made and said is there; who was subscribed goes on where it was; the same key is the
/// same task, and another's isn't there. Method: a process with a store is killed (SIGKILL) in mid-call, and another takes its place.
#[tokio::test]
async fn tasks_outlive_their_process() {
    let home = Home::new();
    let [ann, bob] = two_keys(&home);

    let first = Served::start(&home, false).await;
    let repeat = first.begin(&ann, "repeat", "r").await["id"].clone();
    let once = first.begin(&ann, "once", "o").await["id"].clone();
    for id in [&repeat, &once] {
        first
            .until(&ann, id, |task| {
                task["artifacts"][0]["artifactId"] == "draft"
            })
            .await;
    }
    first.process.kill().await;

    let second = Served::start(&home, true).await;
    assert_eq!(second.begin(&ann, "once", "o").await["id"], once);
    // Subscribed before it is over: event 2 was the last that the first process told.
    let follows = second
        .request(&ann, "SubscribeToTask", json!({ "id": repeat }))
        .header("last-event-id", "2");
    let follows = soon("a stream", follows.send()).await.unwrap();
    let told = soon("a stream's end", follows.text()).await.unwrap();
    let ids: Vec<u64> = told
        .lines()
        .filter_map(|line| line.strip_prefix("id: ")?.trim().parse().ok())
        .collect();
    assert!(ids[0] == 2 && ids.is_sorted_by(|a, b| a < b), "{told}");
    assert!(
        told.trim_end()
            .lines()
            .any(|line| line.contains("TASK_STATE_COMPLETED")),
        "{told}"
    );

    let done = second
        .until(&ann, &repeat, |task| state(task) == "TASK_STATE_COMPLETED")
        .await;
    let texts: Vec<_> = (0..2)
        .map(|nth| done["artifacts"][nth]["parts"][0]["text"].clone())
        .collect();
    assert_eq!(texts, ["so far", "done"]);
    let failed = second
        .until(&ann, &once, |task| state(task) == "TASK_STATE_FAILED")
        .await;
    assert!(
        failed["status"]
            .to_string()
            .contains("whether the agent acted is unknown"),
        "{failed}"
    );
    let left = [
        &failed["artifacts"][0]["artifactId"],
        &failed["history"][0]["messageId"],
    ];
    assert_eq!(left, ["draft", "m"]);
    for id in [&repeat, &once] {
        assert_eq!(
            second.ask(&bob, "GetTask", json!({ "id": id })).await["error"]["code"],
            -32001
        );
    }
    assert_ne!(second.begin(&bob, "repeat", "r").await["id"], repeat);
}
