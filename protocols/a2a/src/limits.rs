//! What a request may hold before it is refused. Each bound is inclusive.

/// Most parts of one message.
/// At the limit: error -32602.
pub const PARTS_MAX: usize = 256;
/// Longest id of a message, task, context or push configuration, and longest tenant, in bytes.
/// At the limit: error -32602.
pub const ID_BYTES_MAX: usize = 128;
/// Most tasks that one message refers to.
/// At the limit: error -32602.
pub const REFERENCES_MAX: usize = 64;
/// Most extensions that one message names.
/// At the limit: error -32602.
pub const EXTENSIONS_MAX: usize = 32;
/// Tasks on a page, where the client doesn't say.
/// At the limit: error -32602. Changed by `pageSize`.
pub const PAGE_SIZE_DEFAULT: i32 = 50;
/// Most tasks on a page.
/// At the limit: error -32602. Changed by `pageSize`.
pub const PAGE_SIZE_MAX: i32 = 100;
