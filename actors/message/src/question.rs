use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a callee asks in mid-call, of whoever called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// Of a language model (MCP sampling).
    Sample(Sample),
    /// Of a person (MCP elicitation, A2A INPUT_REQUIRED).
    Elicit(Elicitation),
    /// Which folders the caller lends (MCP roots).
    Roots,
}

/// A prompt for the caller's language model.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// The conversation so far, oldest first.
    pub turns: Vec<SampleTurn>,
    /// What the model is told before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The most the model may write, in tokens.
    pub tokens_max: u32,
}

/// One turn of a conversation with a model.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampleTurn {
    /// Who spoke.
    pub speaker: Speaker,
    /// What was said.
    pub text: String,
}

/// Who spoke a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The side that asks.
    User,
    /// The model.
    Assistant,
}

/// A form for a person.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Elicitation {
    /// What the person reads.
    pub message: String,
    /// JSON Schema of the answer.
    pub schema: Value,
}

/// What came back to a [`Question`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// To [`Question::Sample`].
    Sample(SampleAnswer),
    /// To [`Question::Elicit`].
    Elicit(AnswerAction),
    /// To [`Question::Roots`].
    Roots {
        /// The folders that the caller lends.
        roots: Vec<Root>,
    },
}

/// What the caller's model wrote.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampleAnswer {
    /// The model's name.
    pub model: String,
    /// What it wrote.
    pub text: String,
    /// Why it ended, as the model says it, for example `endTurn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// What a person did with a form. Only a person, or a value that a person authorised beforehand, accepts.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum AnswerAction {
    /// Filled in and sent.
    Accept {
        /// The values, as the question's schema has them.
        content: Value,
    },
    /// Said no.
    Decline,
    /// Closed it without a choice.
    Cancel,
}

/// A folder that a caller lends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Root {
    /// A `file://` URI.
    pub uri: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

// What was said and filled in may be anybody's data: it is never printed.

impl fmt::Debug for SampleTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SampleTurn({:?}, {} bytes)", self.speaker, self.text.len())
    }
}

impl fmt::Debug for SampleAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SampleAnswer({}, {} bytes, {:?})", self.model, self.text.len(), self.stop_reason)
    }
}

impl fmt::Debug for Elicitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Elicitation({} bytes)", self.message.len())
    }
}

impl fmt::Debug for AnswerAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept { .. } => "Accept(…)",
            Self::Decline => "Decline",
            Self::Cancel => "Cancel",
        })
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sample({:?}, at most {} tokens)", self.turns, self.tokens_max)
    }
}
