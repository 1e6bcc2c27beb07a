//! What an agent can do: its message types, or the tools that it lists itself.

use callboard_message::{MessageSpec, RawObject};

/// What an agent can do.
#[derive(Debug, Default)]
pub(crate) struct Skills {
    /// In the agent's order.
    pub(crate) all: Vec<Skill>,
    /// It also takes what somebody says in no skill's words ([`callboard_message::surface::Converse`]).
    pub(crate) converses: bool,
}

/// One of them: a message type, or a tool.
#[derive(Debug)]
pub(crate) struct Skill {
    /// Its name, description and schemas.
    pub(crate) spec: MessageSpec,
    /// The media types that it takes; `*/*` is any.
    pub(crate) input_modes: Vec<String>,
    /// The media types that it may answer with.
    pub(crate) output_modes: Vec<String>,
}
