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
use super::operations::{self, A2aRequest, OperationResult};
use super::options::A2aOptions;
use super::request_head;
use super::server::AddressRouter;
use crate::{A2aError, Dialect, ErrorKind, Operation};

impl AddressRouter {
    pub(crate) fn options(&self) -> &A2aOptions {
        &self.aggregate.server.options
    }

    /// Authenticates a request and returns its context.
    ///
    /// # Errors
    /// [`CredentialError`] if the principal can't be determined.
    pub(crate) fn request_context(
        &self,
        shown: &PresentedCredential<'_>,
        trace: Option<TraceContext>,
    ) -> Result<RequestContext, CredentialError> {
        let principal = Arc::new(self.options().access.authenticate(shown)?);
        Ok(RequestContext::new(principal, Dialect::V10).with_parent_trace(trace))
    }

    /// Checks that the server supports the client's protocol version, and that the client names all
    /// required extensions.
    ///
    /// # Errors
    /// `VersionNotSupported`, `ExtensionSupportRequired`.
    pub(crate) fn negotiate(&self, version: &str, extensions: &[&str]) -> Result<(), A2aError> {
        if !version.is_empty() && Dialect::from_version(version) != Some(Dialect::V10) {
            return Err(ErrorKind::VersionNotSupported
                .error("unsupported `a2a-version`: over gRPC this server supports 1.0 only"));
        }
        request_head::check_required_extensions(self.options(), || extensions.iter().copied())
    }

    /// Performs an operation with a single response.
    ///
    /// # Errors
    /// The operation's errors, and `Internal` if its response is a stream.
    pub(crate) async fn call_unary(
        &self,
        who: RequestContext,
        operation: Operation,
        params: &RawValue,
    ) -> Result<Box<RawValue>, A2aError> {
        match self.perform(who, operation, params).await? {
            (OperationResult::SingleResult(answer), _) => Ok(answer),
            (OperationResult::EventStream(_), _) => Err(A2aError::internal()),
        }
    }

    /// Performs an operation whose response is a stream.
    ///
    /// # Errors
    /// The operation's errors, and `Overloaded` if too many streams are open.
    pub(crate) async fn call_streaming(
        &self,
        who: RequestContext,
        operation: Operation,
        params: &RawValue,
    ) -> Result<TaskEventStream, A2aError> {
        match self.perform(who, operation, params).await? {
            (OperationResult::SingleResult(_), _) => Err(A2aError::internal()),
            (OperationResult::EventStream(events), room) => {
                // The permit is held as long as the stream is open.
                Ok(events.map(move |event| (event, &room).0).boxed())
            }
        }
    }

    async fn perform(
        &self,
        who: RequestContext,
        operation: Operation,
        params: &RawValue,
    ) -> Result<(OperationResult, Option<SharePermit>), A2aError> {
        let over =
            |error: callboard_rpc::JsonError| ErrorKind::InvalidRequest.error(error.to_string());
        check_json(params.get().as_bytes(), &self.options().limits).map_err(over)?;
        let mut asked = A2aRequest::from_params(Dialect::V10, operation, Some(params))?;
        let server = self.root_endpoint().server_for_tenant(asked.tenant_mut())?;
        let who = operations::complete_context(&server, who, &asked).await;
        let full = |refused: HttpRejection| ErrorKind::Overloaded.error(refused.message);
        let room = server.stream_permit(&who, &asked).map_err(full)?;
        Ok((
            operations::perform_operation(&server, &who, asked, None).await?,
            room,
        ))
    }
}
