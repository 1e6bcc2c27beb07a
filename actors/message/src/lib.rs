//! Shared vocabulary of callboard: messages, calls, questions, principals, tasks.
//!
//! The types do no I/O, and most can be serialised, so that they can be fields of messages and
//! cross a wire.

mod call;
pub mod capabilities;
mod content;
mod failure;
mod form_check;
mod hex;
pub mod json;
pub mod log;
pub mod mail;
#[doc(hidden)]
pub mod message;
mod principal;
mod question;
mod raw_object;
mod task;
pub mod text;
mod text_enum;
pub mod time;
mod trace;
#[doc(hidden)]
pub mod word_set;
mod yes_no;

pub use call::{Budget, CallId, HOPS_MAX_DEFAULT, Progress, SessionId};
pub use capabilities::{CallerCapabilities, CapabilityChange, LogLevel, LogMessage};
pub use content::{
    ARTIFACTS_SENT_META_KEY, Artifact, Content, DECISION_META_KEY, DIRECT_MESSAGE_META_KEY,
    FAILURE_META_KEY, PARENT_META_KEY, ResourceContent, ToolResult,
};
pub use failure::{Failure, FailureKind, NEEDED_SCOPE_DATA_KEY, RawReply};
pub use hex::encode_hex;
pub use message::{Message, MessageCodec, MessageCodecError, MessageSpec, RawMessage, schema_of};
pub use principal::{
    DataClass, IDENTITY_SCOPE, PATIENT_LEVEL_SCOPE_PREFIX, PATIENT_SCOPE_PREFIX,
    PURPOSE_SCOPE_PREFIX, Principal, PrincipalKind, TENANT_SCOPE_PREFIX,
};
pub use question::{
    Answer, Elicitation, ElicitationAction, ElicitationAnswer, QUESTION_KEY_META_KEY, Question,
    Root, RootsAnswer, RootsRequest, SamplingAnswer, SamplingRequest, Speaker,
};
pub use raw_object::{RawMembers, RawObject};
pub use task::{OnRestart, TaskState};
pub use trace::{TraceContext, TraceContextError};
pub use yes_no::parse_yes_no;

/// Crates that are used by code that `#[derive(Message)]` generates. Not part of the public API.
#[doc(hidden)]
pub mod macro_support {
    pub use schemars;
    pub use serde_json;
}

/// Former name of [`ElicitationAnswer`].
#[deprecated(note = "renamed to `ElicitationAnswer`")]
pub type ElicitAnswer = ElicitationAnswer;

/// Former name of [`SamplingRequest`].
#[deprecated(note = "renamed to `SamplingRequest`")]
pub type Sample = SamplingRequest;

/// Former name of [`SamplingAnswer`].
#[deprecated(note = "renamed to `SamplingAnswer`")]
pub type SampleAnswer = SamplingAnswer;

/// Former name of [`LogMessage`].
#[deprecated(note = "renamed to `LogMessage`")]
pub type Log = LogMessage;

/// Former name of [`CapabilityChange`].
#[deprecated(note = "renamed to `CapabilityChange`")]
pub type Change = CapabilityChange;

/// Former name of [`capabilities`].
#[deprecated(note = "renamed to `capabilities`")]
pub mod surface {
    pub use crate::capabilities::*;
}
