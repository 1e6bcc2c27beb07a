/// Why a text was refused. Offsets are in bytes from its beginning; no part of the text is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Send UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Encoding {
        /// The first byte that isn't.
        at: usize,
    },
    /// Send JSON (RFC 8259).
    #[error("{expected} expected at byte {at}")]
    Syntax {
        /// Where it should have been.
        at: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// Send a number that a double can hold.
    #[error("number out of range at byte {at}")]
    NumberRange {
        /// Where the number begins.
        at: usize,
    },
    /// Send a shorter number, or a string.
    #[error("number of more than {max} digits at byte {at}")]
    DigitsOver {
        /// Where the number begins.
        at: usize,
        /// [`Limits::digits_max`](crate::Limits::digits_max).
        max: usize,
    },
    /// Send less.
    #[error("more than {max} bytes")]
    BytesOver {
        /// [`Limits::body_bytes_max`](crate::Limits::body_bytes_max).
        max: usize,
    },
    /// Send it flatter.
    #[error("nested more than {max} deep")]
    DepthOver {
        /// [`Limits::depth_max`](crate::Limits::depth_max).
        max: usize,
    },
    /// Send fewer members.
    #[error("an object of more than {max} members")]
    KeysOver {
        /// [`Limits::keys_max`](crate::Limits::keys_max).
        max: usize,
    },
    /// Send each key once: two readers could take different ones.
    #[error("a key stands twice in the object that ends at byte {at}")]
    DuplicateKey {
        /// The object's closing brace.
        at: usize,
    },
}

impl JsonError {
    /// Whether the text is JSON that nobody may send, rather than no JSON at all.
    pub fn is_well_formed(&self) -> bool {
        matches!(
            self,
            Self::BytesOver { .. } | Self::DepthOver { .. } | Self::KeysOver { .. } | Self::DuplicateKey { .. }
        )
    }
}
