//! Letters pasted into a tmux pane, and confirmed by looking at it.

mod agent;
mod command;
mod pane;
mod paste;
mod seen;
