//! Whether a pane shows a text.
