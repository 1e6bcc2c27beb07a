//! What the command line prints. Text for people has no control characters, for others chose some of it.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};

use callboard_clinics::orchestrator::{Answer, Status};
use callboard_clinics::verifier::Verdict;
use serde::Serialize;

use crate::text::printable;

/// Treats a closed standard output as written: what reads it (`head`) has enough.
pub(super) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints a line for a program, as it is.
pub(super) fn raw(text: impl Display) -> io::Result<()> {
    unless_closed(writeln!(stdout().lock(), "{text}"))
}

/// Prints a value as one line of JSON.
pub(super) fn json(value: &impl Serialize) -> io::Result<()> {
    raw(serde_json::to_string(value)?)
}

/// Prints lines for people.
pub(super) fn line(text: impl Display) -> io::Result<()> {
    raw(printable(&text.to_string()))
}

/// Prints lines for people to standard error. What can't be written there has nowhere to be told.
pub(super) fn aside(text: impl Display) {
    let _ = writeln!(stderr().lock(), "{}", printable(&text.to_string()));
}

/// Says why a command failed, to standard error.
pub(super) fn complain(what: impl Display) {
    aside(format_args!("callboard: {what}"));
}

/// Says what happens meanwhile, to standard error.
pub(super) fn progress(text: impl Display) {
    aside(format_args!("  · {text}"));
}

/// Says what happens meanwhile, to standard output.
pub(super) fn told(text: &str) {
    let _ = line(format_args!("  · {text}"));
}

/// Prints a heading: bold on a terminal.
pub(super) fn heading(text: impl Display) -> io::Result<()> {
    let text = printable(&text.to_string());
    match stdout().is_terminal() {
        true => raw(format_args!("\x1b[1m{text}\x1b[0m")),
        false => raw(text),
    }
}

/// Rows for people below a heading on a terminal, or JSON objects a line.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    json: bool,
}

impl Rows {
    pub(super) fn begin(json: bool, columns: &str) -> io::Result<Self> {
        if !json && stdout().is_terminal() {
            heading(columns)?;
        }
        Ok(Self { json })
    }

    /// Rows without a heading.
    pub(super) fn plain(json: bool) -> Self {
        Self { json }
    }

    /// Prints one row: `value` for a program, `text` for people.
    pub(super) fn row(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        if self.json { json(value) } else { line(text()) }
    }
}

/// Says where a list that was cut goes on.
pub(super) fn more(after: Option<u64>) {
    if let Some(after) = after {
        aside(format_args!("more: --after {after}"));
    }
}

/// Prints an answer of the clinics for people.
pub(super) fn answer(answer: &Answer) -> io::Result<()> {
    heading(match answer.status() {
        Status::Answered => "\nAnswer",
        Status::Blocked => "\nBlocked",
        Status::Failed => "\nNot answered",
    })?;
    line(format_args!("{}\n", answer.text()))?;
    if let Some(verdict) = answer.verdict() {
        line(format_args!("Verdict  {}", in_words(verdict)))?;
    }
    let times = answer.times_ms();
    line(format_args!(
        "Times    screening {} ms, planning {} ms, clinics {} ms, verifying {} ms, total {} ms",
        times.screening, times.planning, times.routing, times.verifying, times.total
    ))
}

fn in_words(verdict: &Verdict) -> String {
    match (verdict.safe, verdict.rule) {
        (true, _) => "safe".to_owned(),
        (false, Some(rule)) => format!("unsafe by rule {rule:?}"),
        (false, None) => "unsafe".to_owned(),
    }
}
