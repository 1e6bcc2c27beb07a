//! The REPL, its lines through a pipe.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;

use crate::kit::{Finished, Home, soon};

/// What `callboard repl ARGUMENTS` makes of these lines.
pub async fn piped(home: &Home, arguments: &[&str], lines: &[&str]) -> Finished {
    let mut command = home.callboard(&[&["repl"], arguments].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(format!("{}\n", lines.join("\n")).as_bytes()).await.unwrap();
    drop(input);
    let output = soon("the end of the REPL", child.wait_with_output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Finished { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}
