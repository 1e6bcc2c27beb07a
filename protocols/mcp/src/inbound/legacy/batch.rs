//! Batches: 2025-03-26 only.

use std::sync::Arc;

use callboard_rpc::{Incoming, Nulls, Refusal, RpcError, code, encode_batch, encode_response};
use futures::future::join_all;

use super::session::Session;
use crate::inbound::link::Link;

/// Answers the messages of a batch, all at once, in one batch; `None` where none of them wants an answer.
pub(crate) async fn batch(
    session: &Arc<Session>,
    entries: Vec<Result<Incoming<'_>, Refusal>>,
    link: &Arc<dyn Link>,
) -> Option<Vec<u8>> {
    let answers = entries.into_iter().map(|entry| async move {
        match entry {
            Ok(Incoming::Request(request)) if request.method == "initialize" => {
                let error = RpcError::new(code::INVALID_REQUEST, "`initialize` must not be part of a batch");
                Some(encode_response(Some(&request.id), Err(&error), Nulls::Omit))
            }
            Ok(Incoming::Request(request)) => session.request(request, link.clone()).await,
            Ok(Incoming::Notification(notification)) => {
                session.notification(notification);
                None
            }
            Ok(Incoming::Response(response)) => {
                session.response(response);
                None
            }
            Err(refusal) => Some(encode_response(refusal.id.as_ref(), Err(&RpcError::from(&refusal)), Nulls::Omit)),
        }
    });
    encode_batch(join_all(answers).await.into_iter().flatten())
}
