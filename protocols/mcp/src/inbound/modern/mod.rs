//! Being written.

use super::options::InboundOptions;

/// What an endpoint keeps.
pub(crate) struct ModernState;

impl ModernState {
    pub(crate) fn new(_options: &InboundOptions) -> Self {
        Self
    }
}
