//! Lists of an owner's tasks, page by page.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::TaskState;
use callboard_runtime::{Task, TaskFilter, TaskId, TaskStore};

use super::history::TaskHistory;
use super::lookup::TaskLookup;
use super::task_start::{is_shared_anonymous, remaining_ttl};
use super::{RequestContext, view};
use crate::limits::PAGE_SIZE_DEFAULT;
use crate::wire::{ListTasksRequest, ListTasksResponse};
use crate::{A2aError, ErrorKind};

/// Number of tasks that are read from the store at once.
const TASKS_READ_MAX: usize = 64;

/// Sort key of a task: time of its last change in microseconds since 1970, and its number. Pages
/// are sorted in descending order.
type TaskPosition = (u64, u64);

/// Lists of tasks, for one agent.
pub(super) struct TaskLists {
    tasks: Arc<dyn TaskStore>,
    lookup: Arc<TaskLookup>,
    history: TaskHistory,
    /// Whether all anonymous callers count as one owner.
    shares_anonymous: bool,
}

impl TaskLists {
    pub(super) fn new(
        tasks: Arc<dyn TaskStore>,
        lookup: Arc<TaskLookup>,
        history: TaskHistory,
        shares_anonymous: bool,
    ) -> Self {
        Self {
            tasks,
            lookup,
            history,
            shares_anonymous,
        }
    }

    /// Returns a page of the caller's tasks.
    ///
    /// # Errors
    /// `InvalidParams` if the page token is invalid.
    pub(super) async fn list(
        &self,
        who: &RequestContext,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse, A2aError> {
        let page_size = request.page_size.unwrap_or(PAGE_SIZE_DEFAULT);
        let (size, messages_max) = (
            usize::try_from(page_size).unwrap_or_default(),
            history_limit(request.history_length),
        );
        let after = match &*request.page_token {
            "" => None,
            token => {
                let invalid = || {
                    ErrorKind::InvalidParams.error("`pageToken` is invalid: list again without it")
                };
                Some(read_page_token(token).ok_or_else(invalid)?)
            }
        };
        let mut heads = self.matching_tasks(who, &request).await?;
        heads.sort_unstable_by_key(|(place, _)| Reverse(*place));
        let total = heads.len();
        let mut rest = heads
            .into_iter()
            .filter(|(place, _)| after.is_none_or(|after| *place < after));
        let page: Vec<_> = rest.by_ref().take(size).collect();
        let next = page
            .last()
            .filter(|_| rest.next().is_some())
            .map(|(place, _)| write_page_token(*place));
        let mut tasks = Vec::with_capacity(page.len());
        for (_, id) in page {
            // The task may have been deleted in the meantime.
            let found = self.tasks.get(&id).await?;
            let Some(task) = found else { continue };
            let said = self.history.read(&task, messages_max).await?;
            tasks.push(view::wire_task(
                &task,
                said,
                request.include_artifacts.unwrap_or_default(),
            ));
        }
        Ok(ListTasksResponse {
            tasks,
            next_page_token: next.unwrap_or_default(),
            page_size,
            total_size: i32::try_from(total).unwrap_or(i32::MAX),
        })
    }

    /// Returns position and id of each of the caller's tasks that match the request's filters, in
    /// any order. Empty for anonymous callers, unless all of them count as one owner.
    async fn matching_tasks(
        &self,
        who: &RequestContext,
        request: &ListTasksRequest,
    ) -> Result<Vec<(TaskPosition, TaskId)>, A2aError> {
        if who.is_anonymous() && !self.shares_anonymous {
            // Anonymous callers can't be distinguished, so they find their tasks only by id.
            return Ok(Vec::new());
        }
        let filter = TaskFilter {
            owner: Some(who.owner()),
            states: match request.status {
                None => Vec::new(),
                // It may be stored as either.
                Some(TaskState::AuthRequired) => {
                    vec![TaskState::AuthRequired, TaskState::InputRequired]
                }
                Some(state) => vec![state],
            },
            since: request.status_timestamp_after,
            ..TaskFilter::default()
        };
        let leaves = |task: &Task| {
            !remaining_ttl(task).is_zero()
                && (!who.is_anonymous() || is_shared_anonymous(task))
                && request
                    .status
                    .is_none_or(|state| view::task_state(task) == state)
                && (request.context_id.is_empty() || view::context_id(task) == request.context_id)
        };
        let mut heads = Vec::new();
        for scope in self.lookup.listed_scopes() {
            let filter = TaskFilter {
                scope: Some(scope),
                ..filter.clone()
            };
            let mut after = 0;
            loop {
                let listed = self.tasks.list(filter.clone(), after, TASKS_READ_MAX).await;
                let (tasks, has_more) = listed?;
                let left = tasks.iter().filter(|task| leaves(task));
                heads.extend(
                    left.map(|task| ((unix_micros(task.updated), task.number), task.id.clone())),
                );
                match tasks.last() {
                    Some(last) if has_more => after = last.number,
                    _ => break,
                }
            }
        }
        Ok(heads)
    }
}

/// Converts the history length of a request to a maximum number of messages; `None` (all messages)
/// if it is absent or negative.
pub(crate) fn history_limit(history_length: Option<i32>) -> Option<u32> {
    history_length.and_then(|length| u32::try_from(length).ok())
}

fn unix_micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn write_page_token((updated, number): TaskPosition) -> String {
    URL_SAFE_NO_PAD.encode(format!("{updated}:{number}"))
}

fn read_page_token(token: &str) -> Option<TaskPosition> {
    let place = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (updated, number) = place.split_once(':')?;
    Some((updated.parse().ok()?, number.parse().ok()?))
}
