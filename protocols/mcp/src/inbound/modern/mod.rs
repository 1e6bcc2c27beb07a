//! Being written.

use std::sync::Arc;

use callboard_message::Principal;
use callboard_rpc::{Nulls, Request, RpcError, code, encode_response};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::link::Link;
use super::options::InboundOptions;

/// What an endpoint keeps.
pub(crate) struct ModernState;

impl ModernState {
    pub(crate) fn new(_options: &InboundOptions) -> Self {
        Self
    }
}

/// An answer, and the HTTP status for it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Whether `_meta` names a revision.
pub(crate) fn is_modern(params: Option<&RawValue>) -> bool {
    params.is_some_and(|params| params.get().contains("\"io.modelcontextprotocol/protocolVersion\""))
}

/// Answers one request.
pub(crate) async fn request(
    _endpoint: &Arc<Endpoint>,
    _principal: Arc<Principal>,
    request: Request<'_>,
    _link: Arc<dyn Link>,
    _cancel: CancellationToken,
) -> Answer {
    let error = RpcError::new(code::METHOD_NOT_FOUND, "method not found");
    Answer { status: 404, body: encode_response(Some(&request.id), Err(&error), Nulls::Omit) }
}
