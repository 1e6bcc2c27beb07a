//! Tasks of a caller by id, also those that another server of the same address began.

use std::sync::Arc;

use callboard_runtime::running::{FoundTask, RunningTaskOptions, RunningTasks};
use callboard_runtime::{Store, TaskId};
use parking_lot::RwLock;

use super::RequestContext;
use crate::A2aError;
use crate::inbound::options::task_scope;

/// Agents whose servers share an address with a server: `/a2a` for all agents of a listener, and
/// `/agents/ID/a2a` for each.
#[derive(Debug, Clone, Default)]
pub struct RelatedAgents {
    /// Names of the agents, as in their [`AgentDescription`](crate::inbound::AgentDescription).
    /// Their tasks are found by id.
    pub names: Vec<String>,
    /// Whether lists contain their tasks too.
    pub are_listed: bool,
}

/// Finder of tasks in the scopes of an agent and of its [`RelatedAgents`].
pub(super) struct TaskLookup {
    store: Store,
    /// Tasks of the agent that run in this process.
    live: Arc<RunningTasks>,
    options: RunningTaskOptions,
    related: RwLock<RelatedAgents>,
}

impl TaskLookup {
    pub(super) fn new(store: Store, live: Arc<RunningTasks>, options: RunningTaskOptions) -> Self {
        Self {
            store,
            live,
            options,
            related: RwLock::default(),
        }
    }

    pub(super) fn set_related_agents(&self, related: RelatedAgents) {
        *self.related.write() = related;
    }

    /// Returns a task of the caller. A task of another owner counts as missing.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(super) async fn find(&self, who: &RequestContext, id: &str) -> Result<FoundTask, A2aError> {
        let found = match TaskId::new(id) {
            Ok(task) => self.find_stored(who, &task).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| A2aError::task_not_found(id))
    }

    /// Returns a task of the caller; `None` if there is none, or it belongs to another owner.
    ///
    /// # Errors
    /// Errors of the task store.
    pub(super) async fn find_stored(
        &self,
        who: &RequestContext,
        id: &TaskId,
    ) -> Result<Option<FoundTask>, A2aError> {
        let owner = who.owner();
        if let Some(found) = self.live.find(id, &owner).await? {
            return Ok(Some(found));
        }
        let Some(task) = self.store.tasks.get(id).await? else {
            return Ok(None);
        };
        let is_related = |name: &String| task_scope(name) == task.scope;
        if !self.related.read().names.iter().any(is_related) {
            return Ok(None);
        }
        let running = &self.store.running_tasks;
        let theirs = running.for_scope(&self.store.tasks, task.scope.clone(), self.options);
        Ok(theirs.find(id, &owner).await?)
    }

    /// Returns the scopes whose tasks are listed, the agent's own first.
    pub(super) fn listed_scopes(&self) -> Vec<String> {
        let related = self.related.read();
        let others = related.names.iter().filter(|_| related.are_listed);
        let own = [self.live.scope.clone()];
        own.into_iter()
            .chain(others.map(|name| task_scope(name)))
            .collect()
    }
}
