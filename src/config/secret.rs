//! Secrets that a topology refers to: in environment variables, files, and the output of programs.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;

use super::problem::{ProblemCollector, find_program, variable_for_message};

/// Maximum size of a secret in a file or of a program's output, in bytes, without the line break at
/// its end. A larger one is refused. Fixed.
const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Maximum time for a program to print a secret and to end. Then it is killed. The start of the
/// node, or of the agent at a reload, waits for it. Fixed.
const SECRET_COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which the end of a program is looked for.
const COMMAND_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Place of a secret, as a key of a topology names it: `env:NAME` or only `NAME`, `file:PATH`, or
/// `command:PROGRAM ARGUMENT…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretPlace<'a> {
    /// Environment variable.
    Variable(&'a str),
    /// File, by its absolute path.
    File(&'a str),
    /// Program and arguments, separated by spaces, without a shell. It prints the secret.
    Command(&'a str),
}

impl<'a> SecretPlace<'a> {
    fn parse(text: &'a str) -> Self {
        if let Some(path) = text.strip_prefix("file:") {
            return Self::File(path);
        }
        if let Some(words) = text.strip_prefix("command:") {
            return Self::Command(words);
        }
        Self::Variable(text.strip_prefix("env:").unwrap_or(text))
    }

    /// Returns the reason why there can't be a secret. Runs no program.
    fn problem(self) -> Option<String> {
        match self {
            Self::Variable(name) => std::env::var_os(name)
                .is_none()
                .then(|| format!("there is no {}", variable_for_message(name))),
            Self::File(path) => open_file(path).err(),
            Self::Command(words) => {
                let Some(program) = words.split_whitespace().next() else {
                    return Some("`command:` needs a program".to_owned());
                };
                let is_there = match program.contains('/') {
                    true => Path::new(program).is_file(),
                    false => find_program(program).is_some(),
                };
                (!is_there).then(|| format!("there is no program {program} for the secret"))
            }
        }
    }

    fn read(self) -> Result<Zeroizing<Vec<u8>>, String> {
        match self {
            Self::Variable(name) => std::env::var(name)
                .map(|value| Zeroizing::new(value.into_bytes()))
                .map_err(|_| format!("there is no {}", variable_for_message(name))),
            Self::File(path) => read_bounded(open_file(path)?)
                .map_err(|error| format!("failed to read the secret in {path}: {error}")),
            Self::Command(words) => run_command(words),
        }
    }
}

/// Reads the secret at a place that a key of a topology names.
///
/// # Errors
/// Returns the reason, without anything of the secret.
pub(crate) fn read_secret(place: &str) -> Result<SecretString, String> {
    let place = SecretPlace::parse(place);
    let bytes = place.read()?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "the secret isn't UTF-8".to_owned())?;
    if let SecretPlace::Variable(_) = place {
        return Ok(SecretString::from(text));
    }
    // Files and programs end with a line break.
    let text = text.strip_suffix('\n').unwrap_or(text);
    match text.strip_suffix('\r').unwrap_or(text) {
        "" => Err("the secret is empty".to_owned()),
        text => Ok(SecretString::from(text)),
    }
}

/// Returns the reason why there can't be a secret at a place. Runs no program.
pub(super) fn secret_problem(place: &str) -> Option<String> {
    SecretPlace::parse(place).problem()
}

/// Reports a place where there can't be a secret. Runs no program.
pub(super) fn check_secret(
    place: &str,
    span: Option<Range<usize>>,
    problems: &mut ProblemCollector<'_>,
) {
    if let Some(why) = secret_problem(place) {
        problems.error(span, why);
    }
}

fn open_file(path: &str) -> Result<File, String> {
    if !Path::new(path).is_absolute() {
        return Err("write the absolute path of the secret's file after `file:`".to_owned());
    }
    let failed = |error: io::Error| format!("failed to read the secret in {path}: {error}");
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(failed(io::Error::other("not a file")));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o022 != 0 {
        return Err(format!(
            "other users may write the secret in {path}: run chmod 600"
        ));
    }
    Ok(file)
}

fn read_bounded(reader: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // One more for the line break, and one to notice a larger one.
    let bytes_max = SECRET_BYTES_MAX + 1;
    let mut bytes = Zeroizing::new(Vec::new());
    reader.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    let has_break = bytes.last() == Some(&b'\n');
    if bytes.len() - usize::from(has_break) > SECRET_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it has more than {SECRET_BYTES_MAX} bytes"
        )));
    }
    Ok(bytes)
}

/// Runs a program that prints a secret. Its standard error is discarded, because it may hold the
/// secret too.
fn run_command(words: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut words = words.split_whitespace();
    let program = words
        .next()
        .ok_or_else(|| "`command:` needs a program".to_owned())?;
    let failed = |why: &str| format!("failed to get the secret from {program}: {why}");
    let until = Instant::now() + SECRET_COMMAND_TIMEOUT;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    let printed = child.stdout.take().map(|output| {
        let (sender, receiver) = mpsc::channel();
        // Ends with the program, which is killed in time.
        thread::spawn(move || sender.send(read_bounded(output)));
        receiver
    });
    let printed = printed.and_then(|printed| {
        let left = until.saturating_duration_since(Instant::now());
        printed.recv_timeout(left).ok()
    });
    let status = match &printed {
        // Larger than allowed: the program may wait for ever to print the rest.
        Some(Ok(_)) => wait_until(&mut child, until),
        _ => None,
    };
    if status.is_none() {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
    match (printed, status) {
        (Some(Err(error)), _) => Err(failed(&error.to_string())),
        (Some(Ok(bytes)), Some(true)) => Ok(bytes),
        (_, Some(_)) => Err(failed("it ended with an error")),
        (_, None) => {
            let seconds = SECRET_COMMAND_TIMEOUT.as_secs();
            Err(failed(&format!("it took more than {seconds} s")))
        }
    }
}

/// Waits for the end of a program. Returns whether it succeeded; `None` if it runs for too long.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing can start without the secret, which is waited for within bounds anyway"
)]
fn wait_until(child: &mut Child, until: Instant) -> Option<bool> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Err(_) => return Some(false),
            Ok(None) if Instant::now() >= until => return None,
            Ok(None) => thread::sleep(COMMAND_POLL_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use secrecy::ExposeSecret;
    use tempfile::TempDir;

    use super::*;

    fn read(place: &str) -> Result<String, String> {
        read_secret(place).map(|secret| secret.expose_secret().to_owned())
    }

    /// Goal: a secret comes from a variable, a file or a program, without the line break at its end.
    /// Method: rows.
    #[test]
    fn secrets_are_read() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, "s3cret\r\n").unwrap();
        let home = std::env::var("HOME").unwrap();
        for (place, expected) in [
            ("HOME", &*home),
            ("env:HOME", &home),
            (&format!("file:{}", file.display()), "s3cret"),
            ("command:echo s3 cret", "s3 cret"),
            (&format!("command:cat {}", file.display()), "s3cret"),
        ] {
            assert_eq!(read(place).as_deref(), Ok(expected), "{place}");
            assert_eq!(secret_problem(place), None, "{place}");
        }
    }

    /// Goal: a secret that can't be read is reported with the reason, and never repeated. Method:
    /// rows.
    #[test]
    fn unreadable_secrets() {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, text: &str, mode| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            format!("file:{}", path.display())
        };
        for (place, why) in [
            (
                "NO_SUCH_VARIABLE",
                "there is no environment variable NO_SUCH",
            ),
            ("sk-1234-5678", "write the name of one, not what it holds"),
            ("file:secret", "write the absolute path"),
            ("file:/no/such", "failed to read the secret in /no/such"),
            (&write("empty", "\n", 0o600), "is empty"),
            (&write("shared", "s3cret", 0o620), "chmod 600"),
            ("command:", "needs a program"),
            ("command:no-such-program", "failed to get the secret"),
            ("command:false", "it ended with an error"),
            ("command:true", "is empty"),
        ] {
            let error = read(place).unwrap_err();
            assert!(error.contains(why), "{place}: {error}");
            assert!(
                !error.contains("s3cret") && !error.contains("1234"),
                "{error}"
            );
        }
    }

    /// Goal: a secret has at most its limit, in a file and from a program, also one that never ends.
    /// Method: the limit with and without a line break, one more, and `yes`.
    #[test]
    fn secrets_are_bounded() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("secret");
        let with = |text: String| {
            fs::write(&file, text).unwrap();
            ["file:", "command:cat "].map(|how| read(&format!("{how}{}", file.display())))
        };
        for end in ["", "\n"] {
            let most = with("x".repeat(SECRET_BYTES_MAX) + end);
            assert!(most.iter().all(|read| {
                read.as_ref()
                    .is_ok_and(|text| text.len() == SECRET_BYTES_MAX)
            }));
            let more = with("x".repeat(SECRET_BYTES_MAX + 1) + end);
            let is_refused = |read: &Result<String, String>| {
                read.as_ref()
                    .is_err_and(|why| why.contains("more than 65536 bytes"))
            };
            assert!(more.iter().all(is_refused), "{more:?}");
        }
        assert!(read("command:yes").unwrap_err().contains("more than"));
    }

    /// Goal: a program that doesn't end is killed in time. Method: one that sleeps.
    #[test]
    fn slow_programs_are_killed() {
        let began = Instant::now();
        let error = read("command:sleep 60").unwrap_err();
        assert!(error.contains("more than 5 s"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
