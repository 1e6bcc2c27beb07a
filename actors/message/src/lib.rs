//! The vocabulary of callboard: messages, calls, questions, principals, tasks.
//!
//! Serde only, no I/O: everything here can be a field of a message and can cross a wire.

mod call;
mod failure;
#[doc(hidden)]
pub mod message;
mod principal;
mod question;
mod task;
mod trace;

pub use call::{Budget, CallId, HOPS_MAX_DEFAULT, Progress};
pub use failure::{Failure, FailureKind};
pub use message::{Message, MessageSpec, Named, RawReply, Wire, WireError};
pub use principal::{Principal, PrincipalKind};
pub use question::{Answer, AnswerAction, Elicitation, Question, Root, Sample, SampleAnswer, SampleTurn, Speaker};
pub use task::TaskState;
pub use trace::{TraceContext, TraceContextError};

/// What the derive macro names; not for people.
#[doc(hidden)]
pub mod macro_support {
    pub use schemars;
    pub use serde_json;
}
