//! Child processes that end with this process, however it ends.
//!
//! On Linux a process can ask for a signal at the death of its parent. Only a program of the host
//! can do so in the child: the *launcher*, which then replaces itself by the wanted program. The
//! signal follows the thread that started the child, so one thread that lives as long as the
//! process starts them all. Without a launcher, children are started directly and notice the end of
//! this process by their standard input only.
//!
//! The signal reaches the child only, not the processes that it starts. So with the first child the
//! launcher is started once more, as the *reaper*: it is told of each child, and when this process
//! has ended, it kills their process groups. What runs behind `npx` or `sh -c` ends by that, unless
//! it has left its group.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{ChildStdin, ExitStatus, Stdio};
use std::sync::OnceLock;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::sync::Mutex;

/// Exit status of a launcher that couldn't start the program, as that of a shell.
pub const LAUNCH_FAILED_STATUS: u8 = 127;
/// Words before `PROGRAM: ERROR` in the line that such a launcher writes to standard error.
pub const LAUNCH_FAILED_WORDS: &str = "failed to start ";
/// Word after the launcher's own that makes it the reaper. Its standard input has a line for each
/// child that leads a process group: `+ID` when it starts, `-ID` when its group was killed. At the
/// end of input, it has to kill the groups that are left.
pub const REAPER_WORD: &str = "--reap";
/// Maximum number of children that wait to be started. Further ones wait for room. Fixed.
const STARTS_QUEUED_MAX: usize = 64;
/// Bits of a file's mode of which an executable file has at least one.
const EXECUTABLE_MODE: u32 = 0o111;

static LAUNCHER: OnceLock<Launcher> = OnceLock::new();

struct Launcher {
    words: Vec<OsString>,
    starts: mpsc::Sender<ChildStart>,
    /// Standard input of the reaper; `None` before the first child, or if it can't be written.
    reaper: Mutex<Option<ChildStdin>>,
}

impl Launcher {
    /// Tells the reaper of a child that was started, or whose group was killed. Starts the reaper
    /// for the first one.
    fn tell_reaper(&self, change: char, child: u32) {
        let mut reaper = self.reaper.lock();
        let told = match &mut *reaper {
            Some(input) => writeln!(input, "{change}{child}"),
            None if change == '+' => self
                .start_reaper()
                .and_then(|input| writeln!(reaper.insert(input), "{change}{child}")),
            None => Ok(()),
        };
        if let Err(error) = told {
            *reaper = None;
            callboard_message::log::warn!(%error, "processes that child processes start may outlive this process if it is killed");
        }
    }

    fn start_reaper(&self) -> io::Result<ChildStdin> {
        let (launcher, words) = self
            .words
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let reaper = std::process::Command::new(launcher)
            .args(words)
            .arg(REAPER_WORD)
            .env_clear()
            // Ctrl-C at a terminal doesn't reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        reaper.stdin.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// A child to be started, for the thread that starts them.
struct ChildStart {
    command: Command,
    /// Runtime that reads the child's output and awaits its end.
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// Makes a launcher start all children of this process from now on. It is called as `WORDS PID --
/// PROGRAM ARGUMENT…`: it has to end if its parent isn't the process `PID`. If it can't replace
/// itself by the program, it has to say so ([`LAUNCH_FAILED_WORDS`]) and to exit with
/// [`LAUNCH_FAILED_STATUS`]. Only the first call in a process has an effect.
///
/// # Errors
/// If the thread that starts the children can't be started.
pub fn install_launcher(words: impl IntoIterator<Item = impl Into<OsString>>) -> io::Result<()> {
    let (starts, mut requests) = mpsc::channel::<ChildStart>(STARTS_QUEUED_MAX);
    std::thread::Builder::new()
        .name("children".to_owned())
        .spawn(move || {
            // The sender is in a static, so this never ends.
            while let Some(ChildStart {
                mut command,
                runtime,
                started,
            }) = requests.blocking_recv()
            {
                // A panic would end the thread, and with it all children.
                let child = catch_unwind(AssertUnwindSafe(|| {
                    let _runtime = runtime.enter();
                    command.spawn()
                }));
                let child = child.unwrap_or_else(|_| Err(io::Error::other("the start panicked")));
                if let (Ok(child), Some(launcher)) = (&child, LAUNCHER.get())
                    && let Some(id) = child.id()
                {
                    launcher.tell_reaper('+', id);
                }
                // Without a receiver, the child is killed as the command says.
                let _ = started.send(child);
            }
        })?;
    let words = words.into_iter().map(Into::into).collect();
    let _ = LAUNCHER.set(Launcher {
        words,
        starts,
        reaper: Mutex::default(),
    });
    Ok(())
}

/// Returns a command for [`start`] that runs `program` with `arguments`, by the launcher if there
/// is one. Everything else is set as for the program itself.
pub fn command<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let words = LAUNCHER.get().and_then(|all| all.words.split_first());
    let mut command = match words {
        Some((launcher, words)) => {
            let mut command = Command::new(launcher);
            command
                .args(words)
                .arg(std::process::id().to_string())
                .arg("--")
                .arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(arguments);
    command
}

/// Starts a command of [`command()`]. It must be called within a tokio runtime.
///
/// # Errors
/// If the program doesn't exist, isn't executable, or can't be started. A launcher's failure is
/// known only when the child has ended ([`launch_failure`]).
pub async fn start(mut command: Command) -> io::Result<Child> {
    let Some(launcher) = LAUNCHER.get() else {
        return command.spawn();
    };
    // The words after the launcher itself, then the process id and `--`.
    let words_before = launcher.words.len() + 1;
    // The folders of a path may be on slow file systems.
    let checked = spawn_blocking(move || -> io::Result<Command> {
        if let Some(program) = command.as_std().get_args().nth(words_before) {
            check_program(command.as_std(), program)?;
        }
        Ok(command)
    });
    let command = checked.await.map_err(io::Error::other)??;
    let (started, child) = oneshot::channel();
    let start = ChildStart {
        command,
        runtime: Handle::current(),
        started,
    };
    let ended = || io::Error::other("the thread that starts child processes has ended");
    launcher.starts.send(start).await.map_err(|_| ended())?;
    child.await.map_err(|_| ended())?
}

/// Records that the process group of a child of [`start`] was killed after the child's end. Its id
/// may be used again from then on, so that it must not be killed with this process.
pub fn forget_group(child: u32) {
    if let Some(launcher) = LAUNCHER.get() {
        launcher.tell_reaper('-', child);
    }
}

/// Returns the error with which a launcher couldn't start the program, from the exit status of a
/// child and its standard error. `None` if the child ended for another reason.
pub fn launch_failure(status: ExitStatus, errors: &str) -> Option<&str> {
    if status.code() != Some(i32::from(LAUNCH_FAILED_STATUS)) {
        return None;
    }
    // A program that ran has its own lines, or another first word.
    let mut lines = errors.lines();
    let line = lines.next().filter(|_| lines.next().is_none())?;
    let (_, told) = line.split_once(": ")?;
    let told = told.strip_prefix(LAUNCH_FAILED_WORDS)?;
    Some(told.rsplit_once(": ")?.1)
}

/// Fails as the direct start of a program fails that doesn't exist or isn't executable. The
/// launcher could only say so on standard error.
fn check_program(command: &std::process::Command, program: &OsStr) -> io::Result<()> {
    let directory = command.get_current_dir().unwrap_or(Path::new(""));
    if program.as_bytes().contains(&b'/') {
        return check_executable(&directory.join(program));
    }
    let path = command.get_envs().find(|(name, _)| *name == "PATH");
    let Some(path) = path.and_then(|(_, path)| path) else {
        return Ok(());
    };
    let mut found = Err(io::ErrorKind::NotFound.into());
    for folder in std::env::split_paths(path) {
        found = check_executable(&directory.join(folder).join(program));
        if found.is_ok() {
            break;
        }
    }
    found
}

fn check_executable(program: &Path) -> io::Result<()> {
    let is_executable = program.metadata()?.permissions().mode() & EXECUTABLE_MODE != 0;
    match is_executable {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Goal: a launcher's failure is told from a program's own end. Method: rows of exit codes and
    /// standard error.
    #[test]
    fn launch_failures_are_recognized() {
        let failed = "callboard: failed to start /a: b: No such file or directory (os error 2)\n";
        for (code, errors, expected) in [
            (127, failed, Some("No such file or directory (os error 2)")),
            (1, failed, None),
            (127, "callboard: failed to start /a: b: c\nmore\n", None),
            (127, "x: y: failed to start /a: b\n", None),
            (127, "sh: x: not found\n", None),
            (127, "", None),
        ] {
            // A wait status has the exit code in its second byte.
            let status = ExitStatus::from_raw(code << 8);
            assert_eq!(launch_failure(status, errors), expected, "{code} {errors}");
        }
    }

    /// Goal: a program that can't be started is refused with the system's own words before a
    /// launcher runs. Method: missing ones with and without a path, a file that isn't executable,
    /// and one that is found.
    #[test]
    fn missing_programs_are_refused() {
        let check = |program: &str, path: Option<&str>| {
            let mut command = std::process::Command::new("launcher");
            command.env_clear();
            if let Some(path) = path {
                command.env("PATH", path);
            }
            check_program(&command, OsStr::new(program)).map_err(|error| error.to_string())
        };
        let missing = Err("No such file or directory (os error 2)".to_owned());
        assert_eq!(check("/no/such/program", None), missing);
        assert_eq!(check("nosuch", Some("/bin:/no/such")), missing);
        assert_eq!(
            check("/proc/self/status", None),
            Err("permission denied".to_owned())
        );
        assert_eq!(check("sh", Some("/no/such:/bin:/usr/bin")), Ok(()));
        // The system has a default path.
        assert_eq!(check("sh", None), Ok(()));
    }
}
