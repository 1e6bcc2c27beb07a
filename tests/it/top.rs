//! `callboard top` beside a node with a console: its views as text and as JSON, refusals, and a terminal.

use std::net::TcpListener;
use std::process::Command;

use rexpect::process::WaitStatus;
use rexpect::session::{Options, PtySession, spawn_with_options};
use serde_json::{Value, json};

use crate::kit::gateway::{KeyClient, MCP, NODE, end, script, started};
use crate::kit::{Finished, Home, Running, SOON, ended, found};

/// Views, and the heading that each has as text. The node's is that of its agents.
const VIEWS: [(&str, &str); 8] = [
    ("node", "AGENTS"),
    ("agents", "AGENTS"),
    ("calls", "CALLS (UTC)"),
    ("questions", "QUESTIONS"),
    ("upstreams", "UPSTREAMS"),
    ("tasks", "TASKS"),
    ("tools", "TOOLS OF"),
    ("approvals", "APPROVALS"),
];

/// Sequence that switches to the other screen.
const ENTER: &str = "\x1b[?1049h";
/// Sequences that switch back, and show the cursor.
const LEAVE: [&str; 2] = ["\x1b[?1049l", "\x1b[?25h"];

/// A node with a console and an upstream, and the key of somebody who may look at it.
struct Watched {
    home: Home,
    node: Running,
    console: String,
    mcp: String,
    key: String,
    /// Key without the scope to look.
    other: String,
    robot: KeyClient,
}

impl Watched {
    async fn start() -> Self {
        let home = Home::new();
        let ops = key(&home, "ops", &["console.read"]).await;
        let other = key(&home, "other", &["patient.identity"]).await;
        let robot = KeyClient::new(&home, "robot", &[]).await;
        let upstream = script(&home, "up", "me");
        let text = format!(
            "{NODE}[store]\n[console]\nbind = \"127.0.0.1:0\"\n{upstream}pin = \"trust-first\"\n{MCP}agent = \"up\"\n\
             keys = \"keys.toml\"\n"
        );
        let (node, listening) = started(&home, &text).await;
        let (console, others): (Vec<_>, Vec<_>) = listening
            .into_iter()
            .partition(|(agent, _)| agent == "console");
        Self {
            home,
            node,
            console: console[0].1.trim_end_matches('/').to_owned(),
            mcp: others[0].1.clone(),
            key: ops,
            other,
            robot,
        }
    }

    /// Runs `callboard top` at the console with a key.
    async fn top(&self, key: Option<&str>, arguments: &[&str]) -> Finished {
        let arguments = [&["top", self.console.as_str()], arguments].concat();
        let mut command = self.home.callboard(&arguments);
        command.envs(key.map(|key| ("CALLBOARD_KEY", key)));
        ended(&mut command, None).await
    }

    /// Returns the rows of a view.
    async fn rows(&self, view: &str, filter: &str) -> Vec<Value> {
        let arguments = ["--json", "--view", view, "--filter", filter];
        let shown = self.top(Some(&self.key), &arguments).await.quiet(0).json();
        let rows = shown[view].as_array();
        rows.unwrap_or_else(|| panic!("{shown}")).clone()
    }
}

async fn key(home: &Home, name: &str, scopes: &[&str]) -> String {
    let scopes = scopes.iter().flat_map(|scope| ["--scope", *scope]);
    let add = ["keys", "--keys", "keys.toml", "add", name].into_iter();
    let added = home.run(&add.chain(scopes).collect::<Vec<_>>()).await;
    added.with(0, "").out.trim().to_owned()
}

/// Goal: each view of the console is in the terminal too, as text and as one JSON object, and can be filtered. Method: a call through
/// an upstream; then all views.
#[tokio::test]
async fn views_as_text_and_json() {
    let watched = Watched::start().await;
    let answer = watched.robot.call(&watched.mcp, "who").await;
    assert!(answer["error"].is_null(), "{answer}");
    let call = found("the call in the list", async || {
        watched
            .rows("calls", "robot who ok")
            .await
            .into_iter()
            .next()
    });
    let call = call.await;
    assert_eq!(call["principal"], json!("api_key:robot"), "{call}");
    assert_eq!(call["outcome"], json!("ok"), "{call}");
    assert!(watched.rows("calls", "no-such-word").await.is_empty());
    let trace = call["trace"].as_str().unwrap();
    for (view, heading) in VIEWS {
        let key = Some(&*watched.key);
        let shown = watched.top(key, &["--json", "--view", view]).await;
        let shown = shown.quiet(0).json();
        match view {
            "node" => assert_eq!(shown["overview"]["node"], "n", "{shown}"),
            view => assert!(shown[view].is_array(), "{view}: {shown}"),
        }
        let text = watched.top(key, &["--once", "--view", view]).await.quiet(0);
        text.has(&["callboard · ", heading]);
        assert!(!text.out.contains('\u{1b}'), "{view}: {}", text.out);
        if matches!(view, "node" | "calls") {
            text.has(&["api_key:robot", "who", "ok", trace]);
        }
    }
    end(watched.node, &watched.home).await;
}

/// Goal: who may not look, or looks at the wrong place, is told the remedy, with the exit code of it. Method: no key, a wrong one, one
/// without the scope; an address where nobody listens, one that is none, a variable that doesn't exist.
#[tokio::test]
async fn refusals_name_their_remedy() {
    let watched = Watched::start().await;
    for (key, remedy) in [
        (None, "--key-env NAME"),
        (Some("cbk_wrong"), "callboard keys list"),
        (Some(&*watched.other), "--scope console.read"),
    ] {
        for arguments in [&["--once"][..], &["--json"], &["--json", "--view", "calls"]] {
            let refused = watched.top(key, arguments).await.with(3, remedy);
            refused.printing(3, "");
        }
    }
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    for (arguments, code, remedy) in [
        (&["top", &*closed, "--once"][..], 4, "--console HOST:PORT"),
        (&["top", "ftp://127.0.0.1"][..], 2, "http://HOST:PORT"),
        (&["top", "--key-env", "NO_SUCH_KEY"][..], 2, "NO_SUCH_KEY"),
        (&["top", "--view", "nothing"][..], 2, "approvals"),
        (
            &["top", "192.0.2.1:9090", "--key-env", "PATH"][..],
            2,
            "https://",
        ),
    ] {
        let failed = watched.home.run(arguments).await.with(code, remedy);
        failed.printing(code, "");
    }
    end(watched.node, &watched.home).await;
}

/// Goal: at a terminal the view stays until `q`, which brings back the former screen and the cursor; keys that would leave it otherwise
/// have no effect. Method: a terminal in which Ctrl-\ and Ctrl-Z are pressed once the agents are shown, and then `q`.
#[tokio::test]
async fn a_terminal_shows_the_node_until_q() {
    let watched = Watched::start().await;
    let mut terminal = terminal(&watched);
    terminal.exp_string(ENTER).unwrap();
    terminal.exp_string("AGENTS").unwrap();
    terminal.exp_string("q quits").unwrap();
    for key in ['\\', 'z'] {
        terminal.send_control(key).unwrap();
        terminal.exp_string("q quits").unwrap();
    }
    terminal.send("q").unwrap();
    terminal.flush().unwrap();
    let rest = terminal.exp_eof().unwrap();
    for sequence in LEAVE {
        assert!(rest.contains(sequence), "{sequence:?} {rest:?}");
    }
    let ended = terminal.process().wait().unwrap();
    assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{ended:?}");
    end(watched.node, &watched.home).await;
}

/// Starts `callboard top` at a terminal.
fn terminal(watched: &Watched) -> PtySession {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command
        .args(["top", &watched.console])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", watched.home.path(""))
        .env("TMPDIR", watched.home.path("tmp"))
        .env("TERM", "xterm")
        .env("CALLBOARD_KEY", &watched.key)
        .current_dir(watched.home.path(""));
    let wait = u64::try_from(SOON.as_millis()).unwrap();
    let options = Options::new().timeout_ms(Some(wait));
    let mut session = spawn_with_options(command, options).unwrap();
    session.process_mut().set_kill_timeout(Some(wait));
    session
}
