//! Input of the REPL: typed lines with completion, signals, and answers to questions.

use std::io::{self, BufRead, IsTerminal, Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use callboard_message::{Elicitation, ElicitationAnswer, Question};
use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, EditMode, Editor, Helper};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::command::{LINE_BYTES_MAX, command_names as commands, is_command};
use super::print::Screen;
use crate::form::{self, CANCEL_COMMAND, DECLINE_COMMAND};

/// Maximum number of lines in the history.
const HISTORY_LINES_MAX: usize = 1_000;

/// Outcome of waiting for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineEvent {
    /// A line without its line break.
    Line(String),
    /// The user pressed Ctrl-C, or the process got SIGINT. The line is discarded.
    Interrupted,
    /// The input has ended.
    EndOfInput,
}

/// Request for one line, sent to the thread that reads input.
struct ReadRequest {
    prompt: String,
    /// Whether the line goes to the history. Answers don't, because they may be secrets.
    is_remembered: bool,
    reply: oneshot::Sender<LineEvent>,
}

/// Source of typed lines: a terminal or a pipe.
pub(super) struct LineInput {
    requests: mpsc::Sender<ReadRequest>,
    /// A line that was requested but not received yet, because a signal came first.
    pending_read: Option<oneshot::Receiver<LineEvent>>,
    /// Whether input is a terminal.
    pub(super) is_terminal: bool,
    /// Terminal settings at the start. They are restored at the end, because editing changes them.
    saved_termios: Option<Termios>,
    screen: Screen,
    pub(super) completion: NameCompleter,
    pub(super) signals: ProcessSignals,
}

impl Drop for LineInput {
    fn drop(&mut self) {
        if let Some(before) = &self.saved_termios
            && let Err(error) = tcsetattr(stdin(), OptionalActions::Now, before)
        {
            tracing::debug!(%error, "failed to restore the terminal settings");
        }
    }
}

impl LineInput {
    /// Opens standard input. A terminal gets line editing, completion and search in the file
    /// `history`.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn open(screen: &Screen, history: Option<PathBuf>) -> io::Result<Self> {
        let (is_terminal, before, completion) = (
            stdin().is_terminal(),
            tcgetattr(stdin()).ok(),
            NameCompleter::default(),
        );
        let (wishes, wished) = mpsc::channel::<ReadRequest>();
        let editor =
            is_terminal.then(|| line_editor(screen, completion.clone(), history.as_deref()));
        let mut editor = editor.transpose().map_err(io::Error::other)?;
        // Reading has a thread of its own, because a blocked read can't be cancelled.
        std::thread::Builder::new()
            .name("repl".to_owned())
            .spawn(move || {
                while let Ok(wish) = wished.recv() {
                    let line = match &mut editor {
                        Some(editor) => read_edited_line(editor, &wish, &history),
                        None => read_piped_line(&mut stdin().lock()),
                    };
                    if wish.reply.send(line).is_err() {
                        return;
                    }
                }
            })?;
        let signals = ProcessSignals::listen()?;
        Ok(Self {
            requests: wishes,
            pending_read: None,
            is_terminal,
            saved_termios: before,
            screen: screen.clone(),
            completion,
            signals,
        })
    }

    /// Reads the next line. If a signal comes first, the next call waits for the same line.
    pub(super) async fn read_line(&mut self, prompt: &str, is_remembered: bool) -> LineEvent {
        let waiting = match &mut self.pending_read {
            Some(waiting) => waiting,
            None => {
                let (got, waiting) = oneshot::channel();
                let prompt = prompt.to_owned();
                if self
                    .requests
                    .send(ReadRequest {
                        prompt,
                        is_remembered,
                        reply: got,
                    })
                    .is_err()
                {
                    return LineEvent::EndOfInput;
                }
                self.pending_read.insert(waiting)
            }
        };
        let got = tokio::select! {
            got = waiting => got.unwrap_or(LineEvent::EndOfInput),
            said = self.signals.next_signal() => return match said {
                SignalEvent::Interrupt => LineEvent::Interrupted,
                SignalEvent::Terminate => LineEvent::EndOfInput,
            },
        };
        self.pending_read = None;
        if let LineEvent::Line(line) = &got {
            self.screen.log_line("typed", line);
        }
        got
    }
}

fn line_editor(
    screen: &Screen,
    completion: NameCompleter,
    history: Option<&Path>,
) -> rustyline::Result<Editor<NameCompleter, FileHistory>> {
    let config = Config::builder()
        .edit_mode(EditMode::Emacs)
        .completion_type(CompletionType::List)
        .history_ignore_dups(true)?
        .max_history_size(HISTORY_LINES_MAX)?
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(completion));
    if let Some(history) = history {
        // The file usually doesn't exist yet.
        let _ = editor.load_history(history);
    }
    // Without cursor movement there is no external printer: notices are printed between the lines
    // then.
    if let Ok(printer) = editor.create_external_printer() {
        screen.set_prompt_printer(Box::new(printer));
    }
    Ok(editor)
}

/// Reads an edited line from the terminal and adds it to the history if wanted.
fn read_edited_line(
    editor: &mut Editor<NameCompleter, FileHistory>,
    ReadRequest {
        prompt,
        is_remembered,
        ..
    }: &ReadRequest,
    history: &Option<PathBuf>,
) -> LineEvent {
    match editor.readline(prompt) {
        Ok(line) => {
            let is_new = *is_remembered && editor.add_history_entry(&line).unwrap_or_default();
            if let Some(history) = history.as_ref().filter(|_| is_new)
                && let Err(error) = editor.append_history(history)
            {
                tracing::warn!(%error, "failed to append to the line history");
            }
            LineEvent::Line(line)
        }
        Err(ReadlineError::Interrupted) => LineEvent::Interrupted,
        Err(ReadlineError::Eof) => LineEvent::EndOfInput,
        Err(error) => {
            tracing::debug!(%error, "failed to read from the terminal");
            LineEvent::EndOfInput
        }
    }
}

/// Reads a line from a pipe. A line that is too long is cut beyond the limit, so that the parser
/// reports it.
fn read_piped_line(lines: &mut impl BufRead) -> LineEvent {
    let mut line = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX)
        .unwrap_or(u64::MAX)
        .saturating_add(2);
    match lines.by_ref().take(most).read_until(b'\n', &mut line) {
        Ok(0) | Err(_) => return LineEvent::EndOfInput,
        Ok(_) => {}
    }
    if line.last() != Some(&b'\n') {
        // Skips the rest of the line.
        while let Ok(rest @ [_, ..]) = lines.fill_buf() {
            let (used, is_end) = match rest.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (rest.len(), false),
            };
            lines.consume(used);
            if is_end {
                break;
            }
        }
    }
    let line = String::from_utf8_lossy(&line);
    LineEvent::Line(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Signal to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalEvent {
    /// SIGINT, or Ctrl-C while no line is edited.
    Interrupt,
    /// SIGTERM: the process must end.
    Terminate,
}

/// Receiver of signals to the process since its creation. Needs a tokio runtime.
pub(crate) struct ProcessSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Whether a signal to end was received. It then stays set.
    is_ending: bool,
}

impl ProcessSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        Ok(Self {
            interrupt,
            terminate,
            is_ending: false,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(crate) async fn next_signal(&mut self) -> SignalEvent {
        if self.is_ending {
            return SignalEvent::Terminate;
        }
        tokio::select! {
            Some(()) = self.interrupt.recv() => SignalEvent::Interrupt,
            Some(()) = self.terminate.recv() => {
                self.is_ending = true;
                SignalEvent::Terminate
            }
            // No further signal can arrive.
            else => std::future::pending().await,
        }
    }
}

/// Prompt for an answer.
const ANSWER_PROMPT: &str = "> ";
const LATER_COMMAND: &str = ":later";

/// Outcome of a question to the user.
#[derive(Debug)]
pub(super) enum QuestionOutcome {
    Answered(ElicitationAnswer),
    /// The user leaves the question open.
    Postponed,
    /// The user interrupted the call that asked.
    Interrupted,
}

impl LineInput {
    /// Prints a question and reads the answer. With `can_wait` the user is told how to leave the
    /// question open. A question that isn't an elicitation stays open without being printed.
    pub(super) async fn ask_question(
        &mut self,
        question: &Question,
        can_wait: bool,
    ) -> QuestionOutcome {
        let Question::Elicit(form) = question else {
            return QuestionOutcome::Postponed;
        };
        self.screen.print_line(&format!("❓ {}", form.message()));
        if self.is_terminal {
            let later = if can_wait {
                format!(", {LATER_COMMAND} leaves it open")
            } else {
                String::new()
            };
            let help = format!(
                "{DECLINE_COMMAND} says no, {CANCEL_COMMAND} answers nothing{later}, Ctrl-C cancels the task"
            );
            self.screen.print_progress(&help);
        }
        self.fill_in(form)
            .await
            .map_or_else(|asked| asked, QuestionOutcome::Answered)
    }

    /// Reads one line of an answer; a command for the REPL is rejected and read again. `Err` has
    /// the outcome of the whole question if the user declines, cancels, postpones or interrupts it.
    async fn read_answer(&mut self, prompt: &str) -> Result<String, QuestionOutcome> {
        loop {
            return match self.read_line(prompt, false).await {
                LineEvent::Interrupted => Err(QuestionOutcome::Interrupted),
                LineEvent::EndOfInput => Err(QuestionOutcome::Postponed),
                LineEvent::Line(line) => match line.trim() {
                    DECLINE_COMMAND => Err(QuestionOutcome::Answered(ElicitationAnswer::decline())),
                    CANCEL_COMMAND => Err(QuestionOutcome::Answered(ElicitationAnswer::cancel())),
                    LATER_COMMAND => Err(QuestionOutcome::Postponed),
                    // A command here is a mistake: it would become the answer.
                    line if is_command(line) => {
                        self.screen.print_error(&format!("Answer first, or type {CANCEL_COMMAND} or {LATER_COMMAND}: commands come after"));
                        continue;
                    }
                    line => Ok(line.to_owned()),
                },
            };
        }
    }

    /// Asks for each field of a form, or to visit a URL. `Err` has the outcome if the form isn't
    /// completed.
    async fn fill_in(&mut self, form: &Elicitation) -> Result<ElicitationAnswer, QuestionOutcome> {
        if let Some(address) = form.target_url() {
            self.screen
                .print_line(&format!("Visit {address} yourself, then press Enter."));
            self.read_answer(ANSWER_PROMPT).await?;
            return Ok(ElicitationAnswer::agree());
        }
        let line = async |prompt: String, fields: usize| {
            let (above, last) = prompt.rsplit_once('\n').unwrap_or(("", &prompt));
            if !above.is_empty() {
                self.screen.print_line(above);
            }
            // A single field needs no title, because the question describes it.
            self.read_answer(if fields > 1 { last } else { ANSWER_PROMPT })
                .await
        };
        form::fill_in(form, true, line).await
    }
}

/// Names for completion.
#[derive(Debug, Default, Clone)]
pub(super) struct CompletionNames {
    pub(super) tools: Vec<String>,
    /// Addresses of known agents.
    pub(super) agents: Vec<String>,
    /// Ids of this session's tasks and of requests sent to other agents.
    pub(super) tasks: Vec<String>,
}

/// Completer with the current names. Clones share them.
#[derive(Clone, Default)]
pub(super) struct NameCompleter(Arc<Mutex<CompletionNames>>);

impl NameCompleter {
    /// Replaces the names.
    pub(super) fn set_names(&self, names: CompletionNames) {
        *self.0.lock() = names;
    }
}

/// Returns the position of the word being typed, and its completions.
fn completions_for(line: &str, names: &CompletionNames) -> (usize, Vec<String>) {
    let Some(typed) = line.strip_prefix(':') else {
        return (line.len(), Vec::new());
    };
    let Some((command, rest)) = typed.split_once(' ') else {
        let fits = |name: &&str| {
            name.get(..typed.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(typed))
        };
        return (
            0,
            commands()
                .filter(fits)
                .map(|name| format!(":{name}"))
                .collect(),
        );
    };
    if rest.contains(' ') {
        return (line.len(), Vec::new());
    }
    let (words, named): (&[&str], &[String]) = match command {
        "tool" => (&[], &names.tools),
        "connect" => (&[], &names.agents),
        "task" | "artifacts" | "cancelTask" | "answer" | "memoryTask" => (&[], &names.tasks),
        "session" => (&["new", "show"], &[]),
        "memory" => (&["clear"], &[]),
        "tasks" => (&["all"], &[]),
        "card" => (&["remote"], &[]),
        _ => (&[], &[]),
    };
    let words = words
        .iter()
        .copied()
        .chain(named.iter().map(String::as_str));
    (
        line.len() - rest.len(),
        words
            .filter(|word| word.starts_with(rest))
            .map(str::to_owned)
            .collect(),
    )
}

impl Completer for NameCompleter {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let names = self.0.lock();
        Ok(completions_for(line.get(..at).unwrap_or_default(), &names))
    }
}

impl Hinter for NameCompleter {
    type Hint = String;
}

impl Highlighter for NameCompleter {}

impl Validator for NameCompleter {}

impl Helper for NameCompleter {}

#[cfg(test)]
mod tests {
    use super::super::command::{CommandParseError, parse_line};
    use super::*;

    /// Goal: a pipe is read line by line, and no line takes all memory. Method: ends of both kinds, one line at the bound and
    /// one over it, the last without an end.
    #[test]
    fn a_pipe_is_read_by_lines() {
        let (fits, too_long) = ("x".repeat(LINE_BYTES_MAX), "y".repeat(3 * LINE_BYTES_MAX));
        let text = format!("a\r\n\n{fits}\n{too_long}\nb");
        let mut lines = text.as_bytes();
        let mut line = || match read_piped_line(&mut lines) {
            LineEvent::Line(line) => line,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (line(), line(), line()),
            ("a".to_owned(), String::new(), fits)
        );
        assert_eq!(parse_line(&line()), Err(CommandParseError::TooLong));
        assert_eq!(line(), "b");
        assert_eq!(read_piped_line(&mut lines), LineEvent::EndOfInput);
    }

    /// Goal: commands and what they name are completed, texts are not. Method: rows.
    #[test]
    fn words_are_completed() {
        let names = CompletionNames {
            tools: vec!["echo".into(), "list_agents".into()],
            agents: vec!["http://localhost:4201".into()],
            tasks: vec!["1234-abcd".into()],
        };
        for (line, at, words) in [
            (":", 0, commands().map(|name| format!(":{name}")).collect()),
            (
                ":mem",
                0,
                vec![":memory".to_owned(), ":memoryTask".to_owned()],
            ),
            (":CANCEL", 0, vec![":cancelTask".to_owned()]),
            (":tool l", 6, vec!["list_agents".to_owned()]),
            (":tool list_agents {", 19, vec![]),
            (":connect ", 9, vec!["http://localhost:4201".to_owned()]),
            (":memoryTask 12", 12, vec!["1234-abcd".to_owned()]),
            (":session s", 9, vec!["show".to_owned()]),
            (":remote l", 8, vec![]),
            ("list", 4, vec![]),
            ("ünï", 5, vec![]),
        ] {
            assert_eq!(completions_for(line, &names), (at, words), "{line}");
        }
    }
}
