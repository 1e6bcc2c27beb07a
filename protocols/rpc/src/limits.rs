/// Most bytes of one JSON-RPC message, by default: 4 MiB.
pub const BODY_BYTES_MAX_DEFAULT: usize = 4 * 1024 * 1024;
/// Most arrays and objects inside each other, by default. Below serde_json's own bound of 128.
pub const DEPTH_MAX_DEFAULT: usize = 64;
/// Most members of one object, by default.
pub const KEYS_MAX_DEFAULT: usize = 1_000;
/// Most digits of one number, by default: the largest double has 309 when written out.
pub const DIGITS_MAX_DEFAULT: usize = 400;
/// Most bytes of an id as written, quotes included, by default.
pub const ID_BYTES_MAX_DEFAULT: usize = 256;
/// Most bytes of a method name, by default.
pub const METHOD_BYTES_MAX_DEFAULT: usize = 128;
/// Most messages of one batch, by default.
pub const BATCH_ENTRIES_MAX_DEFAULT: usize = 100;

/// How large a JSON-RPC message may be before it is refused unread.
///
/// Each bound is inclusive: a message that meets it passes, one more is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole message.
    pub body_bytes_max: usize,
    /// Arrays and objects inside each other; a scalar has depth 0.
    pub depth_max: usize,
    /// Members of one object.
    pub keys_max: usize,
    /// Digits of one number: integer part, fraction and exponent together.
    pub digits_max: usize,
    /// Bytes of the id as written, quotes and escapes included.
    pub id_bytes_max: usize,
    /// Bytes of the method name.
    pub method_bytes_max: usize,
    /// Messages of one batch.
    pub batch_entries_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: BODY_BYTES_MAX_DEFAULT,
            depth_max: DEPTH_MAX_DEFAULT,
            keys_max: KEYS_MAX_DEFAULT,
            digits_max: DIGITS_MAX_DEFAULT,
            id_bytes_max: ID_BYTES_MAX_DEFAULT,
            method_bytes_max: METHOD_BYTES_MAX_DEFAULT,
            batch_entries_max: BATCH_ENTRIES_MAX_DEFAULT,
        }
    }
}
