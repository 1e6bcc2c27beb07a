use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::kit::gateway::{end, serve};
use crate::kit::{Finished, Home, ended};

/// Head of a topology, and an agent without needs.
const NODE: &str =
    "[node]\nname = \"n\"\n[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n";

/// Returns a free address of the IP address `host`, which only one test uses.
fn free_address(host: &str) -> String {
    let listener = TcpListener::bind((host, 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Returns an MCP listener of the agent `echo`, with more keys.
fn listener(address: &str, more: &str) -> String {
    format!(
        "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"{address}\"\nagent = \"echo\"\n{more}"
    )
}

fn set_mode(home: &Home, name: &str, mode: u32) {
    fs::set_permissions(home.path(name), Permissions::from_mode(mode)).unwrap();
}

/// Runs `callboard doctor` on `n.toml` with this text.
async fn doctor(home: &Home, text: &str) -> Finished {
    home.write("n.toml", text);
    home.run(&["doctor", "n.toml"]).await
}

/// The path of the binary, as it knows it itself.
fn binary() -> String {
    let path = fs::canonicalize(env!("CARGO_BIN_EXE_callboard")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Checks that these lines are among those printed, each with its remedy.
#[track_caller]
fn has_lines(shown: &Finished, lines: &[String]) {
    for line in lines {
        let is_there = format!("\n{}", shown.out).contains(&format!("\n{line}\n"));
        assert!(is_there, "{line}\n\nis not in\n\n{}", shown.out);
    }
}

/// Goal: a node that can run has no errors, and each line says what was found. Method: a file as `callboard init` writes it, without naming
/// it.
#[tokio::test]
async fn good_topologies() {
    let home = Home::new();
    let init = ["init", "--yes", "--listen", "127.0.0.1:0"];
    home.run(&init).await.quiet(0);
    let shown = home.run(&["doctor"]).await.quiet(0);
    let (first, rest) = shown.out.split_once('\n').unwrap();
    let version = format!(
        "ok       version: callboard {} on ",
        env!("CARGO_PKG_VERSION")
    );
    assert!(first.starts_with(&version), "{first}");
    // This machine may have little space: a warning with its remedy.
    let is_about_space =
        |line: &&str| line.contains("free space: ") || line.contains("remedy: make room: ");
    let (space, rest): (Vec<_>, Vec<_>) = rest.lines().partition(is_about_space);
    assert!(space[0].ends_with(" MiB for ."), "{space:?}");
    let last = format!("checks: 7, errors: 0, warnings: {}", space.len() - 1);
    let upstream = format!("ok       upstream server: starts {}", binary());
    let expected = [
        "ok       topology: callboard.toml has no errors and no warnings",
        "ok       listener 127.0.0.1:0: the address is free",
        &upstream,
        "ok       store gateway.journal.sqlite: isn't there yet: the first start makes it",
        "ok       clients: no configuration of Claude Code, Claude Desktop, Codex, VS Code or Cursor names callboard",
        &last,
    ];
    assert_eq!(rest, expected);
    let names = fs::read_dir(home.path("")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    assert_eq!(
        names.count(),
        2,
        "doctor made a file beside callboard.toml and tmp"
    );
}

/// Goal: a running node causes no complaint: its addresses are named as its own, and its store is read. A second file with
/// one of its addresses gets a warning.
/// Method: before, while and after a node runs; another file while it runs.
#[tokio::test]
async fn running_nodes() {
    let home = Home::new();
    let address = free_address("127.0.0.21");
    let text = format!(
        "{NODE}[store]\n[console]\nbind = \"127.0.0.21:0\"\n{}",
        listener(&address, "")
    );
    let free = format!("ok       listener {address}: the address is free");
    let store = |what: &str| format!("ok       store n.journal.sqlite: {what}");
    let before = doctor(&home, &text).await.quiet(0);
    let console = "ok       console 127.0.0.21:0: the address is free".to_owned();
    has_lines(&before, &[free.clone(), console]);

    let (node, _) = serve(&home, &["n.toml"]).await;
    let while_running = doctor(&home, &text).await.quiet(0);
    let own = format!(
        "ok       listener {address}: in use by the running node, callboard (process {})",
        node.id()
    );
    let opens = store("opens, and has the schema of this version");
    has_lines(&while_running, &[own, opens.clone()]);
    home.write("other.toml", &text);
    let other = home.run(&["doctor", "other.toml"]).await.quiet(0);
    let others = format!(
        "warning  listener {address}: in use by callboard (process {}), a callboard node: perhaps another file's\n         \
         remedy: unless it runs this file, stop it, or write another port in `bind`",
        node.id()
    );
    has_lines(&other, &[others]);
    end(node, &home).await;

    let after = doctor(&home, &text).await.quiet(0);
    has_lines(&after, &[free, opens]);
}

/// Goal: each thing that keeps a node from working is an error with its remedy, and no secret is shown. Method: a port that this process has, a
/// program that is missing and one that can't be executed, a server that is away, keys that all may read, a store in a file.
#[tokio::test]
async fn errors_name_their_remedy() {
    let home = Home::new();
    let used = TcpListener::bind("127.0.0.22:0").unwrap();
    let address = used.local_addr().unwrap();
    let away = "127.0.0.2:1";
    home.run(&["keys", "--keys", "keys.toml", "add", "robot"])
        .await
        .with(0, "");
    set_mode(&home, "keys.toml", 0o644);
    home.write("plain", "");
    let text = format!(
        "{NODE}[store]\nurl = \"sqlite:plain/n.sqlite\"\n{}\
         [[upstream]]\nid = \"gone\"\ncommand = [\"no-such-program\"]\n\
         [[upstream]]\nid = \"plain\"\ncommand = [\"./plain\"]\n\
         [[upstream]]\nid = \"away\"\nurl = \"http://{away}/mcp?key=s3cret\"\nheaders = {{ Authorization = \"Bearer s3cret\" }}\n\
         [[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.22:0\"\nkeys = \"keys.toml\"\n",
        listener(&address.to_string(), "keys = \"keys.toml\"\n")
    );
    let shown = doctor(&home, &text).await.quiet(4);
    let program = fs::read_link("/proc/self/exe").unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    has_lines(
        &shown,
        &[
            format!(
                "error    listener {address}: in use by {program} (process {})\n         \
                 remedy: stop that program, or write another port in `bind`",
                std::process::id()
            ),
            "warning  keys keys.toml: every user of this machine may read it: names, scopes and hashes of the keys\n         \
             remedy: run `chmod 600 keys.toml`"
                .to_owned(),
            "error    upstream gone: there is no program no-such-program in PATH\n         \
             remedy: install it, or write its path in `command`"
                .to_owned(),
            "error    upstream plain: this user can't execute ./plain\n         remedy: run `chmod +x ./plain`"
                .to_owned(),
            format!(
                "error    upstream away: http://{away}: connection refused\n         \
                 remedy: start the server, or correct the port in `url`"
            ),
            "error    store: the folder plain can't be written to: not a directory\n         \
             remedy: give it to the user of the node, or name another one: `url` in [store], or --state DIR"
                .to_owned(),
        ],
    );
    assert!(
        shown.out.contains(
            "\nwarning  topology: n.toml has errors: 0, warnings: 1; the first: there is no program no-such-program in PATH"
        ),
        "{shown:?}"
    );
    let last = shown.out.lines().last();
    assert_eq!(last, Some("checks: 10, errors: 5, warnings: 2"));
    assert!(!shown.out.contains("s3cret"), "{shown:?}");
    drop(used);
}

/// Goal: a key file that lets nobody in, or that others may change, is an error, also where `callboard check` can't use the topology. Method: no
/// file, one with a revoked key, one that others may write, one that is damaged, and a good one.
#[tokio::test]
async fn key_files() {
    let home = Home::new();
    let text = format!(
        "{NODE}{}",
        listener("127.0.0.1:0", "keys = \"keys.toml\"\n")
    );
    let keys = async |arguments: &[&str]| {
        let all = [&["keys", "--keys", "keys.toml"], arguments].concat();
        home.run(&all).await.with(0, "");
    };
    let add = "`callboard keys --keys keys.toml add NAME` makes a key";
    let row = |found: &str, remedy: &str| {
        format!("error    keys keys.toml: {found}\n         remedy: {remedy}")
    };
    let missing = doctor(&home, &text).await.quiet(4);
    has_lines(&missing, &[row("there is no such file", add)]);
    assert!(
        missing
            .out
            .contains("\nerror    topology: n.toml has errors: 1,")
    );

    keys(&["add", "robot"]).await;
    let good = doctor(&home, &text).await.quiet(0);
    has_lines(
        &good,
        &["ok       keys keys.toml: valid keys: 1".to_owned()],
    );

    set_mode(&home, "keys.toml", 0o622);
    let writable = doctor(&home, &text).await.quiet(4);
    has_lines(
        &writable,
        &[row("other users may write it", "run `chmod 600 keys.toml`")],
    );

    set_mode(&home, "keys.toml", 0o600);
    keys(&["revoke", "robot"]).await;
    let revoked = doctor(&home, &text).await.quiet(4);
    let none = "none of its keys is valid, so that every request with a key is refused";
    has_lines(&revoked, &[row(none, add)]);

    fs::write(home.path("keys.toml"), "version = 9").unwrap();
    let damaged = doctor(&home, &text).await.quiet(4);
    assert!(
        damaged
            .out
            .contains("\nerror    keys keys.toml: the key file keys.toml is damaged")
    );
    assert!(damaged.out.contains("remedy: restore it from a backup"));
}

/// Returns the names of an object's members, in order.
fn members(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

/// Goal: programs read the same results. Method: the object of a topology with an error and a warning; a file that can't be read, and none at
/// all.
#[tokio::test]
async fn results_as_json() {
    let home = Home::new();
    let upstream = "[[upstream]]\nid = \"gone\"\ncommand = [\"no-such-program\"]\n";
    let text = format!(
        "{NODE}[store]\nurl = \"memory\"\n{upstream}{}",
        listener("127.0.0.1:0", "")
    );
    home.write("n.toml", &text);
    let shown = home.run(&["doctor", "n.toml", "--json"]).await.quiet(4);
    assert_eq!(shown.out.lines().count(), 1);
    let report = shown.json();
    assert_eq!(members(&report), ["checks", "ok"]);
    assert_eq!(report["ok"], false);
    let checks = report["checks"].as_array().unwrap();
    for check in checks {
        assert_eq!(members(check), ["check", "found", "level", "remedy"]);
        assert_eq!(check["remedy"].is_null(), check["level"] == "ok", "{check}");
    }
    let of = |subject: &str| {
        let found = checks.iter().find(|check| check["check"] == subject);
        found.unwrap_or_else(|| panic!("{subject}: {report}"))
    };
    let gone = json!({
        "check": "upstream gone", "level": "error", "found": "there is no program no-such-program in PATH",
        "remedy": "install it, or write its path in `command`",
    });
    assert_eq!(of("upstream gone"), &gone);
    assert_eq!(of("topology")["level"], "warning");
    assert_eq!(of("store")["found"], "in memory: it ends with the node");

    let wrong = home.write("wrong.toml", "[node]\n");
    let shown = home.run(&["doctor", &wrong, "--json"]).await.quiet(4);
    assert_eq!(
        shown.json()["checks"].as_array().unwrap().len(),
        3,
        "{shown:?}"
    );
    home.run(&["doctor", "no/such/file"]).await.printing(2, "");
    home.run(&["doctor"]).await.quiet(0).has(&[
        "warning  topology: no file is named, and this folder has no callboard.toml\n",
        "`callboard init`",
    ]);
}

/// Goal: an entry of a client that can't start callboard is an error, and one for a listener is told. Method: files of four clients, with a
/// program that is missing, a topology file that is missing, comments, and the address of a listener; secrets beside them.
#[tokio::test]
async fn client_configurations() {
    let home = Home::new();
    let address = free_address("127.0.0.23");
    for folder in [".codex", ".cursor", ".vscode"] {
        fs::create_dir(home.path(folder)).unwrap();
    }
    let gone = json!({ "command": "/no/such/callboard", "args": ["stdio", "n.toml"], "env": { "KEY": "s3cret" } });
    let foreign = json!({ "command": "no-such-program" });
    let claude = json!({
        "mcpServers": { "foreign": foreign },
        "projects": { "/p": { "mcpServers": { "callboard": gone } } },
    });
    home.write(".claude.json", &claude.to_string());
    let stdio = json!({ "command": binary(), "args": ["stdio", "/no/such.toml"] });
    home.write(
        ".mcp.json",
        &json!({ "mcpServers": { "files": stdio } }).to_string(),
    );
    home.write(
        ".codex/config.toml",
        &format!("[mcp_servers.mail]\nurl = \"http://{address}/mcp?key=s3cret\"\n"),
    );
    home.write(".cursor/mcp.json", "{ // callboard\n}");
    let elsewhere = json!({ "type": "http", "url": "http://127.0.0.3:1/mcp" });
    let code = json!({ "servers": { "callboard": elsewhere } });
    home.write(".vscode/mcp.json", &code.to_string());

    let store = "[store]\nurl = \"memory\"\n";
    let text = format!("{NODE}{store}{}", listener(&address, ""));
    let shown = doctor(&home, &text).await.quiet(4);
    let place = |file: &str| home.path(file).display().to_string();
    has_lines(
        &shown,
        &[
            format!(
                "error    client Claude Code: \"callboard\" in {} starts /no/such/callboard, which doesn't exist\n         \
                 remedy: correct `command` there; this callboard is {}",
                place(".claude.json"),
                binary()
            ),
            format!(
                "ok       client Codex: \"mail\" in {} connects to http://{address}, a listener of this file",
                place(".codex/config.toml")
            ),
            format!(
                "warning  client Cursor: {}: it has comments, or a mistake, so that its entries aren't checked\n         \
                 remedy: look yourself whether the command of its entry for callboard exists",
                place(".cursor/mcp.json")
            ),
        ],
    );
    shown.has(&[
        "/.mcp.json serves /no/such.toml, which doesn't exist\n",
        "/.vscode/mcp.json connects to http://127.0.0.3:1, where this file has no listener\n",
        "errors: 2, warnings: 2\n",
    ]);
    for hidden in ["s3cret", "no-such-program"] {
        assert!(!shown.out.contains(hidden), "{hidden}: {shown:?}");
    }
}

/// Goal: the data of a node is found where `serve --state` has it. Method: a state folder with a file in place of the store.
#[tokio::test]
async fn state_folders() {
    let home = Home::new();
    home.write(
        "n.toml",
        &format!("{NODE}[store]\n{}", listener("127.0.0.1:0", "")),
    );
    fs::create_dir(home.path("data")).unwrap();
    home.write("data/n.journal.sqlite", "no store");
    let mut command = home.callboard(&["doctor", "n.toml", "--state", "data"]);
    let shown = ended(&mut command, None).await.quiet(4);
    has_lines(
        &shown,
        &[
            "error    store data/n.journal.sqlite: isn't a store of callboard\n         \
             remedy: name another file: `url` in [store]"
                .to_owned(),
        ],
    );
    let kept = fs::read_to_string(home.path("data/n.journal.sqlite")).unwrap();
    assert_eq!(kept, "no store");
}
