//! A question in the midst of something, put to whoever types.

use callboard_message::{Answer, ElicitAnswer, Elicitation, Question};

use super::command::is_command;
use super::input::{Got, Input};
use super::print::Screen;
use super::signals::{Said, Signals};
use crate::cli::{Field, Filled};

/// The prompt of an answer.
const PROMPT: &str = "> ";
const DECLINE: &str = ":decline";
const CANCEL: &str = ":cancel";
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

/// What was typed in answer.
enum Typed {
    Line(String),
    Decline,
    Cancel,
    Later,
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
    match asking.fill_in(form).await {
        Ok(answer) => Asked::Answered(Answer::Elicit(answer)),
        Err(Typed::Decline) => Asked::Answered(Answer::Elicit(ElicitAnswer::decline())),
        Err(Typed::Cancel) => Asked::Answered(Answer::Elicit(ElicitAnswer::cancel())),
        Err(Typed::Interrupted) => Asked::Interrupted,
        Err(Typed::Later | Typed::Line(_)) => Asked::Later,
    }
}

struct Asking<'a> {
    input: &'a mut Input,
    screen: &'a Screen,
    signals: &'a mut Signals,
}

impl Asking<'_> {
    async fn typed(&mut self, prompt: &str) -> Typed {
        loop {
            let got = tokio::select! {
                got = self.input.line(prompt, false) => got,
                said = self.signals.next() => return match said {
                    Said::Interrupt => Typed::Interrupted,
                    Said::Terminate => Typed::Later,
                },
            };
            return match got {
                Got::GivenUp => Typed::Interrupted,
                Got::End => Typed::Later,
                Got::Line(line) => match line.trim() {
                    DECLINE => Typed::Decline,
                    CANCEL => Typed::Cancel,
                    LATER => Typed::Later,
                    // It would be taken for the answer.
                    line if is_command(line) => {
                        self.screen.trouble(&format!("Answer first, or type {CANCEL} or {LATER}: commands come after"));
                        continue;
                    }
                    line => Typed::Line(line.to_owned()),
                },
            };
        }
    }

    /// What is typed in each field; `Err`: it isn't filled in.
    async fn fill_in(&mut self, form: &Elicitation) -> Result<ElicitAnswer, Typed> {
        if let Some(address) = form.address() {
            self.screen.line(&format!("Visit {address} yourself, then press Enter."));
            self.line(PROMPT).await?;
            return Ok(ElicitAnswer::agree());
        }
        let schema = form.0.object("requestedSchema").unwrap_or_default();
        let fields = schema.object("properties").unwrap_or_default();
        let required: Vec<String> = schema.read("required").unwrap_or_default();
        let mut content = serde_json::Map::new();
        for (name, field) in fields.iter() {
            // The only one is what the question is about: it needs no title.
            let is_alone = fields.len() == 1;
            let field = Field::read(name, field, is_alone || required.iter().any(|needed| needed == name));
            loop {
                let prompt = field.prompt();
                let (above, last) = prompt.rsplit_once('\n').unwrap_or(("", &prompt));
                if !above.is_empty() {
                    self.screen.line(above);
                }
                let line = self.line(if is_alone { PROMPT } else { last }).await?;
                match field.fill(&line) {
                    Ok(Filled::With(value)) => drop(content.insert(name.to_owned(), value)),
                    Ok(Filled::LeftOut) => {}
                    Err(why) => {
                        self.screen.line(&format!("  {why}"));
                        continue;
                    }
                }
                break;
            }
        }
        if fields.is_empty() {
            self.line(PROMPT).await?;
        }
        Ok(ElicitAnswer::accept(content.into()))
    }

    async fn line(&mut self, prompt: &str) -> Result<String, Typed> {
        match self.typed(prompt).await {
            Typed::Line(line) => Ok(line),
            other => Err(other),
        }
    }
}
