//! Being written.

use super::options::InboundOptions;

/// What an endpoint keeps.
pub(crate) struct ModernState;

impl ModernState {
    pub(crate) fn new(_options: &InboundOptions) -> Self {
        Self
    }
}
// STUB until modern lands
pub(crate) struct Answer { pub(crate) body: Vec<u8> }
pub(crate) fn is_modern(_: Option<&serde_json::value::RawValue>) -> bool { false }
pub(crate) async fn request(_: &std::sync::Arc<super::endpoint::Endpoint>, _: std::sync::Arc<callboard_message::Principal>, _: callboard_rpc::Request<'_>, _: std::sync::Arc<dyn super::link::Link>, _: tokio_util::sync::CancellationToken) -> Answer { Answer { body: Vec::new() } }
