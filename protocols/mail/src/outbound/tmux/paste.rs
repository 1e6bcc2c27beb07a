//! The text as a pane gets it.
