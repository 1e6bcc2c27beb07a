//! The operations for a binding that isn't this module's own: what it reads and writes is 1.0's JSON.

use std::sync::Arc;

use callboard_message::TraceContext;
use callboard_rpc::{Credential, CredentialError, check};
use futures::StreamExt;
use serde_json::value::RawValue;

use super::admit;
use super::calls::{Events, Who};
use super::operations::{self, Answer, Asked};
use super::options::A2aOptions;
use super::server::Front;
use crate::{A2aError, Dialect, ErrorKind, Operation};

impl Front {
    pub(crate) fn options(&self) -> &A2aOptions {
        &self.all.server.options
    }

    /// Who asks.
    ///
    /// # Errors
    /// Nobody knows.
    pub(crate) fn who(
        &self,
        shown: &Credential<'_>,
        trace: Option<TraceContext>,
    ) -> Result<Who, CredentialError> {
        let principal = Arc::new(self.options().access.principal(shown)?);
        Ok(Who::new(principal, Dialect::V10).traced(trace))
    }

    /// Whether what a client says of version and extensions can be served.
    ///
    /// # Errors
    /// `VersionNotSupported`, `ExtensionSupportRequired`.
    pub(crate) fn agree(&self, version: &str, extensions: &[&str]) -> Result<(), A2aError> {
        if !version.is_empty() && Dialect::of_version(version) != Some(Dialect::V10) {
            return Err(
                ErrorKind::VersionNotSupported.error("version 1.0 is spoken over this binding")
            );
        }
        admit::knows_required(self.options(), || extensions.iter().copied())
    }

    /// An operation that has one answer.
    ///
    /// # Errors
    /// The operation's.
    pub(crate) async fn answer(
        &self,
        who: Who,
        operation: Operation,
        params: &RawValue,
    ) -> Result<Box<RawValue>, A2aError> {
        match self.perform(who, operation, params).await? {
            (Answer::Whole(answer), _) => Ok(answer),
            (Answer::Events(_), _) => Err(A2aError::internal()),
        }
    }

    /// An operation that has a stream of them.
    ///
    /// # Errors
    /// The operation's; `Overloaded` where too many streams are open.
    pub(crate) async fn events(
        &self,
        who: Who,
        operation: Operation,
        params: &RawValue,
    ) -> Result<Events, A2aError> {
        match self.perform(who, operation, params).await? {
            (Answer::Whole(_), _) => Err(A2aError::internal()),
            (Answer::Events(events), room) => {
                // The room is held as long as the stream is.
                Ok(events.map(move |event| (event, &room).0).boxed())
            }
        }
    }

    async fn perform(
        &self,
        who: Who,
        operation: Operation,
        params: &RawValue,
    ) -> Result<(Answer, Option<super::reply::Room>), A2aError> {
        let over =
            |error: callboard_rpc::JsonError| ErrorKind::InvalidRequest.error(error.to_string());
        check(params.get().as_bytes(), &self.options().limits).map_err(over)?;
        let mut asked = Asked::read(Dialect::V10, operation, Some(params))?;
        let server = self.door().of(asked.tenant())?;
        let who = operations::known(&server, who, &asked).await;
        let full =
            |_| ErrorKind::Overloaded.error("there are too many open streams: end one first");
        let room = server.room(&who, &asked).map_err(full)?;
        Ok((operations::perform(&server, &who, asked, None).await?, room))
    }
}
