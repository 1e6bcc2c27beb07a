//! A process of its own: this test binary again, at one ignored test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdout, Command, Stdio};

use callboard_store::StoreOptions;

/// Ends with the test, at the latest.
pub struct Child {
    process: Process,
    out: BufReader<ChildStdout>,
}

impl Child {
    /// `test` is an ignored test's whole name.
    pub fn start(test: &str, env: &[(&str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(arguments(test));
        Self::of(command, env)
    }

    /// As the user nobody; `None` where this user may not become another one. The binary is copied to where nobody may
    /// read it.
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

    /// Any command that ends in this test binary.
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

    /// The next line that the test prints; what the test runner prints is passed over. Empty when the child has ended.
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
            // The runner doesn't end its line before the test has ended.
            let line = line.split_once(" ... ").map_or(line, |(_, rest)| rest);
            if !is_runners(line) {
                return line.to_owned();
            }
        }
    }

    /// A line to the child.
    pub fn say(&mut self, line: &str) {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
    }

    /// SIGKILL, and waits for the end.
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

/// What makes the binary run one ignored test and show what it prints.
pub fn arguments(test: &str) -> [&str; 4] {
    ["--exact", test, "--ignored", "--nocapture"]
}

/// A store that a parent names in an environment variable, as `Opened::child_store` does; without a key's file, the key is
/// beside the store.
pub fn of_parent(variable: &str) -> StoreOptions {
    let store = std::env::var(variable).unwrap();
    let (url, key) = store
        .split_once(' ')
        .map_or((store.as_str(), None), |(url, key)| (url, Some(key)));
    let options = StoreOptions::parse(url, Path::new("."), None)
        .unwrap()
        .clean_every(None);
    match key {
        Some(key) => options.audit_key(key),
        None => options,
    }
}
