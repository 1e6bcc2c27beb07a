use std::sync::Arc;
use std::time::Duration;

use callboard_message::RawObject;
use callboard_rpc::RpcError;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::desk::Desk;
use crate::wire::code::CANCELLED;

/// How long the questions that a call asks at once may be apart: they go to the client together.
const GATHER: Duration = Duration::from_millis(5);

/// A call under way, from request to request. Dropped, it is cancelled.
pub(super) struct Running {
    pub outcome: BoxFuture<'static, Result<Box<RawValue>, RpcError>>,
    pub client: Arc<Client>,
    pub desk: Arc<Desk>,
}

/// How far a call came.
pub(super) enum Step {
    /// To its end.
    Ended(Result<Box<RawValue>, RpcError>),
    /// To questions: `inputRequests`.
    Asks(RawObject),
    /// Its client went away.
    HungUp,
}

impl Running {
    /// Goes on until the call ends, or waits for answers.
    pub async fn step(&mut self, hung_up: &CancellationToken) -> Step {
        loop {
            if self.desk.requests().is_none() {
                tokio::select! {
                    biased;
                    outcome = &mut self.outcome => return Step::Ended(outcome),
                    () = self.desk.asked() => {}
                    () = hung_up.cancelled() => return Step::HungUp,
                }
            }
            while tokio::select! {
                biased;
                outcome = &mut self.outcome => return Step::Ended(outcome),
                () = self.desk.asked() => true,
                () = hung_up.cancelled() => return Step::HungUp,
                () = sleep(GATHER) => false,
            } {}
            if let Some(requests) = self.desk.requests() {
                return Step::Asks(requests);
            }
        }
    }
}

/// What a request is answered with whose client went away; nobody reads it.
pub(super) fn cancelled() -> RpcError {
    RpcError::new(CANCELLED, "cancelled")
}
