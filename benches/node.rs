//! A whole node for benches: the binary in a process of its own, with an upstream over standard streams, a mailroom, a store on
//! SQLite, and a key for each principal. The upstream is this program again, started with `--serve upstream`.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use callboard_rpc::KeyStore;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::Running;

/// Environment variable of the upstream: the file to which its tool `record` appends each text.
const RECORD: &str = "RECORD";
/// Header lines of a request of A2A 1.0.
pub const A2A_HEADERS: &str = "a2a-version: 1.0\r\naccept: application/json\r\n";
/// Number of bytes of a failed node's standard error that are shown.
const STDERR_SHOWN_BYTES: usize = 2_000;

/// Addresses of a node's listeners.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub mcp: SocketAddr,
    pub a2a: SocketAddr,
    pub mail: SocketAddr,
}

/// Files of a node: topology, keys and state. They outlive its process.
pub struct Site {
    folder: TempDir,
    program: PathBuf,
    pub at: Addresses,
}

impl Site {
    /// Writes the topology; `settings` are further sections and `upstream` further keys of the upstream.
    pub fn new(program: &Path, settings: &str, upstream: &str) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|e| e.to_string())?;
        let at = Addresses {
            mcp: free_address()?,
            a2a: free_address()?,
            mail: free_address()?,
        };
        let here = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut text = format!(
            "[node]\nname = \"bench\"\n\n{settings}\n[[upstream]]\nid = \"up\"\nera = \"legacy\"\n\
             command = [{:?}, \"--serve\", \"upstream\"]\nenv = {{ {RECORD} = {:?} }}\n\
             supports_elicitation = true\n{upstream}\n[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n",
            here.display().to_string(),
            folder.path().join("record").display().to_string(),
        );
        for (protocol, address, more) in [
            ("mcp", at.mcp, "agent = \"up\"\ndialect = \"mcp\"\n"),
            ("a2a", at.a2a, "agent = \"up\"\n"),
            ("mail", at.mail, "agent = \"mailroom\"\n"),
        ] {
            write!(
                text,
                "\n[[listener]]\nprotocol = \"{protocol}\"\nbind = \"{address}\"\nkeys = \"keys.toml\"\n{more}"
            )
            .map_err(|e| e.to_string())?;
        }
        fs::write(folder.path().join("node.toml"), text).map_err(|e| e.to_string())?;
        Ok(Self {
            folder,
            program: program.to_owned(),
            at,
        })
    }

    /// Adds a principal. Returns its key.
    pub fn key(&self, name: &str) -> Result<String, String> {
        let mut keys = KeyStore::load_or_new(self.folder.path().join("keys.toml"))
            .map_err(|e| e.to_string())?;
        let key = keys.add(name, Vec::new()).map_err(|e| e.to_string())?;
        Ok(key.expose_secret().to_owned())
    }

    /// Starts the node and waits until it is ready. It is killed when this is dropped.
    pub fn start(&self) -> Result<Running, String> {
        let stderr = self.folder.path().join("stderr");
        let log = File::create(&stderr).map_err(|e| e.to_string())?;
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg(self.folder.path().join("node.toml"))
            .arg("--lifeline")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = Running::start(&mut command)?;
        let mut output = BufReader::new(child.0.stdout.take().ok_or("a node without output")?);
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            if output.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
                let said = fs::read(&stderr).unwrap_or_default();
                let end = &said[said.len().saturating_sub(STDERR_SHOWN_BYTES)..];
                let end = String::from_utf8_lossy(end);
                return Err(format!("the node didn't start: {end}"));
            }
        }
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Ok(child)
    }

    /// Returns the texts that the upstream's tool `record` was called with, in order.
    pub fn recorded(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("record")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Client of a node's listeners with the key of one principal. Clones share connections.
#[derive(Clone)]
pub struct Client {
    pub at: Addresses,
    pub key: String,
    pub http: reqwest::Client,
}

impl Client {
    /// Creates a client whose connections come from a local address, and which gives up after a time.
    pub fn new(
        at: Addresses,
        key: String,
        from: Ipv4Addr,
        patience: Duration,
    ) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .local_address(IpAddr::V4(from))
            .timeout(patience)
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self { at, key, http })
    }

    /// Sends a request. Returns the response's status and its whole body.
    pub async fn post(
        &self,
        to: SocketAddr,
        path: &str,
        headers: &str,
        body: String,
    ) -> Result<(u16, String), String> {
        let mut request = self
            .http
            .post(format!("http://{to}{path}"))
            .bearer_auth(&self.key)
            .header("content-type", "application/json")
            .body(body);
        for (name, value) in headers.lines().filter_map(|line| line.split_once(": ")) {
            request = request.header(name, value);
        }
        let response = request.send().await.map_err(|e| e.to_string())?;
        let status = response.status().as_u16();
        Ok((status, response.text().await.map_err(|e| e.to_string())?))
    }

    /// Calls a tool over MCP, statelessly.
    pub async fn call(&self, tool: &str, text: &str, asks: bool) -> Result<(u16, String), String> {
        let (headers, body) = tool_call(tool, text, 1, asks);
        self.post(self.at.mcp, "/mcp", &headers, body).await
    }

    /// Sends a request of A2A 1.0.
    pub async fn a2a(&self, method: &str, params: &Value) -> Result<(u16, String), String> {
        let body = a2a_request(method, 1, params);
        self.post(self.at.a2a, "/a2a", A2A_HEADERS, body).await
    }
}

fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|e| e.to_string())
}

/// Body of a modern `tools/call` of a tool with the argument `text`, and the header lines for it. `asks` tells whether the client
/// supports elicitation.
pub fn tool_call(tool: &str, text: &str, id: u64, asks: bool) -> (String, String) {
    let capabilities = if asks {
        json!({ "elicitation": {} })
    } else {
        json!({})
    };
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let params = json!({ "name": tool, "arguments": { "text": text }, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let headers = format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n"
    );
    (headers, body.to_string())
}

/// Body of an A2A 1.0 request.
pub fn a2a_request(method: &str, id: u64, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// Parameters of a `SendMessage` that calls a tool of the upstream with the argument `text`.
pub fn a2a_message(message: &str, tool: &str, text: &str, waits: bool) -> Value {
    let part = json!({ "data": { "skill": tool, "arguments": { "text": text } } });
    json!({
        "message": { "messageId": message, "role": "ROLE_USER", "parts": [part] },
        "configuration": { "returnImmediately": !waits },
    })
}

/// Serves the upstream on standard streams until their end: `echo` returns its text, `record` appends it to a file first, and `ask`
/// asks a question before it returns.
pub fn serve_upstream() -> Result<bool, String> {
    let mut record = std::env::var_os(RECORD)
        .map(|path| OpenOptions::new().create(true).append(true).open(path))
        .transpose()
        .map_err(|e| e.to_string())?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let message: Value = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        let params = &message["params"];
        if let (Some("record"), Some(file)) = (params["name"].as_str(), &mut record) {
            let text = params["arguments"]["text"].as_str().unwrap_or_default();
            // One write, so that lines of several processes don't mix.
            file.write_all(format!("{text}\n").as_bytes())
                .map_err(|e| e.to_string())?;
        }
        if let Some(answer) = upstream_answer(&message) {
            writeln!(out, "{answer}")
                .and_then(|()| out.flush())
                .map_err(|e| e.to_string())?;
        }
    }
    Ok(false)
}

/// Message that the upstream sends in reply to a message of its client.
fn upstream_answer(message: &Value) -> Option<Value> {
    let (id, params) = (&message["id"], &message["params"]);
    let result = match (message["method"].as_str(), params["name"].as_str()) {
        (Some("initialize"), _) => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "upstream", "version": "1" },
        }),
        (Some("tools/list"), _) => {
            let fields = json!({ "text": { "type": "string" } });
            let schema = json!({ "type": "object", "properties": fields });
            let tool = |name: &str| json!({ "name": name, "inputSchema": schema });
            let tools = ["echo", "record", "ask"].map(tool);
            json!({ "tools": tools })
        }
        (Some("tools/call"), Some("ask")) => {
            let fields = json!({ "name": { "type": "string" } });
            let schema = json!({ "type": "object", "properties": fields });
            let params = json!({ "message": "Your name?", "requestedSchema": schema });
            return Some(
                json!({ "jsonrpc": "2.0", "id": format!("q{id}"), "method": "elicitation/create", "params": params }),
            );
        }
        (Some("tools/call"), _) => {
            json!({ "content": [{ "type": "text", "text": params["arguments"]["text"] }] })
        }
        (Some("ping"), _) => json!({}),
        (Some(_), _) if id.is_null() => return None,
        (Some(_), _) => {
            let error = json!({ "code": -32601, "message": "unknown method" });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
        // The answer to a question ends its call.
        (None, _) => {
            let call: u64 = id.as_str()?.strip_prefix('q')?.parse().ok()?;
            return Some(json!({ "jsonrpc": "2.0", "id": call, "result": { "content": [] } }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}
