use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use callboard_message::log::{LOG_LINES_MAX, LOG_WINDOW};
use serde_json::Value;

use crate::kit::gateway::script;
use crate::kit::{Home, ended};

const WRONG: &str = r#"[node]
name = "n"

[[upstream]]
id = "files"
url = "ftp://x/"
transprt = "http"

[[upstream]]
id = "files"
command = ["no-such-program"]
calls_max = "many"

[[listener]]
protocol = "mcp"
dialect = "mcp"
bind = "0.0.0.0:0"
agents = ["fils"]
"#;

/// Goal: a person sees every mistake with its line, a caret and what was meant; a program gets one object. Method: a file
/// with mistakes of each kind, both ways.
#[tokio::test]
async fn every_mistake_is_shown() {
    let home = Home::new();
    let file = home.write("wrong.toml", WRONG);
    let shown = home.run(&["check", &file]).await.quiet(2);
    shown.has(&[
        "wrong.toml:6:7\n",
        "^^^^^^^^^^",
        "help: did you mean `transport`?",
        "two agents are called files",
        "warning: there is no program no-such-program in PATH",
        "`calls_max`: it must be a whole number",
        "keys are needed to listen there",
        "is for agent fils, which isn't declared",
        "can't be used: 6 errors, 1 warning",
    ]);
    let json = home.run(&["check", &file, "--json"]).await;
    let found = json.json();
    assert_eq!(
        (json.code, &found["ok"], json.out.lines().count()),
        (Some(2), &Value::Bool(false), 1)
    );
    let lines: Vec<_> = found["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [6, 7, 10, 11, 12, 17, 18]);
    // The same file doesn't start, and says so in one line.
    let served = home.run(&["serve", &file]).await;
    assert_eq!(
        (served.code, served.err.lines().count()),
        (Some(2), 1),
        "{served:?}"
    );
    assert!(
        served.err.contains("at line 6, column 7, and 5 more"),
        "{served:?}"
    );
}

/// Goal: what can be used is told so, warnings and all; what can't be read is a usage error. Method: a good file, one with
/// a warning, none.
#[tokio::test]
async fn ends_have_codes() {
    let home = Home::new();
    let good = home.write(
        "good.yaml",
        "node: {name: n}\nupstream: [{id: a, command: [sh]}]\n",
    );
    let shown = home.run(&["check", &good]).await;
    assert_eq!(
        (shown.code, shown.out.lines().count()),
        (Some(0), 1),
        "{shown:?}"
    );
    assert!(
        shown.out.contains("can be used: 0 agents, 1 upstream"),
        "{shown:?}"
    );
    let warned = home.write(
        "warned.yaml",
        "node: {name: n}\nupstream: [{id: a, command: [no-such-program]}]\n",
    );
    let shown = home.run(&["check", &warned]).await;
    assert!(
        shown.code == Some(0) && shown.out.contains("; 1 warning"),
        "{shown:?}"
    );
    assert_eq!(home.run(&["check", "no/such/file"]).await.code, Some(2));
}

/// Goal: before anything is served, a person sees which upstreams are there. Method: a script and a program that isn't
/// there, both ways; nothing is left running.
#[tokio::test]
async fn upstreams_are_connected_to() {
    let home = Home::new();
    let text = format!(
        "[node]\nname = \"n\"\n{}[[upstream]]\nid = \"dead\"\ncommand = [\"/no/such/server\"]\n",
        script(&home, "alive", "one")
    );
    let file = home.write("n.toml", &text);
    let shown = home.run(&["check", &file, "--connect"]).await.with(4, "");
    assert!(
        shown
            .out
            .contains("  alive  legacy era, 2025-11-25, 2 tools\n  dead   away: "),
        "{shown:?}"
    );
    let json = home.run(&["check", &file, "--connect", "--json"]).await;
    let found = json.json();
    assert_eq!(
        (json.code, &found["upstreams"][0]["tools"]),
        (Some(4), &Value::from(2)),
        "{found}"
    );
    home.swept().await;
}

/// Goal: a pane that takes no mail is told with the reason, before anything is served. Method: a pane of a tmux server that
/// isn't there (or no tmux at all); without `--connect` nothing is tried.
/// Rows: P-43.
#[tokio::test]
async fn panes_are_looked_at() {
    let home = Home::new();
    let text = format!(
        "[node]\nname = \"n\"\n[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\nmember = [{{ id = \"pane\" }}]\n\
         [[agent]]\nkind = \"tmux\"\nid = \"pane\"\ntarget = \"work:0.0\"\nsocket = \"{}\"\n\
         [[listener]]\nprotocol = \"mail\"\nbind = \"127.0.0.1:0\"\nagent = \"mailroom\"\nanonymous = \"operator\"\n",
        home.path("no-tmux").display()
    );
    let file = home.write("n.toml", &text);
    let told = async |arguments: &[&str]| {
        let found = home
            .run(&[&["check", &*file, "--json"], arguments].concat())
            .await;
        assert_eq!(found.code, Some(0), "{found:?}");
        found.json()["problems"].to_string()
    };
    let connected = told(&["--connect"]).await;
    assert!(
        connected.contains("pane gets no mail now: tmux"),
        "{connected}"
    );
    let plain = told(&[]).await;
    assert!(!plain.contains("gets no mail"), "{plain}");
    home.swept().await;
}

/// Goal: relative paths of a program are relative to the file, wherever callboard is started. Method: a file in a folder with
/// a program, an argument and a working directory that are relative; its path absolute, and relative to the folder above.
/// Rows: M-8.
#[tokio::test]
async fn programs_beside_the_file() {
    let home = Home::new();
    script(&home, "a", "one");
    let server = std::fs::read_to_string(home.path("server.sh")).unwrap();
    std::fs::remove_file(home.path("server.sh")).unwrap();
    std::fs::create_dir_all(home.path("conf/inner")).unwrap();
    let program = home.write("conf/server.sh", &format!("#!/bin/sh\n{server}"));
    home.write("conf/inner/in_inner.sh", &server);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "[node]\nname = \"n\"\n\
        [[upstream]]\nid = \"program\"\ncommand = [\"./server.sh\"]\n\
        [[upstream]]\nid = \"argument\"\ncommand = [\"sh\", \"server.sh\"]\n\
        [[upstream]]\nid = \"directory\"\ncommand = [\"../server.sh\"]\nworking_directory = \"inner\"\n\
        [[upstream]]\nid = \"inside\"\ncommand = [\"sh\", \"in_inner.sh\"]\nworking_directory = \"inner\"\n";
    let file = home.write("conf/n.toml", text);
    for file in [&*file, "conf/n.toml"] {
        let json = home.run(&["check", file, "--connect", "--json"]).await;
        let found = json.json();
        assert_eq!(
            (json.code, &found["problems"]),
            (Some(0), &Value::Array(Vec::new())),
            "{found}"
        );
        let upstreams = found["upstreams"].as_array().unwrap();
        assert!(
            upstreams.len() == 4 && upstreams.iter().all(|upstream| upstream["tools"] == 2),
            "{found}"
        );
    }
    home.swept().await;
}

/// Goal: a pattern of tool names that matches nothing is a warning. Method: with `--connect`, patterns of a virtual server
/// and of an upstream that match and that don't; without, those of an agent that isn't a member.
#[tokio::test]
async fn patterns_that_match_nothing() {
    let home = Home::new();
    let text = format!(
        "[node]\nname = \"n\"\n{}tools = {{ deny = [\"wa*\", \"rm_*\"] }}\n{}\
         [[server]]\nid = \"s\"\nmembers = [\"a\"]\n\
         tools = [\"wh?\", \"a.who\", \"a__who\", \"wait\", \"a.wo*\", \"b.who\"]\n",
        script(&home, "a", "one"),
        script(&home, "b", "two"),
    );
    let file = home.write("n.toml", &text);
    let warnings = async |arguments: &[&str]| {
        let json = home
            .run(&[&["check", &*file, "--json"], arguments].concat())
            .await;
        let found = json.json()["problems"].as_array().unwrap().clone();
        let messages = found
            .iter()
            .map(|p| p["message"].as_str().unwrap().to_owned());
        messages.collect::<Vec<_>>()
    };
    let alone = "\"b.who\" matches no tool: b is no member of the server s";
    assert_eq!(warnings(&[]).await, [alone]);
    assert_eq!(
        warnings(&["--connect"]).await,
        [
            alone,
            "a has no tool that \"rm_*\" in `tools` matches",
            "the server s has no tool that \"a.wo*\" in `tools` matches",
            "the server s has no tool that \"b.who\" in `tools` matches",
            "the server s has no tool that \"wait\" in `tools` matches",
        ]
    );
    home.swept().await;
}

/// Goal: what a server writes can't fill the disk that the log is on, and how much was left out is told. Method: a program that
/// writes garbage to both of its streams and ends; its lines in the log, and their counts.
#[tokio::test]
async fn a_noisy_upstream() {
    const LINES: u64 = 5_000;
    let home = Home::new();
    let flood =
        format!("i=0; while [ $i -lt {LINES} ]; do echo spam >&2; echo garbage; i=$((i+1)); done");
    let file = home.write(
        "noisy.yaml",
        &format!("node: {{name: n}}\nupstream: [{{id: a, command: [sh, -c, '{flood}']}}]\n"),
    );
    let began = Instant::now();
    let shown = home
        .run(&["--log", "info", "check", &file, "--connect"])
        .await
        .with(4, "");
    let windows = began.elapsed().as_secs() / LOG_WINDOW.as_secs() + 1;
    // Each window has its lines and the line with their count; each connection to the server is in one, or over the edge of two.
    let lines_max = (u64::from(LOG_LINES_MAX) + 1) * (windows + 1);
    let with = |text: &str| shown.err.lines().filter(|line| line.contains(text)).count() as u64;
    for (text, place) in [
        ("skipped a message of the server", "duplex.rs"),
        ("spam", "child.rs"),
    ] {
        assert!(
            (1..=lines_max).contains(&with(text)),
            "{text}: {}",
            with(text)
        );
        let counts = shown.err.lines().filter(|line| {
            line.contains("log lines like this were suppressed") && line.contains(place)
        });
        assert!(
            counts.clone().count() > 0 && counts.clone().all(|line| line.contains("by=\"sh\"")),
            "{}",
            shown.err
        );
    }
    home.swept().await;
}

/// Goal: a model of Anthropic finds its key under either name. Method: one variable, the other, none.
#[tokio::test]
async fn keys_of_anthropic() {
    let home = Home::new();
    let file = home.write(
        "n.toml",
        "[node]\nname = \"n\"\n[[agent]]\nkind = \"model\"\nid = \"m\"\nprovider = \"anthropic\"\nmodel = \"claude\"\n",
    );
    for (variable, missing) in [
        ("ANTHROPIC_API_KEY", false),
        ("CLAUDE_API_KEY", false),
        ("OPENAI_API_KEY", true),
    ] {
        let mut command = home.callboard(&["check", &file]);
        let shown = ended(command.env(variable, "k"), None).await;
        let all = shown.out + &shown.err;
        let is_told = all.contains("there is no environment variable ANTHROPIC_API_KEY");
        assert_eq!(is_told, missing, "{variable}: {all}");
    }
    home.swept().await;
}
