//! The person at the terminal, as the caller: told on standard error, asked on standard input, also to fill in forms.

use std::io::{self, BufRead, IsTerminal, Write, stdin};
use std::sync::Arc;

use callboard_message::capabilities::CallerCapabilities;
use callboard_message::{
    Answer, Elicitation, ElicitationAction, ElicitationAnswer, Failure, LogMessage, Principal,
    Progress, Question, RawObject, Root, RootsAnswer, SamplingAnswer, SamplingRequest, Speaker,
};
use callboard_runtime::{AgentRef, CallContext, Caller};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use crate::cli::output;
use crate::form::{CANCEL_COMMAND, DECLINE_COMMAND, fill_in};
use crate::text::{format_progress, strip_control_chars};

/// Returns whether questions go to the person at the terminal: with `--ask`, or if standard input is
/// a terminal and the output isn't JSON.
pub(in crate::cli) fn should_ask(wanted: bool, json: bool) -> bool {
    wanted || !json && stdin().is_terminal()
}

/// Sends the message `name` with `body` to an agent as the local operator, and waits for the reply
/// until `deadline`. Dropping the future cancels the call.
pub(in crate::cli) async fn ask_until(
    agent: &AgentRef,
    name: &str,
    body: &RawObject,
    caller: Option<Arc<dyn Caller>>,
    deadline: Instant,
) -> Result<Box<RawValue>, Failure> {
    let call = CallContext::new(Arc::new(Principal::local_operator())).with_deadline(deadline);
    let call = CallContext { caller, ..call };
    let _gone = call.cancel.clone().drop_guard();
    agent
        .ask_named(name, body.to_raw(), Some(Arc::new(call)))
        .await
}

/// Caller of a command: a person, if there is one, and the roots given by `--root`.
pub(in crate::cli) struct TerminalCaller {
    can_ask: bool,
    /// Whether progress is printed.
    shows_progress: bool,
    roots: Vec<Root>,
    /// Serialises questions: one at a time is shown.
    question_lock: Mutex<()>,
}

impl TerminalCaller {
    pub(in crate::cli) fn new(can_ask: bool, shows_progress: bool, roots: Vec<Root>) -> Self {
        Self {
            can_ask,
            shows_progress,
            roots,
            question_lock: Mutex::new(()),
        }
    }

    /// Asks for each field of a form. `Err` has the answer to give if the form isn't completed:
    /// decline or cancel.
    async fn fill_in(&self, form: &Elicitation) -> Result<ElicitationAnswer, ElicitationAnswer> {
        output::print_note(format_args!("The server asks: {}", form.message()));
        if let Some(address) = form.target_url() {
            output::print_note(format_args!(
                "Visit {address} yourself, then press Enter ({DECLINE_COMMAND}, {CANCEL_COMMAND})."
            ));
            return read_typed_line("> ")
                .await
                .map(|_| ElicitationAnswer::agree());
        }
        output::print_note(format_args!(
            "(Enter takes what stands in brackets; {DECLINE_COMMAND} says no, {CANCEL_COMMAND} closes the form.)"
        ));
        let line = async |prompt: String, fields: usize| {
            read_typed_line(if fields == 0 {
                "Press Enter to agree: "
            } else {
                &prompt
            })
            .await
        };
        fill_in(form, false, line).await
    }

    async fn write_sample(&self, sample: &SamplingRequest) -> Result<SamplingAnswer, Failure> {
        output::print_note(
            "The server asks for what a language model would write. You may write it.",
        );
        if let Some(prompt) = sample.0.text("systemPrompt") {
            output::print_note(format_args!("  system: {prompt}"));
        }
        for (speaker, text) in sample.texts() {
            output::print_note(format_args!(
                "  {}: {text}",
                if speaker == Speaker::User {
                    "user"
                } else {
                    "assistant"
                }
            ));
        }
        output::print_note(format_args!(
            "(An empty line ends it; {DECLINE_COMMAND} says no.)"
        ));
        let mut text = String::new();
        loop {
            match read_typed_line("> ").await {
                Ok(line) if line.is_empty() => break,
                Ok(line) => {
                    text.push_str(if text.is_empty() { "" } else { "\n" });
                    text.push_str(&line);
                }
                Err(refusal)
                    if refusal.action() == ElicitationAction::Cancel && !text.is_empty() =>
                {
                    break;
                }
                Err(_) => return Err(Failure::rejected("the person at the terminal declined")),
            }
        }
        Ok(SamplingAnswer::text("a person", text, Some("endTurn")))
    }
}

impl Caller for TerminalCaller {
    fn progress(&self, progress: Progress) {
        if self.shows_progress {
            output::print_progress(format_progress(&progress));
        }
    }

    fn log(&self, line: LogMessage) {
        let level = format!("{:?}", line.level()).to_lowercase();
        let data = line
            .0
            .text("data")
            .or_else(|| line.0.get("data").map(|raw| raw.get().to_owned()));
        output::print_progress(format_args!("{level}: {}", data.unwrap_or_default()));
    }

    fn capabilities(&self) -> CallerCapabilities {
        let mut can = RawObject::new();
        if self.can_ask {
            can.set("sampling", RawObject::new());
            can.set(
                "elicitation",
                RawObject::single("form", RawObject::new()).with("url", RawObject::new()),
            );
        }
        if !self.roots.is_empty() {
            can.set("roots", RawObject::new());
        }
        CallerCapabilities(can)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if let Question::Roots(_) = question {
                return match self.roots.is_empty() {
                    true => Err(no_responder()),
                    false => Ok(Answer::Roots(RootsAnswer::from_roots(self.roots.clone()))),
                };
            }
            if !self.can_ask {
                // What is asked may hold the answer, which only has to be confirmed.
                if let Question::Elicit(form) = &question {
                    output::print_note(format_args!(
                        "Nobody is at the terminal to be asked: {}",
                        form.message()
                    ));
                }
                return Err(no_responder());
            }
            let _turn = self.question_lock.lock().await;
            match question {
                Question::Elicit(form) => Ok(Answer::Elicit(
                    self.fill_in(&form).await.unwrap_or_else(|refusal| refusal),
                )),
                Question::Sample(sample) => self.write_sample(&sample).await.map(Answer::Sample),
                _ => Err(no_responder()),
            }
        })
    }
}

fn no_responder() -> Failure {
    Failure::no_responder("nobody is at the terminal to be asked")
}

/// Reads a line on its own thread, because a blocked read can't be cancelled.
///
/// # Errors
/// The answer to give instead: decline or cancel by command, cancel at the end of input.
pub(in crate::cli) async fn read_typed_line(prompt: &str) -> Result<String, ElicitationAnswer> {
    let prompt = strip_control_chars(prompt);
    let (sender, line) = oneshot::channel();
    std::thread::spawn(move || {
        let mut out = io::stderr().lock();
        let _ = write!(out, "{prompt}").and_then(|()| out.flush());
        drop(out);
        let mut line = String::new();
        let read = stdin().lock().read_line(&mut line);
        drop(sender.send(read.is_ok_and(|bytes| bytes > 0).then_some(line)));
    });
    let line = line
        .await
        .ok()
        .flatten()
        .ok_or_else(ElicitationAnswer::cancel)?;
    match line.trim_end_matches(['\r', '\n']) {
        DECLINE_COMMAND => Err(ElicitationAnswer::decline()),
        CANCEL_COMMAND => Err(ElicitationAnswer::cancel()),
        line => Ok(line.to_owned()),
    }
}
