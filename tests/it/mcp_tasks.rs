use callboard::mcp::inbound::{
    InboundOptions, ListenOptions, McpServerOptions, McpTaskOptions, McpTaskStore, serve,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::kit::worker::{Killable, Workplace, served, two_keys};
use crate::kit::{Home, found, mcp};

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The process that is killed: it serves its tools until then.
#[tokio::test]
#[ignore = "a child of the tests of tasks"]
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
    let tasks = McpTaskOptions {
        store: Some(McpTaskStore::from(system.store())),
        ..McpTaskOptions::default()
    };
    let inbound = InboundOptions {
        tasks,
        ..InboundOptions::default()
    };
    let options = McpServerOptions {
        inbound,
        access,
        ..McpServerOptions::default()
    };
    let serving = serve(listener, worker, options, &ListenOptions::default()).unwrap();
    served(address, serving.server).await;
}

struct Served {
    process: Killable,
    url: String,
}

impl Served {
    async fn start(home: &Home, ends: bool) -> Self {
        let process = Killable::start(home, "mcp_tasks::child", ends).await;
        let url = format!("http://{}/mcp", process.address);
        Self { process, url }
    }

    async fn ask(&self, key: &SecretString, method: &str, params: Value) -> Value {
        let capabilities = json!({ "extensions": { TASKS: {} } });
        let request = mcp::request(&self.url, &capabilities, method, params);
        mcp::response(request.bearer_auth(key.expose_secret())).await
    }

    /// The id of the task that a call is.
    async fn begin(&self, key: &SecretString, tool: &str, once: &str) -> Value {
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "callboard/key": once } });
        let begun = self.ask(key, "tools/call", params).await;
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
        begun["result"]["taskId"].clone()
    }

    async fn ended(&self, key: &SecretString, id: &Value) -> Value {
        let look = async || {
            let now = self.ask(key, "tasks/get", json!({ "taskId": id })).await["result"].take();
            (now["status"] != "working").then_some(now)
        };
        found("a task's end", look).await
    }
}

/// Goal: a task outlives the process that it was begun in: what may be repeated is done again and completes, what may not has
/// failed and says that nobody knows; the same key is the same task, and another's task isn't there. Method: a process with a
/// store is killed (SIGKILL) in mid-call, and another takes its place.
#[tokio::test]
async fn tasks_outlive_their_process() {
    let home = Home::new();
    let [ann, bob] = two_keys(&home);

    let first = Served::start(&home, false).await;
    let repeat = first.begin(&ann, "repeat", "r").await;
    let once = first.begin(&ann, "once", "o").await;
    assert_eq!(first.begin(&ann, "repeat", "r").await, repeat);
    first.process.kill().await;

    let second = Served::start(&home, true).await;
    assert_eq!(second.begin(&ann, "once", "o").await, once);
    let done = second.ended(&ann, &repeat).await;
    assert_eq!(
        (&done["status"], &done["result"]["content"][0]["text"]),
        (&json!("completed"), &json!("done"))
    );
    let failed = second.ended(&ann, &once).await;
    assert_eq!(failed["status"], "failed");
    assert!(
        failed["error"]["message"]
            .as_str()
            .unwrap()
            .contains("whether the agent acted is unknown"),
        "{failed}"
    );
    assert_eq!(second.begin(&ann, "repeat", "r").await, repeat);
    for id in [&repeat, &once] {
        assert_eq!(
            second.ask(&bob, "tasks/get", json!({ "taskId": id })).await["error"]["code"],
            -32602
        );
    }
    assert_ne!(second.begin(&bob, "repeat", "r").await, repeat);
}
