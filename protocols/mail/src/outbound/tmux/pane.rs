//! Which pane is meant, and what runs in it.
