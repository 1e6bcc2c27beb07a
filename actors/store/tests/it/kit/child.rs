//! Child processes that run one ignored test of this test binary.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdout, Command, Stdio};

use callboard_store::StoreOptions;

/// Child process. It is killed when it is dropped.
pub struct Child {
    process: Process,
    out: BufReader<ChildStdout>,
}

impl Child {
    /// Starts a child for an ignored test, given by its full name.
    pub fn start(test: &str, env: &[(&str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(arguments(test));
        Self::of(command, env)
    }

    /// Starts a child as the user `nobody`; `None` without the right to change users. The binary is
    /// copied to a folder that this user can read.
    pub fn start_as_nobody(test: &str, store: &Path) -> Option<Self> {
        let mut given = Command::new("setpriv");
        given
            .args(["--reuid=65534", "--clear-groups", "true"])
            .stderr(Stdio::null());
        if !given.status().is_ok_and(|status| status.success()) {
            return None;
        }
        let copied = store
            .ancestors()
            .find(|path| path.join("store.sqlite").exists())?
            .join("tests");
        if !copied.exists() {
            std::fs::copy(std::env::current_exe().unwrap(), &copied).unwrap();
        }
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--clear-groups"])
            .arg(copied)
            .args(arguments(test));
        Some(Self::of(
            command,
            &[("CALLBOARD_TEST_STORE", store.display().to_string())],
        ))
    }

    /// Starts a child with any command that runs this test binary.
    pub fn of(mut command: Command, env: &[(&str, String)]) -> Self {
        command.envs(env.iter().map(|(name, value)| (*name, value)));
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        Self { process, out }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the next line of the test, without the output of the test runner. Empty when the
    /// child has ended.
    pub fn line(&mut self) -> String {
        let is_runners = |line: &str| {
            line.is_empty() || line.starts_with("running ") || line.starts_with("test ")
        };
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 {
                return line;
            }
            let line = line.trim_end();
            // The runner ends its line only after the test.
            let line = line.split_once(" ... ").map_or(line, |(_, rest)| rest);
            if !is_runners(line) {
                return line.to_owned();
            }
        }
    }

    /// Writes a line to the child's standard input.
    pub fn say(&mut self, line: &str) {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the arguments that run one ignored test with its output.
pub fn arguments(test: &str) -> [&str; 4] {
    ["--exact", test, "--ignored", "--nocapture"]
}

/// Returns the store that the parent named in an environment variable with `Opened::child_store`.
/// Without a key file, the key is beside the store.
pub fn of_parent(variable: &str) -> StoreOptions {
    let store = std::env::var(variable).unwrap();
    let (url, key) = store
        .split_once(' ')
        .map_or((store.as_str(), None), |(url, key)| (url, Some(key)));
    let options = StoreOptions::parse(url, Path::new("."), None)
        .unwrap()
        .cleanup_interval(None);
    match key {
        Some(key) => options.audit_key(key),
        None => options,
    }
}
