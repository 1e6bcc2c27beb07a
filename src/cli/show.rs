//! What a person sees.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};

use callboard_agents::orchestrator::{Answer, Status};
use callboard_agents::verifier::Verdict;

/// A reader that closed the pipe has what it wanted; the command goes on to its own end.
pub(super) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A line on standard output.
pub(super) fn line(text: &str) -> io::Result<()> {
    unless_closed(writeln!(stdout().lock(), "{text}"))
}

/// What is wrong, on standard error. Where nobody reads that, nobody is told.
pub(super) fn complain(what: impl Display) {
    let _ = writeln!(stderr().lock(), "callboard: {what}");
}

/// A line on standard error for who reads the output.
pub(super) fn aside(line: &str) {
    let _ = writeln!(stderr().lock(), "{line}");
}

/// A line of progress, apart from the answer.
pub(super) fn progress(line: &str) {
    let _ = writeln!(stderr().lock(), "  · {line}");
}

/// A line of progress among the rest. Where it can't be written, the answer can't either, and that is told.
pub(super) fn told(text: &str) {
    let _ = line(&format!("  · {text}"));
}

/// A heading; bold where that can be seen.
pub(super) fn heading(text: &str) -> io::Result<()> {
    match stdout().is_terminal() {
        true => line(&format!("\x1b[1m{text}\x1b[0m")),
        false => line(text),
    }
}

/// The answer for a program: one object, one line.
pub(super) fn json(answer: &Answer) -> io::Result<()> {
    line(&serde_json::to_string(answer)?)
}

/// The answer for a person: the text, the verdict, the times. Of a blocked one, only why.
pub(super) fn answer(answer: &Answer) -> io::Result<()> {
    heading(match answer.status() {
        Status::Answered => "\nAnswer",
        Status::Blocked => "\nBlocked",
        Status::Failed => "\nNot answered",
    })?;
    line(&format!("{}\n", answer.text()))?;
    if let Some(verdict) = answer.verdict() {
        line(&format!("Verdict  {}", in_words(verdict)))?;
    }
    let times = answer.times_ms();
    line(&format!(
        "Times    screening {} ms, planning {} ms, clinics {} ms, verifying {} ms, total {} ms",
        times.screening, times.planning, times.routing, times.verifying, times.total
    ))
}

/// The note of an unsafe one is the answer's text already.
fn in_words(verdict: &Verdict) -> String {
    match (verdict.safe, verdict.rule) {
        (true, _) => "safe".to_owned(),
        (false, Some(rule)) => format!("unsafe by rule {rule:?}"),
        (false, None) => "unsafe".to_owned(),
    }
}
