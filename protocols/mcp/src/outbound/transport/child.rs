//! Transport to a child process: one message per line on standard input and output.

use std::collections::VecDeque;
use std::fmt::Display;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use callboard_rpc::{DecodedLine, LineDecoder, ReadPacer, encode_line};
use callboard_runtime::child_process;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::ExposeSecret;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use super::Transport;
use super::duplex::{CLIENT_ENDED, DuplexChannel, DuplexDriver, OutboxReceiver};
use crate::outbound::exchange::TransportError;
use crate::outbound::options::{CHILD_EXIT_TIMEOUT, ChildCommand, McpClientOptions};
use crate::outbound::server_messages::NotificationHandler;

/// Maximum length of a logged line of standard error, in bytes. Longer lines are omitted.
const STDERR_LINE_BYTES_MAX: usize = 4_096;
/// Maximum number of last lines of standard error that are logged again when the program ends.
/// Fixed.
const STDERR_LAST_LINES_MAX: usize = 5;
/// Time to wait for the exit status of a program that has closed its standard output. Fixed.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// Time to read the rest of standard error after the program has ended. Another process may hold it
/// open. Fixed.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Time to wait, after a write to standard input failed, for the end of the program, which tells the
/// cause. Fixed.
const PROGRAM_END_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the MCP server `command` and returns a transport over its standard input and output. When
/// the transport is closed, the child and all processes of its process group are ended. The child
/// ends with this process if there is a launcher ([`child_process`]).
pub(crate) async fn spawn_child(
    command: &ChildCommand,
    options: &McpClientOptions,
    notifications: Arc<NotificationHandler>,
    last_lines: StderrLines,
) -> Result<Transport, TransportError> {
    let inherited = command
        .env_passthrough
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut start = child_process::command(&command.program, &command.arguments);
    start
        .env_clear()
        .envs(inherited)
        .envs(
            command
                .env
                .iter()
                .map(|(name, value)| (name, value.expose_secret())),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A process group of its own: processes that it starts end with it, and Ctrl-C at a
        // terminal doesn't reach it.
        .process_group(0)
        .kill_on_drop(true);
    if let Some(directory) = &command.working_directory {
        start.current_dir(directory);
    }
    let mut child = child_process::start(start).await.map_err(|error| {
        callboard_message::log::warn!(by: options.name.as_deref().unwrap_or_default(), server = options.name, program = %command.program.to_string_lossy(), %error, "failed to start a server");
        not_started(error)
    })?;
    let group = ProcessGroup(
        child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
    );
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = pipes else {
        return Err(TransportError::Unreachable(
            "the server's program has no standard input and output".into(),
        ));
    };
    let cleanup_tasks = notifications.cleanup_tasks.clone();
    let program = || command.program.to_string_lossy().into_owned();
    let name = options.name.clone().unwrap_or_else(program);
    let (transport, driver, outbox) = DuplexChannel::open(notifications, options.limits, &name);
    let line_bytes_max = options.limits.body_bytes_max;
    cleanup_tasks.spawn(async move {
        let mut stderr = StderrLog::new(errors, &name, last_lines);
        let hear = async {
            let why = tokio::select! {
                why = read_stdout(&driver, output, line_bytes_max) => why,
                () = stderr.run() => None,
            };
            match why {
                Some(why) => TransportError::Broken(why.into()),
                None => exit_error(&mut child, &mut stderr).await,
            }
        };
        driver.run(hear, write_stdin(input, outbox)).await;
        // Its standard input is closed by now: a server that follows the specification exits.
        terminate(child, group, &name).await;
    });
    Ok(transport)
}

/// Reads messages from the server's standard output. Returns the error, or `None` at its end.
async fn read_stdout(
    driver: &DuplexDriver,
    mut output: ChildStdout,
    line_bytes_max: usize,
) -> Option<&'static str> {
    let mut lines = LineDecoder::with_scan(line_bytes_max);
    let mut pacer = ReadPacer::default();
    loop {
        pacer.wait().await;
        match lines.read(&mut output).await {
            Ok(Some(DecodedLine::Whole(line))) => {
                // A server that only answers is as fast as its callers.
                if !driver.handle_message(&line) {
                    pacer.count();
                }
            }
            Ok(Some(DecodedLine::TooLong)) => {
                driver.handle_oversized(lines.dropped_response());
                pacer.count();
            }
            Ok(None) => return None,
            Err(_) => return Some("the server's standard output can't be read"),
        }
    }
}

/// Writes messages to the server's standard input. Returns why there are no more. If the input is
/// closed, the program has usually ended: the reader of its output reports that first.
async fn write_stdin(mut input: ChildStdin, mut outbox: OutboxReceiver) -> TransportError {
    while let Some(message) = outbox.recv().await {
        if input.write_all(&encode_line(message)).await.is_err() || input.flush().await.is_err() {
            sleep(PROGRAM_END_TIMEOUT).await;
            return TransportError::Broken("the server's standard input is closed".into());
        }
    }
    CLIENT_ENDED
}

/// Returns the error of a server that has closed its standard output, with its exit status, or of
/// one that was never started. Logs the status and the last lines of standard error.
async fn exit_error(child: &mut Child, stderr: &mut StderrLog<'_>) -> TransportError {
    let status = timeout(EXIT_STATUS_TIMEOUT, child.wait()).await;
    let status = status.ok().and_then(Result::ok);
    let how = match status {
        Some(status) => status.to_string(),
        None => "no exit status: it still runs, without standard output".to_owned(),
    };
    // What it wrote before it ended is in the pipe.
    let _ = timeout(STDERR_DRAIN_TIMEOUT, stderr.read_to_end()).await;
    let (server, last_lines) = (stderr.server, stderr.last_lines());
    callboard_message::log::warn!(by: server, server, %how, last_lines, "a server's program has ended");
    let failure = status.and_then(|status| child_process::launch_failure(status, &last_lines));
    match failure {
        Some(error) => not_started(error),
        None => TransportError::Broken(format!("the server's program has ended ({how})").into()),
    }
}

fn not_started(error: impl Display) -> TransportError {
    TransportError::Unreachable(
        format!("the server's program can't be started: {error}; check `command`").into(),
    )
}

/// Standard error of a server. Each line is logged, and the last ones are kept.
struct StderrLog<'a> {
    errors: ChildStderr,
    lines: LineDecoder,
    server: &'a str,
    /// Last lines of this program.
    last: StderrLines,
    /// Last lines of all programs of the server.
    shown: StderrLines,
}

/// Last lines that a server's program wrote to standard error, at most [`STDERR_LAST_LINES_MAX`]. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct StderrLines(Arc<Mutex<VecDeque<String>>>);

impl StderrLines {
    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == STDERR_LAST_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Returns the lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}

impl<'a> StderrLog<'a> {
    fn new(errors: ChildStderr, server: &'a str, shown: StderrLines) -> Self {
        Self {
            errors,
            lines: LineDecoder::new(STDERR_LINE_BYTES_MAX),
            server,
            last: StderrLines::default(),
            shown,
        }
    }

    /// Logs lines. Never returns, so that the end of standard error doesn't close the channel.
    async fn run(&mut self) {
        self.read_to_end().await;
        std::future::pending().await
    }

    async fn read_to_end(&mut self) {
        let server = self.server;
        while let Ok(Some(line)) = self.lines.read(&mut self.errors).await {
            match line {
                DecodedLine::Whole(line) => {
                    let line: String = String::from_utf8_lossy(&line)
                        .chars()
                        .filter(|c| !c.is_control())
                        .collect();
                    callboard_message::log::info!(target: "callboard_mcp::stderr", by: server, server, "{line}");
                    self.shown.push(line.clone());
                    self.last.push(line);
                }
                DecodedLine::TooLong => callboard_message::log::info!(
                    target: "callboard_mcp::stderr", by: server, server, bytes_max = STDERR_LINE_BYTES_MAX, "a line over the limit is left out"
                ),
            }
        }
    }

    fn last_lines(&self) -> String {
        self.last.lines().join("\n")
    }
}

/// Ends the child: waits [`CHILD_EXIT_TIMEOUT`] for it to exit, sends SIGTERM to its process group,
/// waits again, then sends SIGKILL. Remaining processes of the group are killed in any case.
async fn terminate(mut child: Child, group: ProcessGroup, server: &str) {
    for ask in [None, Some(Signal::TERM)] {
        if let Some(signal) = ask {
            group.signal(signal);
        }
        if timeout(CHILD_EXIT_TIMEOUT, child.wait()).await.is_ok() {
            return;
        }
    }
    callboard_message::log::warn!(by: server, server, "killed a server's program that didn't exit");
    group.signal(Signal::KILL);
    // No process survives SIGKILL.
    let _ = child.wait().await;
}

/// Process group of a server's program. Killed when dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // The group may have ended just now.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(group) = self.0 {
            child_process::forget_group(group.as_raw_pid().unsigned_abs());
        }
    }
}
