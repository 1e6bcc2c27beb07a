//! Real panes.
