use std::fmt;

use callboard_message::RawObject;
use callboard_rpc::code;

use crate::wire::ReadError;

/// Kinds of A2A errors: those of A2A (specification 1.0, section 5.4), those of JSON-RPC, and three
/// of callboard (`Overloaded`, `Denied`, `Blocked`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The task doesn't exist or belongs to another owner. Remedy: check its id.
    TaskNotFound,
    /// The task has already ended and can't be cancelled. Remedy: get its result.
    TaskNotCancelable,
    /// The agent doesn't support push notifications. Remedy: poll or stream instead.
    PushNotificationNotSupported,
    /// The operation isn't supported, by the agent or in the task's current state. Remedy: get the
    /// task and use an operation that its state allows.
    UnsupportedOperation,
    /// The media type isn't supported. Remedy: use one that the agent card lists.
    ContentTypeNotSupported,
    /// The agent's response is invalid. Remedy: report it to the agent's operator.
    InvalidAgentResponse,
    /// The agent has no extended card. Remedy: use the public card.
    ExtendedAgentCardNotConfigured,
    /// A required protocol extension wasn't requested. Remedy: name it in the header
    /// `A2A-Extensions`.
    ExtensionSupportRequired,
    /// The protocol version isn't supported. Remedy: use one that the agent card lists.
    VersionNotSupported,
    /// The request isn't valid JSON.
    Parse,
    /// The JSON isn't a valid request.
    InvalidRequest,
    /// The method doesn't exist.
    MethodNotFound,
    /// A parameter is missing or invalid. The message names the field.
    InvalidParams,
    /// Internal error, which is a bug of the server. Remedy: report it.
    Internal,
    /// A limit was reached. Remedy: retry later.
    Overloaded,
    /// The principal isn't allowed to do this. Remedy: request access.
    Denied,
    /// A policy blocked the request. Remedy: don't retry.
    Blocked,
}

/// JSON-RPC code of [`ErrorKind::Blocked`]. It lies outside the range reserved by JSON-RPC, because
/// a policy decision isn't a protocol error; MCP and HMCP use the same code.
const BLOCKED_CODE: i64 = -1;

impl ErrorKind {
    /// All error kinds. The first nine are A2A's, in the order of their codes.
    pub const ALL: [Self; 17] = [
        Self::TaskNotFound,
        Self::TaskNotCancelable,
        Self::PushNotificationNotSupported,
        Self::UnsupportedOperation,
        Self::ContentTypeNotSupported,
        Self::InvalidAgentResponse,
        Self::ExtendedAgentCardNotConfigured,
        Self::ExtensionSupportRequired,
        Self::VersionNotSupported,
        Self::Parse,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::Internal,
        Self::Overloaded,
        Self::Denied,
        Self::Blocked,
    ];

    /// Returns the representations of the kind: JSON-RPC code, HTTP status, gRPC status name and
    /// machine-readable reason.
    const fn status_mapping(self) -> (i64, u16, &'static str, &'static str) {
        match self {
            Self::TaskNotFound => (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => (-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
            Self::PushNotificationNotSupported => (
                -32003,
                400,
                "FAILED_PRECONDITION",
                "PUSH_NOTIFICATION_NOT_SUPPORTED",
            ),
            Self::UnsupportedOperation => {
                (-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")
            }
            Self::ContentTypeNotSupported => (
                -32005,
                400,
                "INVALID_ARGUMENT",
                "CONTENT_TYPE_NOT_SUPPORTED",
            ),
            Self::InvalidAgentResponse => (-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
            Self::ExtendedAgentCardNotConfigured => (
                -32007,
                400,
                "FAILED_PRECONDITION",
                "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
            ),
            Self::ExtensionSupportRequired => (
                -32008,
                400,
                "FAILED_PRECONDITION",
                "EXTENSION_SUPPORT_REQUIRED",
            ),
            Self::VersionNotSupported => {
                (-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")
            }
            Self::Parse => (code::PARSE_ERROR, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
            Self::InvalidRequest => (
                code::INVALID_REQUEST,
                400,
                "INVALID_ARGUMENT",
                "INVALID_REQUEST",
            ),
            Self::MethodNotFound => (
                code::METHOD_NOT_FOUND,
                404,
                "UNIMPLEMENTED",
                "METHOD_NOT_FOUND",
            ),
            Self::InvalidParams => (
                code::INVALID_PARAMS,
                400,
                "INVALID_ARGUMENT",
                "INVALID_PARAMS",
            ),
            Self::Internal => (code::INTERNAL_ERROR, 500, "INTERNAL", "INTERNAL_ERROR"),
            Self::Overloaded => (code::INTERNAL_ERROR, 503, "UNAVAILABLE", "OVERLOADED"),
            Self::Denied => (code::INTERNAL_ERROR, 403, "PERMISSION_DENIED", "DENIED"),
            Self::Blocked => (BLOCKED_CODE, 403, "PERMISSION_DENIED", "BLOCKED"),
        }
    }

    /// Returns the JSON-RPC error code. Several kinds share -32603.
    pub const fn code(self) -> i64 {
        self.status_mapping().0
    }

    /// Returns the HTTP status of an error response over HTTP+JSON. Over JSON-RPC the status is 200
    /// instead.
    pub const fn http_status(self) -> u16 {
        self.status_mapping().1
    }

    /// Returns the name of the gRPC status (`google.rpc.Code`), for example `NOT_FOUND`.
    pub const fn grpc_status(self) -> &'static str {
        self.status_mapping().2
    }

    /// Returns the machine-readable reason of the kind, for the member `reason` of
    /// `google.rpc.ErrorInfo`, for example `TASK_NOT_FOUND`.
    pub const fn reason(self) -> &'static str {
        self.status_mapping().3
    }

    /// Returns the kind with this `reason`; `None` if the reason is unknown.
    pub fn from_reason(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.reason() == reason)
    }

    /// Creates an error of this kind with a message of one sentence, without details or task.
    pub fn error(self, message: impl Into<String>) -> A2aError {
        A2aError {
            kind: self,
            message: message.into(),
            details: Vec::new(),
            task: None,
            retry_after_s: None,
        }
    }

    /// Returns the first kind with this JSON-RPC code; `None` if the code is unknown.
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Error of an A2A operation. The failed operation has changed nothing.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct A2aError {
    /// Kind of the error, from which its codes follow.
    pub kind: ErrorKind,
    /// Description for people, in one sentence.
    pub message: String,
    /// Details for programs, each an object with a `@type`. The `google.rpc.ErrorInfo` made from
    /// `kind` is added when the error is written.
    pub details: Vec<RawObject>,
    /// Id of the task that the error is about, if any.
    pub task: Option<String>,
    /// Time in seconds after which the request may succeed, for the header `Retry-After`; `None` if unknown.
    pub retry_after_s: Option<u64>,
}

/// Value of the member `domain` in `google.rpc.ErrorInfo`, the same for all reasons.
pub(crate) const ERROR_DOMAIN: &str = "a2a-protocol.org";
pub(crate) const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
pub(crate) const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
pub(crate) const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

impl A2aError {
    /// Creates an error of kind [`ErrorKind::InvalidParams`] that says what is wrong with a field.
    /// An empty `field` means the whole request. Neither argument may contain a value of the
    /// request.
    pub fn invalid_params(field: &str, why: &str) -> Self {
        let message = if field.is_empty() {
            format!("the request {why}")
        } else {
            format!("{field} {why}")
        };
        let violation = RawObject::single("field", field).with("description", why);
        let details = RawObject::single("@type", BAD_REQUEST).with("fieldViolations", [violation]);
        Self {
            details: vec![details],
            ..ErrorKind::InvalidParams.error(message)
        }
    }

    /// Creates an error of kind [`ErrorKind::TaskNotFound`] about the task `id`.
    pub fn task_not_found(id: &str) -> Self {
        ErrorKind::TaskNotFound
            .error("task not found")
            .with_task(id)
    }

    /// Creates an error of kind [`ErrorKind::Internal`]. Its fixed message doesn't reveal the
    /// cause.
    pub fn internal() -> Self {
        ErrorKind::Internal.error("internal error")
    }

    /// Returns the error with the id of the task that it is about.
    pub fn with_task(mut self, task: &str) -> Self {
        self.task = Some(task.to_owned());
        self
    }

    /// Returns the details to send: those of the error, and a `google.rpc.ErrorInfo` made from its
    /// kind. Kinds that JSON-RPC itself defines get no `google.rpc.ErrorInfo`, because their code
    /// already identifies them.
    pub(crate) fn all_details(&self) -> Vec<RawObject> {
        let is_plain = matches!(
            self.kind,
            ErrorKind::Parse
                | ErrorKind::InvalidRequest
                | ErrorKind::MethodNotFound
                | ErrorKind::InvalidParams
                | ErrorKind::Internal
        );
        let info = (!is_plain).then(|| {
            let metadata = self
                .task
                .as_ref()
                .map(|task| RawObject::single("taskId", task))
                .unwrap_or_default();
            RawObject::single("@type", ERROR_INFO)
                .with("reason", self.kind.reason())
                .with("domain", ERROR_DOMAIN)
                .with("metadata", metadata)
        });
        info.into_iter()
            .chain(self.details.iter().cloned())
            .collect()
    }
}

impl From<ReadError> for A2aError {
    fn from(error: ReadError) -> Self {
        Self::invalid_params(&error.field, error.why)
    }
}

// The message may come from a peer, so it isn't printed.
impl fmt::Debug for A2aError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A2aError({:?})", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each reason identifies one kind, and A2A's codes match the specification. Method: all
    /// kinds.
    #[test]
    fn table() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_reason(kind.reason()), Some(kind));
        }
        let codes: Vec<i64> = ErrorKind::ALL
            .iter()
            .take(9)
            .map(|kind| kind.code())
            .collect();
        assert_eq!(codes, (1..=9).map(|n| -32_000 - n).collect::<Vec<_>>());
        assert_eq!(ErrorKind::from_code(-32_603), Some(ErrorKind::Internal));
        assert_eq!(ErrorKind::from_code(-1), Some(ErrorKind::Blocked));
    }
}
