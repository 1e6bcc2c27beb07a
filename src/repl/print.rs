//! What a person sees, in one place.

use std::io::{self, ErrorKind, IsTerminal, Write, stdout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::ExternalPrinter;

use super::log::Log;
use crate::cli::printable;

/// Prints above a prompt that is open.
type Printer = Box<dyn ExternalPrinter + Send>;

/// Standard output, as everybody here writes to it. Its clones are one.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Inner>);

struct Inner {
    /// Colours can be seen.
    is_styled: bool,
    /// Somebody looks at it while it grows.
    is_watched: bool,
    log: Option<Log>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The line that pieces were added to.
    open: String,
    printer: Option<Printer>,
    /// What there is to say can't be said any more.
    failed: Option<io::Error>,
}

impl Screen {
    /// What is printed is kept in `log` too.
    pub(super) fn new(log: Option<Log>) -> Self {
        let is_watched = stdout().is_terminal();
        let variable = |name| std::env::var(name).unwrap_or_default();
        let is_styled = is_watched && variable("TERM") != "dumb" && variable("NO_COLOR").is_empty();
        Self(Arc::new(Inner { is_styled, is_watched, log, state: Mutex::default() }))
    }

    /// From now on notices stand above an open prompt.
    pub(super) fn print_with(&self, printer: Printer) {
        self.state().printer = Some(printer);
    }

    /// Whether somebody looks at it while it grows.
    pub(super) fn is_watched(&self) -> bool {
        self.0.is_watched
    }

    /// A line, or several.
    pub(crate) fn line(&self, text: &str) {
        let text = printable(text);
        self.write(&format!("{text}\n"));
        self.keep("printed", &text);
    }

    /// What went wrong, and what to do next.
    pub(crate) fn trouble(&self, text: &str) {
        self.line(&format!("❌ {text}"));
    }

    /// A line about something that happens by itself: it may come while a line is being typed.
    pub(crate) fn notice(&self, text: &str) {
        let text = printable(text);
        let mut state = self.state();
        let printed = state.printer.as_mut().map(|printer| printer.print(format!("{text}\n")));
        drop(state);
        if !matches!(printed, Some(Ok(()))) {
            self.write(&format!("{text}\n"));
        }
        self.keep("printed", &text);
    }

    /// How far something has come, for whoever looks on: in a pipe it isn't said.
    pub(super) fn aside(&self, text: &str) {
        if !self.0.is_watched {
            return;
        }
        let text = printable(text);
        self.write(&match self.0.is_styled {
            true => format!("\x1b[2m  · {text}\x1b[0m\n"),
            false => format!("  · {text}\n"),
        });
    }

    /// A piece of a text that comes bit by bit.
    pub(super) fn piece(&self, text: &str) {
        let text = printable(text);
        self.write(&text);
        self.state().open.push_str(&text);
    }

    /// Ends a text that came bit by bit.
    pub(super) fn end_pieces(&self) {
        let open = std::mem::take(&mut self.state().open);
        if !open.is_empty() {
            self.write(if open.ends_with('\n') { "" } else { "\n" });
            self.keep("printed", open.trim_end_matches('\n'));
        }
    }

    /// Keeps what was typed.
    pub(super) fn typed(&self, line: &str) {
        self.keep("typed", line);
    }

    /// Why nothing can be printed any more. Whoever closed the pipe has what they wanted.
    pub(super) fn failed(&self) -> Option<io::Error> {
        self.state().failed.take()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().failed.is_some()
    }

    fn write(&self, text: &str) {
        let mut out = stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
            && error.kind() != ErrorKind::BrokenPipe
        {
            self.state().failed = Some(error);
        }
    }

    fn keep(&self, what: &str, text: &str) {
        if let Some(log) = &self.0.log
            && let Err(error) = log.keep(what, text)
        {
            // Never the text.
            tracing::warn!(%error, "the log of the REPL can't be written");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
