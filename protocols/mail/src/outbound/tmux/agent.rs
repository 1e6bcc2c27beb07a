//! The agent of a pane.
