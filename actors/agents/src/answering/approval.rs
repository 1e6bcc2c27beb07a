//! A person's leave before anyone but the client answers.

use callboard_message::{Answer, ElicitAction, Elicitation, Failure, Question, Sample};
use serde_json::json;

use super::asker::{Asker, nobody};

/// Most characters of what a server asks that a person is shown.
const SHOWN_CHARS_MAX: usize = 500;

impl Asker {
    /// Asks the person at the client whether a model may answer.
    ///
    /// # Errors
    /// `Rejected` where they said no; `NobodyToAsk` where there is nobody who could say.
    pub(super) async fn approve(&self, sample: &Sample) -> Result<(), Failure> {
        let client = self.client.as_ref().ok_or_else(nobody)?;
        if !client.abilities().elicitation_form() {
            return Err(Failure::nobody_to_ask("nobody is there to let a model answer"));
        }
        let schema = json!({
            "type": "object",
            "properties": {
                "allow": { "type": "boolean", "title": "Let a model answer", "default": false }
            },
            "required": ["allow"]
        });
        let message = format!("Server \"{}\" asks a model: \u{201c}{}\u{201d}", self.source, shown(sample));
        match client.ask(Question::Elicit(Elicitation::form(message, schema))).await? {
            Answer::Elicit(answer)
                if answer.action() == ElicitAction::Accept
                    && answer.content().is_some_and(|content| content["allow"] == true) =>
            {
                Ok(())
            }
            _ => Err(Failure::rejected("the person at the client doesn't let a model answer")),
        }
    }
}

/// The last turn of the conversation, on one line.
fn shown(sample: &Sample) -> String {
    let last = sample.texts().pop().map(|(_, text)| text).unwrap_or_default();
    let line: String = last.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS_MAX + 1).collect();
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a person sees a bounded line. Method: a text of the limit, of one character more, with line ends.
    #[test]
    fn what_is_shown_is_bounded() {
        let of = |text: &str| shown(&Sample::prompt(text, 1));
        assert_eq!(of("a\nb"), "a b");
        assert_eq!(of(&"é".repeat(SHOWN_CHARS_MAX)), "é".repeat(SHOWN_CHARS_MAX));
        assert_eq!(of(&"é".repeat(SHOWN_CHARS_MAX + 1)), format!("{}…", "é".repeat(SHOWN_CHARS_MAX)));
        assert_eq!(shown(&Sample::default()), "");
    }
}
