use std::fmt;

use callboard_message::RawObject;
use callboard_rpc::code;

use crate::wire::ReadError;

/// What went wrong, in A2A's terms (specification 1.0, section 5.4), JSON-RPC's, and three of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such task, or somebody else's: look up its id.
    TaskNotFound,
    /// It has ended: ask for its result.
    TaskNotCancelable,
    /// Poll or stream instead.
    PushNotificationNotSupported,
    /// Not here, or not in the task's state: ask for the task and do what fits.
    UnsupportedOperation,
    /// Send another media type: the card says which.
    ContentTypeNotSupported,
    /// The agent's answer is none: tell whoever runs it.
    InvalidAgentResponse,
    /// Do with the public card.
    ExtendedAgentCardNotConfigured,
    /// Name the extension in `A2A-Extensions`.
    ExtensionSupportRequired,
    /// Take another version: the card says which.
    VersionNotSupported,
    /// Send JSON.
    Parse,
    /// Send a request.
    InvalidRequest,
    /// Take another method.
    MethodNotFound,
    /// Change the field that is named.
    InvalidParams,
    /// A bug of the server's: report it.
    Internal,
    /// A limit was met: try again later.
    Overloaded,
    /// Ask whoever grants it.
    Denied,
    /// A policy stopped it: don't repeat it.
    Blocked,
}

/// What a policy stops is nobody's bug: the code is outside of those that JSON-RPC reserves, as MCP's and HMCP's is.
const BLOCKED: i64 = -1;

impl ErrorKind {
    /// All of them.
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

    /// JSON-RPC code, HTTP status, gRPC status, and reason.
    const fn row(self) -> (i64, u16, &'static str, &'static str) {
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
            Self::Blocked => (BLOCKED, 403, "PERMISSION_DENIED", "BLOCKED"),
        }
    }

    /// The JSON-RPC code.
    pub const fn code(self) -> i64 {
        self.row().0
    }

    /// The HTTP status, where a request's answer is the error itself.
    pub const fn http(self) -> u16 {
        self.row().1
    }

    /// The name of the gRPC status (`google.rpc.Code`).
    pub const fn grpc(self) -> &'static str {
        self.row().2
    }

    /// The `reason` of `google.rpc.ErrorInfo`.
    pub const fn reason(self) -> &'static str {
        self.row().3
    }

    /// The kind of that reason.
    pub fn of_reason(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.reason() == reason)
    }

    /// An error of this kind, told in one sentence.
    pub fn error(self, message: impl Into<String>) -> A2aError {
        A2aError {
            kind: self,
            message: message.into(),
            details: Vec::new(),
            task: None,
        }
    }

    /// The first kind of that code.
    pub fn of_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Why an operation wasn't done. Nothing was changed.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct A2aError {
    /// What went wrong.
    pub kind: ErrorKind,
    /// One sentence for a person.
    pub message: String,
    /// Details for a program, each with its `@type`, beside the `google.rpc.ErrorInfo` that `kind` makes.
    pub details: Vec<RawObject>,
    /// The task it is about, if it is about one.
    pub task: Option<String>,
}

/// The domain of A2A's reasons.
pub(crate) const DOMAIN: &str = "a2a-protocol.org";
pub(crate) const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
pub(crate) const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

impl A2aError {
    /// [`ErrorKind::InvalidParams`]: what is wrong with a field. Neither may hold a value of the request.
    pub fn invalid(field: &str, why: &str) -> Self {
        let message = if field.is_empty() {
            format!("the request {why}")
        } else {
            format!("{field} {why}")
        };
        let violation = RawObject::of("field", field).with("description", why);
        let details = RawObject::of("@type", BAD_REQUEST).with("fieldViolations", [violation]);
        Self {
            details: vec![details],
            ..ErrorKind::InvalidParams.error(message)
        }
    }

    /// [`ErrorKind::TaskNotFound`].
    pub fn task_not_found(id: &str) -> Self {
        ErrorKind::TaskNotFound.error("task not found").about(id)
    }

    /// [`ErrorKind::Internal`], which says nothing else.
    pub fn internal() -> Self {
        ErrorKind::Internal.error("internal error")
    }

    /// The same error about a task.
    pub fn about(mut self, task: &str) -> Self {
        self.task = Some(task.to_owned());
        self
    }

    /// All details as they are sent. JSON-RPC's own kinds need no reason: their code is one.
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
                .map(|task| RawObject::of("taskId", task))
                .unwrap_or_default();
            RawObject::of("@type", ERROR_INFO)
                .with("reason", self.kind.reason())
                .with("domain", DOMAIN)
                .with("metadata", metadata)
        });
        info.into_iter()
            .chain(self.details.iter().cloned())
            .collect()
    }
}

impl From<ReadError> for A2aError {
    fn from(error: ReadError) -> Self {
        Self::invalid(&error.field, error.why)
    }
}

// The message may be a peer's: it isn't printed.
impl fmt::Debug for A2aError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A2aError({:?})", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a reason names one kind, and A2A's codes are the specification's. Method: the table.
    #[test]
    fn table() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::of_reason(kind.reason()), Some(kind));
        }
        let codes: Vec<i64> = ErrorKind::ALL
            .iter()
            .take(9)
            .map(|kind| kind.code())
            .collect();
        assert_eq!(codes, (1..=9).map(|n| -32_000 - n).collect::<Vec<_>>());
        assert_eq!(ErrorKind::of_code(-32_603), Some(ErrorKind::Internal));
        assert_eq!(ErrorKind::of_code(-1), Some(ErrorKind::Blocked));
    }
}
