//! `callboard exec-child`: replaces itself by a program that has to end with its parent. As the
//! reaper it kills the process groups of its parent's children when the parent has ended.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use callboard_runtime::child_process;
use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};

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

/// Returns whether a command line is that of the reaper, without the program's own name.
pub(super) fn is_reaper(words: impl IntoIterator<Item = OsString>) -> bool {
    words
        .into_iter()
        .eq([COMMAND, child_process::REAPER_WORD].map(OsString::from))
}

/// Reads of children, and kills the groups of those that are left when the input ends, with the
/// process that wrote it. Returns the exit code.
pub(super) fn reap() -> u8 {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lines().map_while(Result::ok) {
        let Some((change, id)) = line.split_at_checked(1) else {
            continue;
        };
        match (change, id.parse::<i32>()) {
            // 1 would be all processes.
            ("+", Ok(id)) if id > 1 => drop(groups.insert(id)),
            ("-", Ok(id)) => drop(groups.remove(&id)),
            _ => {}
        }
    }
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        // It may have ended just now.
        let _ = kill_process_group(group, Signal::KILL);
    }
    0
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
