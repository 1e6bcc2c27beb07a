//! Advice that a rule found in a sentence.

/// Advice in a sentence.
pub(super) struct Hit {
    /// First and last word of the advice, by index in the sentence.
    pub at: usize,
    pub end: usize,
    /// Kind of advice, as a note names it.
    pub kind: &'static str,
    pub address: Address,
}

/// Addressee of a piece of advice, which decides whether standing in a record excuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Address {
    /// Nobody: it is advice unless a record is quoted.
    Nobody,
    /// The reader, with what the records assert: it is advice only where a record itself says so.
    RecordToReader,
    /// The reader: it is advice even where a record is quoted.
    Reader,
}

impl Address {
    pub const ALL: [Self; 3] = [Self::Nobody, Self::RecordToReader, Self::Reader];

    pub fn reader_if(reader: bool) -> Self {
        if reader { Self::Reader } else { Self::Nobody }
    }
}
