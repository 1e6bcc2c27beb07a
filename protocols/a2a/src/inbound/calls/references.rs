//! Tasks and extensions that a message refers to, by the names that the receiving agent knows.

use std::sync::Arc;

use callboard_message::json::raw_from_written;
use serde_json::value::RawValue;

use super::RequestContext;
use super::history::TaskHistory;
use super::lookup::TaskLookup;
use super::skills::{ServedAgent, SkillRoute};
use super::view::{merge_artifacts, task_status};
use crate::A2aError;
use crate::convert::{RemoteTaskReference, write_part_as_block};
use crate::wire::{Part, Role, WireType as _, write_json_sized};

/// Maximum number of messages taken from one referenced task, the latest ones.
const REFERENCED_MESSAGES_MAX: u32 = 16;
/// Maximum content taken from all referenced tasks, in bytes. The first turn that exceeds it and
/// all later ones are omitted.
const REFERENCED_BYTES_MAX: usize = 256 * 1024;
/// Estimated size of a turn's JSON without its parts, in bytes.
const TURN_OVERHEAD_BYTES: usize = 32;

/// A message or artifact of a referenced task, and whether the user or the agent made it.
struct HistoryTurn {
    is_from_user: bool,
    parts: Vec<Part>,
}

impl HistoryTurn {
    fn bytes(&self) -> usize {
        self.parts.iter().map(Part::content_bytes).sum::<usize>() + TURN_OVERHEAD_BYTES
    }
}

/// Reader of the tasks and extensions that messages refer to.
pub(super) struct ReferencedTasks {
    lookup: Arc<TaskLookup>,
    history: TaskHistory,
    /// Name of the served agent.
    agent: String,
}

impl ReferencedTasks {
    pub(super) fn new(lookup: Arc<TaskLookup>, history: TaskHistory, agent: String) -> Self {
        Self {
            lookup,
            history,
            agent,
        }
    }

    /// Adds the tasks `references` to the arguments of `called`, an agent, its route and its skill.
    /// An agent of this node gets their ids and, as `history`, their content. A remote agent gets
    /// its own ids of those that it performed, as others mean nothing to it, and the extensions
    /// that the client requests. Returns `None` if there is nothing to add.
    ///
    /// # Errors
    /// Errors of the task store.
    pub(super) async fn with_references(
        &self,
        who: &RequestContext,
        (agent, route, skill): (&ServedAgent, SkillRoute, &str),
        references: &[String],
        arguments: &RawValue,
    ) -> Result<Option<Box<RawValue>>, A2aError> {
        let is_remote = agent.is_remote_agent();
        if matches!(route, SkillRoute::Message | SkillRoute::Tool) {
            return Ok(None);
        }
        if route == SkillRoute::Converse && !is_remote {
            let told = with_list(arguments, "referenceTaskIds", references);
            let arguments = told.as_deref().unwrap_or(arguments);
            let with_history = self
                .with_referenced_tasks(who, references, arguments)
                .await?;
            return Ok(with_history.or(told));
        }
        let mut ids = Vec::new();
        for id in references {
            let Ok(found) = self.lookup.find(who, id).await else {
                continue;
            };
            // Of several agents behind one, another may have performed it.
            let is_its_own =
                found.task.message == skill || is_remote && found.task.agent == self.agent;
            let place = RemoteTaskReference::from_task(&found.task).filter(|_| is_its_own);
            ids.extend(place.and_then(|place| place.task_id));
        }
        let told = with_list(arguments, "referenceTaskIds", &ids);
        let arguments = told.as_deref().unwrap_or(arguments);
        let extensions = with_list(arguments, "requestedExtensions", &who.extensions);
        Ok(extensions.or(told))
    }

    /// Adds the content of referenced tasks to the arguments of a conversation: their messages and
    /// artifacts become the member `history`, in the order of the references. Returns `None` if
    /// there is no such content. Tasks that are deleted or belong to other owners are skipped
    /// without an error.
    ///
    /// # Errors
    /// Errors of the task store.
    async fn with_referenced_tasks(
        &self,
        who: &RequestContext,
        references: &[String],
        arguments: &RawValue,
    ) -> Result<Option<Box<RawValue>>, A2aError> {
        let (mut turns, mut bytes) = (Vec::new(), 0);
        for id in references {
            let Ok(found) = self.lookup.find(who, id).await else {
                continue;
            };
            let task = &found.task;
            let said = self
                .history
                .read(task, Some(REFERENCED_MESSAGES_MAX))
                .await?;
            let said = said.into_iter().flatten().map(|said| HistoryTurn {
                is_from_user: said.role == Role::User,
                parts: said.parts,
            });
            let last = task_status(task).message.into_iter().map(|said| said.parts);
            let made = merge_artifacts(task).into_iter().map(|made| made.parts);
            let answered = last.chain(made).map(|parts| HistoryTurn {
                is_from_user: false,
                parts,
            });
            for turn in said.chain(answered).filter(|turn| !turn.parts.is_empty()) {
                bytes += turn.bytes();
                if bytes > REFERENCED_BYTES_MAX {
                    return Ok(with_history(arguments, &turns));
                }
                turns.push(turn);
            }
        }
        Ok(with_history(arguments, &turns))
    }
}

fn with_history(arguments: &RawValue, turns: &[HistoryTurn]) -> Option<Box<RawValue>> {
    let said = arguments
        .get()
        .strip_suffix('}')
        .filter(|_| !turns.is_empty())?;
    let history = write_json_sized(turns.iter().map(HistoryTurn::bytes).sum(), |out| {
        out.list(turns, |turn, out| {
            let mut object = out.object();
            object.text(
                "role",
                if turn.is_from_user {
                    "user"
                } else {
                    "assistant"
                },
            );
            object.list("content", &turn.parts, write_part_as_block);
            object.end();
        });
    });
    Some(raw_from_written(
        [said, ",\"history\":", history.get(), "}"].concat(),
    ))
}

/// Adds a member with a list of texts to an object that isn't empty; `None` if the list is empty.
fn with_list(object: &RawValue, name: &str, texts: &[String]) -> Option<Box<RawValue>> {
    let members = object
        .get()
        .strip_suffix('}')
        .filter(|_| !texts.is_empty())?;
    let texts = texts.to_vec().to_json();
    Some(raw_from_written(
        [members, ",\"", name, "\":", &texts, "}"].concat(),
    ))
}
