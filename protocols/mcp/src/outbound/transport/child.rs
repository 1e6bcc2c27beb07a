//! A server as a child process: a line a message on its standard input and output.

use std::process::Stdio;
use std::sync::Arc;

use callboard_rpc::{Line, LineDecoder, encode_line};
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::Transport;
use super::duplex::{CLIENT_ENDED, Duplex, Engine, Outbox};
use crate::outbound::exchange::TransportError;
use crate::outbound::options::{CHILD_END_GRACE, ChildCommand, ClientOptions};
use crate::outbound::server_messages::NotificationHandler;

/// Most bytes of a line of a child's standard error that go to the log; longer ones are left out.
const STDERR_LINE_BYTES_MAX: usize = 4_096;

/// Starts `command`. It ends with the link, with whatever it started itself.
pub(crate) fn start(
    command: &ChildCommand,
    options: &ClientOptions,
    ear: Arc<NotificationHandler>,
) -> Result<Transport, TransportError> {
    let inherited = command
        .inherit
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut start = Command::new(&command.program);
    start
        .args(&command.arguments)
        .env_clear()
        .envs(inherited)
        .envs(
            command
                .set
                .iter()
                .map(|(name, value)| (name, value.expose_secret())),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: what it starts ends with it, and Ctrl-C at a terminal doesn't reach it.
        .process_group(0)
        .kill_on_drop(true);
    if let Some(directory) = &command.directory {
        start.current_dir(directory);
    }
    let mut child = start.spawn().map_err(|error| {
        callboard_message::log::warn!(by: options.name.as_deref().unwrap_or_default(), server = options.name, program = %command.program.to_string_lossy(), %error, "failed to start a server");
        TransportError::Unreachable("the server's program can't be started")
    })?;
    let group = Group(
        child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
    );
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = pipes else {
        return Err(TransportError::Unreachable(
            "the server's program has no standard input and output",
        ));
    };
    let farewells = ear.farewells.clone();
    let program = || command.program.to_string_lossy().into_owned();
    let name = options.name.clone().unwrap_or_else(program);
    let (link, engine, outbox) = Duplex::open(ear, options.limits, &name);
    let line_bytes_max = options.limits.body_bytes_max;
    farewells.spawn(async move {
        let hear = async {
            tokio::select! {
                why = hear(&engine, output, line_bytes_max) => TransportError::Broken(why),
                why = log(errors, &name) => why,
            }
        };
        engine.run(hear, write(input, outbox)).await;
        // Its standard input is closed by now: a server that keeps to the specification ends.
        end(child, group, &name).await;
    });
    Ok(link)
}

async fn hear(engine: &Engine, mut output: ChildStdout, line_bytes_max: usize) -> &'static str {
    let mut lines = LineDecoder::new(line_bytes_max);
    loop {
        match lines.read(&mut output).await {
            Ok(Some(Line::Whole(line))) => engine.take(&line),
            Ok(Some(Line::TooLong)) => engine.too_long(),
            Ok(None) => return "the server's program has ended",
            Err(_) => return "the server's standard output can't be read",
        }
    }
}

async fn write(mut input: ChildStdin, mut outbox: Outbox) -> TransportError {
    while let Some(message) = outbox.recv().await {
        if input.write_all(&encode_line(message)).await.is_err() || input.flush().await.is_err() {
            return TransportError::Broken("the server's standard input is closed");
        }
    }
    CLIENT_ENDED
}

/// What the server says of itself goes to the log, a line each. Never ends before the rest does.
async fn log(mut errors: impl AsyncRead + Unpin, server: &str) -> TransportError {
    let mut lines = LineDecoder::new(STDERR_LINE_BYTES_MAX);
    while let Ok(Some(line)) = lines.read(&mut errors).await {
        match line {
            Line::Whole(line) => {
                let line: String = String::from_utf8_lossy(&line)
                    .chars()
                    .filter(|c| !c.is_control())
                    .collect();
                callboard_message::log::info!(target: "callboard_mcp::stderr", by: server, server, "{line}");
            }
            Line::TooLong => callboard_message::log::info!(
                target: "callboard_mcp::stderr", by: server, server, bytes_max = STDERR_LINE_BYTES_MAX, "a line over the limit is left out"
            ),
        }
    }
    std::future::pending().await
}

/// Lets it end in order; asks it to; kills it. Its group goes with it in any case.
async fn end(mut child: Child, group: Group, server: &str) {
    for ask in [None, Some(Signal::TERM)] {
        if let Some(signal) = ask {
            group.send(signal);
        }
        if tokio::time::timeout(CHILD_END_GRACE, child.wait())
            .await
            .is_ok()
        {
            return;
        }
    }
    callboard_message::log::warn!(by: server, server, "a server's program doesn't end and is killed");
    group.send(Signal::KILL);
    // Nothing outlives that.
    let _ = child.wait().await;
}

/// The processes that a server's program is made of. Killed when dropped, whatever else happens.
struct Group(Option<Pid>);

impl Group {
    fn send(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may have ended just now.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.send(Signal::KILL);
    }
}
