//! Settings that `callboard connect` writes, read by the applications they are for, and by other programs that read the same files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::gateway::{ECHO, Gateway, Topology, callboard};
use crate::kit::{Peers, peers, soon, with};

/// A user's home without any file of an application.
struct Home {
    peers: Peers,
    folder: TempDir,
    /// Variable that moves the files of an application, and their folder.
    moved: Option<(&'static str, PathBuf)>,
}

impl Home {
    /// Makes a home. `variable` moves the files of an application into a folder there.
    fn new(peers: &Peers, variable: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let moved = variable.map(|name| (name, folder.path().join("moved")));
        Self {
            peers: peers.clone(),
            folder,
            moved,
        }
    }

    /// A program in this home, without the variables of whoever runs the tests.
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = with(self.peers.command(program), arguments);
        command
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", "/usr/bin:/bin")
            .envs(self.moved.clone())
            .current_dir(self.folder.path());
        command
    }

    /// Runs `callboard connect`.
    async fn connect(&self, arguments: &[&str]) {
        let arguments = [&["connect"][..], arguments].concat();
        printed(self.command(Path::new(callboard()), &arguments)).await;
    }
}

/// Standard output of a program that succeeds.
async fn printed(mut command: Command) -> String {
    let output = soon("the end of a program", command.output())
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard output of a program that succeeds, as JSON.
async fn printed_json(command: Command) -> Value {
    let text = printed(command).await;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Goal: the files of Claude Desktop and Cursor are where other programs look for them, and a program that reads them starts
/// and reaches callboard. Method: FastMCP's `discover` and `list` with a topology file and with the address of a node; `discover`
/// after `--remove`.
#[tokio::test]
async fn fastmcp_reads_claude_desktop_and_cursor() {
    let Some(peers) = peers() else { return };
    let topology = Topology::new(ECHO);
    let started = topology.stdio_of_all();
    let node = Gateway::start(&peers, Topology::new(ECHO)).await;
    let url = node.mcp("echo");
    let home = Home::new(&peers, None);
    home.connect(&["claude-desktop", &started[2]]).await;
    home.connect(&["cursor", &url]).await;

    let program = peers.python("python").with_file_name("fastmcp");
    let fastmcp = |arguments: &[&str]| home.command(&program, arguments);
    let discovered = printed_json(fastmcp(&["discover", "--json"])).await;
    let servers = discovered.as_array().unwrap();
    let summaries: Vec<_> = servers
        .iter()
        .map(|server| [&server["qualified_name"], &server["transport_summary"]])
        .collect();
    let command = fs::canonicalize(&started[0]).unwrap();
    let command = format!("stdio: {} {}", command.display(), started[1..].join(" "));
    let address = format!("http: {url}");
    let expected = [
        ["claude-desktop:callboard", &*command],
        ["cursor:callboard", &*address],
    ];
    assert_eq!(summaries, expected);
    for [server, _] in expected {
        let listed = printed_json(fastmcp(&["list", server, "--json"])).await;
        assert_eq!(listed["tools"][0]["name"], "ask_model", "{server}");
    }

    for client in ["claude-desktop", "cursor"] {
        home.connect(&[client, "--remove"]).await;
    }
    let discovered = printed_json(fastmcp(&["discover", "--json"])).await;
    assert_eq!(discovered, Value::Array(Vec::new()));
    node.end().await;
}

/// With the applications that `cargo xtask peers --heavy` installs. None has an account.
mod heavy {
    use std::collections::HashMap;
    use std::process::Stdio;

    use callboard::rpc::KeyStore;
    use secrecy::{ExposeSecret, SecretString};
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;
    use crate::kit::{free_port, heavy_peers, script};

    /// Names of the entries: a server that the application starts, and agent mail.
    const STARTED: &str = "callboard";
    const MAIL: &str = "callboard-mail";
    /// Variable with the key for agent mail.
    const KEY: &str = "CALLBOARD_KEY";
    const WRONG_KEY: &str = "cbk_wrong";

    /// A node with agent mail behind a key, and a topology file for applications to start.
    struct ConnectedNodes {
        started: Topology,
        mail: Gateway,
        mail_file: String,
        key: SecretString,
        _folder: TempDir,
    }

    impl ConnectedNodes {
        async fn start(peers: &Peers) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let keys = folder.path().join("keys.toml");
            let mut store = KeyStore::load_or_new(&keys).unwrap();
            let key = store.add("client", Vec::new()).unwrap();
            let topology = Topology::of_text(&format!(
                "[node]\nname = \"office\"\n[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n[[listener]]\nprotocol = \"mcp\"\n\
                 dialect = \"mcp\"\nbind = \"127.0.0.1:{}\"\nagent = \"mailroom\"\nkeys = {}\n",
                free_port(),
                json!(keys)
            ));
            Self {
                started: Topology::new(ECHO),
                mail_file: topology.stdio_of_all().swap_remove(2),
                mail: Gateway::start(peers, topology).await,
                key,
                _folder: folder,
            }
        }

        /// Connects an application to both.
        async fn connect(&self, home: &Home, client: &str) {
            let file = &self.started.stdio_of_all()[2];
            home.connect(&[client, file]).await;
            home.connect(&[client, &self.mail_file, "--mail"]).await;
        }

        fn url(&self) -> String {
            self.mail.mcp("mailroom")
        }

        /// Checks a command line that an application reads.
        fn assert_started(&self, program: &str, arguments: &[&str]) {
            let expected = self.started.stdio_of_all();
            let paths = [program, &expected[0]].map(|path| fs::canonicalize(path).unwrap());
            assert_eq!(paths[0], paths[1]);
            assert_eq!(arguments, &expected[1..]);
        }
    }

    /// Removes both entries of an application.
    async fn disconnect(home: &Home, client: &str) {
        home.connect(&[client, "--remove"]).await;
        home.connect(&[client, "--remove", "--mail"]).await;
    }

    /// Output of `claude mcp` with a key.
    async fn claude_mcp(home: &Home, key: &str, arguments: &[&str]) -> String {
        let program = home.peers.heavy_package("claude-code/claude");
        let mut command = home.command(&program, &[&["mcp"][..], arguments].concat());
        command
            .env(KEY, key)
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            .env("DISABLE_TELEMETRY", "1");
        printed(command).await
    }

    /// Values that `claude mcp get` prints, by their labels.
    async fn claude_server(home: &Home, key: &str, name: &str) -> HashMap<String, String> {
        let text = claude_mcp(home, key, &["get", name]).await;
        let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        lines
            .map(|(label, value)| (label.to_owned(), value.to_owned()))
            .collect()
    }

    /// Goal: Claude Code finds both entries as they were meant, without a warning, starts the one server, and reaches the other with
    /// the key of the variable. Method: `claude mcp get` and `list`, with the file in the home and moved; a wrong key; `list` after
    /// `--remove`, when Claude Code has written to the file, too.
    #[tokio::test]
    async fn claude_code_connects() {
        let Some(peers) = heavy_peers() else { return };
        let nodes = ConnectedNodes::start(&peers).await;
        let key = nodes.key.expose_secret();
        for variable in [None, Some("CLAUDE_CONFIG_DIR")] {
            let home = Home::new(&peers, variable);
            nodes.connect(&home, "claude-code").await;

            let started = claude_server(&home, key, STARTED).await;
            let arguments: Vec<_> = started["Args"].split(' ').collect();
            nodes.assert_started(&started["Command"], &arguments);
            assert_eq!(started["Status"], "✔ Connected");
            let mail = claude_server(&home, key, MAIL).await;
            assert_eq!((&*mail["Type"], &mail["URL"]), ("http", &nodes.url()));
            assert_eq!(mail["Authorization"], format!("Bearer ${{{KEY}}}"));
            assert_eq!(mail["Status"], "✔ Connected");

            for (key, connected, failed) in [(key, 2, 0), (WRONG_KEY, 1, 1)] {
                let listed = claude_mcp(&home, key, &["list"]).await;
                assert_eq!(listed.matches("✔ Connected").count(), connected, "{listed}");
                assert_eq!(listed.matches("✘ Failed").count(), failed, "{listed}");
                assert!(!listed.contains("diagnostics"), "{listed}");
            }

            disconnect(&home, "claude-code").await;
            let listed = claude_mcp(&home, key, &["list"]).await;
            assert!(listed.starts_with("No MCP servers configured"), "{listed}");
        }
        nodes.mail.end().await;
    }

    /// Native program of Codex.
    fn codex(peers: &Peers) -> PathBuf {
        let system = match std::env::consts::OS {
            "macos" => "apple-darwin",
            _ => "unknown-linux-musl",
        };
        let target = format!("{}-{system}", std::env::consts::ARCH);
        peers.heavy_package(&format!("codex/vendor/{target}/bin/codex"))
    }

    /// Servers in the file of Codex, as `codex mcp list` prints them.
    async fn codex_list(home: &Home) -> Value {
        let program = codex(&home.peers);
        printed_json(home.command(&program, &["mcp", "list", "--json"])).await
    }

    /// Servers by name, with the tools that Codex is offered, or the error of the connection. Codex refuses a setting that it doesn't know.
    async fn codex_servers(home: &Home, key: &str) -> HashMap<String, Value> {
        let program = codex(&home.peers);
        let mut command = home.command(&program, &["app-server", "--strict-config"]);
        command
            .env(KEY, key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let client = json!({ "clientInfo": { "name": "test", "version": "1" } });
        for message in [
            json!({ "id": 1, "method": "initialize", "params": client }),
            json!({ "method": "initialized" }),
            json!({ "id": 2, "method": "mcpServerStatus/list", "params": {} }),
        ] {
            let line = format!("{message}\n");
            input.write_all(line.as_bytes()).await.unwrap();
        }
        let answered = async {
            loop {
                let line = output.next_line().await.unwrap();
                let line = line.expect("Codex goes on until its input ends");
                let message: Value = serde_json::from_str(&line).unwrap();
                if message["id"] == 2 {
                    break message;
                }
            }
        };
        let answer = soon("the servers of Codex", answered).await;
        drop(input);
        let status = soon("the end of Codex", child.wait()).await.unwrap();
        assert!(status.success(), "{status}");
        let servers = answer["result"]["data"].as_array();
        let servers = servers.unwrap_or_else(|| panic!("{answer}"));
        let named = servers.iter().map(|server| {
            let name = server["name"].as_str().unwrap();
            (name.to_owned(), server.clone())
        });
        named.collect()
    }

    /// Goal: Codex finds both entries as they were meant, knows all their settings, starts the one server, and reaches the other with
    /// the key of the variable. Method: `codex mcp list`, and its app server's status of servers, with the file in the home and moved;
    /// a wrong key; both after `--remove`.
    #[tokio::test]
    async fn codex_connects() {
        let Some(peers) = heavy_peers() else { return };
        let nodes = ConnectedNodes::start(&peers).await;
        let key = nodes.key.expose_secret();
        for variable in [None, Some("CODEX_HOME")] {
            let home = Home::new(&peers, variable);
            nodes.connect(&home, "codex").await;

            let listed = codex_list(&home).await;
            let [started, mail] = [STARTED, MAIL].map(|name| {
                let mut servers = listed.as_array().unwrap().iter();
                let server = servers.find(|server| server["name"] == name).unwrap();
                assert_eq!(server["enabled"], true, "{server}");
                &server["transport"]
            });
            let arguments = started["args"].as_array().unwrap().iter();
            let arguments: Vec<_> = arguments.map(|it| it.as_str().unwrap()).collect();
            nodes.assert_started(started["command"].as_str().unwrap(), &arguments);
            assert_eq!(mail["url"], nodes.url());
            assert_eq!(mail["bearer_token_env_var"], KEY);

            let servers = codex_servers(&home, key).await;
            for (name, tool) in [(STARTED, "ask_model"), (MAIL, "check_inbox")] {
                let server = &servers[name];
                assert_eq!(server["toolsError"], Value::Null, "{server}");
                assert_eq!(server["tools"][tool]["name"], tool, "{server}");
            }
            let servers = codex_servers(&home, WRONG_KEY).await;
            assert_eq!(servers[STARTED]["toolsError"], Value::Null);
            let error = &servers[MAIL]["toolsError"];
            assert!(error.as_str().unwrap().contains("Auth required"), "{error}");

            disconnect(&home, "codex").await;
            assert_eq!(codex_list(&home).await, json!([]));
            assert!(codex_servers(&home, key).await.is_empty());
        }
        nodes.mail.end().await;
    }

    /// Goal: VS Code marks nothing in its file. Method: VS Code's JSON schema of the file, with a program, an address, and a key from
    /// a prompt and from a variable, and after `--remove`; the schema refuses the file of another application.
    #[tokio::test]
    async fn vscode_schema_accepts_its_file() {
        let Some(peers) = heavy_peers() else { return };
        let home = Home::new(&peers, None);
        let package = peers.heavy_package("@codingame/monaco-vscode-api");
        let arguments = [script("vscode_schema.mjs").into(), package];
        let schema = printed_json(with(peers.command(&peers.node()), arguments)).await;
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mistakes = || {
            let text = fs::read_to_string(home.folder.path().join("mcp.json")).unwrap();
            let file: Value = serde_json::from_str(&text).unwrap();
            let found = validator.iter_errors(&file);
            found.map(|it| it.to_string()).collect::<Vec<_>>()
        };
        let url = "http://127.0.0.1:8091/mcp";
        let entries: [&[&str]; 4] = [
            &["example:hmcp-emr", "--name", "started"],
            &[url, "--name", "open"],
            &[url, "--name", "prompt", "--mail"],
            &[url, "--name", "variable", "--key-env", KEY],
        ];
        let config = ["vscode", "--config", "mcp.json"];
        for entry in entries {
            home.connect(&[&config[..], entry].concat()).await;
        }
        assert_eq!(mistakes(), Vec::<String>::new());
        for entry in entries {
            home.connect(&[&config[..], entry, &["--remove"]].concat())
                .await;
        }
        assert_eq!(mistakes(), Vec::<String>::new());
        let config = ["cursor", "--config", "mcp.json", "--name", "board", url];
        home.connect(&config).await;
        assert_ne!(mistakes(), Vec::<String>::new());
    }
}
