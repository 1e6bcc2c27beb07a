//! What a message refers to, as the agent that gets the message knows it: tasks and extensions.

use callboard_message::json::raw_from_written;
use serde_json::value::RawValue;

use super::skills::{ServedAgent, SkillRoute};
use super::{A2aTaskService, RequestContext};
use crate::A2aError;
use crate::convert::RemoteTaskReference;
use crate::wire::WireType as _;

impl A2aTaskService {
    /// Adds the tasks `references` to the arguments of `called`, an agent, its route and its skill.
    /// An agent of this node gets their ids and, as `history`, their content. A remote agent gets its
    /// own ids of those that it performed, as others mean nothing to it, and the extensions that the
    /// client requests. Returns `None` if there is nothing to add.
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
            let is_its_own = found.task.message == skill
                || is_remote && found.task.agent == self.options.agent.name;
            let place = RemoteTaskReference::from_task(&found.task).filter(|_| is_its_own);
            ids.extend(place.and_then(|place| place.task_id));
        }
        let told = with_list(arguments, "referenceTaskIds", &ids);
        let arguments = told.as_deref().unwrap_or(arguments);
        let extensions = with_list(arguments, "requestedExtensions", &who.extensions);
        Ok(extensions.or(told))
    }
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
