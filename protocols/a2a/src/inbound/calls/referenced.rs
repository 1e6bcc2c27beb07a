//! The tasks that a message refers to, as the agent hears of them.

use std::sync::Arc;

use callboard_message::json::raw;
use serde_json::value::RawValue;

use super::{Core, Who, history, view};
use crate::A2aError;
use crate::convert::{of_store, write_block};
use crate::wire::{Message, Part, Role, written_about};

/// Messages of one task that are told, its last.
const MESSAGES_EACH_MAX: u32 = 16;
/// Bytes of what is told of all of them. The first that doesn't fit, and those after it, aren't told.
const TOLD_BYTES_MAX: usize = 256 * 1024;
/// Room for the words around a turn, in bytes.
const TURN_ROOM_BYTES: usize = 32;

/// What was said, by whom.
struct Turn {
    is_users: bool,
    parts: Vec<Part>,
}

impl Turn {
    fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum::<usize>() + TURN_ROOM_BYTES
    }
}

impl Core {
    /// The arguments of a conversation, with what was said and made in the tasks that a message refers to as its `history`, in
    /// their order; `None` where there is nothing to tell. What isn't `who`'s, or is no more, isn't told from what never was: it is
    /// left out.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn with_referenced(
        self: &Arc<Self>,
        who: &Who,
        said: &Message,
        arguments: &RawValue,
    ) -> Result<Option<Box<RawValue>>, A2aError> {
        let (mut turns, mut bytes) = (Vec::new(), 0);
        for id in &said.reference_task_ids {
            let Ok(found) = self.find(who, id).await else { continue };
            let task = &found.task;
            let said = history::of(&*self.store.tasks, task, Some(MESSAGES_EACH_MAX)).await;
            let said = said.map_err(|error| of_store(&error))?.unwrap_or_default();
            let said = said.into_iter().map(|said| Turn { is_users: said.role == Role::User, parts: said.parts });
            let last = view::status(task).message.into_iter().map(|said| said.parts);
            let made = view::artifacts(task).into_iter().map(|made| made.parts);
            let answered = last.chain(made).map(|parts| Turn { is_users: false, parts });
            for turn in said.chain(answered).filter(|turn| !turn.parts.is_empty()) {
                bytes += turn.bytes();
                if bytes > TOLD_BYTES_MAX {
                    return Ok(with_history(arguments, &turns));
                }
                turns.push(turn);
            }
        }
        Ok(with_history(arguments, &turns))
    }
}

fn with_history(arguments: &RawValue, turns: &[Turn]) -> Option<Box<RawValue>> {
    let said = arguments.get().strip_suffix('}').filter(|_| !turns.is_empty())?;
    let history = written_about(turns.iter().map(Turn::bytes).sum(), |out| {
        out.list(turns, |turn, out| {
            let mut object = out.object();
            object.text("role", if turn.is_users { "user" } else { "assistant" });
            object.list("content", &turn.parts, write_block);
            object.end();
        });
    });
    Some(raw([said, ",\"history\":", history.get(), "}"].concat()))
}
