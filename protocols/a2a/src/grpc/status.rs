//! Errors as gRPC tells them: a code, and `google.rpc.Status` with its details in `grpc-status-details-bin`.

use std::collections::HashMap;

use callboard_message::RawObject;
use callboard_rpc::CredentialError;
use prost::Message;
use tonic::{Code, Status};

use crate::{A2aError, ErrorKind};

const DOMAIN: &str = "a2a-protocol.org";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl Any {
    fn of(type_url: &str, message: &impl Message) -> Self {
        Self { type_url: type_url.to_owned(), value: message.encode_to_vec() }
    }
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

/// `google.rpc.BadRequest`.
#[derive(Clone, PartialEq, Message)]
struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    field_violations: Vec<FieldViolation>,
}

/// `google.rpc.BadRequest.FieldViolation`.
#[derive(Clone, PartialEq, Message)]
struct FieldViolation {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, tag = "2")]
    description: String,
}

/// An error of an operation.
pub(super) fn of_error(error: &A2aError) -> Status {
    let code = code(error.kind);
    let metadata = error.task.iter().map(|task| ("taskId".to_owned(), task.clone())).collect();
    let info = ErrorInfo { reason: error.kind.reason().to_owned(), domain: DOMAIN.to_owned(), metadata };
    let violations = error.details.iter().filter(|detail| detail.text("@type").as_deref() == Some(BAD_REQUEST));
    let fields = violations.flat_map(|detail| detail.read::<Vec<RawObject>>("fieldViolations").unwrap_or_default());
    let field_violations: Vec<_> = fields
        .map(|violation| FieldViolation {
            field: violation.text("field").unwrap_or_default(),
            description: violation.text("description").unwrap_or_default(),
        })
        .collect();
    let mut details = vec![Any::of(ERROR_INFO, &info)];
    if !field_violations.is_empty() {
        details.push(Any::of(BAD_REQUEST, &BadRequest { field_violations }));
    }
    let status = RpcStatus { code: code.into(), message: error.message.clone(), details };
    Status::with_details(code, &error.message, status.encode_to_vec().into())
}

/// Nobody knows who asks.
pub(super) fn of_credential(error: CredentialError) -> Status {
    let code = match error {
        CredentialError::Unavailable => Code::Unavailable,
        CredentialError::Forwarded => Code::PermissionDenied,
        _ => Code::Unauthenticated,
    };
    Status::new(code, error.to_string())
}

fn code(kind: ErrorKind) -> Code {
    match kind.grpc() {
        "NOT_FOUND" => Code::NotFound,
        "FAILED_PRECONDITION" => Code::FailedPrecondition,
        "INVALID_ARGUMENT" => Code::InvalidArgument,
        "UNIMPLEMENTED" => Code::Unimplemented,
        "UNAVAILABLE" => Code::Unavailable,
        "PERMISSION_DENIED" => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every kind has the gRPC code of its name. Method: the table.
    #[test]
    fn codes_are_those_of_their_names() {
        for kind in ErrorKind::ALL {
            let name = format!("{:?}", code(kind)).to_uppercase();
            assert_eq!(name, kind.grpc().replace('_', ""), "{kind:?}");
        }
    }
}
