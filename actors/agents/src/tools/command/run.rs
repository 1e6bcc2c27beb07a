//! A program is run: its own process group, its output up to a limit, its end within a time.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use callboard_message::Failure;
use futures::future::{Either, join3, select};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

use super::{COMMAND_PATH, Command};

/// How long output is still read after a program's end: somebody else may hold the other end of it.
const DRAIN: Duration = Duration::from_millis(500);
/// What a program gets as `LANG` where this process has none.
const LANG_DEFAULT: &str = "C.UTF-8";
const READ_BYTES: usize = 8 * 1024;

/// How a program ended, and what it said.
pub(super) struct Ran {
    /// `None`: a signal ended it.
    pub(super) code: Option<i32>,
    output: Kept,
    errors: Kept,
}

impl Ran {
    /// Whether some of its output wasn't kept.
    pub(super) fn is_cut(&self) -> bool {
        self.output.left_out > 0 || self.errors.left_out > 0
    }

    /// For whoever asked: output, then errors, then how it ended where that isn't well.
    pub(super) fn told(&self) -> String {
        let mut told = self.output.text();
        let errors = self.errors.text();
        let mut add = |heading: &str, text: &str| {
            if !told.is_empty() && !told.ends_with('\n') {
                told.push('\n');
            }
            told.push_str(heading);
            told.push_str(text);
        };
        if !errors.is_empty() {
            add("standard error:\n", &errors);
        }
        match self.code {
            Some(0) => {}
            Some(code) => add("", &format!("exit code {code}")),
            None => add("", "ended by a signal"),
        }
        told
    }
}

/// The first bytes of an output; the rest is counted.
struct Kept {
    bytes: Vec<u8>,
    bytes_max: usize,
    left_out: usize,
}

impl Kept {
    fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, left_out: 0 }
    }

    /// Reads to the end, whatever is kept: a program whose output nobody takes would wait for ever.
    async fn fill(&mut self, output: Option<impl AsyncRead + Unpin>) {
        let Some(mut output) = output else { return };
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(read @ 1..) = output.read(&mut buffer).await {
            let room = self.bytes_max.saturating_sub(self.bytes.len()).min(read);
            self.bytes.extend(buffer.iter().take(room));
            self.left_out += read - room;
        }
    }

    /// As text, without what moves a terminal's cursor.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut text: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        if self.left_out > 0 {
            text.push_str(&format!("\n[{} bytes more were left out]\n", self.left_out));
        }
        text
    }
}

/// A program and what it started. Killed when dropped, whatever else happens.
struct Group(Option<Pid>);

impl Group {
    fn kill(&self) {
        if let Some(group) = self.0 {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs it to its end. Dropped, it kills it.
pub(super) async fn run(
    command: Command,
    directory: &Path,
    within: Duration,
    output_bytes_max: usize,
) -> Result<Ran, Failure> {
    let late = |_| Failure::timed_out(format!("the command was ended after {within:?}"));
    timeout(within, to_the_end(command, directory, output_bytes_max)).await.map_err(late)?.map_err(|error| {
        callboard_message::log::warn!(%error, "a command can't be run");
        Failure::unavailable("the command can't be run")
    })
}

async fn to_the_end(command: Command, directory: &Path, bytes_max: usize) -> io::Result<Ran> {
    let lang = std::env::var_os("LANG").unwrap_or_else(|| LANG_DEFAULT.into());
    let input = if command.input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = tokio::process::Command::new(&command.program)
        .args(&command.arguments)
        .env_clear()
        .env("PATH", COMMAND_PATH)
        .env("LANG", lang)
        .current_dir(directory)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut kept, mut kept_errors) = (Kept::new(bytes_max), Kept::new(bytes_max));
    let ended: io::Result<ExitStatus> = {
        let talking = join3(kept.fill(output), kept_errors.fill(errors), feed(input, command.input));
        let waiting = async {
            let status = child.wait().await;
            // What it left running would go on without a limit.
            group.kill();
            status
        };
        match select(pin!(waiting), pin!(talking)).await {
            Either::Left((status, talking)) => {
                // What comes later than this is nobody's output.
                let _ = timeout(DRAIN, talking).await;
                status
            }
            Either::Right((_, waiting)) => waiting.await,
        }
    };
    Ok(Ran { code: ended?.code(), output: kept, errors: kept_errors })
}

async fn feed(input: Option<ChildStdin>, text: Option<String>) {
    if let (Some(mut input), Some(text)) = (input, text) {
        // A program needn't read what it is given.
        let _ = input.write_all(text.as_bytes()).await;
    }
}
