//! An example in a process of its own, which ends when this one does.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdin, Command};

use super::ClinicsError;
use crate::cli::{LISTENING, READY};

/// How long it may take from its start until it listens.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end before it is killed.
const END: Duration = Duration::from_secs(5);
/// What of this process's environment a child gets.
const ENVIRONMENT: [&str; 4] = ["PATH", "TMPDIR", "CALLBOARD_LOG", "RUST_BACKTRACE"];

/// What a child gets of it.
pub(crate) fn environment() -> impl Iterator<Item = (&'static str, OsString)> {
    ENVIRONMENT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// The process. When this is dropped it ends by its lifeline, in order: killed, it would leave its data behind.
pub(crate) struct Child {
    pub(crate) agent: String,
    pub(crate) url: String,
    pub(crate) process_id: u32,
    process: tokio::process::Child,
    /// Closes when this process ends, however it ends: then the child does too.
    lifeline: ChildStdin,
}

impl Child {
    /// Starts the example and waits until it listens.
    pub(crate) async fn start(example: &str) -> Result<Self, ClinicsError> {
        Self::serving(example, &[&format!("example:{example}"), "--free-ports"]).await
    }

    /// Starts `callboard serve` with these arguments and waits until it listens. `example`: what it is, for errors.
    pub(crate) async fn serving(example: &str, arguments: &[&str]) -> Result<Self, ClinicsError> {
        let failed = |why: String| ClinicsError::Start { example: example.to_owned(), why };
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .args(arguments)
            .arg("--lifeline")
            .env_clear()
            .envs(environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C at a terminal reaches its whole group; the child is ended in order instead.
            .process_group(0)
            .spawn()?;
        let lifeline = process.stdin.take().ok_or_else(|| failed("it has no standard input".into()))?;
        let output = process.stdout.take().ok_or_else(|| failed("it has no standard output".into()))?;
        let process_id = process.id().ok_or_else(|| failed("it ended at once".into()))?;
        let mut lines = BufReader::new(output).lines();
        let mut listening = None;
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if line == READY {
                    return Ok(listening);
                }
                let mut words = line.split(' ');
                if let (Some(LISTENING), Some(agent), Some(url)) = (words.next(), words.next(), words.next()) {
                    listening = Some((agent.to_owned(), url.to_owned()));
                }
            }
            Ok::<_, std::io::Error>(None)
        };
        match tokio::time::timeout(START, ready).await {
            Ok(Ok(Some((agent, url)))) => Ok(Self { agent, url, process_id, process, lifeline }),
            Ok(Ok(None)) => Err(failed("it ended before it listened".into())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => {
                // It may have ended just now.
                let _ = process.start_kill();
                Err(failed(format!("it didn't listen within {START:?}")))
            }
        }
    }

    /// Lets it end in order, or kills it.
    pub(crate) async fn end(mut self) {
        drop(self.lifeline);
        if tokio::time::timeout(END, self.process.wait()).await.is_err() {
            tracing::warn!(agent = self.agent, "clinic doesn't end in time and is killed");
            // It may have ended just now.
            let _ = self.process.kill().await;
        }
    }
}
