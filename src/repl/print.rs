//! Output of the REPL, its log of typed and printed lines, and JSON for people.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::time::format_rfc3339;
use callboard_message::{DataClass, RawObject};
use parking_lot::{Mutex, MutexGuard};
use rustyline::ExternalPrinter;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::text::{self, strip_control_chars};

/// Printer for lines above an open prompt.
type PromptPrinter = Box<dyn ExternalPrinter + Send>;

/// Standard output of the REPL. Clones share it.
#[derive(Clone)]
pub(crate) struct Screen(Arc<ScreenInner>);

struct ScreenInner {
    /// Whether colours are used.
    is_styled: bool,
    /// Whether output is a terminal.
    is_terminal: bool,
    log: Option<ReplLog>,
    state: Mutex<ScreenState>,
}

struct ScreenState {
    out: Box<dyn Write + Send>,
    /// Text of the answer that is being printed in pieces; empty if there is none.
    open_text: String,
    /// Lines held back until the open text ends.
    held_lines: String,
    printer: Option<PromptPrinter>,
    /// First error of standard output. Nothing is printed after it.
    write_error: Option<io::Error>,
}

impl Screen {
    /// Creates a screen on standard output. Printed lines are also written to `log`.
    pub(super) fn new(log: Option<ReplLog>) -> Self {
        let is_watched = stdout().is_terminal();
        let variable = |name| std::env::var(name).unwrap_or_default();
        let is_styled = is_watched && variable("TERM") != "dumb" && variable("NO_COLOR").is_empty();
        Self::with_output(Box::new(stdout()), is_styled, is_watched, log)
    }

    fn with_output(
        out: Box<dyn Write + Send>,
        is_styled: bool,
        is_watched: bool,
        log: Option<ReplLog>,
    ) -> Self {
        let state = ScreenState {
            out,
            open_text: String::new(),
            held_lines: String::new(),
            printer: None,
            write_error: None,
        };
        Self(Arc::new(ScreenInner {
            is_styled,
            is_terminal: is_watched,
            log,
            state: Mutex::new(state),
        }))
    }

    /// Sets the printer for notices above an open prompt.
    pub(super) fn set_prompt_printer(&self, printer: PromptPrinter) {
        self.state().printer = Some(printer);
    }

    /// Returns whether output is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.0.is_terminal
    }

    /// Prints one or several lines. Ends an answer that is being printed in pieces.
    pub(crate) fn print_line(&self, text: &str) {
        self.end_chunks();
        let text = strip_control_chars(text);
        self.state().write(&format!("{text}\n"));
        self.log_line("printed", &text);
    }

    /// Prints an error message.
    pub(crate) fn print_error(&self, text: &str) {
        self.print_line(&format!("❌ {text}"));
    }

    /// Prints a line about an event in the background. It may come while a line is typed or an
    /// answer is printed in pieces.
    pub(crate) fn print_notice(&self, text: &str) {
        let text = strip_control_chars(text);
        self.state().write_or_hold(&format!("{text}\n"), true);
        self.log_line("printed", &text);
    }

    /// Prints progress at a terminal, and nothing in a pipe. While an answer is printed in pieces,
    /// the line is held back.
    pub(super) fn print_progress(&self, text: &str) {
        if !self.0.is_terminal {
            return;
        }
        let text = strip_control_chars(text);
        let line = match self.0.is_styled {
            true => format!("\x1b[2m  · {text}\x1b[0m\n"),
            false => format!("  · {text}\n"),
        };
        self.state().write_or_hold(&line, false);
    }

    /// Prints a piece of an answer.
    pub(super) fn print_chunk(&self, text: &str) {
        let text = strip_control_chars(text);
        let mut state = self.state();
        state.write(&text);
        state.open_text.push_str(&text);
    }

    /// Ends an answer that was printed in pieces.
    pub(super) fn end_chunks(&self) {
        let mut state = self.state();
        let open = std::mem::take(&mut state.open_text);
        if open.is_empty() {
            return;
        }
        let held = std::mem::take(&mut state.held_lines);
        state.write(&format!(
            "{}{held}",
            if open.ends_with('\n') { "" } else { "\n" }
        ));
        drop(state);
        self.log_line("printed", open.trim_end_matches('\n'));
    }

    /// Returns the error after which nothing could be printed. A closed pipe is no error.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.state().write_error.take()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().write_error.is_some()
    }

    /// Appends a line to the log. `what` is `typed` or `printed`.
    pub(super) fn log_line(&self, what: &str, text: &str) {
        if let Some(log) = &self.0.log
            && let Err(error) = log.append(what, text)
        {
            // The text of the line isn't logged.
            tracing::warn!(%error, "failed to write the REPL's log");
        }
    }

    fn state(&self) -> MutexGuard<'_, ScreenState> {
        self.0.state.lock()
    }
}

impl ScreenState {
    /// Prints a notice, or holds it back while an answer is printed in pieces. `above`: print it
    /// above an open prompt.
    fn write_or_hold(&mut self, lines: &str, above: bool) {
        // A notice within a sentence would make both unreadable.
        if !self.open_text.is_empty() {
            return self.held_lines.push_str(lines);
        }
        let printed = self
            .printer
            .as_mut()
            .filter(|_| above)
            .map(|printer| printer.print(lines.to_owned()));
        if !matches!(printed, Some(Ok(()))) {
            self.write(lines);
        }
    }

    fn write(&mut self, text: &str) {
        if let Err(error) = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            && error.kind() != ErrorKind::BrokenPipe
        {
            self.write_error = Some(error);
        }
    }
}

/// Permissions of the log: its owner only, because it may contain personal data.
const LOG_FILE_MODE: u32 = 0o600;

/// Log of typed and printed lines. Its lines are marked as possibly personal data and are written
/// to this file only.
pub(super) struct ReplLog(Mutex<File>);

impl ReplLog {
    /// Opens the file for appending; creates it if it doesn't exist.
    ///
    /// # Errors
    /// Error of the operating system.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(LOG_FILE_MODE)
            .open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Appends a line. `what` is `typed` or `printed`.
    ///
    /// # Errors
    /// Error of the operating system.
    fn append(&self, what: &str, text: &str) -> io::Result<()> {
        let now = format_rfc3339(SystemTime::now());
        let line = RawObject::single("at", now)
            .with("class", DataClass::Personal.as_str())
            .with(what, text);
        let mut file = self.0.lock();
        // A single write, because another process may append to the file too.
        file.write_all(format!("{}\n", line.to_raw().get()).as_bytes())
    }
}

/// Maximum nesting levels that are indented. Deeper values are printed on one line.
const INDENT_LEVELS_MAX: usize = 32;

/// Formats JSON for people: one member or item a line. An object within a list stays on one line if
/// it has no nested values.
pub(super) fn pretty_json(value: &RawValue) -> String {
    pretty_json_at(value, 0)
}

/// Formats a text that is a JSON object or list; `None` for other texts.
pub(super) fn pretty_json_text(text: &str) -> Option<String> {
    let text = text.trim();
    let value: Box<RawValue> = text
        .starts_with(['{', '['])
        .then(|| serde_json::from_str(text).ok())??;
    Some(pretty_json(&value))
}

fn pretty_json_at(value: &RawValue, level: usize) -> String {
    let text = value.get();
    let parts: Option<Vec<String>> = match text.as_bytes().first() {
        Some(b'{') if level < INDENT_LEVELS_MAX => {
            serde_json::from_str(text).ok().map(|object: RawObject| {
                object
                    .iter()
                    .map(|(name, value)| format_member(name, &pretty_json_at(value, level + 1)))
                    .collect()
            })
        }
        Some(b'[') if level < INDENT_LEVELS_MAX => {
            serde_json::from_str(text)
                .ok()
                .map(|items: Vec<&RawValue>| {
                    items
                        .into_iter()
                        .map(|item| {
                            flat_object_line(item)
                                .unwrap_or_else(|| pretty_json_at(item, level + 1))
                        })
                        .collect()
                })
        }
        _ => None,
    };
    let Some(parts) = parts else {
        return text.to_owned();
    };
    let (open, close) = (&text[..1], &text[text.len() - 1..]);
    if parts.is_empty() {
        return format!("{open}{close}");
    }
    let (outer, inner) = ("  ".repeat(level), "  ".repeat(level + 1));
    format!(
        "{open}\n{inner}{}\n{outer}{close}",
        parts.join(&format!(",\n{inner}"))
    )
}

fn format_member(name: &str, value: &str) -> String {
    format!("{}: {value}", Value::from(name))
}

fn flat_object_line(value: &RawValue) -> Option<String> {
    let object: RawObject = serde_json::from_str(value.get()).ok()?;
    let all_plain = object
        .iter()
        .all(|(_, value)| !value.get().starts_with(['{', '[']));
    let members = object
        .iter()
        .map(|(name, value)| format_member(name, value.get()))
        .collect::<Vec<_>>();
    (all_plain && !members.is_empty()).then(|| format!("{{{}}}", members.join(", ")))
}

/// Maximum length of a request in a list, in characters.
pub(super) const SUMMARY_CHARS_MAX: usize = 200;

/// Formats a text as one line of a list.
pub(super) fn summary_line(text: &str) -> String {
    text::one_line(text, SUMMARY_CHARS_MAX)
}

/// Capitalizes the first letter of a sentence.
pub(super) fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    /// Output that a test reads.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    type Say = fn(&Screen);

    /// Goal: nothing cuts into a text that comes bit by bit. Method: progress and a notice in its midst, a line, none of these, a
    /// text that ends its own line; each with what comes after, at once or not.
    #[test]
    fn nothing_cuts_into_a_text() {
        let cases: [(&[Say], &str); 5] = [
            (
                &[
                    |s| s.print_progress("Routing"),
                    |s| s.print_notice("🔔 one"),
                ],
                "The capital is Paris.\n  · Routing\n🔔 one\n  · after\n",
            ),
            (
                &[|s| s.print_line("⏹ Task cancelled")],
                "The capital \n⏹ Task cancelled\nis Paris.\n  · after\n",
            ),
            (
                &[|s| s.print_progress("a"), |s| s.print_line("b")],
                "The capital \n  · a\nb\nis Paris.\n  · after\n",
            ),
            (
                &[|s| s.print_chunk("city "), |s| s.print_chunk("that\n")],
                "The capital city that\nis Paris.\n  · after\n",
            ),
            (
                &[|s| s.end_chunks(), |s| s.print_progress("a")],
                "The capital \n  · a\nis Paris.\n  · after\n",
            ),
        ];
        for (between, expected) in cases {
            let paper = Paper::default();
            let screen = Screen::with_output(Box::new(paper.clone()), false, true, None);
            screen.print_chunk("The capital ");
            between.iter().for_each(|say| say(&screen));
            screen.print_chunk("is Paris.");
            screen.end_chunks();
            screen.print_progress("after");
            assert_eq!(String::from_utf8(paper.0.lock().clone()).unwrap(), expected);
        }
    }

    /// Goal: the file is its owner's, grows, and reads back. Method: open it twice, keep a line each with a line break in it.
    /// Rows: B-13.
    #[test]
    fn lines_are_kept_for_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for what in ["typed", "printed"] {
            ReplLog::open(&path)
                .unwrap()
                .append(what, "a\n\"b\"")
                .unwrap();
        }
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            LOG_FILE_MODE
        );
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0]["typed"].as_str(), lines[1]["printed"].as_str()),
            (Some("a\n\"b\""), Some("a\n\"b\""))
        );
        assert!(
            lines
                .iter()
                .all(|line| line["class"] == "personal" && line["at"].is_string())
        );
    }

    fn laid(text: &str) -> String {
        pretty_json_text(text).unwrap()
    }

    /// Goal: the lists of agents look as people know them. Method: the two of the source document.
    /// Rows: B-22.
    #[test]
    fn lists_of_agents() {
        let none = r#"{"count":0,"message":"No agents found in the directory"}"#;
        assert_eq!(
            laid(none),
            "{\n  \"count\": 0,\n  \"message\": \"No agents found in the directory\"\n}"
        );
        let two = concat!(
            r#"{"count":2,"agents":[{"id":"bidirectional-agent-2","name":"Agent Two"},"#,
            r#"{"id":"bidirectional-agent-3","name":"Agent Three"}]}"#
        );
        let expected = r#"{
  "count": 2,
  "agents": [
    {"id": "bidirectional-agent-2", "name": "Agent Two"},
    {"id": "bidirectional-agent-3", "name": "Agent Three"}
  ]
}"#;
        assert_eq!(laid(two), expected);
    }

    /// Goal: every shape has a layout. Method: empty ones, nested ones, plain lists, a key twice, what is no list or object.
    #[test]
    fn shapes() {
        assert_eq!(laid("{}"), "{}");
        assert_eq!(laid("[ ]"), "[]");
        assert_eq!(
            laid(r#"{"b":{},"a":[]}"#),
            "{\n  \"b\": {},\n  \"a\": []\n}"
        );
        assert_eq!(laid(r#"["x",1]"#), "[\n  \"x\",\n  1\n]");
        assert_eq!(
            laid(r#"[{"a":{"b":1}}]"#),
            "[\n  {\n    \"a\": {\n      \"b\": 1\n    }\n  }\n]"
        );
        assert_eq!(laid(r#"{"a":1,"a":2}"#), r#"{"a":1,"a":2}"#);
        for text in ["", "7", "words", "{", "[1"] {
            assert_eq!(pretty_json_text(text), None, "{text}");
        }
    }

    /// Goal: depth is bounded, nothing is lost. Method: lists one level deeper than are laid out.
    #[test]
    fn deep_ones_stay_on_a_line() {
        let deep = format!(
            "{}1{}",
            "[".repeat(INDENT_LEVELS_MAX + 1),
            "]".repeat(INDENT_LEVELS_MAX + 1)
        );
        let laid = laid(&deep);
        assert!(laid.contains("[1]"), "{laid}");
        assert!(!self::laid(&deep[1..deep.len() - 1]).contains("[1]"));
    }

    proptest! {
        /// Goal: layout changes no value. Method: any nesting of a few shapes, read back.
        #[test]
        fn it_reads_back(items in proptest::collection::vec("[a-z\"\\\\ü\n]{0,6}", 0..5), levels in 0usize..6) {
            let mut value = serde_json::json!({ "items": items, "n": 1.5, "none": null });
            for _ in 0..levels {
                value = serde_json::json!([{ "in": value, "x": true }, {}]);
            }
            let laid = pretty_json_text(&value.to_string()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&laid).unwrap(), value);
        }
    }
}
