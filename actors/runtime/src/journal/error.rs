use callboard_message::{Failure, FailureKind};

/// Why the store didn't do it. Kept means committed and synced: what isn't said to be kept was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Remove old records or raise the limit. Only a journal in memory is full so.
    #[error("journal is full ({records_max} records)")]
    Full {
        /// The limit that was met.
        records_max: usize,
    },
    /// The store is at its limit: shorten the retention or raise `size_max_mib`. Nothing was kept.
    #[error("the store is at its limit ({bytes_max} bytes): shorten its retention or raise `size_max_mib`")]
    SizeLimit {
        /// The limit that was met.
        bytes_max: u64,
    },
    /// The disk is full: make room and try again with the same key. Nothing was kept.
    #[error("the store's disk is full: make room and try again")]
    NoSpace,
    /// Too many writes wait: try again later. Nothing was queued.
    #[error("the store is overloaded ({writes_max} writes wait): try again later")]
    Overloaded {
        /// How many may wait.
        writes_max: usize,
    },
    /// Send less.
    #[error("{bytes} bytes are too many for the store (at most {bytes_max})")]
    TooLarge {
        /// What was sent.
        bytes: usize,
        /// The limit that was met.
        bytes_max: usize,
    },
    /// Change it. What is wrong, in one sentence.
    #[error("the store can't keep that: {0}")]
    Invalid(&'static str),
    /// The store is away or closed: try again with the same key. Nothing was kept.
    #[error("the store is away: {0}")]
    Unavailable(String),
    /// The answer to the commit was lost: it may be kept. Try again with the same key.
    #[error("the store didn't answer, it may have been kept: {0}")]
    Unknown(String),
    /// Another process goes by this writer's name: this one must end.
    #[error("another process writes as {writer}")]
    Fenced {
        /// The name.
        writer: String,
    },
    /// Restore a backup.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The store behind it failed; look there. Never holds what was to be kept.
    #[error("journal's store failed: {0}")]
    Store(String),
}

impl JournalError {
    /// Whether the same, sent again later, may be kept.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::SizeLimit { .. }
                | Self::NoSpace
                | Self::Overloaded { .. }
                | Self::Unavailable(_)
                | Self::Unknown(_)
        )
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let kind = match &error {
            JournalError::Full { .. }
            | JournalError::SizeLimit { .. }
            | JournalError::NoSpace
            | JournalError::Overloaded { .. } => FailureKind::Overloaded,
            JournalError::TooLarge { .. } | JournalError::Invalid(_) => FailureKind::InvalidInput,
            JournalError::Unavailable(_) | JournalError::Unknown(_) | JournalError::Fenced { .. } => {
                FailureKind::Unavailable
            }
            JournalError::Damaged(_) | JournalError::Store(_) => FailureKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

/// Refuses a text that not every store can hold.
///
/// # Errors
/// [`JournalError::Invalid`] where it has a NUL.
pub fn storable(text: &str) -> Result<(), JournalError> {
    match text.contains('\0') {
        true => Err(JournalError::Invalid("a text has a NUL character")),
        false => Ok(()),
    }
}
