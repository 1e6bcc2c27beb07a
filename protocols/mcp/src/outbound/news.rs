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
    /// For a connection of the agent `cx`. `tells`: this connection's news are told; else they are another's to tell.
    pub(crate) fn of(cx: Cx, tells: bool) -> Self {
        Self { cx, tells }
    }

    pub(crate) fn tell(&self, change: Change) {
        if self.tells {
            self.cx.changed(change);
        }
    }
}
