//! Tasks of an owner, page by page.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::TaskState;
use callboard_runtime::{Task, TaskFilter, TaskId};

use super::begin::{is_of_party, left};
use super::{Calls, Who, view};
use crate::limits::PAGE_SIZE_DEFAULT;
use crate::wire::{ListTasksRequest, ListTasksResponse};
use crate::{A2aError, ErrorKind};

/// Tasks that are read at once.
const TASKS_READ_MAX: usize = 64;

/// Where a task stands among the others: those that changed last come first.
type Place = (u64, u64);

impl Calls {
    /// The tasks of `who`'s.
    ///
    /// # Errors
    /// `InvalidParams` for a token that none of these pages had.
    pub(crate) async fn list(
        &self,
        who: &Who,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse, A2aError> {
        let page_size = request.page_size.unwrap_or(PAGE_SIZE_DEFAULT);
        let (size, messages_max) = (
            usize::try_from(page_size).unwrap_or_default(),
            most(request.history_length),
        );
        let after = match &*request.page_token {
            "" => None,
            token => {
                let invalid =
                    || ErrorKind::InvalidParams.error("`pageToken` is of no page of this list");
                Some(read_token(token).ok_or_else(invalid)?)
            }
        };
        let mut heads = self.heads(who, &request).await?;
        heads.sort_unstable_by_key(|(place, _)| Reverse(*place));
        let total = heads.len();
        let mut rest = heads
            .into_iter()
            .filter(|(place, _)| after.is_none_or(|after| *place < after));
        let page: Vec<_> = rest.by_ref().take(size).collect();
        let next = page
            .last()
            .filter(|_| rest.next().is_some())
            .map(|(place, _)| token(*place));
        let mut tasks = Vec::with_capacity(page.len());
        for (_, id) in page {
            // Forgotten in between is gone.
            let found = self.store.tasks.get(&id).await?;
            let Some(task) = found else { continue };
            let said = self.history(&task, messages_max).await?;
            tasks.push(view::task(
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

    /// Those that the request leaves, in the order in which they began.
    async fn heads(
        &self,
        who: &Who,
        request: &ListTasksRequest,
    ) -> Result<Vec<(Place, TaskId)>, A2aError> {
        if who.is_anonymous() && !self.options.one_anonymous {
            // Whoever they are, they know the ids of their own.
            return Ok(Vec::new());
        }
        let filter = TaskFilter {
            scope: Some(self.live.scope.clone()),
            owner: Some(who.owner()),
            states: match request.status {
                None => Vec::new(),
                // It may be kept as either.
                Some(TaskState::AuthRequired) => {
                    vec![TaskState::AuthRequired, TaskState::InputRequired]
                }
                Some(state) => vec![state],
            },
            since: request.status_timestamp_after,
            ..TaskFilter::default()
        };
        let leaves = |task: &Task| {
            !left(task).is_zero()
                && (!who.is_anonymous() || is_of_party(task))
                && request
                    .status
                    .is_none_or(|state| view::state(task) == state)
                && (request.context_id.is_empty() || view::context(task) == request.context_id)
        };
        let (mut heads, mut after) = (Vec::new(), 0);
        loop {
            let listed = self
                .store
                .tasks
                .list(filter.clone(), after, TASKS_READ_MAX)
                .await;
            let (tasks, has_more) = listed?;
            let Some(last) = tasks.last() else {
                return Ok(heads);
            };
            after = last.number;
            let left = tasks.iter().filter(|task| leaves(task));
            heads.extend(left.map(|task| ((micros(task.updated), task.number), task.id.clone())));
            if !has_more {
                return Ok(heads);
            }
        }
    }
}

/// How many messages of a history are wanted; `None` is all.
pub(crate) fn most(history_length: Option<i32>) -> Option<u32> {
    history_length.and_then(|length| u32::try_from(length).ok())
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn token((updated, number): Place) -> String {
    URL_SAFE_NO_PAD.encode(format!("{updated}:{number}"))
}

fn read_token(token: &str) -> Option<Place> {
    let place = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (updated, number) = place.split_once(':')?;
    Some((updated.parse().ok()?, number.parse().ok()?))
}
