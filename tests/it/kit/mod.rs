//! The binary in a home of its own. Every process that a test starts ends with its guard; waits are bounded.

pub mod a2a;
pub mod clinics;
pub mod gateway;
pub mod mail;
pub mod mcp;
pub mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use actix_web::dev::ServerHandle;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Timeout of a test's waits; long, for machines under load.
pub const SOON: Duration = Duration::from_secs(60);
/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(10);

/// Returns the result of `work`. Panics after [`SOON`].
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work)
        .await
        .unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
}

/// Waits until `condition` holds.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    found(what, async || condition().then_some(())).await;
}

/// Returns the first value that `look` finds. Panics after [`SOON`].
pub async fn found<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// A file of `examples/clinics`.
pub fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/clinics")
        .join(file)
}

/// Folders for one test: `HOME`, `TMPDIR`, and whatever it writes.
pub struct Home(TempDir);

/// How a process ended, and what it said.
#[derive(Debug)]
pub struct Finished {
    /// Command, for messages.
    pub command: String,
    /// None after a signal.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Finished {
    /// It ended with this code, and said this on standard error.
    #[track_caller]
    pub fn with(self, code: i32, said: &str) -> Self {
        assert_eq!(self.code, Some(code), "{}: {self:?}", self.command);
        assert!(self.err.contains(said), "{said:?} is not in {self:?}");
        self
    }

    /// It ended with this code, and said nothing on standard error.
    #[track_caller]
    pub fn quiet(self, code: i32) -> Self {
        assert_eq!(
            (self.code, &*self.err),
            (Some(code), ""),
            "{}: {}",
            self.command,
            self.out
        );
        self
    }

    /// It ended with this code, and printed exactly this.
    #[track_caller]
    pub fn printing(self, code: i32, out: &str) -> Self {
        assert_eq!(
            (self.code, &*self.out),
            (Some(code), out),
            "{}: {}",
            self.command,
            self.err
        );
        self
    }

    /// All of that is in what it printed.
    #[track_caller]
    pub fn has(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.out.contains(text), "{text:?} is not in {self:?}");
        }
    }

    /// The object that it printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to its end, with this on its standard input if there is something.
pub async fn ended(command: &mut Command, input: Option<&str>) -> Finished {
    let mut child = command
        .stdin(input.map_or_else(Stdio::null, |_| Stdio::piped()))
        .spawn()
        .unwrap();
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        // Whoever doesn't read it has closed it.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
    let output = soon("the end of a command", child.wait_with_output())
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let command = format!("{:?}", command.as_std().get_args().collect::<Vec<_>>());
    Finished {
        command,
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// A server of this process on a free port, as long as this is held.
pub struct Listening {
    pub url: String,
    handle: ServerHandle,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It is told at once; nobody waits for its end.
        drop(self.handle.stop(false));
    }
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("callboard_it_")
            .tempdir()
            .unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and says where it is.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The binary, killed when its handle is dropped. Only `PATH` is inherited.
    pub fn callboard(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callboard"));
        command
            .args(arguments)
            .env_clear()
            .env("RUST_BACKTRACE", "1")
            .kill_on_drop(true);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", self.0.path())
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.0.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the binary to its end.
    pub async fn run(&self, arguments: &[&str]) -> Finished {
        ended(&mut self.callboard(arguments), None).await
    }

    /// Runs `callboard ask` with a topology.
    pub async fn ask(&self, topology: &str, more: &[&str]) -> Finished {
        self.run(&[&["ask", "--topology", topology], more].concat())
            .await
    }

    /// Starts the binary. What it says on standard error is in this home's file `stderr` from now on.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let stderr = fs::File::create(self.path("stderr")).unwrap();
        let mut child = self.callboard(arguments).stderr(stderr).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running {
            child,
            lines,
            stderr: self.path("stderr"),
        }
    }

    /// Folders that commands left in `TMPDIR`.
    pub fn left_behind(&self) -> usize {
        fs::read_dir(self.path("tmp")).unwrap().count()
    }

    /// The processes of this home that live: those that have its `TMPDIR`.
    pub fn processes(&self) -> Vec<u32> {
        let ours = format!("TMPDIR={}", self.path("tmp").display());
        let is_ours = |id: &u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == ours.as_bytes())
        };
        let ids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        ids.filter(is_ours).filter(|id| is_alive(*id)).collect()
    }

    /// Waits until no process of this home lives and nothing of theirs is left in `TMPDIR`.
    pub async fn swept(&self) {
        until("the end of all processes", || self.processes().is_empty()).await;
        assert_eq!(self.left_behind(), 0, "folders are left behind");
    }
}

/// Whether a process runs; one that only waits to be counted doesn't.
pub fn is_alive(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A process, killed when this is dropped.
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: PathBuf,
}

impl Running {
    pub fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// The next line that contains `text`.
    pub async fn line_with(&mut self, text: &str) -> String {
        let reading = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(text) {
                    return line;
                }
            }
            panic!(
                "ended without {text:?}: {}",
                fs::read_to_string(&self.stderr).unwrap()
            );
        };
        soon(text, reading).await
    }

    /// Sends a signal, for example `INT`.
    pub async fn signal(&self, name: &str) {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.id())])
            .status()
            .await
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub async fn finished(mut self) -> Finished {
        let status = soon("the end of a process", self.child.wait())
            .await
            .unwrap();
        let mut out = String::new();
        soon(
            "its output",
            self.lines.into_inner().read_to_string(&mut out),
        )
        .await
        .unwrap();
        let err = fs::read_to_string(self.stderr).unwrap();
        Finished {
            command: "a process".to_owned(),
            code: status.code(),
            out,
            err,
        }
    }
}
