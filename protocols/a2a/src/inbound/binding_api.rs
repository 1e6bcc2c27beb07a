//! Operations for bindings outside this module, such as gRPC. Requests and responses are JSON of
//! 1.0.

use std::sync::Arc;

use callboard_message::TraceContext;
use callboard_rpc::serve::guard::HttpRejection;
use callboard_rpc::{CredentialError, PresentedCredential, check_json};
use callboard_runtime::SharePermit;
use futures::StreamExt;
use serde_json::value::RawValue;

use super::calls::{RequestContext, TaskEventStream};
use super::operations::{self, A2aRequest, OperationResult, ServerState};
use super::options::A2aOptions;
use super::request_head;
use super::server::AddressRouter;
use crate::{A2aError, Dialect, ErrorKind, Operation};

/// Operation that a request asks for, and the server of the agent that it is for.
pub(crate) struct AddressedRequest {
    asked: A2aRequest,
    server: Arc<ServerState>,
}

impl AddressRouter {
    pub(crate) fn options(&self) -> &A2aOptions {
        &self.aggregate.server.options
    }

    /// Reads a request, and finds the server of the agent that its tenant names.
    ///
    /// # Errors
    /// Those of a request that can't be read; `InvalidParams` for an unknown tenant.
    pub(crate) fn address(
        &self,
        operation: Operation,
        params: &RawValue,
    ) -> Result<AddressedRequest, A2aError> {
        let over =
            |error: callboard_rpc::JsonError| ErrorKind::InvalidRequest.error(error.to_string());
        check_json(params.get().as_bytes(), &self.options().limits).map_err(over)?;
        let mut asked = A2aRequest::from_params(Dialect::V10, operation, Some(params))?;
        let server = self.root_endpoint().server_for_tenant(asked.tenant_mut())?;
        Ok(AddressedRequest { asked, server })
    }
}

/// Authenticates a request and returns its context.
///
/// # Errors
/// [`CredentialError`] if the principal can't be determined.
pub(crate) fn request_context(
    options: &A2aOptions,
    shown: &PresentedCredential<'_>,
    trace: Option<TraceContext>,
) -> Result<RequestContext, CredentialError> {
    let principal = Arc::new(options.access.authenticate(shown)?);
    Ok(RequestContext::new(principal, Dialect::V10).with_parent_trace(trace))
}

/// Checks that a server supports the client's protocol version, and that the client names all required
/// extensions.
///
/// # Errors
/// `VersionNotSupported`, `ExtensionSupportRequired`.
pub(crate) fn negotiate(
    options: &A2aOptions,
    version: &str,
    extensions: &[&str],
) -> Result<(), A2aError> {
    if !version.is_empty() && Dialect::from_version(version) != Some(Dialect::V10) {
        return Err(ErrorKind::VersionNotSupported
            .error("unsupported `a2a-version`: over gRPC this server supports 1.0 only"));
    }
    request_head::check_required_extensions(options, || extensions.iter().copied())
}

impl AddressedRequest {
    /// Returns the options of the agent's server.
    pub(crate) fn options(&self) -> &A2aOptions {
        &self.server.options
    }

    /// Performs an operation with a single response.
    ///
    /// # Errors
    /// The operation's errors, and `Internal` if its response is a stream.
    pub(crate) async fn call_unary(self, who: RequestContext) -> Result<Box<RawValue>, A2aError> {
        match self.perform(who).await? {
            (OperationResult::SingleResult(answer), _) => Ok(answer),
            (OperationResult::EventStream(_), _) => Err(A2aError::internal()),
        }
    }

    /// Performs an operation whose response is a stream.
    ///
    /// # Errors
    /// The operation's errors, and `Overloaded` if too many streams are open.
    pub(crate) async fn call_streaming(
        self,
        who: RequestContext,
    ) -> Result<TaskEventStream, A2aError> {
        match self.perform(who).await? {
            (OperationResult::SingleResult(_), _) => Err(A2aError::internal()),
            (OperationResult::EventStream(events), room) => {
                // The permit is held as long as the stream is open.
                Ok(events.map(move |event| (event, &room).0).boxed())
            }
        }
    }

    async fn perform(
        self,
        who: RequestContext,
    ) -> Result<(OperationResult, Option<SharePermit>), A2aError> {
        let Self { asked, server } = self;
        let who = operations::complete_context(&server, who, &asked).await;
        let full = |refused: HttpRejection| ErrorKind::Overloaded.error(refused.message);
        let room = server.stream_permit(&who, &asked).map_err(full)?;
        Ok((
            operations::perform_operation(&server, &who, asked, None).await?,
            room,
        ))
    }
}
