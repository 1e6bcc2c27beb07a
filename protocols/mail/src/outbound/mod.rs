//! Ways out: what brings a letter to a recipient that is no agent of this process.

pub mod tmux;
pub mod webhook;
