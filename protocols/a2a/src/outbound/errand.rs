//! What a message wants of a remote agent.

use callboard_message::surface::{CallTool, Converse, Describe, ListTools, RESERVED_PREFIX};
use callboard_message::{Failure, Message as _, Named, RawObject};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::conversation::Opening;
use crate::convert::parts_of;
use crate::wire::{Message, Role};

/// What a message wants of a remote agent.
pub(super) enum Errand {
    /// What it says of itself.
    Describe,
    /// Its skills.
    ListTools,
    /// A skill. `is_typed`: the plain value is the reply, else the tool's result.
    Use { skill: String, arguments: Box<RawValue>, meta: RawObject, is_typed: bool },
    /// What somebody says.
    Converse(Opening),
}

impl Errand {
    /// Reads a message: one of [`callboard_message::surface`], or a skill by its name.
    ///
    /// # Errors
    /// Where it is none that A2A has, or no JSON object.
    pub(super) fn read(message: Named) -> Result<Self, Failure> {
        let Named { name, payload } = message;
        let no_object = || Failure::invalid("the message must be a JSON object");
        if !name.starts_with(RESERVED_PREFIX) {
            return match payload.get().starts_with('{') {
                true => Ok(Self::Use { skill: name, arguments: payload, meta: RawObject::new(), is_typed: true }),
                false => Err(no_object()),
            };
        }
        let mut params = RawObject::parse(&payload).map_err(|_| no_object())?;
        match name.as_str() {
            Describe::NAME => Ok(Self::Describe),
            ListTools::NAME => Ok(Self::ListTools),
            CallTool::NAME => {
                let skill = params.text("name").ok_or_else(|| Failure::invalid("`name` must be a string"))?;
                let arguments = params.remove("arguments").unwrap_or_else(|| RawObject::new().to_raw());
                let meta = params.object("_meta").unwrap_or_default();
                Ok(Self::Use { skill, arguments, meta, is_typed: false })
            }
            Converse::NAME => Ok(Self::Converse(opening(&Converse(params)))),
            _ => Err(Failure::not_found("no A2A agent has such a message")),
        }
    }
}

/// What somebody says, as a message of A2A's.
fn opening(said: &Converse) -> Opening {
    let skill = said.0.text("skill");
    let metadata = said.0.object("metadata");
    let metadata = match (metadata, skill) {
        (metadata, Some(skill)) => Some(metadata.unwrap_or_default().with("skill", skill)),
        (metadata, None) => metadata,
    };
    let key = Some(said.key()).filter(|key| !key.is_empty());
    Opening {
        message: Message {
            message_id: key.unwrap_or_else(|| Uuid::new_v4().to_string()),
            context_id: said.context(),
            role: Role::User,
            parts: parts_of(&said.content()),
            metadata,
            ..Message::default()
        },
        keeps: false,
    }
}
