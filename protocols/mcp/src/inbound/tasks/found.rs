//! A task that its owner looks for, and answers.

use callboard_message::{Answer, Failure};
use callboard_rpc::{RpcError, code};
use callboard_runtime::live::Found;
use callboard_runtime::{By, TaskError, TaskId, TaskOwner, TaskStep};

use super::record::refused;
use super::{TaskRequest, TaskState};

impl TaskState {
    /// A task of `request`'s owner.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where it names none: another's isn't told from one that never was.
    pub(super) async fn find(&self, request: &TaskRequest<'_>) -> Result<Found, RpcError> {
        let id = super::super::surface::object(request.params)?.text("taskId");
        let id = id.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`taskId` must be a string"))?;
        self.find_of(&self.owner(&request.call.principal, request.session), &id).await
    }

    pub(super) async fn find_of(&self, owner: &TaskOwner, id: &str) -> Result<Found, RpcError> {
        let id = TaskId::new(id).map_err(|_| unknown())?;
        self.live.find(&id, owner).await.map_err(|error| refused(error.into()))?.ok_or_else(unknown)
    }
}

/// Answers a question of a task; nothing where it waits no more. Ends when the answer is kept.
///
/// # Errors
/// The store's: the question still waits.
pub(super) async fn answer(found: &mut Found, key: String, answer: Result<Answer, Failure>) -> Result<(), RpcError> {
    let taken = match (&found.live, answer) {
        (Some(live), Ok(answer)) => live.tell(Vec::new(), Some((key, answer))).await,
        (Some(live), Err(why)) => live.give_up(key, why).await,
        // That somebody couldn't answer is no answer: only its worker gives a question up.
        (None, Err(_)) => return Ok(()),
        (None, Ok(answer)) => {
            let step = TaskStep::Answered { key, answer: answer.to_raw() };
            found.tasks.step(&found.task.id, By::Owner(&found.task.owner), vec![step]).await
        }
    };
    match taken {
        Ok(task) => {
            found.task = task;
            Ok(())
        }
        Err(TaskError::HasEnded(_) | TaskError::Illegal { .. } | TaskError::NotFound) => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

/// Why a task can't be looked at.
pub(super) fn gone(error: TaskError) -> RpcError {
    if error == TaskError::NotFound { unknown() } else { refused(error) }
}

fn unknown() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "there is no such task")
}
