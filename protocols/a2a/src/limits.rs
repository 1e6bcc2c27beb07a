//! What a request may hold before it is refused. Each bound is inclusive.

/// Most parts of one message.
pub const PARTS_MAX: usize = 256;
/// Longest id of a message, task, context or push configuration, and longest tenant, in bytes.
pub const ID_BYTES_MAX: usize = 128;
/// Most tasks that one message refers to.
pub const REFERENCES_MAX: usize = 64;
/// Most extensions that one message names.
pub const EXTENSIONS_MAX: usize = 32;
/// Tasks on a page, where the client doesn't say.
pub const PAGE_SIZE_DEFAULT: i32 = 50;
/// Most tasks on a page.
pub const PAGE_SIZE_MAX: i32 = 100;
