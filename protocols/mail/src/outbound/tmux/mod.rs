//! Letters pasted into a tmux pane, and confirmed by looking at it.
//!
//! Nobody's word is taken for a delivery but the pane's own: what isn't seen there isn't delivered. Nothing is pasted where a
//! shell is in front, for it would run what it is told.

mod agent;
mod command;
mod pane;
mod paste;
mod seen;

pub use agent::{TmuxAgent, TmuxOptions};
pub use command::TMUX_TIMEOUT;
pub use pane::{PaneTarget, PaneTargetError};
pub use paste::{TMUX_PASTES_MAX, TMUX_SEEN_WITHIN, TMUX_TEXT_BYTES_MAX};
