//! What the store promises: a module a promise.

/// Stores to try it on.
mod kit;

/// kill -9.
mod crash;
/// Streams: numbers without gaps, keys once, limits.
mod journal;
/// Files that are no store, or not whole, or another's.
mod open;
