//! The console's pages, used in a browser: tests/browser/console.mjs drives Debian's Chromium.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway::{Gateway, Topology, callboard};
use crate::kit::{Client, Peers, free_port, initialize, peers, soon, with};

const CHROMIUM: &str = "/usr/bin/chromium";
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser");

/// Names of the keys, which are the people in the browser, too.
const OPERATOR: &str = "ops";
const READER: &str = "reader";
const CALLER: &str = "caller";
/// Keys with their scopes.
const KEYS: [(&str, &[&str]); 3] = [
    (
        OPERATOR,
        &["console.read", "console.content", "console.act"],
    ),
    (READER, &["console.read"]),
    (CALLER, &[]),
];

/// Upstream whose tools are pinned, and whose tool `create_issue` asks.
const DESK: &str = "desk";
/// Upstream of the same program, for tasks.
const WORKER: &str = "worker";
const QUESTION: &str = "Which project?";

/// Descriptions of the tool `echo`, before and after it changes.
const APPROVED: &str = "Repeats a text";
const CHANGED: &str = "Sends a text to everybody";

/// Pages without an id in their path, by the name of their screenshots.
const PAGES: [(&str, &str); 10] = [
    ("agents", "/"),
    ("questions", "/questions"),
    ("approvals", "/approvals"),
    ("tools", "/tools"),
    ("tasks", "/tasks"),
    ("upstreams", "/upstreams"),
    ("mail", "/mail"),
    ("play", "/play?agent=desk&tool=create_issue"),
    ("connect", "/connect"),
    ("topology", "/topology"),
];

/// A node with a console, two upstreams, a mailroom, and a key for each role.
struct ConsoleNode {
    gateway: Gateway,
    origin: String,
    keys: Vec<(&'static str, String)>,
    folder: TempDir,
}

impl ConsoleNode {
    async fn start(peers: &Peers) -> Self {
        let folder = tempfile::tempdir().unwrap();
        offer(folder.path(), APPROVED);
        let mut keys = Vec::new();
        for (name, scopes) in KEYS {
            keys.push((name, add_key(peers, folder.path(), name, scopes).await));
        }
        let port = free_port();
        let topology = Topology::of_text(&topology(peers, folder.path(), port));
        Self {
            gateway: Gateway::start(peers, topology).await,
            origin: format!("http://127.0.0.1:{port}"),
            keys,
            folder,
        }
    }

    fn key(&self, name: &str) -> &str {
        let mut keys = self.keys.iter();
        &keys.find(|(own, _)| *own == name).unwrap().1
    }

    /// Ends the node, and starts it anew with another definition of the tool `echo`. `between` runs while it is away.
    async fn restart(self, peers: &Peers, between: impl Future<Output = ()>) -> Self {
        let topology = self.gateway.end().await;
        offer(self.folder.path(), CHANGED);
        between.await;
        Self {
            gateway: Gateway::start(peers, topology).await,
            ..self
        }
    }

    async fn client(&self) -> McpSession {
        McpSession::begin(&self.gateway.mcp(DESK), self.key(CALLER)).await
    }

    /// Begins a task that goes on until it is cancelled; its id.
    async fn begin_task(&self) -> String {
        let message = json!({ "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "{}" }],
            "metadata": { "skill": "wait" } });
        let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let begun = self.a2a("SendMessage", params).await;
        let id = begun["task"]["id"].as_str();
        id.unwrap_or_else(|| panic!("no task: {begun}")).to_owned()
    }

    /// Returns the result of a request of A2A.
    async fn a2a(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let request = reqwest::Client::new()
            .post(format!("{}/a2a", self.gateway.a2a(WORKER)))
            .bearer_auth(self.key(CALLER))
            .header("a2a-version", "1.0")
            .json(&body);
        let response = soon("an answer of A2A", request.send()).await.unwrap();
        let mut answer: Value = soon("a body", response.json()).await.unwrap();
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }
}

/// Writes the tools of the upstreams.
fn offer(folder: &Path, echo: &str) {
    let tool = |name: &str, description: &str, properties: Value| {
        let required: Vec<_> = properties.as_object().unwrap().keys().collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        json!({ "name": name, "description": description, "inputSchema": schema })
    };
    let text = json!({ "type": "string" });
    let tools = json!([
        tool("echo", echo, json!({ "text": text })),
        tool("create_issue", "Files an issue", json!({ "title": text })),
        tool("wait", "Goes on until it is cancelled", json!({})),
    ]);
    std::fs::write(folder.join("tools.json"), tools.to_string()).unwrap();
}

/// Makes a key with scopes.
async fn add_key(peers: &Peers, folder: &Path, name: &str, scopes: &[&str]) -> String {
    let mut add = with(
        peers.command(Path::new(callboard())),
        ["keys", "--keys", "keys.toml", "add", name],
    );
    for &scope in scopes {
        add.args(["--scope", scope]);
    }
    let made = soon("a key", add.current_dir(folder).output())
        .await
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn topology(peers: &Peers, folder: &Path, port: u16) -> String {
    let command = [
        peers.node(),
        Path::new(SCRIPTS).join("server.mjs"),
        folder.join("tools.json"),
    ];
    let command = json!(command.map(|path: PathBuf| path.display().to_string()));
    let keys = folder.join("keys.toml").display().to_string();
    let upstream = |id: &str, more: &str| {
        format!("[[upstream]]\nid = \"{id}\"\nera = \"legacy\"\ncommand = {command}\n{more}")
    };
    let listener = |protocol: &str, agent: &str| {
        format!(
            "[[listener]]\n{protocol}bind = \"127.0.0.1:0\"\nagent = \"{agent}\"\nkeys = \"{keys}\"\n"
        )
    };
    [
        "[node]\nname = \"console\"\n[store]\n".to_owned(),
        format!("[console]\nbind = \"127.0.0.1:{port}\"\nread_content = true\n"),
        upstream(DESK, "pin = \"trust-first\"\nsupports_elicitation = true\n"),
        upstream(WORKER, ""),
        "[[agent]]\nkind = \"mailroom\"\nid = \"post\"\n".to_owned(),
        listener("protocol = \"mcp\"\ndialect = \"mcp\"\n", DESK),
        listener("protocol = \"a2a\"\n", WORKER),
    ]
    .concat()
}

/// A session of an MCP client of 2025-11-25, which can be asked and leaves its questions unanswered.
#[derive(Clone)]
struct McpSession {
    url: String,
    key: String,
    id: String,
}

impl McpSession {
    async fn begin(url: &str, key: &str) -> Self {
        let mut session = Self {
            url: url.to_owned(),
            key: key.to_owned(),
            id: String::new(),
        };
        let mut hello = initialize();
        hello["params"]["capabilities"] = json!({ "elicitation": {} });
        let begun = soon("a session", session.post(&hello).send())
            .await
            .unwrap();
        assert_eq!(begun.status(), 200);
        session.id = begun.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let told = soon("a session", session.post(&initialized).send());
        assert!(told.await.unwrap().status().is_success());
        session
    }

    fn post(&self, message: &Value) -> reqwest::RequestBuilder {
        let request = reqwest::Client::new()
            .post(&self.url)
            .bearer_auth(&self.key)
            .header("accept", "application/json, text/event-stream")
            .json(message);
        if self.id.is_empty() {
            return request;
        }
        request
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", "2025-11-25")
    }

    /// Returns the response, for which it waits without a bound.
    async fn ask(self, method: &'static str, params: Value) -> Value {
        // No two that run at once may have one id.
        static NEXT: AtomicU32 = AtomicU32::new(100);
        let id = NEXT.fetch_add(1, Relaxed);
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let response = self.post(&request).send().await.unwrap();
        let text = response.text().await.unwrap();
        // JSON, or an event stream that has the server's requests, too.
        let mut messages = text
            .lines()
            .map(|line| line.strip_prefix("data:").unwrap_or(line))
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let own = messages.find(|message| message["id"] == id && message["method"].is_null());
        own.unwrap_or_else(|| panic!("no response to {method}: {text}"))
    }

    /// Begins a call.
    fn begin_call(&self, tool: &str, arguments: Value) -> tokio::task::JoinHandle<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        tokio::spawn(self.clone().ask("tools/call", params))
    }

    /// Returns the text of a call's result.
    async fn echo(&self, text: &str) -> String {
        result(self.begin_call("echo", json!({ "text": text }))).await
    }

    /// Names of the tools, in the order of the server.
    async fn tools(&self) -> Vec<String> {
        let listed = soon("a list", self.clone().ask("tools/list", json!({}))).await;
        let tools = listed["result"]["tools"].as_array();
        let tools = tools.unwrap_or_else(|| panic!("{listed}"));
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    }
}

/// Waits for the text of a call's result.
async fn result(call: tokio::task::JoinHandle<Value>) -> String {
    let answer = soon("a call's result", call).await.unwrap();
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Chromium and its driver. Both end when this is dropped.
struct Browser {
    driver: Client,
    origin: String,
    _folder: TempDir,
}

impl Browser {
    fn start(peers: &Peers, node: &ConsoleNode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{SCRIPTS}/console.mjs");
        let place = folder.path().display().to_string();
        Self {
            driver: peers.client(&peers.node(), &[&script, CHROMIUM, &place]),
            origin: node.origin.clone(),
            _folder: folder,
        }
    }

    /// Takes a step as a person. Panics if the step or the page is broken.
    async fn take(&mut self, person: &str, step: &str, mut with: Value) -> Value {
        with["step"] = json!(step);
        with["as"] = json!(person);
        with["origin"] = json!(self.origin);
        let line = self.driver.ask(step, &with).await;
        let mut reply: Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line}"));
        if let Some(why) = reply["broken"].as_str() {
            panic!("{person}: {why}");
        }
        reply["done"].take()
    }

    /// Takes a step of which a text comes back.
    async fn text(&mut self, person: &str, step: &str, with: Value) -> String {
        let text = self.take(person, step, with).await;
        text.as_str()
            .unwrap_or_else(|| panic!("{step}: {text}"))
            .to_owned()
    }

    async fn sign_in(&mut self, node: &ConsoleNode, person: &str) {
        let with = json!({ "key": node.key(person) });
        self.take(person, "sign_in", with).await;
    }

    /// Closes Chromium in order.
    async fn end(mut self) {
        self.take("", "end", json!({})).await;
    }
}

/// Goal: a call is in the live feed and has a timeline, and a question of a call is answered from the page: the client's call completes
/// with that answer. Who may only read sees no content, and can change nothing. Method: an MCP client that leaves its questions
/// unanswered; a page of somebody who may do all, by keyboard alone, and one of somebody who may read. Another call refreshes the page
/// while the answer is half written.
#[tokio::test]
async fn calls_and_questions() {
    let Some(peers) = peers() else { return };
    let node = ConsoleNode::start(&peers).await;
    let client = node.client().await;
    let mut browser = Browser::start(&peers, &node);
    for person in [OPERATOR, READER] {
        browser.sign_in(&node, person).await;
    }
    let echo = json!({ "agent": DESK, "tool": "echo" });
    let word = "periwinkle";
    for person in [OPERATOR, READER] {
        browser.take(person, "watch", json!({})).await;
    }
    assert_eq!(client.echo(word).await, format!("echo: {word}"));
    for person in [OPERATOR, READER] {
        browser.take(person, "call_appears", echo.clone()).await;
        browser.take(person, "open_timeline", echo.clone()).await;
        let text = browser.text(person, "read_timeline", json!({})).await;
        assert!(text.contains(DESK) && text.contains("echo"), "{text}");
        let is_trace =
            |word: &str| word.len() == 32 && word.chars().all(|digit| digit.is_ascii_hexdigit());
        assert!(text.split_whitespace().any(is_trace), "{text}");
        assert_eq!(text.contains(word), person == OPERATOR, "{person}: {text}");
    }

    let asked = client.begin_call("create_issue", json!({ "title": "The printer is on fire" }));
    let answer = json!({ "message": QUESTION, "project": "OPS" });
    browser.take(OPERATOR, "begin_answer", answer.clone()).await;
    let seen = browser
        .text(READER, "open", json!({ "path": "/questions" }))
        .await;
    assert!(seen.contains(DESK) && !seen.contains(QUESTION), "{seen}");
    let buttons = browser.take(READER, "buttons", json!({ "path": "/questions" }));
    assert_eq!(buttons.await, 0);
    let form = json!({ "id": "1", "action": "decline" });
    let refused = json!({ "path": "/do/answer", "form": form });
    assert_eq!(browser.take(READER, "post", refused).await, 403);
    client.echo("once more").await;
    browser.take(OPERATOR, "end_answer", answer).await;
    assert_eq!(result(asked).await, "created in OPS (urgent)");
    browser.end().await;
    node.gateway.end().await;
}

/// Goal: from the page a tool runs, a task is cancelled, and a changed tool is approved, of which the page shows the difference; the
/// pages recover when the node comes back: they have their feed again, or ask for the key. Method: the node ends and starts anew with
/// another definition of a tool; what the page did is seen by the clients.
#[tokio::test]
async fn tools_tasks_and_a_restart() {
    let Some(peers) = peers() else { return };
    let node = ConsoleNode::start(&peers).await;
    // The first list is the approved one.
    assert_eq!(
        node.client().await.tools().await,
        ["echo", "create_issue", "wait"]
    );
    let mut browser = Browser::start(&peers, &node);
    for person in [OPERATOR, READER] {
        browser.sign_in(&node, person).await;
    }
    let run = json!({ "agent": DESK, "tool": "echo", "text": "ultramarine" });
    browser.take(OPERATOR, "play", run).await;

    let id = node.begin_task().await;
    let task = json!({ "id": id });
    browser.take(OPERATOR, "cancel_task", task.clone()).await;
    let state = async || node.a2a("GetTask", task.clone()).await["status"]["state"].take();
    soon("the end of the task", async {
        while state().await != "TASK_STATE_CANCELED" {}
    })
    .await;

    let open = [(OPERATOR, "/"), (READER, "/questions")];
    for (person, path) in open {
        browser.take(person, "watch", json!({ "path": path })).await;
        browser.take(person, "expect_away", json!({})).await;
    }
    let between = async {
        for (person, _) in open {
            browser.take(person, "node_leaves", json!({})).await;
        }
    };
    let node = node.restart(&peers, between).await;
    for (person, path) in open {
        let with = json!({ "key": node.key(person), "path": path });
        browser.take(person, "recover", with).await;
    }
    let client = node.client().await;
    assert_eq!(client.tools().await, ["create_issue", "wait"]);
    let shown = browser
        .text(OPERATOR, "approve_tool", json!({ "tool": "echo" }))
        .await;
    assert!(
        shown.contains(APPROVED) && shown.contains(CHANGED),
        "{shown}"
    );
    soon("the approved tool", async {
        while client.tools().await != ["echo", "create_issue", "wait"] {}
    })
    .await;
    browser.take(OPERATOR, "watch", json!({})).await;
    client.echo("again").await;
    let echo = json!({ "agent": DESK, "tool": "echo" });
    browser.take(OPERATOR, "call_appears", echo).await;
    browser.take(OPERATOR, "sign_out", json!({})).await;
    browser.end().await;
    node.gateway.end().await;
}

/// Goal: axe-core finds nothing on any page, in light and dark mode, on a wide and a narrow window, and no page is wider than the
/// window; the keys of the pages do what they say. Method: a node with a call, a question, a task and a changed tool. Screenshots are
/// written if `CALLBOARD_SCREENSHOTS` names a folder.
#[tokio::test]
async fn pages_are_accessible() {
    let Some(peers) = peers() else { return };
    let node = ConsoleNode::start(&peers).await;
    node.client().await.tools().await;
    let node = node.restart(&peers, async {}).await;
    let client = node.client().await;
    // So that the changed definition is seen.
    client.tools().await;
    let id = node.begin_task().await;
    let mut browser = Browser::start(&peers, &node);
    let page = json!({ "name": "login", "path": "/login" });
    browser.take(OPERATOR, "look", page).await;
    browser.sign_in(&node, OPERATOR).await;
    browser.take(OPERATOR, "watch", json!({})).await;
    let asked = client.begin_call("create_issue", json!({ "title": "The printer is on fire" }));
    let call = json!({ "agent": DESK, "tool": "create_issue" });
    browser.take(OPERATOR, "call_appears", call.clone()).await;
    browser.take(OPERATOR, "open_timeline", call).await;
    let page = json!({ "name": "timeline" });
    browser.take(OPERATOR, "look", page).await;
    let page = json!({ "name": "task", "path": format!("/tasks/{id}") });
    browser.take(OPERATOR, "look", page).await;
    for (name, path) in PAGES {
        let page = json!({ "name": name, "path": path });
        browser.take(OPERATOR, "look", page).await;
    }
    browser.take(OPERATOR, "keyboard", json!({})).await;
    browser.end().await;
    // Its call and its task go on: the node is killed with its guard.
    asked.abort();
}
