//! Frames: one JSON each.
