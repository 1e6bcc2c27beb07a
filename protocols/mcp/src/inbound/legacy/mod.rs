//! Being written.

use super::options::InboundOptions;

/// What an endpoint keeps.
pub(crate) struct LegacyState;

impl LegacyState {
    pub(crate) fn new(_options: &InboundOptions) -> Self {
        Self
    }
}
