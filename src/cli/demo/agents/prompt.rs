//! A REPL in a process of its own, spoken to through a pipe.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::super::super::{CommandError, show};
use super::failed;
use crate::clinics::{ClinicsError, environment};

/// How long a line may take until all is said about it.
const ANSWERED: Duration = Duration::from_secs(30);
/// How long it may take to end before it is killed.
const END: Duration = Duration::from_secs(5);
/// What is typed after each line, and how the answer to that begins: then all is said about the line.
const LAST: (&str, &str) = (":session show", "🔖 Session: ");
/// How the line begins that says where it listens.
const LISTENING: &str = "✅ Server started on ";

/// The process; killed when this is dropped before [`Prompt::leave`].
pub(super) struct Prompt {
    pub(super) process_id: u32,
    process: Child,
    typed: ChildStdin,
    printed: Lines<BufReader<ChildStdout>>,
}

impl Prompt {
    /// Starts `callboard repl` with these arguments.
    pub(super) fn start(arguments: &[&str]) -> Result<Self, ClinicsError> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("repl")
            .args(arguments)
            .env_clear()
            .envs(environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C at a terminal reaches its whole group; this one is ended in order instead.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let gone = || failed("agent1", "it ended at once");
        let typed = process.stdin.take().ok_or_else(gone)?;
        let printed = process.stdout.take().ok_or_else(gone)?;
        let process_id = process.id().ok_or_else(gone)?;
        Ok(Self { process_id, process, typed, printed: BufReader::new(printed).lines() })
    }

    /// Types a line, shows what comes of it, and says whether all of `wanted` is in it: then `that` is so.
    pub(super) async fn step(&mut self, line: &str, wanted: &[&str], that: &str) -> Result<bool, CommandError> {
        show::line(format_args!("  agent1> {line}"))?;
        let said = self.type_in(line).await?;
        said.iter().try_for_each(|line| show::line(format_args!("  {line}")))?;
        let is_so = wanted.iter().all(|wanted| said.iter().any(|line| line.contains(wanted)));
        show::line(format_args!("  {} {that}", if is_so { '✔' } else { '✘' }))?;
        Ok(is_so)
    }

    /// Waits until it listens; where.
    pub(super) async fn listening(&mut self) -> Result<String, CommandError> {
        Ok(self.until(LISTENING).await?.1)
    }

    async fn type_in(&mut self, line: &str) -> Result<Vec<String>, CommandError> {
        let lines = format!("{line}\n{}\n", LAST.0);
        self.typed.write_all(lines.as_bytes()).await.map_err(ClinicsError::from)?;
        Ok(self.until(LAST.1).await?.0)
    }

    /// The lines before the one that begins so, and what follows that beginning.
    async fn until(&mut self, begins: &str) -> Result<(Vec<String>, String), CommandError> {
        let mut said = Vec::new();
        let last = async {
            while let Some(line) = self.printed.next_line().await? {
                if let Some(rest) = line.strip_prefix(begins) {
                    return Ok(Some(rest.to_owned()));
                }
                said.push(line);
            }
            Ok::<_, std::io::Error>(None)
        };
        match tokio::time::timeout(ANSWERED, last).await {
            Ok(Ok(Some(rest))) => Ok((said, rest)),
            Ok(Ok(None)) => Err(failed("agent1", "it ended by itself").into()),
            Ok(Err(error)) => Err(ClinicsError::from(error).into()),
            Err(_) => Err(failed("agent1", format!("no answer in {ANSWERED:?}")).into()),
        }
    }

    /// Ends it; whether that went as it should.
    pub(super) async fn leave(mut self) -> Result<bool, CommandError> {
        // The end of its input is the end.
        drop(self.typed);
        let ended = tokio::time::timeout(END, self.process.wait()).await;
        let is_fine = matches!(&ended, Ok(Ok(status)) if status.success());
        show::line(format_args!("  {} Agent One has ended", if is_fine { '✔' } else { '✘' }))?;
        Ok(is_fine)
    }
}
