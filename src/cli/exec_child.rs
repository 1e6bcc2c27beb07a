//! `callboard exec-child`: replaces itself by a program that has to end with its parent.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use callboard_runtime::child_process;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::output;

#[derive(Debug, clap::Args)]
pub(super) struct ExecChildArguments {
    /// Id of the process that starts this one. If it has ended, the program isn't run.
    #[arg(value_name = "PID")]
    parent: i32,
    /// Program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// Name of the command.
const COMMAND: &str = "exec-child";
/// Path of this program. It stays valid when the file is replaced by an upgrade.
const THIS_PROGRAM: &str = "/proc/self/exe";

impl ExecChildArguments {
    /// Reads a command line of the launcher, without the program's own name. `None` for any other.
    pub(super) fn from_words(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        if words.next()? != COMMAND {
            return None;
        }
        let parent = words.next()?.to_str()?.parse().ok()?;
        if words.next()? != "--" {
            return None;
        }
        let words: Vec<_> = words.collect();
        (!words.is_empty()).then_some(Self { parent, words })
    }
}

/// Has this program start all child processes of this process, so that they end with it. Where that
/// is impossible, they are started directly.
pub(super) fn install_launcher() {
    if let Err(error) = std::fs::metadata(THIS_PROGRAM)
        .and_then(|_| child_process::install_launcher([THIS_PROGRAM, COMMAND]))
    {
        tracing::warn!(%error, "child processes may outlive this process if it is killed");
    }
}

/// Replaces this process by the program. Returns the exit code if that failed.
pub(super) fn run(arguments: &ExecChildArguments) -> u8 {
    let Err(error) = exec(arguments);
    let program = arguments.words.first().cloned().unwrap_or_default();
    output::print_error(format_args!(
        "{}{}: {error}",
        child_process::LAUNCH_FAILED_WORDS,
        program.to_string_lossy()
    ));
    child_process::LAUNCH_FAILED_STATUS
}

fn exec(arguments: &ExecChildArguments) -> io::Result<Infallible> {
    let Some((program, words)) = arguments.words.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // A program that doesn't read its standard input learns of nothing else.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The signal comes only if the parent ends from now on.
    if getppid().is_none_or(|parent| parent.as_raw_pid() != arguments.parent) {
        return Err(io::Error::other("its parent has ended"));
    }
    Err(Command::new(program).args(words).exec())
}
