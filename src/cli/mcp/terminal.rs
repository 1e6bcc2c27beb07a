//! The person at the terminal, as the caller: told on standard error, asked on standard input, also to fill in forms.

use std::io::{self, BufRead, IsTerminal, Write, stdin};
use std::sync::Arc;

use callboard_message::surface::Abilities;
use callboard_message::{
    Answer, ElicitAction, ElicitAnswer, Elicitation, Failure, Log, Principal, Progress, Question,
    RawObject, Root, RootsAnswer, Sample, SampleAnswer, Speaker,
};
use callboard_runtime::{AgentRef, CallMeta, Caller};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use crate::cli::show;
use crate::form::{CANCEL, DECLINE, fill_in};
use crate::text::{printable, told_progress};

/// Whether the person at the terminal is asked: where that is wanted, or both sides of the command are people's.
pub(in crate::cli) fn asks(wanted: bool, json: bool) -> bool {
    wanted || !json && stdin().is_terminal()
}

/// Asks an agent by name as the local operator, until `deadline`. Dropped, it takes the call back.
pub(in crate::cli) async fn ask_named(
    agent: &AgentRef,
    name: &str,
    body: &RawObject,
    caller: Option<Arc<dyn Caller>>,
    deadline: Instant,
) -> Result<Box<RawValue>, Failure> {
    let call = CallMeta::new(Arc::new(Principal::local_operator())).until(deadline);
    let call = CallMeta { caller, ..call };
    let _gone = call.cancel.clone().drop_guard();
    agent
        .ask_named(name, body.to_raw(), Some(Arc::new(call)))
        .await
}

/// The person, if there is one, and the folders that they lend.
pub(in crate::cli) struct Terminal {
    asks: bool,
    /// Progress is shown as it comes.
    watches: bool,
    roots: Vec<Root>,
    /// One question at a time.
    turn: Mutex<()>,
}

impl Terminal {
    pub(in crate::cli) fn new(asks: bool, watches: bool, roots: Vec<Root>) -> Self {
        Self {
            asks,
            watches,
            roots,
            turn: Mutex::new(()),
        }
    }

    /// What is typed in each field; `Err`: it isn't filled in.
    async fn fill_in(&self, form: &Elicitation) -> Result<ElicitAnswer, ElicitAnswer> {
        show::aside(format_args!("The server asks: {}", form.message()));
        if let Some(address) = form.address() {
            show::aside(format_args!(
                "Visit {address} yourself, then press Enter ({DECLINE}, {CANCEL})."
            ));
            return typed("> ").await.map(|_| ElicitAnswer::agree());
        }
        show::aside(format_args!(
            "(Enter takes what stands in brackets; {DECLINE} says no, {CANCEL} closes the form.)"
        ));
        let line = async |prompt: String, fields: usize| {
            typed(if fields == 0 {
                "Press Enter to agree: "
            } else {
                &prompt
            })
            .await
        };
        fill_in(form, false, line).await
    }

    async fn write(&self, sample: &Sample) -> Result<SampleAnswer, Failure> {
        show::aside("The server asks for what a language model would write. You may write it.");
        if let Some(prompt) = sample.0.text("systemPrompt") {
            show::aside(format_args!("  system: {prompt}"));
        }
        for (speaker, text) in sample.texts() {
            show::aside(format_args!(
                "  {}: {text}",
                if speaker == Speaker::User {
                    "user"
                } else {
                    "assistant"
                }
            ));
        }
        show::aside(format_args!("(An empty line ends it; {DECLINE} says no.)"));
        let mut text = String::new();
        loop {
            match typed("> ").await {
                Ok(line) if line.is_empty() => break,
                Ok(line) => {
                    text.push_str(if text.is_empty() { "" } else { "\n" });
                    text.push_str(&line);
                }
                Err(refusal) if refusal.action() == ElicitAction::Cancel && !text.is_empty() => {
                    break;
                }
                Err(_) => return Err(Failure::rejected("the person at the terminal declined")),
            }
        }
        Ok(SampleAnswer::text("a person", text, Some("endTurn")))
    }
}

impl Caller for Terminal {
    fn progress(&self, progress: Progress) {
        if self.watches {
            show::progress(told_progress(&progress));
        }
    }

    fn log(&self, line: Log) {
        let level = format!("{:?}", line.level()).to_lowercase();
        let data = line
            .0
            .text("data")
            .or_else(|| line.0.get("data").map(|raw| raw.get().to_owned()));
        show::progress(format_args!("{level}: {}", data.unwrap_or_default()));
    }

    fn abilities(&self) -> Abilities {
        let mut can = RawObject::new();
        if self.asks {
            can.set("sampling", RawObject::new());
            can.set(
                "elicitation",
                RawObject::of("form", RawObject::new()).with("url", RawObject::new()),
            );
        }
        if !self.roots.is_empty() {
            can.set("roots", RawObject::new());
        }
        Abilities(can)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if let Question::Roots(_) = question {
                return match self.roots.is_empty() {
                    true => Err(nobody()),
                    false => Ok(Answer::Roots(RootsAnswer::of(self.roots.clone()))),
                };
            }
            if !self.asks {
                // What is asked may hold the answer, which only has to be confirmed.
                if let Question::Elicit(form) = &question {
                    show::aside(format_args!(
                        "Nobody is at the terminal to be asked: {}",
                        form.message()
                    ));
                }
                return Err(nobody());
            }
            let _turn = self.turn.lock().await;
            match question {
                Question::Elicit(form) => Ok(Answer::Elicit(
                    self.fill_in(&form).await.unwrap_or_else(|refusal| refusal),
                )),
                Question::Sample(sample) => self.write(&sample).await.map(Answer::Sample),
                _ => Err(nobody()),
            }
        })
    }
}

fn nobody() -> Failure {
    Failure::nobody_to_ask("nobody is at the terminal to be asked")
}

/// Reads a line; `Err`: it is a word in place of an answer, or nothing more can be read. On a thread of its own, for a
/// blocked read can't be given up.
async fn typed(prompt: &str) -> Result<String, ElicitAnswer> {
    let prompt = printable(prompt);
    let (sender, line) = oneshot::channel();
    std::thread::spawn(move || {
        let mut out = io::stderr().lock();
        let _ = write!(out, "{prompt}").and_then(|()| out.flush());
        drop(out);
        let mut line = String::new();
        let read = stdin().lock().read_line(&mut line);
        drop(sender.send(read.is_ok_and(|bytes| bytes > 0).then_some(line)));
    });
    let line = line.await.ok().flatten().ok_or_else(ElicitAnswer::cancel)?;
    match line.trim_end_matches(['\r', '\n']) {
        DECLINE => Err(ElicitAnswer::decline()),
        CANCEL => Err(ElicitAnswer::cancel()),
        line => Ok(line.to_owned()),
    }
}
