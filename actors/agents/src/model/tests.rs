//! What models promise.
