//! First messages of conversations with a remote agent.

use callboard_message::RawObject;
use callboard_message::capabilities::Converse;
use uuid::Uuid;

use super::remote_contexts::ContextBinding;
use crate::convert::content_to_parts;
use crate::wire::{A2aMessage, Role};

/// Key in a message's metadata whose value is the id of the skill to call.
pub(super) const SKILL_METADATA: &str = "skill";
/// Member of `_meta` that names the task and conversation to continue (`taskId`, `contextId`) and
/// whether the task stays open (`keep`).
const A2A_META: &str = "a2a";

/// The first message of a conversation.
#[derive(Default)]
pub(super) struct ConversationRequest {
    pub(super) message: A2aMessage,
    /// URIs of the protocol extensions to request, beside those that the message names.
    pub(super) extensions: Vec<String>,
    /// Metadata of the request beside the message's own.
    pub(super) metadata: Option<RawObject>,
    /// Whether the task stays open if the caller can't answer its question, so that a later message
    /// can. Otherwise the task is cancelled.
    pub(super) keeps_task: bool,
    /// Id of the conversation at the caller. It isn't sent; empty if there is none.
    pub(super) caller_context: String,
    /// Binding of the message's context id to the caller's conversation; `None` for an id that the
    /// caller chose itself.
    pub(super) binding: Option<ContextBinding>,
}

impl ConversationRequest {
    /// Converts a conversational message, with its parts as they are. `skill` is the id of the
    /// skill that it is for; `None` for none.
    pub(super) fn from_converse(said: &Converse, skill: Option<&str>) -> Self {
        let metadata = said.0.object("metadata");
        let metadata = match skill {
            Some(skill) => Some(metadata.unwrap_or_default().with(SKILL_METADATA, skill)),
            None => metadata,
        };
        let key = Some(said.key()).filter(|key| !key.is_empty());
        let message = A2aMessage {
            message_id: key.unwrap_or_else(|| Uuid::new_v4().to_string()),
            role: Role::User,
            parts: content_to_parts(&said.content()),
            metadata,
            extensions: said.extensions(),
            reference_task_ids: said.reference_task_ids(),
            ..A2aMessage::default()
        };
        Self {
            message,
            extensions: said.0.read("requestedExtensions").unwrap_or_default(),
            metadata: said.0.object("requestMetadata"),
            caller_context: said.context(),
            ..Self::default()
        }
        .continuing(&said.0.object("_meta").unwrap_or_default())
    }

    /// Applies `_meta.a2a`: the ids there are the agent's own and are sent as they are, unless the
    /// message has others.
    pub(super) fn continuing(mut self, meta: &RawObject) -> Self {
        let Some(place) = meta.object(A2A_META) else {
            return self;
        };
        for (id, name) in [
            (&mut self.message.context_id, "contextId"),
            (&mut self.message.task_id, "taskId"),
        ] {
            if id.is_empty() {
                *id = place.text(name).unwrap_or_default();
            }
        }
        self.keeps_task |= place.read("keep") == Some(true);
        self
    }
}
