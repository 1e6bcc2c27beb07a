use std::process::Stdio;

use crate::kit::clinics::{host, nobody};
use crate::kit::gateway::{end, serve};
use crate::kit::{Finished, Home, ended, soon};
use crate::repl::pty::Terminal;

/// Goal: a reader that goes away ends nothing with a panic. Method: `demo` into `head -1`; its output, its errors, its
/// folders.
#[tokio::test]
async fn a_closed_pipe_is_no_panic() {
    let home = Home::new();
    let script = format!("'{}' demo | head -1", env!("CARGO_BIN_EXE_callboard"));
    let mut shell = tokio::process::Command::new("sh");
    shell
        .args(["-c", &script])
        .env("TMPDIR", home.path("tmp"))
        .env("RUST_BACKTRACE", "1")
        .kill_on_drop(true);
    let output = soon("the end of a pipe", shell.output()).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    home.swept().await;
}

/// Goal: what can't be written is said in one line, and the clinics end. Method: a full device as standard output.
#[tokio::test]
async fn a_full_device_is_one_line() {
    let home = Home::new();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let Finished {
        code, err: told, ..
    } = ended(home.callboard(&["demo"]).stdout(Stdio::from(full)), None).await;
    assert_eq!(code, Some(4), "{told}");
    assert!(
        told.starts_with("callboard: failed to write to standard output: "),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
    home.swept().await;
}

/// Goal: the log goes to standard error, plain where that is no terminal, as JSON on demand. Method: a start at
/// `debug`.
#[tokio::test]
async fn the_log_is_plain_or_json() {
    let home = Home::new();
    let topology = home.write("host.toml", &host("host.toml", &[&nobody()]));
    let ask = async |more: &[&str]| {
        home.ask(
            &topology,
            &[&["List cardiology patients", "--json"], more].concat(),
        )
        .await
    };
    assert_eq!(
        ask(&[]).await.err,
        "",
        "a clinic that is down is told by the answer"
    );
    let plain = ask(&["--log", "warn"]).await.err;
    assert!(
        plain.contains("WARN") && !plain.contains('\u{1b}'),
        "{plain}"
    );
    for line in ask(&["--log", "info", "--log-json"]).await.err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["level"].is_string(), "{line}");
    }
}

/// Topology with one agent, served over A2A.
const ECHO: &str = "[node]\nname = \"n\"\n[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n\
    [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nagent = \"echo\"\n";

/// Goal: a table has a heading at a terminal, and none through a pipe. Method: tables with a row and without any, at both.
#[tokio::test]
async fn tables_have_headings() {
    let home = Home::new();
    let (node, listening) = serve(&home, &[&home.write("echo.toml", ECHO)]).await;
    let explain = [
        "policy",
        "explain",
        "--topology",
        "echo.toml",
        "--as",
        "token:a",
    ];
    let list = ["a2a", "list", &*listening[0].1];
    for (command, heading) in [
        (&explain[..], &["AGENT", "VERDICT", "REASON"][..]),
        (&list, &["ID", "STATE", "CONTEXT", "UPDATED"]),
    ] {
        let piped = home.run(command).await.quiet(0);
        assert!(!piped.out.contains(heading[0]), "{piped:?}");
        let mut terminal = Terminal::run(&home, command, "xterm");
        for name in heading {
            terminal.sees(name);
        }
        terminal.ends();
    }
    end(node, &home).await;
}
