use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use rexpect::process::WaitStatus;
use rexpect::session::{Options, PtySession, spawn_with_options};

use crate::kit::gateway::{end, serve};
use crate::kit::{Finished, Home, SOON, ended};

/// File that is written if none is named.
const FILE: &str = "callboard.toml";
/// Text before the target of the last command that comes next.
const NEXT: &str = "\nnext:\n  callboard check callboard.toml\n  callboard serve callboard.toml\n  \
    callboard connect claude-code ";

/// Writes a file with these options, and checks that `callboard check` has nothing to say about it.
async fn written(home: &Home, options: &[&str]) -> Finished {
    let written = home.run(&[&["init"], options].concat()).await.quiet(0);
    let checked = home.run(&["check", FILE]).await.quiet(0);
    assert!(
        checked.out.lines().count() == 1 && !checked.out.contains("warning"),
        "{checked:?}"
    );
    // The last listener is the one for MCP.
    let made = text(home);
    let mut binds = made.lines().filter_map(|line| line.strip_prefix("bind = "));
    let bind = binds.next_back().unwrap().trim_matches('"');
    let target = match options.contains(&"mail") {
        true => "callboard.toml --mail".to_owned(),
        false if bind.ends_with(":0") => "callboard.toml".to_owned(),
        false => format!("http://{bind}/mcp"),
    };
    let expected = format!("{}{NEXT}{target}\n", checked.out);
    assert!(written.out.ends_with(&expected), "{written:?}");
    written
}

fn text(home: &Home) -> String {
    fs::read_to_string(home.path(FILE)).unwrap()
}

/// Goal: a gateway works without any other program. Method: the default file, served; the tools of its server, and a call of one.
#[tokio::test]
async fn gateways_are_served() {
    let home = Home::new();
    let made = written(&home, &["--yes"]).await;
    made.printing(
        0,
        &format!(
            "wrote {FILE}\n{FILE} can be used: 0 agents, 1 upstream, 0 servers, 1 listener\n{NEXT}http://127.0.0.1:3001/mcp\n"
        ),
    );
    let (node, listening) = serve(&home, &[FILE, "--free-ports"]).await;
    let url = &*listening[0].1;
    let listed = home.run(&["mcp", "list", url]).await.with(0, "");
    listed.has(&["bidirectional-agent-3__echo"]);
    let call = [
        "mcp",
        "call",
        url,
        "bidirectional-agent-3__echo",
        "--arg",
        "text=hello",
    ];
    assert_eq!(home.run(&call).await.with(0, "").out, "hello\n");
    end(node, &home).await;
}

/// Goal: an agent works without a model and a key. Method: the file with an id of its own, served; a request that rules can handle,
/// over A2A and over MCP.
#[tokio::test]
async fn agents_are_served() {
    let home = Home::new();
    written(&home, &["--kind", "agents", "--agent", "helper"]).await;
    let (node, listening) = serve(&home, &[FILE, "--free-ports"]).await;
    assert!(listening.iter().all(|(agent, _)| agent == "helper"));
    let url_with = |end: &str| {
        let mut urls = listening.iter().map(|(_, url)| &**url);
        urls.find(|url| url.ends_with(end)).unwrap()
    };
    let ask = ["ask", "--to", url_with("/a2a"), "echo hello"];
    assert_eq!(home.run(&ask).await.with(0, "").out, "hello\n");
    let call = [
        "mcp",
        "call",
        url_with("/mcp"),
        "echo",
        "--arg",
        "text=hello",
    ];
    assert_eq!(home.run(&call).await.with(0, "").out, "hello\n");
    end(node, &home).await;
}

/// Goal: members write to each other with the keys that were shown once, and nobody else does. Method: a mailroom for two, served; a
/// message from one to the other, and one with a wrong key; the file written anew, where both have a key already, and after one was revoked;
/// a key file that is damaged.
#[tokio::test]
async fn mail_is_served() {
    let home = Home::new();
    let options = ["--kind", "mail", "--members", "ann,bob"];
    let made = written(&home, &options).await;
    let key_of = |name: &str| {
        let row = format!("  {name}  ");
        let key = made.out.lines().find_map(|line| line.strip_prefix(&row));
        key.unwrap_or_else(|| panic!("{made:?}")).to_owned()
    };
    let (ann, bob) = (key_of("ann"), key_of("bob"));
    assert!(ann.starts_with("cbk_") && bob.starts_with("cbk_") && ann != bob);
    for file in [
        text(&home),
        fs::read_to_string(home.path("keys.toml")).unwrap(),
    ] {
        assert!(!file.contains(&ann[4..]) && !file.contains(&bob[4..]));
    }

    let (node, listening) = serve(&home, &[FILE, "--free-ports"]).await;
    let run = async |key: &str, name: &str, arguments: &[&str]| {
        let mut command = home.callboard(&[&["mail"], arguments].concat());
        command.env("CALLBOARD_MAIL", &listening[0].1);
        command
            .env("CALLBOARD_AGENT", name)
            .env("CALLBOARD_KEY", key);
        ended(&mut command, None).await
    };
    let sent = run(&ann, "ann", &["send", "bob", "good morning"]).await;
    assert_eq!(sent.with(0, "").out, "Message sent to agent bob\n");
    run(&bob, "bob", &["inbox"])
        .await
        .with(0, "")
        .has(&["good morning"]);
    assert_eq!(run(&bob, "ann", &["inbox"]).await.code, Some(3));
    end(node, &home).await;

    let again = written(&home, &[&options[..], &["--force"]].concat()).await;
    again.has(&["  ann  has a key already\n", "  bob  has a key already\n"]);
    let revoke = ["keys", "--keys", "keys.toml", "revoke", "ann"];
    home.run(&revoke).await.with(0, "");
    let again = written(&home, &[&options[..], &["--force"]].concat()).await;
    again.has(&[
        "  ann  has a revoked or expired key: name another id, or begin a new keys.toml\n",
        "  bob  has a key already\n",
    ]);

    home.write("keys.toml", "version = 9");
    let damaged = home.run(&["init", "second.toml", "--kind", "mail"]).await;
    damaged.with(2, "keys.toml is damaged").printing(2, "");
    assert!(!home.path("second.toml").exists());
}

/// Goal: a file that is replaced keeps its place and its permissions. Method: a symbolic link to a file of another folder.
#[tokio::test]
async fn links_are_kept() {
    let home = Home::new();
    let target = home.path("tmp/real.toml");
    fs::write(&target, "mine").unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
    symlink("tmp/real.toml", home.path(FILE)).unwrap();
    home.run(&["init", "--yes"]).await.with(2, "--force");
    written(&home, &["--yes", "--force"]).await;
    assert!(home.path(FILE).is_symlink());
    assert!(
        fs::read_to_string(&target)
            .unwrap()
            .contains("[[upstream]]")
    );
    let mode = fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

/// Goal: options and defaults say all where nobody can be asked. Method: a pipe with answers, which nobody reads, and options for
/// each question.
#[tokio::test]
async fn pipes_are_not_asked() {
    let home = Home::new();
    let input = "mail\nann\n127.0.0.1:4711\n";
    let made = ended(&mut home.callboard(&["init"]), Some(input))
        .await
        .quiet(0);
    made.has(&["1 upstream, 0 servers, 1 listener"]);
    let default = text(&home);
    for line in [
        "name = \"gateway\"",
        "id = \"server\"",
        "bind = \"127.0.0.1:3001\"",
    ] {
        assert!(default.lines().any(|it| it == line), "{line}: {default}");
    }
    assert!(!home.path("keys.toml").exists());
    for (options, lines) in [
        (
            &["--server", "sh -c 'exec cat'", "--listen", "127.0.0.1:4711"][..],
            &[
                "id = \"server\"",
                "command = [\"sh\", \"-c\", \"exec cat\"]",
                "bind = \"127.0.0.1:4711\"",
            ][..],
        ),
        (
            &[
                "--server",
                "https://host.example/mcp",
                "--listen",
                "[::1]:0",
            ],
            &[
                "id = \"host\"",
                "url = \"https://host.example/mcp\"",
                "bind = \"[::1]:0\"",
            ],
        ),
        (
            &["--kind", "agents", "--listen", "127.0.0.1:65535"],
            &[
                "id = \"assistant\"",
                "bind = \"127.0.0.1:65535\"",
                "bind = \"127.0.0.1:65534\"",
            ],
        ),
    ] {
        written(&home, &[options, &["--force"]].concat()).await;
        let made = text(&home);
        for line in lines {
            assert!(made.lines().any(|it| it == *line), "{line}: {made}");
        }
    }
}

/// Goal: nothing is overwritten, and nothing is written that couldn't be used; the remedy is named. Method: a file that exists, with and
/// without `--force`; names, options and addresses that don't fit.
#[tokio::test]
async fn refusals_name_their_remedy() {
    let home = Home::new();
    home.write(FILE, "mine");
    for options in [&[][..], &["--yes"], &["--kind", "mail"]] {
        let refused = home.run(&[&["init"], options].concat()).await;
        refused.with(2, "add --force to replace it").printing(2, "");
        assert_eq!(text(&home), "mine");
    }
    for (arguments, remedy) in [
        (&["new.yaml"][..], "ends in .toml"),
        (
            &["keys.toml", "--kind", "mail"],
            "name another topology file",
        ),
        (&["new.toml", "--agent", "a"], "add --kind agents"),
        (
            &["new.toml", "--kind", "mail", "--server", "x"],
            "add --kind gateway",
        ),
        (&["new.toml", "--kind", "clinic"], "gateway"),
        (&["new.toml", "--listen", "0.0.0.0:3001"], "127.0.0.1:PORT"),
        (&["new.toml", "--listen", "localhost"], "127.0.0.1"),
        (&["new.toml", "--server", "npx 'open"], "quotes"),
        (
            &["new.toml", "--kind", "mail", "--members", "a,a"],
            "named twice",
        ),
        (
            &["new.toml", "--kind", "mail", "--members", "operator"],
            "reserved",
        ),
        (
            &["new.toml", "--kind", "agents", "--agent", "a b"],
            "A-Z a-z",
        ),
    ] {
        let refused = home.run(&[&["init"], arguments].concat()).await;
        refused.with(2, remedy).printing(2, "");
    }
    let failed = home.run(&["init", "no/such/new.toml"]).await;
    failed.with(4, "failed to write").printing(4, "");
    for name in ["new.yaml", "new.toml", "keys.toml"] {
        assert!(!home.path(name).exists(), "{name}");
    }
    written(&home, &["--force"]).await;
    assert_ne!(text(&home), "mine");
}

/// Goal: at a terminal three questions are asked, and an answer that can't be used is asked for again. Method: a terminal with a mistake
/// at each question, and the default at the last.
#[tokio::test]
async fn terminals_are_asked() {
    let home = Home::new();
    let mut terminal = terminal(&home, &["init"]);
    for (expected, typed) in [
        ("3) mail for coding agents", "9"),
        ("one of the choices", "3"),
        ("Ids of the members", "ann, ann"),
        ("ann is named twice", "ann, bob"),
        ("Address to listen at", "0.0.0.0:80"),
        ("listens on this machine only", ""),
    ] {
        terminal.exp_string(expected).unwrap();
        terminal.exp_string("]: ").unwrap();
        terminal.send_line(typed).unwrap();
    }
    terminal.exp_string("next:").unwrap();
    terminal.exp_eof().unwrap();
    let ended = terminal.process().wait().unwrap();
    assert!(matches!(ended, WaitStatus::Exited(_, 0)), "{ended:?}");
    let made = text(&home);
    for line in [
        "id = \"ann\"",
        "id = \"bob\"",
        "bind = \"127.0.0.1:8090\"",
        "bind = \"127.0.0.1:8091\"",
    ] {
        assert!(made.lines().any(|it| it == line), "{line}: {made}");
    }
}

/// Goal: a question that is cancelled writes nothing, and with options for all nothing is asked. Method: the end of input at a terminal,
/// and a terminal with `--yes`.
#[tokio::test]
async fn questions_can_be_cancelled() {
    let home = Home::new();
    let mut cancelled = terminal(&home, &["init", "--kind", "agents"]);
    cancelled.exp_string("Id of the first agent").unwrap();
    cancelled.exp_string("]: ").unwrap();
    cancelled.send_control('d').unwrap();
    cancelled.exp_string("nothing is written").unwrap();
    cancelled.exp_eof().unwrap();
    let ended = cancelled.process().wait().unwrap();
    assert!(matches!(ended, WaitStatus::Exited(_, 4)), "{ended:?}");
    assert!(!home.path(FILE).exists());
    let mut unasked = terminal(&home, &["init", "--yes"]);
    let shown = unasked.exp_eof().unwrap();
    assert!(shown.contains("next:") && !shown.contains("]: "), "{shown}");
    assert!(home.path(FILE).exists());
}

/// Starts a command at a terminal.
fn terminal(home: &Home, arguments: &[&str]) -> PtySession {
    let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path(""))
        .env("TMPDIR", home.path("tmp"))
        .env("TERM", "xterm")
        .current_dir(home.path(""));
    let wait = u64::try_from(SOON.as_millis()).unwrap();
    let options = Options::new().timeout_ms(Some(wait));
    let mut session = spawn_with_options(command, options).unwrap();
    session.process_mut().set_kill_timeout(Some(wait));
    session
}
