use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use callboard::a2a::inbound::{A2aOptions, A2aServer, ListenOptions, NamedAgents, serve};
use callboard::message::{Artifact, Content};
use callboard::rpc::{Access, KeyRing, KeyStore};
use callboard::store::{SqlStore, StoreOptions};
use callboard::{Agent, ConcurrentHandler, Cx, Handlers, Message, System};
use reqwest::Response;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::kit::{Home, soon};

/// Where the child finds its store and its keys, and whether its skills come to an end: `FOLDER` or `FOLDER ends`.
const CHILD: &str = "CALLBOARD_A2A_RESTART_CHILD";
const FOR: Duration = Duration::from_secs(60);

/// May be done twice.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String, idempotent)]
struct Repeat {}

/// May not.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = String)]
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
            cx.artifact(Artifact::new("draft", [Content::text("so far")]));
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

/// The process that is killed: it serves its skills until then.
#[tokio::test]
#[ignore = "a child of the tests of A2A's tasks"]
async fn child() {
    // Whoever runs all ignored tests runs this one too.
    let Ok(told) = std::env::var(CHILD) else { return };
    let (folder, ends) = told.split_once(' ').map_or((told.as_str(), false), |(folder, _)| (folder, true));
    let folder = Path::new(folder);
    let sql = SqlStore::open(&StoreOptions::sqlite(folder.join("store.sqlite"))).await.unwrap();
    let system = System::start(1).unwrap();
    system.keep_in(sql.store()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut options = A2aOptions::at(format!("http://{address}").parse().unwrap());
    options.tasks.store = Some(system.store().clone());
    options.access = Access::keys(KeyRing::open(folder.join("keys")).unwrap());
    let server = A2aServer::new(system.spawn(Worker { ends }), options);
    let serving = serve(listener, server, NamedAgents::default(), &ListenOptions::default()).unwrap();
    println!("\nserves {address}");
    serving.server.await.unwrap();
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
        command.args(["--exact", "a2a_restart::child", "--ignored", "--nocapture"]).kill_on_drop(true);
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
        Self { process, _out: out, url: format!("http://{address}/a2a") }
    }

    async fn post(&self, key: &SecretString, last_event: Option<u64>, method: &str, params: Value) -> Response {
        let request = reqwest::Client::new().post(&self.url).bearer_auth(key.expose_secret());
        let request = request.header("content-type", "application/json").header("a2a-version", "1.0");
        let request = match last_event {
            Some(number) => request.header("last-event-id", number.to_string()),
            None => request,
        };
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        soon("an answer", request.body(body).send()).await.unwrap()
    }

    async fn ask(&self, key: &SecretString, method: &str, params: Value) -> Value {
        let text = soon("a body", self.post(key, None, method, params).await.text()).await.unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no answer: {text}"))
    }

    /// The task that a message begins, or had begun.
    async fn begin(&self, key: &SecretString, skill: &str, once: &str) -> Value {
        let metadata = json!({ "skill": skill, "callboard/key": once });
        let message =
            json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "{}" }], "metadata": metadata });
        let configuration = json!({ "returnImmediately": true });
        let begun = self.ask(key, "SendMessage", json!({ "message": message, "configuration": configuration })).await;
        assert!(begun["result"]["task"]["id"].is_string(), "{begun}");
        begun["result"]["task"].clone()
    }

    async fn until(&self, key: &SecretString, id: &Value, is_so: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + FOR;
        loop {
            let now = self.ask(key, "GetTask", json!({ "id": id })).await["result"].clone();
            if is_so(&now) {
                return now;
            }
            assert!(Instant::now() < until, "{now}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
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
    std::fs::create_dir_all(home.path("tasks")).unwrap();
    let mut keys = KeyStore::load_or_new(home.path("tasks").join("keys")).unwrap();
    let [ann, bob] = ["ann", "bob"].map(|name| keys.add(name, Vec::new()).unwrap());

    let mut first = Served::start(&home, false).await;
    let repeat = first.begin(&ann, "repeat", "r").await["id"].clone();
    let once = first.begin(&ann, "once", "o").await["id"].clone();
    for id in [&repeat, &once] {
        first.until(&ann, id, |task| task["artifacts"][0]["artifactId"] == "draft").await;
    }
    first.process.start_kill().unwrap();
    first.process.wait().await.unwrap();

    let second = Served::start(&home, true).await;
    assert_eq!(second.begin(&ann, "once", "o").await["id"], once);
    // Subscribed before it is over: event 2 was the last that the first process told.
    let follows = second.post(&ann, Some(2), "SubscribeToTask", json!({ "id": repeat })).await;
    let told = tokio::time::timeout(FOR, follows.text()).await.unwrap().unwrap();
    let ids: Vec<u64> = told.lines().filter_map(|line| line.strip_prefix("id: ")?.trim().parse().ok()).collect();
    assert!(ids[0] == 2 && ids.is_sorted_by(|a, b| a < b), "{told}");
    assert!(told.trim_end().lines().any(|line| line.contains("TASK_STATE_COMPLETED")), "{told}");

    let done = second.until(&ann, &repeat, |task| state(task) == "TASK_STATE_COMPLETED").await;
    let texts: Vec<_> = (0..2).map(|nth| done["artifacts"][nth]["parts"][0]["text"].clone()).collect();
    assert_eq!(texts, ["so far", "done"]);
    let failed = second.until(&ann, &once, |task| state(task) == "TASK_STATE_FAILED").await;
    assert!(failed["status"].to_string().contains("whether the agent acted is unknown"), "{failed}");
    assert_eq!(
        (&failed["artifacts"][0]["artifactId"], &failed["history"][0]["messageId"]),
        (&json!("draft"), &json!("m"))
    );
    for id in [&repeat, &once] {
        assert_eq!(second.ask(&bob, "GetTask", json!({ "id": id })).await["error"]["code"], -32001);
    }
    assert_ne!(second.begin(&bob, "repeat", "r").await["id"], repeat);
}
