//! Descriptions and parameter parsing of the built-in tools.

use std::ops::RangeInclusive;

use callboard_message::{Failure, RawObject};
use serde_json::{Value, json};

use super::AgentListFormat;
use super::command::split_command_line;
use super::summary::SUMMARY_SENTENCES_MAX;
use crate::decide::{Risk, ToolView};
use crate::tool_name::BuiltinTool;

/// Maximum bytes of a text parameter. Longer texts are rejected with `InvalidInput`. Fixed.
pub const TOOL_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Call of a built-in tool with parsed parameters.
pub(super) enum ToolInvocation {
    Echo {
        text: String,
    },
    Llm {
        text: String,
    },
    Summarize {
        text: String,
        sentences: Option<usize>,
    },
    ListAgents {
        format: AgentListFormat,
    },
    RememberAgent {
        url: String,
        id: Option<String>,
    },
    HumanInput {
        question: String,
    },
    ExecuteCommand {
        words: Vec<String>,
        input: Option<String>,
    },
}

impl BuiltinTool {
    /// Parses the parameters of a call.
    ///
    /// # Errors
    /// `InvalidInput` naming the parameter.
    pub(super) fn parse_params(self, given: &RawObject) -> Result<ToolInvocation, Failure> {
        let mut params = ParamReader::of(given);
        let read = match self {
            Self::Echo => ToolInvocation::Echo {
                text: params.text("text")?,
            },
            Self::Llm => ToolInvocation::Llm {
                text: params.text("text")?,
            },
            Self::Summarize => ToolInvocation::Summarize {
                text: params.text("text")?,
                sentences: params.optional_count("sentences", 1..=SUMMARY_SENTENCES_MAX as u64)?,
            },
            Self::ListAgents => ToolInvocation::ListAgents {
                format: params
                    .optional_choice("format", &AgentListFormat::ALL)?
                    .unwrap_or(AgentListFormat::Default),
            },
            Self::RememberAgent => ToolInvocation::RememberAgent {
                url: params.text("url")?,
                id: params.optional_text("id")?,
            },
            Self::HumanInput => ToolInvocation::HumanInput {
                question: params.text("question")?,
            },
            Self::ExecuteCommand => ToolInvocation::ExecuteCommand {
                words: params.command("command")?,
                input: params.optional_text("stdin")?,
            },
        };
        params.finish()?;
        Ok(read)
    }

    /// Returns the tool's description, tags and example requests.
    fn wording(
        self,
    ) -> (
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    ) {
        match self {
            Self::Echo => (
                "Says a text back as it is.",
                &["echo", "repeat", "say back"],
                &["Echo: hello there", "Repeat after me: one two three"],
            ),
            Self::Llm => (
                "Answers in words: general knowledge, explaining, writing, translating.",
                &["answer", "explain", "write", "translate", "question"],
                &[
                    "What is the capital of France?",
                    "Write a short thank-you note",
                ],
            ),
            Self::Summarize => (
                "Shortens a text to its main sentences.",
                &["summarize", "summary", "shorten", "tl;dr"],
                &[
                    "Summarize this text: …",
                    "Give me the short version of the following report: …",
                ],
            ),
            Self::ListAgents => (
                "Lists the other agents that this one knows.",
                &["agents", "directory", "list", "discovery"],
                &[
                    "Which agents do you know?",
                    "List the agents in the directory",
                ],
            ),
            Self::RememberAgent => (
                "Takes another agent into the directory, by its address.",
                &["agents", "directory", "remember", "add"],
                &["Remember the agent at http://localhost:4202"],
            ),
            Self::HumanInput => (
                "Asks the person behind the request.",
                &["human", "person", "ask"],
                &[
                    "Ask a person before you answer",
                    "I want to talk to a human",
                ],
            ),
            Self::ExecuteCommand => (
                "Runs a program on this agent's machine, if its operator allowed that one. There is no shell: `command` is the \
                 program and its arguments, as a list, or as a text with quotes around what is one argument. A text with `;`, `|`, `>`, \
                 `$`, globs or anything else that needs a shell is refused as a whole.",
                &["run", "execute", "command", "program"],
                &["Run `git status`", "Execute ls -l"],
            ),
        }
    }

    /// Returns the JSON Schemas of the tool's parameters, an object by name, and the names of the
    /// required ones.
    fn parameters(self) -> (Value, &'static [&'static str]) {
        let text = |says: &str| json!({ "type": "string", "description": says });
        match self {
            Self::Echo => (json!({ "text": text("What is said back") }), &["text"]),
            Self::Llm => (
                json!({ "text": text("The question or task, whole") }),
                &["text"],
            ),
            Self::Summarize => (
                json!({
                    "text": text("The text itself"),
                    "sentences": { "type": "integer", "minimum": 1, "maximum": SUMMARY_SENTENCES_MAX },
                }),
                &["text"],
            ),
            Self::ListAgents => (
                json!({ "format": { "type": "string", "enum": AgentListFormat::ALL.map(|(word, _)| word) } }),
                &[],
            ),
            Self::RememberAgent => (
                json!({
                    "url": text("Where it is: HOST:PORT or a URL"),
                    "id": text("The id that it shall have here; else it is made of its name"),
                }),
                &["url"],
            ),
            Self::HumanInput => (
                json!({ "question": text("What the person is asked") }),
                &["question"],
            ),
            Self::ExecuteCommand => (
                json!({
                    "command": {
                        "anyOf": [
                            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
                            { "type": "string" },
                        ],
                    },
                    "stdin": text("What the program reads on its standard input"),
                }),
                &["command"],
            ),
        }
    }

    /// Returns the tool's description, parameter schema and risk, as deciders see it.
    pub fn view(self) -> ToolView {
        let (description, tags, examples) = self.wording();
        let (properties, required) = self.parameters();
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        ToolView {
            name: self.name().to_owned(),
            description: description.to_owned(),
            tags: owned(tags),
            examples: owned(examples),
            params: json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false
            }),
            risk: match self {
                Self::RememberAgent => Risk::Writes,
                Self::ExecuteCommand => Risk::Acts,
                _ => Risk::Reads,
            },
        }
    }
}

/// Reader of a call's parameters. Each is read once; then [`ParamReader::finish`] rejects unknown
/// ones.
struct ParamReader<'a> {
    given: &'a RawObject,
    read: Vec<&'static str>,
}

impl<'a> ParamReader<'a> {
    pub fn of(given: &'a RawObject) -> Self {
        Self {
            given,
            read: Vec::new(),
        }
    }

    /// Reads a required, non-empty text.
    ///
    /// # Errors
    /// `InvalidInput` if it is missing, blank, no string, or longer than [`TOOL_TEXT_BYTES_MAX`].
    pub fn text(&mut self, name: &'static str) -> Result<String, Failure> {
        let text = self
            .optional_text(name)?
            .ok_or_else(|| Failure::invalid(format!("`{name}` is missing")))?;
        match text.trim().is_empty() {
            true => Err(Failure::invalid(format!("`{name}` is empty"))),
            false => Ok(text),
        }
    }

    fn optional_text(&mut self, name: &'static str) -> Result<Option<String>, Failure> {
        match self.take_value(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() > TOOL_TEXT_BYTES_MAX => Err(Failure::invalid(
                format!("`{name}` has more than {TOOL_TEXT_BYTES_MAX} bytes"),
            )),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::invalid(format!("`{name}` must be a string"))),
        }
    }

    fn optional_count(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<usize>, Failure> {
        let Some(value) = self.take_value(name) else {
            return Ok(None);
        };
        let count = value
            .as_u64()
            .filter(|count| range.contains(count))
            .and_then(|count| usize::try_from(count).ok());
        let (least, most) = range.into_inner();
        count.map(Some).ok_or_else(|| {
            Failure::invalid(format!(
                "`{name}` must be a whole number from {least} to {most}"
            ))
        })
    }

    /// Reads an optional parameter that must be one of `words`, and returns the value of that word;
    /// `None` if it is absent.
    ///
    /// # Errors
    /// `InvalidInput` for any other value.
    fn optional_choice<T: Copy>(
        &mut self,
        name: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Failure> {
        let Some(word) = self.optional_text(name)? else {
            return Ok(None);
        };
        let found = words
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, means)| *means);
        let known = || {
            words
                .iter()
                .map(|(known, _)| *known)
                .collect::<Vec<_>>()
                .join(", ")
        };
        found
            .map(Some)
            .ok_or_else(|| Failure::invalid(format!("`{name}` must be one of: {}", known())))
    }

    /// Reads a required program and its arguments: a list of strings, or a command line that
    /// [`split_command_line`] splits. The program is the first word.
    ///
    /// # Errors
    /// `InvalidInput` if it is missing or has another form.
    pub fn command(&mut self, name: &'static str) -> Result<Vec<String>, Failure> {
        let wrong = || Failure::invalid(format!("`{name}` must be a list of strings, or a string"));
        match self.take_value(name) {
            None => Err(Failure::invalid(format!("`{name}` is missing"))),
            Some(Value::String(line)) => split_command_line(&line),
            Some(Value::Array(all)) => all
                .into_iter()
                .map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    /// Checks that all parameters were read.
    ///
    /// # Errors
    /// `InvalidInput` for a parameter that the tool doesn't have.
    pub fn finish(self) -> Result<(), Failure> {
        match self
            .given
            .iter()
            .find(|(name, _)| !self.read.contains(name))
        {
            // The name comes from the sender, so it is cut and stripped of control characters.
            Some((name, _)) => {
                let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                Err(Failure::invalid(format!(
                    "there is no parameter `{name}`; there are: {}",
                    self.read.join(", ")
                )))
            }
            None => Ok(()),
        }
    }

    fn take_value(&mut self, name: &'static str) -> Option<Value> {
        self.read.push(name);
        self.given
            .read(name)
            .filter(|value: &Value| !value.is_null())
    }
}
