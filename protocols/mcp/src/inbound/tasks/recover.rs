//! What an endpoint does for tasks that an earlier process or another node left.

use std::sync::Arc;

use callboard_message::{Failure, FailureKind};
use callboard_runtime::live::{CannotResume, Run, TaskHost};
use callboard_runtime::{CallMeta, Lease, Task};
use futures::future::BoxFuture;

use super::record::Extra;
use super::{TaskState, perform};
use crate::inbound::endpoint::Endpoint;

/// An endpoint serves its tasks from now on.
pub(crate) fn serve(endpoint: &Arc<Endpoint>) {
    endpoint.tasks.live.serve(endpoint);
}

impl TaskHost for Endpoint {
    /// Who serves no tools as tasks could only fail them. Another agent may have such tools later.
    fn can_resume(&self) -> bool {
        self.surface().has_task_tools()
    }

    fn resume(self: Arc<Self>, task: Arc<Task>, lease: Lease) -> BoxFuture<'static, Result<(), CannotResume>> {
        Box::pin(async move {
            let unavailable = |why| Failure::new(FailureKind::Unavailable, why);
            if self.tasks.is_of_lost_session(&task) {
                return Err(CannotResume::IsForgotten(unavailable("nobody can ask for it any more")));
            }
            let (Some(extra), Some(params)) = (Extra::of(&task), &task.request) else {
                return Err(CannotResume::Fails(unavailable("what it was asked wasn't kept")));
            };
            let call = CallMeta::new(Arc::new(task.principal.clone()));
            let work = perform(&self, Some(params), extra.revision, call);
            let abilities = Arc::new(extra.client);
            self.tasks.live.run(Run { task, lease, is_resumed: true, abilities, told: None, work });
            Ok(())
        })
    }
}

impl TaskState {
    /// Whether the task is of a session of nobody in particular in an earlier run: its number means another by now.
    fn is_of_lost_session(&self, task: &Task) -> bool {
        let session = task.owner.as_str().strip_prefix("session:");
        session.is_some_and(|session| session.rsplit_once(':').is_none_or(|(run, _)| run != &*self.run))
    }
}
