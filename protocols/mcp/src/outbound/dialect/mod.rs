//! How a server words its questions, and wants them answered.
//!
//! A server's question becomes MCP's before anyone is asked, and MCP's answer the server's; in between nobody knows of
//! dialects.

use callboard_message::{Elicitation, Failure, Question, RawObject, RootsRequest, Sample};
use callboard_runtime::CallMeta;
use serde::Deserialize;
use serde_json::value::RawValue;

mod magictunnel;

/// How a server words its questions, and wants them answered. What is asked of it is MCP in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dialect {
    /// As MCP says. `elicitation/request` is understood too.
    #[default]
    Mcp,
    /// As MagicTunnel's external servers do: text as bare strings, names in snake_case, `elicitation/request`. Answers tell
    /// what they cost and who gave them.
    MagicTunnel,
}

/// A server's question in MCP's words, and how it wants the answer.
pub(crate) struct Asked {
    pub question: Question,
    pub manner: Manner,
}

/// How an answer is worded.
pub(crate) enum Manner {
    /// As it is.
    Mcp,
    /// MagicTunnel's `SamplingResponse`; `client` is whose call it is.
    Sampling { client: Option<String> },
    /// MagicTunnel's `ElicitationResponse`.
    Elicitation,
}

impl Dialect {
    /// Whether a request of this name asks the caller something.
    pub(crate) fn is_question(method: &str) -> bool {
        matches!(
            method,
            "sampling/createMessage" | "elicitation/create" | "elicitation/request" | "roots/list"
        )
    }

    /// Reads a question. `client` is the one whose call caused it, as the answer names it.
    ///
    /// # Errors
    /// `NotFound` where it is none, `InvalidInput` where its params can't be read.
    pub(crate) fn read(
        self,
        method: &str,
        params: Option<&RawValue>,
        client: impl FnOnce() -> Option<String>,
    ) -> Result<Asked, Failure> {
        let body = match params {
            Some(params) => RawObject::parse(params)
                .map_err(|_| Failure::invalid("`params` must be an object"))?,
            None => RawObject::new(),
        };
        let tunnels = self == Self::MagicTunnel;
        let (question, manner) = match method {
            "sampling/createMessage" if tunnels => {
                let client = client();
                let sample = magictunnel::sample(body, client.as_deref())?;
                (Question::Sample(sample), Manner::Sampling { client })
            }
            "sampling/createMessage" => (Question::Sample(Sample(body)), Manner::Mcp),
            "elicitation/create" if tunnels => (
                magictunnel::elicitation(body, client().as_deref())?,
                Manner::Mcp,
            ),
            "elicitation/create" => (Question::Elicit(Elicitation(body)), Manner::Mcp),
            "elicitation/request" if tunnels => (
                magictunnel::elicitation(body, client().as_deref())?,
                Manner::Elicitation,
            ),
            "elicitation/request" => (magictunnel::elicitation(body, None)?, Manner::Mcp),
            "roots/list" => (Question::Roots(RootsRequest(body)), Manner::Mcp),
            _ => return Err(Failure::not_found("no such question")),
        };
        Ok(Asked { question, manner })
    }

    /// What a server of this dialect is told of whose call it is: what the client calls itself in the request that makes
    /// the call, else its session or principal. It never comes from a question.
    pub(crate) fn client(
        self,
        request: Option<&RawObject>,
        call: Option<&CallMeta>,
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

impl Manner {
    /// The answer in the server's words.
    pub fn word(self, answer: RawObject) -> RawObject {
        match self {
            Self::Mcp => answer,
            Self::Sampling { client } => magictunnel::sampling_response(&answer, client.as_deref()),
            Self::Elicitation => magictunnel::elicitation_response(answer),
        }
    }
}
