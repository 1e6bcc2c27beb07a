//! Lines that are typed, with their completion, signals, and questions that are put to whoever types.

use std::io::{self, BufRead, IsTerminal, Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use callboard_message::{ElicitAnswer, Elicitation, Question};
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

use super::command::{LINE_BYTES_MAX, is_command, names as commands};
use super::print::Screen;
use crate::form::{self, CANCEL, DECLINE};

/// How many lines are remembered.
const HISTORY_LINES_MAX: usize = 1_000;

/// What came of waiting for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Got {
    /// One, without its end.
    Line(String),
    /// Ctrl-C, or its signal: it was given up.
    GivenUp,
    /// Nothing more will come.
    End,
}

/// A line that is wanted.
struct Wish {
    prompt: String,
    /// Commands and texts are remembered; answers may be secrets.
    is_remembered: bool,
    got: oneshot::Sender<Got>,
}

/// Whoever types.
pub(super) struct Input {
    wishes: mpsc::Sender<Wish>,
    /// A line that was waited for until something else happened.
    waiting: Option<oneshot::Receiver<Got>>,
    /// Somebody sits there.
    pub(super) is_terminal: bool,
    /// How the terminal was: a line that is still edited when all ends has changed it.
    before: Option<Termios>,
    screen: Screen,
    pub(super) completion: Completion,
    pub(super) signals: Signals,
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = tcsetattr(stdin(), OptionalActions::Now, before)
        {
            tracing::debug!(%error, "the terminal isn't as it was");
        }
    }
}

impl Input {
    /// At a terminal lines can be edited, completed and found again; those typed before are in `history`.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn open(screen: &Screen, history: Option<PathBuf>) -> io::Result<Self> {
        let (is_terminal, before, completion) = (
            stdin().is_terminal(),
            tcgetattr(stdin()).ok(),
            Completion::default(),
        );
        let (wishes, wished) = mpsc::channel::<Wish>();
        let editor = is_terminal.then(|| editor(screen, completion.clone(), history.as_deref()));
        let mut editor = editor.transpose().map_err(io::Error::other)?;
        // A thread of its own, for a blocked read can't be given up.
        std::thread::Builder::new()
            .name("repl".to_owned())
            .spawn(move || {
                while let Ok(wish) = wished.recv() {
                    let line = match &mut editor {
                        Some(editor) => edited(editor, &wish, &history),
                        None => next(&mut stdin().lock()),
                    };
                    if wish.got.send(line).is_err() {
                        return;
                    }
                }
            })?;
        let signals = Signals::listen()?;
        Ok(Self {
            wishes,
            waiting: None,
            is_terminal,
            before,
            screen: screen.clone(),
            completion,
            signals,
        })
    }

    /// The next line, unless a signal comes first: the next call waits for the same line then.
    pub(super) async fn line(&mut self, prompt: &str, is_remembered: bool) -> Got {
        let waiting = match &mut self.waiting {
            Some(waiting) => waiting,
            None => {
                let (got, waiting) = oneshot::channel();
                let prompt = prompt.to_owned();
                if self
                    .wishes
                    .send(Wish {
                        prompt,
                        is_remembered,
                        got,
                    })
                    .is_err()
                {
                    return Got::End;
                }
                self.waiting.insert(waiting)
            }
        };
        let got = tokio::select! {
            got = waiting => got.unwrap_or(Got::End),
            said = self.signals.next() => return match said {
                Said::Interrupt => Got::GivenUp,
                Said::Terminate => Got::End,
            },
        };
        self.waiting = None;
        if let Got::Line(line) = &got {
            self.screen.keep("typed", line);
        }
        got
    }
}

fn editor(
    screen: &Screen,
    completion: Completion,
    history: Option<&Path>,
) -> rustyline::Result<Editor<Completion, FileHistory>> {
    let config = Config::builder()
        .edit_mode(EditMode::Emacs)
        .completion_type(CompletionType::List)
        .history_ignore_dups(true)?
        .max_history_size(HISTORY_LINES_MAX)?
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(completion));
    if let Some(history) = history {
        // None yet, as a rule.
        let _ = editor.load_history(history);
    }
    // A terminal that can't move its cursor has none: notices come between the lines then.
    if let Ok(printer) = editor.create_external_printer() {
        screen.print_with(Box::new(printer));
    }
    Ok(editor)
}

/// A line that is typed at a terminal, and remembered.
fn edited(
    editor: &mut Editor<Completion, FileHistory>,
    Wish {
        prompt,
        is_remembered,
        ..
    }: &Wish,
    history: &Option<PathBuf>,
) -> Got {
    match editor.readline(prompt) {
        Ok(line) => {
            let is_new = *is_remembered && editor.add_history_entry(&line).unwrap_or_default();
            if let Some(history) = history.as_ref().filter(|_| is_new)
                && let Err(error) = editor.append_history(history)
            {
                tracing::warn!(%error, "the lines typed can't be kept");
            }
            Got::Line(line)
        }
        Err(ReadlineError::Interrupted) => Got::GivenUp,
        Err(ReadlineError::Eof) => Got::End,
        Err(error) => {
            tracing::debug!(%error, "no more lines can be read");
            Got::End
        }
    }
}

/// A line that comes through a pipe. One that is too long is cut, so that it is told.
fn next(lines: &mut impl BufRead) -> Got {
    let mut line = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX)
        .unwrap_or(u64::MAX)
        .saturating_add(2);
    match lines.by_ref().take(most).read_until(b'\n', &mut line) {
        Ok(0) | Err(_) => return Got::End,
        Ok(_) => {}
    }
    if line.last() != Some(&b'\n') {
        // The rest of it is no line of its own.
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
    Got::Line(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Ctrl-C while no line is edited.
    Interrupt,
    /// The process is to end.
    Terminate,
}

/// Signals, heard from the beginning on. Within a tokio runtime only.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// It was said once, and stays.
    is_ending: bool,
}

impl Signals {
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

    /// What is said next. It may be given up and waited for again.
    pub(crate) async fn next(&mut self) -> Said {
        if self.is_ending {
            return Said::Terminate;
        }
        tokio::select! {
            Some(()) = self.interrupt.recv() => Said::Interrupt,
            Some(()) = self.terminate.recv() => {
                self.is_ending = true;
                Said::Terminate
            }
            // No signal will come any more.
            else => std::future::pending().await,
        }
    }
}

/// The prompt of an answer.
const PROMPT: &str = "> ";
const LATER: &str = ":later";

/// What came of a question.
#[derive(Debug)]
pub(super) enum Asked {
    Answered(ElicitAnswer),
    /// Nobody answers now.
    Later,
    /// What asked is no longer wanted.
    Interrupted,
}

impl Input {
    /// Puts a question and waits for what is typed. `can_wait`: the question can be left open.
    pub(super) async fn ask(&mut self, question: &Question, can_wait: bool) -> Asked {
        let Question::Elicit(form) = question else {
            return Asked::Later;
        };
        self.screen.line(&format!("❓ {}", form.message()));
        if self.is_terminal {
            let later = if can_wait {
                format!(", {LATER} leaves it open")
            } else {
                String::new()
            };
            let help = format!(
                "{DECLINE} says no, {CANCEL} answers nothing{later}, Ctrl-C cancels the task"
            );
            self.screen.aside(&help);
        }
        self.fill_in(form)
            .await
            .map_or_else(|asked| asked, Asked::Answered)
    }

    /// The next line that is an answer; `Err`: there is none.
    async fn answer(&mut self, prompt: &str) -> Result<String, Asked> {
        loop {
            return match self.line(prompt, false).await {
                Got::GivenUp => Err(Asked::Interrupted),
                Got::End => Err(Asked::Later),
                Got::Line(line) => match line.trim() {
                    DECLINE => Err(Asked::Answered(ElicitAnswer::decline())),
                    CANCEL => Err(Asked::Answered(ElicitAnswer::cancel())),
                    LATER => Err(Asked::Later),
                    // It would be taken for the answer.
                    line if is_command(line) => {
                        self.screen.trouble(&format!(
                            "Answer first, or type {CANCEL} or {LATER}: commands come after"
                        ));
                        continue;
                    }
                    line => Ok(line.to_owned()),
                },
            };
        }
    }

    /// What is typed in each field; `Err`: it isn't filled in.
    async fn fill_in(&mut self, form: &Elicitation) -> Result<ElicitAnswer, Asked> {
        if let Some(address) = form.address() {
            self.screen
                .line(&format!("Visit {address} yourself, then press Enter."));
            self.answer(PROMPT).await?;
            return Ok(ElicitAnswer::agree());
        }
        let line = async |prompt: String, fields: usize| {
            let (above, last) = prompt.rsplit_once('\n').unwrap_or(("", &prompt));
            if !above.is_empty() {
                self.screen.line(above);
            }
            // The only one is what the question is about: it needs no title.
            self.answer(if fields > 1 { last } else { PROMPT }).await
        };
        form::fill_in(form, true, line).await
    }
}

/// What can be named.
#[derive(Debug, Default, Clone)]
pub(super) struct Names {
    pub(super) tools: Vec<String>,
    /// Addresses of agents that are known.
    pub(super) agents: Vec<String>,
    /// Tasks of this session, and what was sent to others.
    pub(super) tasks: Vec<String>,
}

/// The names of the moment. Its clones are one.
#[derive(Clone, Default)]
pub(super) struct Completion(Arc<Mutex<Names>>);

impl Completion {
    /// From now on these can be named.
    pub(super) fn set(&self, names: Names) {
        *self.0.lock() = names;
    }
}

/// Where the word begins that is being typed, and what it could be.
fn completions(line: &str, names: &Names) -> (usize, Vec<String>) {
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

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let names = self.0.lock();
        Ok(completions(line.get(..at).unwrap_or_default(), &names))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::super::command::{Mistake, read};
    use super::*;

    /// Goal: a pipe is read line by line, and no line takes all memory. Method: ends of both kinds, one line at the bound and
    /// one over it, the last without an end.
    #[test]
    fn a_pipe_is_read_by_lines() {
        let (fits, too_long) = ("x".repeat(LINE_BYTES_MAX), "y".repeat(3 * LINE_BYTES_MAX));
        let text = format!("a\r\n\n{fits}\n{too_long}\nb");
        let mut lines = text.as_bytes();
        let mut line = || match next(&mut lines) {
            Got::Line(line) => line,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (line(), line(), line()),
            ("a".to_owned(), String::new(), fits)
        );
        assert_eq!(read(&line()), Err(Mistake::TooLong));
        assert_eq!(line(), "b");
        assert_eq!(next(&mut lines), Got::End);
    }

    /// Goal: commands and what they name are completed, texts are not. Method: rows.
    #[test]
    fn words_are_completed() {
        let names = Names {
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
            assert_eq!(completions(line, &names), (at, words), "{line}");
        }
    }
}
