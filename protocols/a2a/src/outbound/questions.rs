//! What a paused task wants, as a question of the call; and the answer, as a message.

use callboard_message::{Answer, ElicitAction, Elicitation, Failure, Question, RawObject};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::story::Story;
use crate::convert::QUESTION;
use crate::wire::{Message, Part, PartContent, Role};

/// What is asked where the agent says nothing.
const NEEDS_INPUT: &str = "The agent needs to know more to go on.";
const NEEDS_CREDENTIAL: &str = "The agent needs you to sign in to go on.";
/// The one field of a question that is no form.
const TEXT: &str = "text";

/// A question of a remote agent's.
pub(super) struct Asked {
    pub(super) question: Question,
    /// It asks as a call does, for it is a callboard; else in words.
    is_call: bool,
    /// Its name for the question.
    key: Option<String>,
}

impl Asked {
    /// What a paused task wants.
    pub(super) fn of(story: &Story) -> Self {
        let said = story.said.as_ref();
        if let Some((question, key)) = said.and_then(of_call) {
            return Self {
                question,
                is_call: true,
                key,
            };
        }
        let is_auth = story.state == Some(callboard_message::TaskState::AuthRequired);
        let text = said.map(told).filter(|text| !text.is_empty());
        let address = said.filter(|_| is_auth).and_then(address);
        let question = match address {
            Some(address) => {
                let text = text.unwrap_or_else(|| NEEDS_CREDENTIAL.to_owned());
                Question::Elicit(Elicitation::url(text, address, &story.task))
            }
            None => {
                let text = text.unwrap_or_else(|| {
                    if is_auth {
                        NEEDS_CREDENTIAL
                    } else {
                        NEEDS_INPUT
                    }
                    .to_owned()
                });
                let field = json!({ "type": "string", "title": "Answer" });
                let form =
                    json!({ "type": "object", "properties": { TEXT: field }, "required": [TEXT] });
                Question::elicit(text, form)
            }
        };
        Self {
            question,
            is_call: false,
            key: None,
        }
    }

    /// What is said to the agent.
    ///
    /// # Errors
    /// Where the answer is one to another kind of question, or the person doesn't want to, which an agent that asks in words
    /// can't be told: the task is taken back.
    pub(super) fn reply(&self, answer: Answer, story: &Story) -> Result<Message, Failure> {
        let fits = matches!(
            (&self.question, &answer),
            (Question::Elicit(_), Answer::Elicit(_))
                | (Question::Sample(_), Answer::Sample(_))
                | (Question::Roots(_), Answer::Roots(_))
        );
        if !fits {
            return Err(Failure::invalid("the answer doesn't fit the question"));
        }
        let part = match answer {
            answer if self.is_call => Part::data(answer.to_raw()),
            Answer::Elicit(answer) => match (answer.action(), answer.content()) {
                (ElicitAction::Accept, Some(content)) => match content[TEXT].as_str() {
                    Some(text) => Part::text(text),
                    None => Part::data(to_raw_value(&content).unwrap_or_default()),
                },
                // Visited the address.
                (ElicitAction::Accept, None) => Part::text("done"),
                (refused, _) => return Err(taken_back(refused).with_data(story.place())),
            },
            _ => return Err(Failure::internal("a question in words has no such answer")),
        };
        Ok(Message {
            message_id: Uuid::new_v4().to_string(),
            context_id: story.context.clone(),
            task_id: story.task.clone(),
            role: Role::User,
            parts: vec![part],
            metadata: self.key.as_ref().map(|key| RawObject::of(QUESTION, key)),
            ..Message::default()
        })
    }
}

fn taken_back(action: ElicitAction) -> Failure {
    match action {
        ElicitAction::Cancel => Failure::cancelled("the person closed the agent's question"),
        _ => Failure::rejected("the person declined the agent's question"),
    }
}

/// The question of a callboard's call, and its name for it.
fn of_call(said: &Message) -> Option<(Question, Option<String>)> {
    said.parts
        .iter()
        .filter_map(Part::as_data)
        .find_map(|data| {
            let mut asked = RawObject::parse(data).ok()?.object("question")?;
            let key = asked
                .remove("key")
                .and_then(|key| serde_json::from_str(key.get()).ok());
            Some((serde_json::from_str(asked.to_raw().get()).ok()?, key))
        })
}

/// What a message says, for a person: its texts, else its values.
fn told(said: &Message) -> String {
    let text = said.text();
    if !text.trim().is_empty() {
        return text.trim().to_owned();
    }
    let values: Vec<&str> = said
        .parts
        .iter()
        .filter_map(Part::as_data)
        .map(RawValue::get)
        .collect();
    values.join("\n")
}

/// The address that a message sends a person to.
fn address(said: &Message) -> Option<String> {
    let is_address = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    let of_part = |part: &Part| match &part.content {
        PartContent::Url(url) => Some(url.clone()),
        PartContent::Text(text) => text
            .split_whitespace()
            .map(|word| word.trim_matches(['<', '>', '(', ')', '"', '\'', ',', ';', '.']))
            .find(|word| is_address(word))
            .map(str::to_owned),
        PartContent::Data(data) => {
            let members = RawObject::parse(data).ok()?;
            members
                .iter()
                .find_map(|(name, _)| members.text(name).filter(|text| is_address(text)))
        }
        PartContent::Raw(_) => None,
    };
    said.parts
        .iter()
        .find_map(of_part)
        .filter(|address| is_address(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::question_parts;
    use callboard_message::{ElicitAnswer, FailureKind, SampleAnswer, TaskState};

    fn story(state: TaskState, parts: Vec<Part>) -> Story {
        let said = Message {
            parts,
            ..Message::default()
        };
        let mut story = Story::of("t", "c");
        (story.state, story.said) = (Some(state), Some(said));
        story
    }

    fn said(asked: &Asked, answer: Answer, story: &Story) -> Message {
        asked.reply(answer, story).unwrap()
    }

    /// Goal: a question of a callboard arrives as it was asked, and its answer names it. Method: one through the server's
    /// own words.
    #[test]
    fn questions_of_calls_arrive_whole() {
        let question = Question::sample("Go on", 5);
        let story = story(TaskState::InputRequired, question_parts("q7", &question));
        let asked = Asked::of(&story);
        assert_eq!(asked.question, question);
        let answer = SampleAnswer::text("m", "on", None);
        let message = said(&asked, Answer::Sample(answer.clone()), &story);
        assert_eq!(
            (message.task_id.as_str(), message.context_id.as_str()),
            ("t", "c")
        );
        assert_eq!(message.metadata.unwrap().text(QUESTION).unwrap(), "q7");
        assert_eq!(
            message.parts[0].as_data().unwrap().get(),
            answer.0.to_raw().get()
        );
        assert!(
            asked
                .reply(Answer::Elicit(ElicitAnswer::agree()), &story)
                .is_err(),
            "another kind of answer"
        );
    }

    /// Goal: words become a form of one field, its answer words again; who declines takes the task back. Method: both.
    #[test]
    fn words_are_a_form() {
        let story = story(TaskState::InputRequired, vec![Part::text("Which day?")]);
        let asked = Asked::of(&story);
        let Question::Elicit(form) = &asked.question else {
            panic!("a form")
        };
        assert_eq!(form.message(), "Which day?");
        let answer = Answer::Elicit(ElicitAnswer::accept(json!({ "text": "Monday" })));
        assert_eq!(said(&asked, answer, &story).parts, [Part::text("Monday")]);
        let declined = asked
            .reply(Answer::Elicit(ElicitAnswer::decline()), &story)
            .unwrap_err();
        assert_eq!(declined.kind, FailureKind::Rejected);
    }

    /// Goal: whoever must sign in is sent to the address, wherever it stands. Method: each place; none.
    #[test]
    fn addresses_are_found() {
        let url = "https://login.example/x?y=1";
        for part in [
            Part::url(url, ""),
            Part::text(format!("Please visit <{url}>.")),
            Part::data(RawValue::from_string(format!(r#"{{"n":1,"authUrl":"{url}"}}"#)).unwrap()),
        ] {
            let asked = Asked::of(&story(TaskState::AuthRequired, vec![part]));
            let Question::Elicit(elicitation) = asked.question else {
                panic!("an address")
            };
            assert_eq!(elicitation.address().as_deref(), Some(url));
        }
        for (state, text) in [
            (TaskState::AuthRequired, "Sign in"),
            (TaskState::InputRequired, url),
        ] {
            let asked = Asked::of(&story(state, vec![Part::text(text)]));
            let Question::Elicit(elicitation) = asked.question else {
                panic!("a form")
            };
            assert!(elicitation.address().is_none());
        }
    }
}
