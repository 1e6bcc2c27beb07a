//! Integration tests, one module a promise.

// The repository keeps its own rules: arrows between crates, one crate on actix, short files.
mod tidy;
