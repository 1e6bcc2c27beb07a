//! Wire formats of the providers' APIs. Each module builds request bodies and parses answers,
//! complete or streamed.

mod anthropic;
pub(super) mod embeddings;
mod ollama;
mod openai_chat;
mod openai_responses;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::provider_failure::{ProviderFailure, sanitize_code};
use super::request::{AnswerDraft, ModelRequest};

/// Wire format of a provider's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireFormat {
    /// OpenAI chat completions. `tokens_max` is the name of the member with the token limit.
    OpenaiChat {
        tokens_max: &'static str,
    },
    OpenaiResponses,
    Anthropic,
    Ollama,
}

/// Framing of a streamed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events (WHATWG HTML).
    ServerSentEvents,
    /// One line of JSON per piece.
    JsonLines,
}

/// Members of a request body that don't come from the conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyOptions<'a> {
    pub model: &'a str,
    pub tokens_max: u32,
    pub stream: bool,
}

impl WireFormat {
    /// Returns the path of the API below the base URL.
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
            Self::Ollama => Framing::JsonLines,
            _ => Framing::ServerSentEvents,
        }
    }

    /// Whether the API supports stop sequences.
    pub fn knows_stop_sequences(self) -> bool {
        self != Self::OpenaiResponses
    }

    /// Builds the request body as JSON.
    ///
    /// # Errors
    /// `Unsupported` if the conversation contains something that the API lacks, such as audio.
    pub fn request_body(
        self,
        request: &ModelRequest,
        ask: BodyOptions<'_>,
    ) -> Result<String, ProviderFailure> {
        let body = match self {
            Self::OpenaiChat { tokens_max } => openai_chat::request_body(request, ask, tokens_max),
            Self::OpenaiResponses => openai_responses::request_body(request, ask),
            Self::Anthropic => anthropic::request_body(request, ask),
            Self::Ollama => ollama::request_body(request, ask),
        };
        Ok(Box::<str>::from(body?.to_raw()).into_string())
    }

    /// Parses a complete answer into `draft`.
    ///
    /// # Errors
    /// `Malformed` for a body of another shape, or the error that the body states.
    pub fn read_answer(self, body: &[u8], draft: &mut AnswerDraft) -> Result<(), ProviderFailure> {
        match self {
            Self::OpenaiChat { .. } => openai_chat::read_answer(parse_json(body)?, draft),
            Self::OpenaiResponses => openai_responses::read_answer(parse_json(body)?, draft),
            Self::Anthropic => anthropic::read_answer(parse_json(body)?, draft),
            Self::Ollama => ollama::read_piece(parse_json(body)?, draft),
        }
    }

    /// Parses one piece of a streamed answer into `draft`. Returns `true` for the last piece of the
    /// stream. The answer is whole only if [`AnswerDraft::is_complete`] is set as well.
    ///
    /// # Errors
    /// `Malformed` for a piece of another shape, or the error that the piece states.
    pub fn read_piece(self, data: &str, draft: &mut AnswerDraft) -> Result<bool, ProviderFailure> {
        let json = data.as_bytes();
        match self {
            Self::OpenaiChat { .. } | Self::OpenaiResponses if data.trim() == "[DONE]" => {
                return Ok(true);
            }
            Self::OpenaiChat { .. } => openai_chat::read_piece(parse_json(json)?, draft)?,
            Self::OpenaiResponses => openai_responses::read_piece(parse_json(json)?, draft)?,
            Self::Anthropic => anthropic::read_piece(parse_json(json)?, draft)?,
            Self::Ollama => ollama::read_piece(parse_json(json)?, draft)?,
        }
        Ok(draft.is_complete && !matches!(self, Self::OpenaiChat { .. }))
    }
}

fn parse_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, ProviderFailure> {
    serde_json::from_slice(json).map_err(|_| {
        ProviderFailure::Malformed(
            "it isn't the JSON of this provider's API (check `provider`, `url` and `api`)",
        )
    })
}

/// Token usage under the names of all providers.
#[derive(Deserialize)]
struct UsageBody {
    /// Input tokens in OpenAI chat completions, cached ones included.
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    /// Input tokens in OpenAI responses, and in Anthropic without cached ones.
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    /// Input tokens that Anthropic wrote to its cache, in addition to `input_tokens`.
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

/// Records the token usage reported by a provider. Numbers that it doesn't report stay as they are.
fn record_usage(usage: Option<UsageBody>, draft: &mut AnswerDraft) {
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

/// Returns the error code in an error body: `code` or `type` of OpenAI and Anthropic. `None` if
/// there is none that looks like a code; Ollama's error is a sentence and is left out.
pub(super) fn error_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Body {
        error: ErrorBody,
    }
    serde_json::from_slice::<Body>(body).ok()?.error.code()
}

/// Error object of OpenAI and Anthropic.
#[derive(Deserialize)]
struct ErrorBody {
    /// Error code: a name or a number.
    code: Option<serde_json::Value>,
    r#type: Option<String>,
}

impl ErrorBody {
    fn code(&self) -> Option<String> {
        sanitize_code(self.code.as_ref().and_then(|c| c.as_str()))
            .or_else(|| sanitize_code(self.r#type.as_deref()))
    }

    /// Converts an error event within an answer.
    fn to_failure(&self) -> ProviderFailure {
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
        ProviderFailure::ErrorEvent {
            code,
            is_retryable: again,
        }
    }
}
