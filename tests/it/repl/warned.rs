//! Warnings about a topology file at the start of an agent.

use std::fs;

use crate::kit::Home;
use crate::repl::pty::free_ports;
use crate::repl::{piped, serving};

/// Goal: who starts an agent is told what they should know of its file, once, and no log gets the key that is in it. Method: a file
/// with a key and an open address, its agent talked to and served; standard error.
#[tokio::test]
async fn a_start_warns() {
    let home = Home::new();
    let [port] = free_ports();
    let server =
        format!("[server]\nport = {port}\nbind_address = \"0.0.0.0\"\nanonymous = \"guest\"\n");
    let file = home.write(
        "open.toml",
        &format!("{server}[llm]\nclaude_api_key = \"sk-secret\"\n"),
    );
    let talked = piped(&home, &[&file], &[":quit"]).await.err;
    let _serving = serving(&home, &file).await;
    let served = fs::read_to_string(home.path("stderr")).unwrap();
    for err in [talked, served] {
        for wanted in [
            "anybody who reaches 0.0.0.0 may use this agent: nobody needs a key (write 127.0.0.1, or",
            "the API key stands in this file, and whoever reads the file has it (set the variable CLAUDE_API_KEY in its place) at line 6, column 1\n",
        ] {
            assert_eq!(
                err.matches(&format!("callboard: warning: {file}: {wanted}"))
                    .count(),
                1,
                "{wanted}: {err}"
            );
        }
        assert!(!err.contains("sk-secret"), "{err}");
    }
}
