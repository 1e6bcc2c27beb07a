use std::fmt;
use std::time::Duration;

use callboard_message::{Failure, FailureKind, Message};

use crate::reply::NoReply;

/// Why a message got no reply. Each variant tells the sender what to do next.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SendError<M> {
    /// Nothing was queued: the message comes back. Send it later, or wait for room. `capacity` is in messages.
    #[error("mailbox is full ({capacity} messages)")]
    Full {
        /// The message, as it was.
        message: M,
        /// How many messages the mailbox holds.
        capacity: u32,
    },
    /// The agent has ended or its system is stopping: the message comes back. Find another agent.
    #[error("agent has ended")]
    Closed {
        /// The message, as it was.
        message: M,
    },
    /// The agent has no handler for this type: the message comes back.
    #[error("agent {agent} doesn't handle {name}")]
    NotHandled {
        /// The message, as it was.
        message: M,
        /// The agent's name.
        agent: String,
        /// The message's name.
        name: &'static str,
    },
    /// The message was queued, but the agent ended before it took it: nothing was done.
    #[error("agent stopped before it took the message")]
    Stopped,
    /// The deadline passed; whether the agent acted is unknown.
    #[error("no reply in {0:?}")]
    TimedOut(Duration),
    /// The call was cancelled; whether the agent acted is unknown.
    #[error("call was cancelled")]
    Cancelled,
    /// The handler panicked: a bug of the agent's. A fresh agent takes the next message.
    #[error("handler panicked")]
    Panicked,
    /// The agent wasn't ready for the message and could set no more aside. Send it later.
    #[error("stash is full")]
    StashFull,
    /// The call went through more agents than it may: a loop, most likely.
    #[error("call passed through more than {hops_max} agents")]
    TooManyHops {
        /// The limit that was met.
        hops_max: u16,
    },
    /// The agent is remote and answered with a failure, or the message couldn't be written or read as JSON.
    #[error("{0}")]
    Failed(Failure),
}

impl<M> SendError<M> {
    pub(crate) fn no_reply(why: NoReply) -> Self {
        match why {
            NoReply::Panicked => Self::Panicked,
            NoReply::Stopped => Self::Stopped,
            NoReply::Cancelled => Self::Cancelled,
            NoReply::StashFull => Self::StashFull,
        }
    }

    /// What a sender of any protocol can do about it.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Full { .. } | Self::StashFull => FailureKind::Overloaded,
            Self::Closed { .. } | Self::Stopped => FailureKind::Unavailable,
            Self::NotHandled { .. } => FailureKind::NotFound,
            Self::TimedOut(_) => FailureKind::TimedOut,
            Self::Cancelled => FailureKind::Cancelled,
            Self::Panicked => FailureKind::Internal,
            Self::TooManyHops { .. } => FailureKind::Rejected,
            Self::Failed(failure) => failure.kind,
        }
    }
}

impl<M> fmt::Debug for SendError<M> {
    // The message may hold patient text: it is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendError({self})")
    }
}

impl<M: Message> From<SendError<M>> for Failure {
    fn from(error: SendError<M>) -> Self {
        match error {
            SendError::Failed(failure) => failure,
            other => Failure::new(other.kind(), other.to_string()),
        }
    }
}
