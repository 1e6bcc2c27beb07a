//! Running programs from the repository's root. A failure is a sentence that says which program and how it ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Result of a task. The error is a sentence for the developer.
pub type Outcome<T = ()> = Result<T, String>;

/// Interval for polling a child that is waited for with a time limit.
const POLL: Duration = Duration::from_millis(50);

/// Returns the repository's root.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Returns cargo's target folder; respects `CARGO_TARGET_DIR`.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns a command for a program, run in the repository's root.
pub fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    // Cargo describes xtask's own package to it. Passed on, that would make build scripts run anew that look at it.
    let ours = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let described = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_str().is_some_and(ours));
    described.for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Returns a command for the cargo that runs this task.
pub fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    program(&cargo, arguments)
}

/// Packages and features that are tested: with A2A over gRPC, which adds to the default features; without the kernel's bench,
/// which has no test.
const TESTED: [&str; 5] = [
    "--workspace",
    "--exclude",
    "callboard-kernel-bench",
    "--features",
    "callboard/grpc",
];

/// Returns a command for the cargo that runs this task, on the packages and features that are tested. What several
/// such commands need is built once.
pub fn cargo_tested(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.args(TESTED);
    command
}

/// Runs a command with its output on the terminal.
pub fn run(mut command: Command) -> Outcome {
    announce(&command);
    let status = command.status().map_err(|e| cannot_start(&command, &e))?;
    succeeded(&command, status)
}

/// Runs a command and returns its standard output; its standard error goes to the terminal.
pub fn output(mut command: Command) -> Outcome<String> {
    announce(&command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| cannot_start(&command, &e))?;
    succeeded(&command, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs it, its standard output both on the terminal and, line by line, to `see`.
pub fn watch(command: Command, see: impl FnMut(&str)) -> Outcome {
    let (command, status) = watched(command, see)?;
    succeeded(&command, status)
}

/// Like [`watch`], for a program whose output says how it went better than its status.
pub fn watch_whatever(command: Command, see: impl FnMut(&str)) -> Outcome {
    watched(command, see).map(|_| ())
}

fn watched(mut command: Command, mut see: impl FnMut(&str)) -> Outcome<(Command, ExitStatus)> {
    announce(&command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| cannot_start(&command, &e))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line =
                line.map_err(|e| format!("the output of {} can't be read: {e}", shown(&command)))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            see(&line);
        }
    }
    let status = child
        .wait()
        .map_err(|e| format!("{} can't be awaited: {e}", shown(&command)))?;
    Ok((command, status))
}

/// Runs a command and kills it after `limit`.
pub fn run_within(mut command: Command, limit: Duration) -> Outcome {
    announce(&command);
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .map_err(|e| cannot_start(&command, &e))?;
    let start = Instant::now();
    while start.elapsed() < limit {
        match child.try_wait() {
            Ok(Some(status)) => return succeeded(&command, status),
            Ok(None) => std::thread::park_timeout(POLL),
            Err(e) => return Err(format!("{} can't be awaited: {e}", shown(&command))),
        }
    }
    end(&mut child);
    Err(format!(
        "{} was still running after {limit:?}",
        shown(&command)
    ))
}

/// Kills a child process and reaps it.
pub fn end(child: &mut Child) {
    // Both fail only if it ended by itself in the meantime, which is as good.
    let _ = child.kill();
    let _ = child.wait();
}

fn announce(command: &Command) {
    println!("$ {}", shown(command));
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Removes a folder with all that is in it, unless it isn't there.
pub fn remove_folder(folder: &Path) -> Outcome {
    match folder.exists() {
        true => fs::remove_dir_all(folder).map_err(|e| failed_at(folder, &e)),
        false => Ok(()),
    }
}

/// Returns the error of a file operation, with its path.
pub fn failed_at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("{} can't be started: {error}", shown(command))
}

fn succeeded(command: &Command, status: ExitStatus) -> Outcome {
    match status.success() {
        true => Ok(()),
        false => Err(format!("{} ended with {status}", shown(command))),
    }
}
