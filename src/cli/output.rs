//! Output of commands. Text for people is printed without control characters, because peers may
//! have chosen it.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};

use callboard_clinics::orchestrator::{AnswerStatus, ClinicAnswer};
use callboard_clinics::verifier::Verdict;
use serde::Serialize;

use crate::text::strip_control_chars;

/// Treats a closed standard output as success: its reader (for example `head`) has ended.
pub(super) fn ignore_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints a line unchanged, for programs.
pub(super) fn print_raw(text: impl Display) -> io::Result<()> {
    ignore_broken_pipe(writeln!(stdout().lock(), "{text}"))
}

/// Prints a value as one line of JSON.
pub(super) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print_json_text(serde_json::to_string(value)?)
}

/// Prints a line of JSON, with characters that change a terminal or the reading order escaped.
pub(super) fn print_json_text(json: impl Display) -> io::Result<()> {
    print_raw(escape_control_chars(&json.to_string()))
}

/// Escapes control characters above ASCII, marks of text direction and line separators in a JSON
/// text as `\u`. JSON has them in strings only, so the value stays the same.
pub(super) fn escape_control_chars(json: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| {
        matches!(
            c,
            '\u{7f}'..='\u{9f}'
                | '\u{61c}'
                | '\u{200e}' | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
    };
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_escaped(c) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Prints text for people.
pub(super) fn print_line(text: impl Display) -> io::Result<()> {
    print_raw(strip_control_chars(&text.to_string()))
}

/// Prints text for people to standard error. Write errors are ignored.
pub(super) fn print_note(text: impl Display) {
    let _ = writeln!(
        stderr().lock(),
        "{}",
        strip_control_chars(&text.to_string())
    );
}

/// Prints an error message to standard error.
pub(super) fn print_error(what: impl Display) {
    print_note(format_args!("callboard: {what}"));
}

/// Prints a progress line to standard error.
pub(super) fn print_progress(text: impl Display) {
    print_note(format_args!("  · {text}"));
}

/// Prints a progress line to standard output.
pub(super) fn print_progress_to_stdout(text: &str) {
    let _ = print_line(format_args!("  · {text}"));
}

/// Prints a heading, in bold on a terminal.
pub(super) fn print_heading(text: impl Display) -> io::Result<()> {
    let text = strip_control_chars(&text.to_string());
    match stdout().is_terminal() {
        true => print_raw(format_args!("\x1b[1m{text}\x1b[0m")),
        false => print_raw(text),
    }
}

/// Prints the heading of a table on a terminal; nothing through a pipe, and nothing for JSON.
pub(super) fn print_table_heading(json: bool, columns: &str) -> io::Result<()> {
    match !json && stdout().is_terminal() {
        true => print_heading(columns),
        false => Ok(()),
    }
}

/// Table printer: rows with a heading on a terminal, or one JSON object a line.
#[derive(Clone, Copy)]
pub(super) struct RowPrinter {
    json: bool,
}

impl RowPrinter {
    pub(super) fn with_heading(json: bool, columns: &str) -> io::Result<Self> {
        print_table_heading(json, columns)?;
        Ok(Self { json })
    }

    /// Creates a printer without a heading.
    pub(super) fn without_heading(json: bool) -> Self {
        Self { json }
    }

    /// Prints one row: `value` as JSON, or `text`.
    pub(super) fn print_row(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        if self.json {
            print_json(value)
        } else {
            print_line(text())
        }
    }
}

/// Prints the option that continues a truncated list, to standard error; nothing for `None`, the
/// end of the list.
pub(super) fn print_next_page(after: Option<u64>) {
    if let Some(after) = after {
        print_note(format_args!("more: --after {after}"));
    }
}

/// Prints an answer of the clinics as text.
pub(super) fn print_answer(answer: &ClinicAnswer) -> io::Result<()> {
    print_heading(match answer.status() {
        AnswerStatus::Answered => "\nAnswer",
        AnswerStatus::Partial => "\nPartial answer",
        AnswerStatus::Blocked => "\nBlocked",
        AnswerStatus::Failed => "\nNot answered",
    })?;
    print_line(format_args!("{}\n", answer.text()))?;
    if let Some(verdict) = answer.verdict() {
        print_line(format_args!("Verdict  {}", verdict_text(verdict)))?;
    }
    let times = answer.times_ms();
    print_line(format_args!(
        "Times    screening {} ms, planning {} ms, clinics {} ms, verifying {} ms, total {} ms",
        times.screening, times.planning, times.routing, times.verifying, times.total
    ))
}

fn verdict_text(verdict: &Verdict) -> String {
    match (verdict.safe, verdict.rule) {
        (true, _) => "safe".to_owned(),
        (false, Some(rule)) => format!("unsafe by rule {rule:?}"),
        (false, None) => "unsafe".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::escape_control_chars;

    /// Goal: JSON for programs moves no terminal and stays the same value. Method: a text with
    /// control characters above ASCII, marks of direction and line separators, parsed again.
    #[test]
    fn json_is_harmless_to_a_terminal() {
        let text = "é \u{7f}\u{9b}31m \u{202e}\u{2066}\u{200f}\u{61c} \u{2028}\u{2029} 😀";
        let json = serde_json::json!({ "text": text }).to_string();
        let escaped = escape_control_chars(&json);
        assert!(
            escaped.contains("é \\u007f\\u009b31m \\u202e\\u2066\\u200f\\u061c \\u2028\\u2029 😀"),
            "{escaped}"
        );
        let parsed: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(parsed["text"], text);
    }
}
