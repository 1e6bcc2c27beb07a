use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use callboard::mcp::inbound::{InboundOptions, ListenOptions, McpServerOptions, TaskOptions, TaskStore, serve};
use callboard::rpc::{Access, KeyRing, KeyStore};
use callboard::store::{SqlStore, StoreOptions};
use callboard::{Agent, ConcurrentHandler, Cx, Handlers, Message, System};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::kit::{Home, soon};

/// Where the child finds its store and its keys, and whether its tools come to an end: `FOLDER` or `FOLDER ends`.
const CHILD: &str = "CALLBOARD_MCP_TASKS_CHILD";
const TASKS: &str = "io.modelcontextprotocol/tasks";
const FOR: Duration = Duration::from_secs(60);

/// May be done twice.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, task = "required", idempotent)]
struct Repeat {}

/// May not.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, task = "required")]
struct Once {}

struct Worker {
    ends: bool,
}

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Repeat>(8).concurrent::<Once>(8);
    }
}

impl Worker {
    fn work(&self, cx: Cx) -> impl Future<Output = String> + Send + 'static {
        let ends = self.ends;
        async move {
            if !ends {
                cx.cancelled().await;
            }
            "done".to_owned()
        }
    }
}

impl ConcurrentHandler<Repeat> for Worker {
    fn handle(&mut self, _: Repeat, cx: Cx) -> impl Future<Output = String> + Send + 'static {
        self.work(cx)
    }
}

impl ConcurrentHandler<Once> for Worker {
    fn handle(&mut self, _: Once, cx: Cx) -> impl Future<Output = String> + Send + 'static {
        self.work(cx)
    }
}

/// The process that is killed: it serves its tools until then.
#[tokio::test]
#[ignore = "a child of the tests of tasks"]
async fn child() {
    // Whoever runs all ignored tests runs this one too.
    let Ok(told) = std::env::var(CHILD) else { return };
    let (folder, ends) = told.split_once(' ').map_or((told.as_str(), false), |(folder, _)| (folder, true));
    let folder = Path::new(folder);
    let sql = SqlStore::open(&StoreOptions::sqlite(folder.join("store.sqlite"))).await.unwrap();
    let system = System::start(1).unwrap();
    system.keep_in(sql.store()).unwrap();
    let tasks = TaskOptions { store: Some(TaskStore::from(system.store())), ..TaskOptions::default() };
    let inbound = InboundOptions { tasks, ..InboundOptions::default() };
    let access = Access::keys(KeyRing::open(folder.join("keys")).unwrap());
    let options = McpServerOptions { inbound, access, ..McpServerOptions::default() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _serving = serve(listener, system.spawn(Worker { ends }), options, &ListenOptions::default()).unwrap();
    println!("\nserves {address}");
    std::future::pending::<()>().await;
}

/// A child, killed at the end.
struct Served {
    process: Child,
    _out: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Served {
    async fn start(home: &Home, ends: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "mcp_tasks::child", "--ignored", "--nocapture"]).kill_on_drop(true);
        let folder = home.path("tasks").display().to_string();
        command.env(CHILD, if ends { format!("{folder} ends") } else { folder });
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = soon("the child", out.next_line()).await.unwrap().expect("the child ended");
            if let Some(address) = line.strip_prefix("serves ") {
                break address.to_owned();
            }
        };
        Self { process, _out: out, url: format!("http://{address}/mcp") }
    }

    async fn ask(&self, key: &SecretString, method: &str, mut params: Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { TASKS: {} } },
        });
        let theirs = params["_meta"].as_object().cloned().unwrap_or_default();
        params["_meta"] = meta;
        theirs.into_iter().for_each(|(name, value)| params["_meta"][name] = value);
        let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or_default().to_owned();
        let request = reqwest::Client::new().post(&self.url).bearer_auth(key.expose_secret());
        let request = request.header("content-type", "application/json").header("mcp-method", method);
        let request = request.header("accept", "application/json, text/event-stream").header("mcp-name", name);
        let request = request.header("mcp-protocol-version", "2026-07-28");
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let response = soon("an answer", request.body(body).send()).await.unwrap();
        let text = soon("a body", response.text()).await.unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no answer: {text}"))
    }

    /// The id of the task that a call is.
    async fn begin(&self, key: &SecretString, tool: &str, once: &str) -> Value {
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "callboard/key": once } });
        let begun = self.ask(key, "tools/call", params).await;
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
        begun["result"]["taskId"].clone()
    }

    async fn ended(&self, key: &SecretString, id: &Value) -> Value {
        let until = Instant::now() + FOR;
        loop {
            let now = self.ask(key, "tasks/get", json!({ "taskId": id })).await["result"].clone();
            if now["status"] != "working" {
                return now;
            }
            assert!(Instant::now() < until, "it still works");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Goal: a task outlives the process that it was begun in: what may be repeated is done again and completes, what may not has
/// failed and says that nobody knows; the same key is the same task, and another's task isn't there. Method: a process with a
/// store is killed (SIGKILL) in mid-call, and another takes its place.
#[tokio::test]
async fn tasks_outlive_their_process() {
    let home = Home::new();
    std::fs::create_dir_all(home.path("tasks")).unwrap();
    let mut keys = KeyStore::load_or_new(home.path("tasks").join("keys")).unwrap();
    let [ann, bob] = ["ann", "bob"].map(|name| keys.add(name, Vec::new()).unwrap());

    let mut first = Served::start(&home, false).await;
    let repeat = first.begin(&ann, "repeat", "r").await;
    let once = first.begin(&ann, "once", "o").await;
    assert_eq!(first.begin(&ann, "repeat", "r").await, repeat);
    first.process.start_kill().unwrap();
    first.process.wait().await.unwrap();

    let second = Served::start(&home, true).await;
    assert_eq!(second.begin(&ann, "once", "o").await, once);
    let done = second.ended(&ann, &repeat).await;
    assert_eq!((&done["status"], &done["result"]["content"][0]["text"]), (&json!("completed"), &json!("done")));
    let failed = second.ended(&ann, &once).await;
    assert_eq!(failed["status"], "failed");
    assert!(failed["error"]["message"].as_str().unwrap().contains("whether the agent acted is unknown"), "{failed}");
    assert_eq!(second.begin(&ann, "repeat", "r").await, repeat);
    for id in [&repeat, &once] {
        assert_eq!(second.ask(&bob, "tasks/get", json!({ "taskId": id })).await["error"]["code"], -32602);
    }
    assert_ne!(second.begin(&bob, "repeat", "r").await, repeat);
}
