//! The vocabulary of callboard: messages, calls, questions, principals, tasks.
//!
//! Serde only, no I/O: everything here can be a field of a message and can cross a wire.

mod assent;
mod call;
mod content;
mod failure;
mod hex;
pub mod json;
pub mod log;
pub mod mail;
#[doc(hidden)]
pub mod message;
mod principal;
mod question;
mod raw;
pub mod surface;
mod task;
pub mod text;
pub mod time;
mod trace;
mod words;

pub use assent::assent;
pub use call::{Budget, CallId, HOPS_MAX_DEFAULT, Progress, SessionId};
pub use content::{Artifact, Content, FAILURE, ResourceContent, SAID_AT_ONCE, SHOWN, ToolResult};
pub use failure::{Failure, FailureKind, RawReply};
pub use hex::hex;
pub use message::{Message, MessageSpec, Named, Wire, WireError};
pub use principal::{DataClass, Principal, PrincipalKind};
pub use question::{
    Answer, ElicitAction, ElicitAnswer, Elicitation, QUESTION_KEY, Question, Root, RootsAnswer,
    RootsRequest, Sample, SampleAnswer, Speaker,
};
pub use raw::{RawMembers, RawObject};
pub use surface::{Abilities, Change, Log, LogLevel};
pub use task::{OnRestart, TaskState};
pub use trace::{TraceContext, TraceContextError};

/// What the derive macro names; not for people.
#[doc(hidden)]
pub mod macro_support {
    pub use schemars;
    pub use serde_json;
}
