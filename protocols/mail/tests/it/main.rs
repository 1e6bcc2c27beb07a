//! Everything about agent mail at its edge that needs a socket, a pane or both.

mod tmux;
mod webhook;
