//! Questions of a paused remote task as questions to the caller, and answers as messages to the
//! agent.

use callboard_message::capabilities::SOURCE_MESSAGE_META_KEY;
use callboard_message::{
    Answer, Content, Elicitation, ElicitationAction, Failure, Question, RawObject,
};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::task_state::RemoteTaskState;
use crate::convert::{
    QUESTION_METADATA, accepting_parts, accepts_parts, content_to_parts, is_elicit_answer,
};
use crate::wire::{A2aMessage, Part, PartContent, Role};

/// Default texts of a question that the agent asks without a text: for input, and for credentials.
const NEEDS_INPUT: &str = "The agent needs to know more to go on.";
const NEEDS_CREDENTIAL: &str = "The agent needs you to sign in to go on.";
/// Name of the only field in the form that represents a question in plain text.
const TEXT_FIELD: &str = "text";

/// A question that a remote agent asks by pausing its task.
pub(super) struct RemoteQuestion {
    pub(super) question: Question,
    /// Whether the agent is a callboard that sent the question as a data part, so that the answer
    /// is sent as data too. Otherwise the question is plain text.
    is_call: bool,
    /// Key of the question, if the agent sent one. The answer names the question by it.
    key: Option<String>,
}

impl RemoteQuestion {
    /// Reads the question from the status message of a paused task.
    pub(super) fn from_task(task: &RemoteTaskState) -> Self {
        let said = task.status_message.as_ref();
        if let Some((question, key)) = said.and_then(embedded_question) {
            return Self {
                question,
                is_call: true,
                key,
            };
        }
        let is_auth = task.state == Some(callboard_message::TaskState::AuthRequired);
        let text = said.map(message_text).filter(|text| !text.is_empty());
        let address = said.filter(|_| is_auth).and_then(find_url);
        let question = match address {
            Some(address) => {
                let text = text.unwrap_or_else(|| NEEDS_CREDENTIAL.to_owned());
                Elicitation::url(text, address, &task.task_id)
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
                let form = json!({ "type": "object", "properties": { TEXT_FIELD: field }, "required": [TEXT_FIELD] });
                Elicitation::form(text, form)
            }
        };
        Self {
            question: Question::Elicit(accepting_parts(question)),
            is_call: false,
            key: None,
        }
    }

    /// Converts an answer to the message that is sent to the agent. The parts of a conversational
    /// message that answered are sent as they are.
    ///
    /// # Errors
    /// [`Failure`] if the answer is of another kind than the question, or if the person declined a
    /// question in plain text, because a plain text can't express that.
    pub(super) fn reply_message(
        &self,
        answer: Answer,
        task: &RemoteTaskState,
    ) -> Result<A2aMessage, Failure> {
        let fits = matches!(
            (&self.question, &answer),
            (Question::Elicit(_), Answer::Elicit(_))
                | (Question::Sample(_), Answer::Sample(_))
                | (Question::Roots(_), Answer::Roots(_))
        );
        if !fits {
            return Err(Failure::invalid(
                "the caller's answer is of another kind than the agent's question",
            ));
        }
        let meta = answer.body().object("_meta").unwrap_or_default();
        let said = meta.object(SOURCE_MESSAGE_META_KEY).unwrap_or_default();
        let parts = match self.source_parts(&answer, &said) {
            Some(parts) => parts,
            None => vec![self.answer_part(answer, task)?],
        };
        // The key in the sender's metadata names the question at this node.
        let mut metadata = said.object("metadata").unwrap_or_default();
        metadata.remove(QUESTION_METADATA);
        metadata.set_some(QUESTION_METADATA, &self.key);
        Ok(A2aMessage {
            message_id: Uuid::new_v4().to_string(),
            context_id: task.context_id.clone(),
            task_id: task.task_id.clone(),
            role: Role::User,
            parts,
            metadata: Some(metadata).filter(|metadata| !metadata.is_empty()),
            extensions: said.read("extensions").unwrap_or_default(),
            ..A2aMessage::default()
        })
    }

    /// Returns the parts of the message `said` that answered; `None` if there is none, if it is an
    /// answer in the format of MCP, or if a callboard gets the answer that was read from it
    /// instead.
    fn source_parts(&self, answer: &Answer, said: &RawObject) -> Option<Vec<Part>> {
        let is_refusal = matches!(answer, Answer::Elicit(answer) if answer.action() != ElicitationAction::Accept);
        let content: Vec<Content> = said.read("content").filter(|_| !is_refusal)?;
        let parts = content_to_parts(&content);
        let has_file = || {
            let is_file =
                |part: &Part| matches!(part.content, PartContent::Raw(_) | PartContent::Url(_));
            parts.iter().any(is_file)
        };
        let is_whole = !self.is_call || accepts_parts(&self.question) || has_file();
        let is_answer = match &*parts {
            [only] => only
                .as_data()
                .and_then(|data| RawObject::parse(data).ok())
                .is_some_and(|object| is_elicit_answer(&object)),
            others => others.is_empty(),
        };
        (is_whole && !is_answer).then_some(parts)
    }

    fn answer_part(&self, answer: Answer, task: &RemoteTaskState) -> Result<Part, Failure> {
        Ok(match answer {
            answer if self.is_call => Part::data(answer.to_raw()),
            Answer::Elicit(answer) => match (answer.action(), answer.content()) {
                (ElicitationAction::Accept, Some(content)) => match content[TEXT_FIELD].as_str() {
                    Some(text) => Part::text(text),
                    None => Part::data(to_raw_value(&content).unwrap_or_default()),
                },
                // The person visited the URL.
                (ElicitationAction::Accept, None) => Part::text("done"),
                (refused, _) => {
                    return Err(refusal_failure(refused).with_data(task.task_reference()));
                }
            },
            _ => {
                return Err(Failure::internal(
                    "a question in plain text can't have such an answer",
                ));
            }
        })
    }
}

fn refusal_failure(action: ElicitationAction) -> Failure {
    match action {
        ElicitationAction::Cancel => Failure::cancelled("the person closed the agent's question"),
        _ => Failure::rejected("the person declined the agent's question"),
    }
}

/// Returns the question, and its key, that a callboard embedded in a data part of a message.
fn embedded_question(said: &A2aMessage) -> Option<(Question, Option<String>)> {
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

/// Returns the text of a message for people: its text parts, or if these are blank, the JSON of its
/// data parts.
fn message_text(said: &A2aMessage) -> String {
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

/// Returns the first http or https URL in a message's parts.
fn find_url(said: &A2aMessage) -> Option<String> {
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
    use callboard_message::{ElicitationAnswer, FailureKind, SamplingAnswer, TaskState};

    fn task(state: TaskState, parts: Vec<Part>) -> RemoteTaskState {
        let said = A2aMessage {
            parts,
            ..A2aMessage::default()
        };
        let mut task = RemoteTaskState::for_task("t", "c");
        (task.state, task.status_message) = (Some(state), Some(said));
        task
    }

    fn said(asked: &RemoteQuestion, answer: Answer, task: &RemoteTaskState) -> A2aMessage {
        asked.reply_message(answer, task).unwrap()
    }

    /// Goal: a question of a callboard arrives as it was asked, and its answer names it. Method:
    /// one in the server's format.
    #[test]
    fn questions_of_calls_arrive_whole() {
        let question = Question::sample("Go on", 5);
        let task = task(TaskState::InputRequired, question_parts("q7", &question));
        let asked = RemoteQuestion::from_task(&task);
        assert_eq!(asked.question, question);
        let answer = SamplingAnswer::text("m", "on", None);
        let message = said(&asked, Answer::Sample(answer.clone()), &task);
        assert_eq!(
            (message.task_id.as_str(), message.context_id.as_str()),
            ("t", "c")
        );
        assert_eq!(
            message.metadata.unwrap().text(QUESTION_METADATA).unwrap(),
            "q7"
        );
        assert_eq!(
            message.parts[0].as_data().unwrap().get(),
            answer.0.to_raw().get()
        );
        assert!(
            asked
                .reply_message(Answer::Elicit(ElicitationAnswer::agree()), &task)
                .is_err(),
            "another kind of answer"
        );
    }

    /// Goal: plain text becomes a form of one field and its answer plain text again; declining
    /// fails. Method: both.
    #[test]
    fn words_are_a_form() {
        let task = task(TaskState::InputRequired, vec![Part::text("Which day?")]);
        let asked = RemoteQuestion::from_task(&task);
        let Question::Elicit(form) = &asked.question else {
            panic!("a form")
        };
        assert_eq!(form.message(), "Which day?");
        let answer = Answer::Elicit(ElicitationAnswer::accept(json!({ "text": "Monday" })));
        assert_eq!(said(&asked, answer, &task).parts, [Part::text("Monday")]);
        let declined = asked
            .reply_message(Answer::Elicit(ElicitationAnswer::decline()), &task)
            .unwrap_err();
        assert_eq!(declined.kind, FailureKind::Rejected);
    }

    /// Goal: a person who must sign in is sent to the URL, wherever it stands in the message.
    /// Method: each place; none.
    #[test]
    fn addresses_are_found() {
        let url = "https://login.example/x?y=1";
        for part in [
            Part::url(url, ""),
            Part::text(format!("Please visit <{url}>.")),
            Part::data(RawValue::from_string(format!(r#"{{"n":1,"authUrl":"{url}"}}"#)).unwrap()),
        ] {
            let asked = RemoteQuestion::from_task(&task(TaskState::AuthRequired, vec![part]));
            let Question::Elicit(elicitation) = asked.question else {
                panic!("an address")
            };
            assert_eq!(elicitation.target_url().as_deref(), Some(url));
        }
        for (state, text) in [
            (TaskState::AuthRequired, "Sign in"),
            (TaskState::InputRequired, url),
        ] {
            let asked = RemoteQuestion::from_task(&task(state, vec![Part::text(text)]));
            let Question::Elicit(elicitation) = asked.question else {
                panic!("a form")
            };
            assert!(elicitation.target_url().is_none());
        }
    }
}
