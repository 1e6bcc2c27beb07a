//! Nodes as gateways, and clients of both eras that say exactly what is sent.

use std::fs;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use serde_json::{Value, json};

use super::{Home, Running, a2a, mcp, soon};

/// The head of a topology, and listeners of all its agents.
pub const NODE: &str = "[node]\nname = \"n\"\n";
pub const MCP: &str =
    "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:0\"\n";
pub const A2A: &str = "[[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\n";

/// Cases of a server. `NAME` is what its tool `who` says. Its tool `wait` makes a file `began.PROCESS` in the folder
/// `PLACE` and says the same once there is a file `go`.
const CASES: &str = r#"
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"who","inputSchema":{"type":"object"}},{"name":"wait","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"who"'*) text "$id" ;;
    *'"name":"wait"'*) : > "$PLACE/began.$$"; while [ ! -e "$PLACE/go" ]; do sleep 0.05; done; text "$id" ;;"#;

/// Returns a server of the legacy era as a shell script. Its cases answer a line by `say "$id" RESULT`; other requests
/// fail.
pub fn server(cases: &str) -> String {
    const BEFORE: &str = r#"
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
text() { say "$1" "{\"content\":[{\"type\":\"text\",\"text\":\"$NAME\"}]}"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/')
  case "$line" in"#;
    const AFTER: &str = r#"
    *'"method":"notifications/'*) ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}\n' "$id" ;;
  esac
done
"#;
    [BEFORE, cases, AFTER].concat()
}

/// An `[[upstream]]` that runs the script under this name.
pub fn script(home: &Home, id: &str, name: &str) -> String {
    let (script, place) = (
        home.write("server.sh", &server(CASES)),
        home.path("").display().to_string(),
    );
    format!(
        "[[upstream]]\nid = \"{id}\"\nera = \"legacy\"\ncommand = [\"sh\", \"{script}\"]\n\
         env = {{ NAME = \"{name}\", PLACE = \"{place}\" }}\n"
    )
}

/// A node that serves, and the addresses that it says.
pub async fn serve(home: &Home, arguments: &[&str]) -> (Running, Vec<(String, String)>) {
    let mut running = home.start(&[&["serve"], arguments].concat());
    let addresses = addresses(&mut running, "ready").await;
    (running, addresses)
}

/// Writes the topology anew, as an editor does: another file in its place.
pub fn edit(home: &Home, text: &str) {
    home.write("n.toml.new", text);
    fs::rename(home.path("n.toml.new"), home.path("n.toml")).unwrap();
}

/// Serves this topology, as `n.toml`.
pub async fn started(home: &Home, text: &str) -> (Running, Vec<(String, String)>) {
    edit(home, text);
    serve(home, &[&home.path("n.toml").display().to_string()]).await
}

/// Goes on with another topology.
pub async fn reloaded(home: &Home, running: &mut Running, text: &str) -> Vec<(String, String)> {
    edit(home, text);
    addresses(running, "reloaded").await
}

/// The addresses that a node says, until a line.
pub async fn addresses(running: &mut Running, last: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    loop {
        let line = running.line_with("").await;
        let words: Vec<_> = line.split(' ').collect();
        match *words {
            ["listening", agent, url] => found.push((agent.to_owned(), url.to_owned())),
            _ if line == last => return found,
            _ => panic!("{line}"),
        }
    }
}

/// Ends it in order, and sees to it that nothing is left.
pub async fn end(running: Running, home: &Home) {
    running.signal("TERM").await;
    assert_eq!(running.finished().await.code, Some(0));
    home.swept().await;
}

/// Returns the number of calls of `wait` that have begun.
pub fn began(home: &Home) -> usize {
    let names = fs::read_dir(home.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("began."))
        .count()
}

/// A session of the legacy era.
#[derive(Clone)]
pub struct Session {
    url: String,
    id: String,
}

impl Session {
    pub async fn begin(url: &str) -> Self {
        let info = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let response = soon("a session", post(url, &[]).body(body.to_string()).send())
            .await
            .unwrap();
        let id = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let session = Self {
            url: url.to_owned(),
            id,
        };
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        soon("a session", session.post().body(body.to_string()).send())
            .await
            .unwrap();
        session
    }

    fn post(&self) -> reqwest::RequestBuilder {
        post(
            &self.url,
            &[
                ("mcp-session-id", &self.id),
                ("mcp-protocol-version", "2025-11-25"),
            ],
        )
    }

    /// Status and answer.
    pub async fn ask(&self, method: &str, params: Value) -> (u16, Value) {
        // No two that run at once may have one id.
        static NEXT: AtomicI64 = AtomicI64::new(100);
        let id = NEXT.fetch_add(1, Relaxed);
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        answer(self.post().body(body.to_string())).await
    }

    pub async fn call(&self, tool: &str) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": {} }))
            .await
            .1
    }

    /// Opens the stream of server messages outside any request.
    pub async fn listen(&self) -> reqwest::Response {
        let get = reqwest::Client::new()
            .get(&self.url)
            .header("accept", "text/event-stream");
        let get = get
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", "2025-11-25");
        soon("a stream", get.send()).await.unwrap()
    }
}

/// Returns the answer to `initialize` of a new legacy session.
pub async fn hello(url: &str) -> Value {
    let info = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    answer(post(url, &[]).body(body.to_string())).await.1
}

/// A request of the stateless era; status and answer.
pub async fn modern(url: &str, method: &str, params: Value) -> (u16, Value) {
    answer(mcp::request(url, &json!({}), method, params)).await
}

fn post(url: &str, headers: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream");
    headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    })
}

/// The answer is the body, or the last event of a stream.
pub async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = soon("an answer", request.send()).await.unwrap();
    let status = response.status().as_u16();
    let text = soon("a body", response.text()).await.unwrap();
    let event = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .rfind(|data| data.contains("\"id\":"));
    (
        status,
        serde_json::from_str(event.unwrap_or(&text).trim()).unwrap_or_default(),
    )
}

/// Whether a call was refused.
pub fn is_refused(answer: &Value) -> bool {
    answer["error"].is_object() || answer["result"]["isError"] == true
}

/// Returns the text of a call's answer.
pub fn said(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

/// A client with a key.
pub struct KeyClient {
    key: String,
}

impl KeyClient {
    /// Adds a key with this name and scopes.
    pub async fn new(home: &Home, name: &str, scopes: &[&str]) -> Self {
        let scopes = scopes.iter().flat_map(|scope| ["--scope", *scope]);
        let add = ["keys", "--keys", "keys.toml", "add", name].into_iter();
        let added = home.run(&add.chain(scopes).collect::<Vec<_>>()).await;
        let key = added.with(0, "").out.trim().to_owned();
        Self { key }
    }

    /// Adds the key to a request.
    pub fn signed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        request.bearer_auth(&self.key)
    }

    pub async fn mcp(&self, url: &str, method: &str, params: Value) -> Value {
        self.mcp_with(url, &json!({}), method, params).await
    }

    /// Returns the answer to a client with these capabilities.
    pub async fn mcp_with(
        &self,
        url: &str,
        capabilities: &Value,
        method: &str,
        params: Value,
    ) -> Value {
        let uri = params["uri"].as_str().map(str::to_owned);
        let request = mcp::request(url, capabilities, method, params);
        let request = uri
            .into_iter()
            .fold(request, |request, uri| request.header("mcp-name", uri));
        answer(request.bearer_auth(&self.key)).await.1
    }

    /// Returns the names of the tools, in order; the error if there is no list.
    pub async fn tools(&self, url: &str) -> Vec<String> {
        let listed = self.mcp(url, "tools/list", json!({})).await;
        let Some(tools) = listed["result"]["tools"].as_array() else {
            return vec![listed["error"]["message"].as_str().unwrap().to_owned()];
        };
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    }

    pub async fn call(&self, url: &str, tool: &str) -> Value {
        self.mcp(url, "tools/call", json!({ "name": tool, "arguments": {} }))
            .await
    }

    /// Returns the names of the skills in the extended card.
    pub async fn skills(&self, url: &str) -> Vec<String> {
        let request = a2a::request(url, "GetExtendedAgentCard", json!({}));
        let card = a2a::response(request.bearer_auth(&self.key)).await;
        let skills = card["result"]["skills"].as_array();
        let skills = skills.unwrap_or_else(|| panic!("{card}"));
        let id = |skill: &Value| skill["id"].as_str().unwrap().to_owned();
        skills.iter().map(id).collect()
    }

    /// Returns the answer to a message for a skill.
    pub async fn ask(&self, url: &str, skill: &str) -> Value {
        let request = a2a::request(url, "SendMessage", a2a::for_skill(skill, false));
        a2a::response(request.bearer_auth(&self.key)).await
    }
}

/// Returns the first address of a node with this end.
pub fn address_of<'a>(listening: &'a [(String, String)], end: &str) -> &'a str {
    let mut urls = listening.iter().map(|(_, url)| &**url);
    urls.find(|url| url.ends_with(end)).unwrap()
}
