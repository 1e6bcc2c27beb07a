//! Being written.

use super::options::InboundOptions;

/// What an endpoint keeps.
pub(crate) struct TaskState;

impl TaskState {
    pub(crate) fn new(_options: &InboundOptions) -> Self {
        Self
    }
}
