//! Errors as gRPC tells them: a code, and `google.rpc.Status` with its details in `grpc-status-details-bin`.

use std::collections::HashMap;

use callboard_message::RawObject;
use callboard_rpc::CredentialError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::error::{BAD_REQUEST, DOMAIN};
use crate::{A2aError, ErrorKind};

/// An error of an operation.
pub(super) fn of_error(error: &A2aError) -> Status {
    let metadata: HashMap<_, _> = error.task.iter().map(|task| ("taskId".to_owned(), task.clone())).collect();
    let mut details = ErrorDetails::with_error_info(error.kind.reason(), DOMAIN, metadata);
    let violations = error.details.iter().filter(|detail| detail.text("@type").as_deref() == Some(BAD_REQUEST));
    for violation in violations.flat_map(|detail| detail.read::<Vec<RawObject>>("fieldViolations").unwrap_or_default())
    {
        let text = |name| violation.text(name).unwrap_or_default();
        details.add_bad_request_violation(text("field"), text("description"));
    }
    Status::with_error_details(code(error.kind), &error.message, details)
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
