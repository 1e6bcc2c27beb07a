//! A question in the midst of something, put to whoever types.

use callboard_message::{Answer, ElicitAnswer, Elicitation, Question};

use super::command::is_command;
use super::input::{Got, Input, Said, Signals};
use super::print::Screen;
use crate::cli::{CANCEL, DECLINE, Form};

/// The prompt of an answer.
const PROMPT: &str = "> ";
const LATER: &str = ":later";

/// What came of a question.
#[derive(Debug)]
pub(super) enum Asked {
    Answered(Answer),
    /// Nobody answers now.
    Later,
    /// What asked is no longer wanted.
    Interrupted,
}

/// Puts a question and waits for what is typed. `can_wait`: the question can be left open.
pub(super) async fn ask(
    question: &Question,
    can_wait: bool,
    input: &mut Input,
    screen: &Screen,
    signals: &mut Signals,
) -> Asked {
    let Question::Elicit(form) = question else { return Asked::Later };
    screen.line(&format!("❓ {}", form.message()));
    if input.is_terminal() {
        let later = if can_wait { format!(", {LATER} leaves it open") } else { String::new() };
        screen.aside(&format!("{DECLINE} says no, {CANCEL} answers nothing{later}, Ctrl-C cancels the task"));
    }
    let mut asking = Asking { input, screen, signals };
    asking.fill_in(form).await.map_or_else(|asked| asked, Asked::of)
}

impl Asked {
    fn of(answer: ElicitAnswer) -> Self {
        Self::Answered(Answer::Elicit(answer))
    }
}

struct Asking<'a> {
    input: &'a mut Input,
    screen: &'a Screen,
    signals: &'a mut Signals,
}

impl Asking<'_> {
    /// The next line that is an answer; `Err`: there is none.
    async fn line(&mut self, prompt: &str) -> Result<String, Asked> {
        loop {
            let got = tokio::select! {
                got = self.input.line(prompt, false) => got,
                said = self.signals.next() => return Err(match said {
                    Said::Interrupt => Asked::Interrupted,
                    Said::Terminate => Asked::Later,
                }),
            };
            return match got {
                Got::GivenUp => Err(Asked::Interrupted),
                Got::End => Err(Asked::Later),
                Got::Line(line) => match line.trim() {
                    DECLINE => Err(Asked::of(ElicitAnswer::decline())),
                    CANCEL => Err(Asked::of(ElicitAnswer::cancel())),
                    LATER => Err(Asked::Later),
                    // It would be taken for the answer.
                    line if is_command(line) => {
                        self.screen.trouble(&format!("Answer first, or type {CANCEL} or {LATER}: commands come after"));
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
            self.screen.line(&format!("Visit {address} yourself, then press Enter."));
            self.line(PROMPT).await?;
            return Ok(ElicitAnswer::agree());
        }
        let mut form = Form::read(form, true);
        while let Some(prompt) = form.prompt() {
            let (above, last) = prompt.rsplit_once('\n').unwrap_or(("", &prompt));
            if !above.is_empty() {
                self.screen.line(above);
            }
            // The only one is what the question is about: it needs no title.
            let line = self.line(if form.len() == 1 { PROMPT } else { last }).await?;
            if let Err(why) = form.fill(&line) {
                self.screen.line(&format!("  {why}"));
            }
        }
        if form.len() == 0 {
            self.line(PROMPT).await?;
        }
        Ok(form.answer())
    }
}
