//! Dialects of servers' questions and their answers.
//!
//! Questions are converted to MCP before a caller is asked, and answers are converted back. No
//! other module knows the dialects.

use std::num::NonZeroU64;

use callboard_message::{Elicitation, Failure, Question, RawObject, RootsRequest, SamplingRequest};
use callboard_runtime::CallContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

mod magictunnel;

/// Dialect in which a server asks questions (sampling, elicitation, roots) and expects the answers.
/// Requests to the server are plain MCP in all dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ServerDialect {
    /// Plain MCP. The method `elicitation/request` is accepted as another name of
    /// `elicitation/create`.
    #[default]
    Mcp,
    /// MagicTunnel's dialect: text as bare strings, member names in snake_case, and the method
    /// `elicitation/request`. Answers to sampling requests state the token usage and who answered.
    MagicTunnel,
}

/// A server's question converted to MCP, with the format of its answer.
pub(crate) struct ServerQuestion {
    pub question: Question,
    pub answer_format: AnswerFormat,
}

/// Format in which the server expects the answer to a question.
pub(crate) enum AnswerFormat {
    Mcp,
    /// MagicTunnel's `SamplingResponse`. `client` names the client whose call caused the question.
    Sampling {
        client: Option<String>,
    },
    /// MagicTunnel's `ElicitationResponse`.
    Elicitation,
}

impl ServerDialect {
    /// Returns true if `method` is a question that the server asks the caller: sampling,
    /// elicitation or roots.
    pub(crate) fn is_question(method: &str) -> bool {
        matches!(
            method,
            "sampling/createMessage" | "elicitation/create" | "elicitation/request" | "roots/list"
        )
    }

    /// Parses a server's question and converts it to MCP. `client` returns the name of the client
    /// whose call caused the question; dialects other than MCP need it.
    ///
    /// # Errors
    /// `NotFound` if `method` is no question, `InvalidInput` for invalid params.
    pub(crate) fn parse_question(
        self,
        method: &str,
        params: Option<&RawValue>,
        client: impl FnOnce() -> Option<String>,
    ) -> Result<ServerQuestion, Failure> {
        let body = match params {
            Some(params) => RawObject::parse(params)
                .map_err(|_| Failure::invalid("`params` must be an object"))?,
            None => RawObject::new(),
        };
        let tunnels = self == Self::MagicTunnel;
        let (question, manner) = match method {
            "sampling/createMessage" if tunnels => {
                let client = client();
                let sample = magictunnel::parse_sample(body, client.as_deref())?;
                (Question::Sample(sample), AnswerFormat::Sampling { client })
            }
            "sampling/createMessage" => {
                (Question::Sample(SamplingRequest(body)), AnswerFormat::Mcp)
            }
            "elicitation/create" if tunnels => (
                magictunnel::parse_elicitation(body, client().as_deref())?,
                AnswerFormat::Mcp,
            ),
            "elicitation/create" => (Question::Elicit(Elicitation(body)), AnswerFormat::Mcp),
            "elicitation/request" if tunnels => (
                magictunnel::parse_elicitation(body, client().as_deref())?,
                AnswerFormat::Elicitation,
            ),
            "elicitation/request" => (
                magictunnel::parse_elicitation(body, None)?,
                AnswerFormat::Mcp,
            ),
            "roots/list" => (Question::Roots(RootsRequest(body)), AnswerFormat::Mcp),
            _ => return Err(Failure::not_found("MCP has no question of this method")),
        };
        if let Question::Sample(sample) = &question {
            check_sample(&sample.0)?;
        }
        Ok(ServerQuestion {
            question,
            answer_format: manner,
        })
    }

    /// Returns the name by which the server knows the client: `client_id` in the request's
    /// `metadata` or `_meta`, otherwise the id of the call's session or principal. Returns `None`
    /// in plain MCP. The name is never read from a question, which could claim any.
    pub(crate) fn client_name(
        self,
        request: Option<&RawObject>,
        call: Option<&CallContext>,
    ) -> Option<String> {
        if self != Self::MagicTunnel {
            return None;
        }
        let named = ["metadata", "_meta"]
            .into_iter()
            .find_map(|name| request?.object(name)?.text("client_id"));
        named.or_else(|| {
            let call = call?;
            let session = call.session.as_ref().map(|session| session.id.to_string());
            Some(session.unwrap_or_else(|| call.principal.id.clone()))
        })
    }
}

/// Checks the types of a sampling request's members (MCP 2025-11-25, `CreateMessageRequestParams`).
/// Absent members and `null` pass: whoever answers applies a default or asks for them.
///
/// # Errors
/// `InvalidInput` with the name of the member.
fn check_sample(sample: &RawObject) -> Result<(), Failure> {
    type Fits = fn(&RawValue) -> bool;
    fn is<T: DeserializeOwned>(value: &RawValue) -> bool {
        serde_json::from_str::<T>(value.get()).is_ok()
    }
    const MEMBERS: [(&str, Fits, &str); 8] = [
        ("messages", is::<Vec<RawObject>>, "an array of objects"),
        (
            "maxTokens",
            is::<NonZeroU64>,
            "a whole number of at least 1",
        ),
        ("systemPrompt", is::<String>, "a string"),
        ("temperature", is::<f64>, "a number"),
        ("stopSequences", is::<Vec<String>>, "an array of strings"),
        ("modelPreferences", is::<RawObject>, "an object"),
        ("tools", is::<Vec<RawObject>>, "an array of objects"),
        ("toolChoice", is::<RawObject>, "an object"),
    ];
    for (name, fits, wanted) in MEMBERS {
        let value = sample.get(name).filter(|value| value.get() != "null");
        if value.is_some_and(|value| !fits(value)) {
            return Err(Failure::invalid(format!("`{name}` must be {wanted}")));
        }
    }
    Ok(())
}

impl AnswerFormat {
    /// Converts an MCP answer to the format that the server expects.
    pub fn format_answer(self, answer: RawObject) -> RawObject {
        match self {
            Self::Mcp => answer,
            Self::Sampling { client } => magictunnel::sampling_response(&answer, client.as_deref()),
            Self::Elicitation => magictunnel::elicitation_response(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    /// Goal: an ill-typed sampling request is rejected with the member's name. Method: rows.
    #[test]
    fn samples_are_checked() {
        let messages = json!([{ "role": "user", "content": { "type": "text", "text": "t" } }]);
        for (name, value, is_right) in [
            ("maxTokens", json!(1), true),
            ("maxTokens", json!(null), true),
            ("maxTokens", json!("x"), false),
            ("maxTokens", json!(0), false),
            ("maxTokens", json!(-1), false),
            ("maxTokens", json!(1.5), false),
            ("messages", json!({}), false),
            ("messages", json!(["t"]), false),
            ("systemPrompt", json!(1), false),
            ("temperature", json!("warm"), false),
            ("temperature", json!(0), true),
            ("stopSequences", json!("x"), false),
            ("modelPreferences", json!([]), false),
            ("tools", json!([1]), false),
            ("toolChoice", json!("auto"), false),
            ("unknown", json!([1]), true),
        ] {
            let mut params = json!({ "messages": messages, "maxTokens": 5 });
            params[name] = value.clone();
            let params = to_raw_value(&params).unwrap();
            let parsed =
                ServerDialect::Mcp.parse_question("sampling/createMessage", Some(&params), || None);
            match parsed {
                Ok(_) => assert!(is_right, "{name}: {value}"),
                Err(failure) => {
                    assert!(!is_right, "{name}: {value}");
                    assert!(failure.message.contains(name), "{}", failure.message);
                }
            }
        }
    }
}
