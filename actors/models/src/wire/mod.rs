//! The shapes of the providers' APIs: each module makes a body of a request, and reads an answer, whole or in pieces.

mod anthropic;
mod ollama;
mod openai_chat;
mod openai_responses;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::request::{Draft, Request};
use super::trouble::{Trouble, code};

/// One provider's language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// Which name the limit of tokens goes by.
    OpenaiChat {
        tokens_max: &'static str,
    },
    OpenaiResponses,
    Anthropic,
    Ollama,
}

/// How the pieces of an answer are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// An event stream (WHATWG HTML, server-sent events).
    Events,
    /// A line of JSON each.
    Lines,
}

/// What a body is made of beside the conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub model: &'a str,
    pub tokens_max: u32,
    pub stream: bool,
}

impl Wire {
    /// What follows the address of the API.
    pub fn path(self) -> &'static str {
        match self {
            Self::OpenaiChat { .. } => "chat/completions",
            Self::OpenaiResponses => "responses",
            Self::Anthropic => "messages",
            Self::Ollama => "api/chat",
        }
    }

    pub fn framing(self) -> Framing {
        match self {
            Self::Ollama => Framing::Lines,
            _ => Framing::Events,
        }
    }

    /// Whether stop sequences are the provider's work.
    pub fn knows_stop_sequences(self) -> bool {
        self != Self::OpenaiResponses
    }

    /// The body of the request, as JSON.
    pub fn body(self, request: &Request, ask: Ask<'_>) -> Result<String, Trouble> {
        let body = match self {
            Self::OpenaiChat { tokens_max } => openai_chat::body(request, ask, tokens_max),
            Self::OpenaiResponses => openai_responses::body(request, ask),
            Self::Anthropic => anthropic::body(request, ask),
            Self::Ollama => ollama::body(request, ask),
        };
        Ok(Box::<str>::from(body?.to_raw()).into_string())
    }

    /// Reads an answer that came in one piece.
    pub fn whole(self, body: &[u8], draft: &mut Draft) -> Result<(), Trouble> {
        match self {
            Self::OpenaiChat { .. } => openai_chat::whole(read(body)?, draft),
            Self::OpenaiResponses => openai_responses::whole(read(body)?, draft),
            Self::Anthropic => anthropic::whole(read(body)?, draft),
            Self::Ollama => ollama::piece(read(body)?, draft),
        }
    }

    /// Reads a piece of an answer. No further one is needed when the draft is whole and this is `true`.
    pub fn piece(self, data: &str, draft: &mut Draft) -> Result<bool, Trouble> {
        let json = data.as_bytes();
        match self {
            Self::OpenaiChat { .. } | Self::OpenaiResponses if data.trim() == "[DONE]" => {
                return Ok(true);
            }
            Self::OpenaiChat { .. } => openai_chat::piece(read(json)?, draft)?,
            Self::OpenaiResponses => openai_responses::piece(read(json)?, draft)?,
            Self::Anthropic => anthropic::piece(read(json)?, draft)?,
            Self::Ollama => ollama::piece(read(json)?, draft)?,
        }
        Ok(draft.is_whole && !matches!(self, Self::OpenaiChat { .. }))
    }
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(json)
        .map_err(|_| Trouble::Malformed("it isn't JSON of the provider's shape"))
}

/// Tokens used, by any provider's names.
#[derive(Deserialize)]
struct TokenUsage {
    /// OpenAI's chat completions; tokens from a cache are among them.
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    /// OpenAI's responses, and Anthropic.
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    /// Anthropic, beside `input_tokens`.
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

/// Notes the tokens that a provider tells of.
fn note(usage: Option<TokenUsage>, draft: &mut Draft) {
    let Some(usage) = usage else { return };
    let cached =
        usage.cache_creation_input_tokens.unwrap_or(0) + usage.cache_read_input_tokens.unwrap_or(0);
    let input = usage
        .prompt_tokens
        .or(usage.input_tokens.map(|tokens| tokens + cached));
    draft.input_tokens = input.or(draft.input_tokens);
    draft.output_tokens = usage
        .completion_tokens
        .or(usage.output_tokens)
        .or(draft.output_tokens);
}

/// The body of an error: OpenAI's and Anthropic's have `code` or `type` in it, Ollama's is a sentence, which is left out.
pub(super) fn error_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Body {
        error: ProviderError,
    }
    serde_json::from_slice::<Body>(body).ok()?.error.code()
}

/// An error as OpenAI and Anthropic tell it.
#[derive(Deserialize)]
struct ProviderError {
    /// A name or a number.
    code: Option<serde_json::Value>,
    r#type: Option<String>,
}

impl ProviderError {
    fn code(&self) -> Option<String> {
        code(self.code.as_ref().and_then(|c| c.as_str())).or_else(|| code(self.r#type.as_deref()))
    }

    /// The same in the middle of an answer.
    fn trouble(&self) -> Trouble {
        let code = self.code();
        let again = matches!(
            code.as_deref(),
            Some(
                "overloaded_error"
                    | "api_error"
                    | "rate_limit_error"
                    | "rate_limit_exceeded"
                    | "server_error"
            )
        );
        Trouble::Told { code, again }
    }
}
