//! What changes at a server, told to those who follow its agent.

use callboard_message::Change;
use callboard_runtime::Cx;

/// Tells the followers of an agent. Of several connections with one server, one tells.
#[derive(Clone)]
pub(crate) struct News {
    pub(crate) cx: Cx,
    pub(crate) tells: bool,
}

impl News {
    pub(crate) fn tell(&self, change: Change) {
        if self.tells {
            self.cx.changed(change);
        }
    }
}
