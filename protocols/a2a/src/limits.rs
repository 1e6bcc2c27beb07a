//! Limits on the content of requests. Each is inclusive.

/// Maximum number of parts of one message.
/// At the limit: error -32602.
pub const PARTS_MAX: usize = 256;
/// Maximum length of a tenant and of the id of a message, task, context or push configuration, in
/// bytes.
/// At the limit: error -32602.
pub const ID_BYTES_MAX: usize = 128;
/// Maximum number of tasks that one message refers to.
/// At the limit: error -32602.
pub const REFERENCES_MAX: usize = 64;
/// Maximum number of extensions that one message names.
/// At the limit: error -32602.
pub const EXTENSIONS_MAX: usize = 32;
/// Default number of tasks on a page, if the client requests none. Changed by `pageSize`.
pub const PAGE_SIZE_DEFAULT: i32 = 50;
/// Maximum number of tasks on a page that a client can request by `pageSize`.
/// At the limit: error -32602.
pub const PAGE_SIZE_MAX: i32 = 100;
