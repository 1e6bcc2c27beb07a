use derive_more::Debug;

use serde_json::value::RawValue;

use crate::{JsonError, RequestId};

/// Error codes of JSON-RPC 2.0 (section 5.1).
pub mod code {
    /// The body is not valid JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a valid request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method doesn't exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Internal error of the server.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// First of the codes that servers may define (-32000 to -32099).
    pub const SERVER_ERROR: i64 = -32000;
}

/// Error object of a JSON-RPC response.
#[derive(Debug, Clone)]
// Message and data are the peer's and may hold patient text: they are never printed.
#[debug("RpcError({code}, {} bytes)", message.len())]
pub struct RpcError {
    /// Error code: one of [`code`], or a code of the application.
    pub code: i64,
    /// One sentence for a person.
    pub message: String,
    /// Details for programs, as raw JSON. `None` if the error has no `data`.
    pub data: Option<Box<RawValue>>,
    /// Scope that the credential of the refused request lacks, for the status and the challenge of
    /// an HTTP response. It isn't part of the JSON, so that no peer can set it.
    pub needed_scope: Option<String>,
}

impl RpcError {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            needed_scope: None,
        }
    }

    /// Creates an error with [`code::INVALID_PARAMS`].
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// Creates an error with [`code::INVALID_REQUEST`].
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// Creates an error with [`code::METHOD_NOT_FOUND`].
    pub fn method_not_found(message: impl Into<String>) -> Self {
        Self::new(code::METHOD_NOT_FOUND, message)
    }
}

/// Reason why a body, or one entry of a batch, could not be decoded. That body or entry has not
/// been processed; other entries of the batch may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The body is not valid JSON, or exceeds a limit.
    #[error("the message can't be read as JSON: {0}")]
    Json(#[from] JsonError),
    /// The body is a batch, but the function or protocol revision permits none.
    #[error("batches are not accepted: send each message alone")]
    Batch,
    /// The batch is empty.
    #[error("a batch must have at least one message")]
    BatchEmpty,
    /// The batch has too many entries.
    #[error("a batch may have at most {entries_max} messages: send several batches")]
    BatchOver {
        /// Limit: [`DecodeLimits::batch_entries_max`](crate::DecodeLimits::batch_entries_max).
        entries_max: usize,
    },
    /// The message is not a JSON object.
    #[error("a message must be a JSON object")]
    NotAnObject,
    /// The member `jsonrpc` is not `"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// The id is neither a string nor an integer, is too long, or is missing in a response.
    #[error("`id` must be a string or an integer of at most {bytes_max} bytes")]
    Id {
        /// Limit in bytes: [`DecodeLimits::id_bytes_max`](crate::DecodeLimits::id_bytes_max).
        bytes_max: usize,
    },
    /// The member `method` is missing, is not a string, or is too long.
    #[error("`method` must be a string of at most {bytes_max} bytes")]
    Method {
        /// Limit in bytes:
        /// [`DecodeLimits::method_bytes_max`](crate::DecodeLimits::method_bytes_max).
        bytes_max: usize,
    },
    /// The member `params` is neither an object nor an array.
    #[error("`params` must be an object or an array")]
    Params,
    /// The response has both `result` and `error`, or neither.
    #[error("a response must have either `result` or `error`")]
    Outcome,
    /// The member `error` is not an object with an integer `code` and a string `message`.
    #[error("`error` must be an object with an integer `code` and a string `message`")]
    Error,
}

impl DecodeError {
    /// Returns the JSON-RPC error code to reply with.
    pub fn code(&self) -> i64 {
        match self {
            Self::Json(json) if !json.is_well_formed() => code::PARSE_ERROR,
            Self::Params => code::INVALID_PARAMS,
            _ => code::INVALID_REQUEST,
        }
    }
}

/// Decoding error with the id for the error response.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct DecodeFailure {
    /// Id of the message; `None` if it has none or it could not be read.
    pub id: Option<RequestId>,
    /// Reason why the body could not be decoded.
    #[source]
    pub error: DecodeError,
}

impl From<&DecodeFailure> for RpcError {
    fn from(refusal: &DecodeFailure) -> Self {
        Self::new(refusal.error.code(), refusal.error.to_string())
    }
}
