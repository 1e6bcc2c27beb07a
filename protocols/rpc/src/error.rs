use derive_more::Debug;

use serde_json::value::RawValue;

use crate::{Id, JsonError};

/// Error codes of JSON-RPC 2.0 (section 5.1).
pub mod code {
    /// The body isn't JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON isn't a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody answers to that method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters don't fit the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// A bug of the server's.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The first code that servers may use as they like, -32000 down to -32099.
    pub const SERVER_ERROR: i64 = -32000;
}

/// The `error` member of a response.
#[derive(Debug, Clone)]
// Message and data are the peer's and may hold patient text: they are never printed.
#[debug("RpcError({code}, {} bytes)", message.len())]
pub struct RpcError {
    /// One of [`code`], or the application's own.
    pub code: i64,
    /// One sentence for a person.
    pub message: String,
    /// Details for a program, as they came.
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    /// An error without details.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// [`code::INVALID_PARAMS`].
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// [`code::INVALID_REQUEST`].
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// [`code::METHOD_NOT_FOUND`].
    pub fn method_not_found(message: impl Into<String>) -> Self {
        Self::new(code::METHOD_NOT_FOUND, message)
    }
}

/// Why a body is no message. Each variant tells its sender what to change; nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Send one JSON text within the limits.
    #[error("can't be read: {0}")]
    Json(#[from] JsonError),
    /// Send the messages one by one.
    #[error("batches are not accepted")]
    Batch,
    /// Send a message or more in a batch.
    #[error("a batch has at least one message")]
    BatchEmpty,
    /// Send smaller batches.
    #[error("a batch has at most {entries_max} messages")]
    BatchOver {
        /// [`Limits::batch_entries_max`](crate::Limits::batch_entries_max).
        entries_max: usize,
    },
    /// Send an object.
    #[error("a message is an object")]
    NotAnObject,
    /// Send `"jsonrpc":"2.0"`.
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    /// Send a string or an integer as id, or leave it out of a notification.
    #[error("`id` must be a string or an integer of at most {bytes_max} bytes")]
    Id {
        /// [`Limits::id_bytes_max`](crate::Limits::id_bytes_max).
        bytes_max: usize,
    },
    /// Send `method`, a string.
    #[error("`method` must be a string of at most {bytes_max} bytes")]
    Method {
        /// [`Limits::method_bytes_max`](crate::Limits::method_bytes_max).
        bytes_max: usize,
    },
    /// Send `params` as an object or an array.
    #[error("`params` must be an object or an array")]
    Params,
    /// Send `result` or `error`, not both and not neither.
    #[error("a response has either `result` or `error`")]
    Outcome,
    /// Send `error` as an object with an integer `code` and a string `message`.
    #[error("`error` must be an object with an integer `code` and a string `message`")]
    Error,
}

impl DecodeError {
    /// The JSON-RPC code that says so to the sender.
    pub fn code(&self) -> i64 {
        match self {
            Self::Json(json) if !json.is_well_formed() => code::PARSE_ERROR,
            Self::Params => code::INVALID_PARAMS,
            _ => code::INVALID_REQUEST,
        }
    }
}

/// A body that was refused, and whom to tell.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// The message's id, where it could be read.
    pub id: Option<Id>,
    /// What was wrong.
    #[source]
    pub error: DecodeError,
}

impl From<&Refusal> for RpcError {
    fn from(refusal: &Refusal) -> Self {
        Self::new(refusal.error.code(), refusal.error.to_string())
    }
}
