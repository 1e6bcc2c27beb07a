//! Tasks of 2025-11-25: the client decides which calls are tasks, and collects their results.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{FailureKind, RawObject, TaskState};
use callboard_rpc::{RpcError, encode_notification};
use callboard_runtime::live::{Delivering, LiveTask};
use callboard_runtime::{Task, TaskFilter};
use futures::stream::{FuturesUnordered, StreamExt};

use super::record::{RELATED_TASK, legacy_status, legacy_view, outcome, refused, related_meta};
use super::{TaskRequest, TaskService, answer_question, gone};
use crate::inbound::agent_adapter::{Outcome, cursor, page_start};
use crate::inbound::client::{MessageSink, nobody_answers, question_with_meta};
use crate::inbound::request::{Member, Method, Params};
use crate::inbound::tools::TaskSupport;
use crate::wire::code as mcp;

pub(crate) fn capability() -> RawObject {
    let empty = RawObject::new;
    let calls = empty().with("tools", empty().with("call", empty()));
    empty()
        .with("list", empty())
        .with("cancel", empty())
        .with("requests", calls)
}

pub(crate) async fn perform(
    tasks: &Arc<TaskService>,
    request: &TaskRequest<'_>,
) -> Option<Outcome> {
    Some(match request.request.method {
        Method::CallTool => return call(tasks, request).await,
        Method::GetTask => get(tasks, request).await,
        Method::TaskResult => result(tasks, request).await,
        Method::ListTasks => list(tasks, request).await,
        Method::CancelTask => cancel(tasks, request).await,
        _ => return None,
    })
}

async fn call(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Option<Outcome> {
    let support = tasks
        .endpoint
        .adapter()
        .task_support(&request.request.params.name()?);
    let wanted = match wanted(&request.request.params, tasks.options.ttl) {
        Ok(wanted) => wanted,
        Err(error) => return Some(Err(error)),
    };
    let not_found = |why: &str| Some(Err(RpcError::method_not_found(why)));
    match (support, wanted) {
        (TaskSupport::Forbidden, Some(_)) => not_found("this tool can't be called as a task"),
        (TaskSupport::Required | TaskSupport::AfterQuestions, None) => {
            not_found("this tool can be called as a task only")
        }
        (TaskSupport::Forbidden | TaskSupport::Optional, None) => None,
        (_, Some(ttl)) => Some(begin(tasks, request, ttl).await),
    }
}

async fn begin(tasks: &Arc<TaskService>, request: &TaskRequest<'_>, ttl: Duration) -> Outcome {
    let poll = tasks.options.poll_interval;
    let (task, live) = tasks.begin(request, ttl).await?;
    let created = RawObject::of("task", legacy_view(&task, poll));
    if let (Some(live), Some(link)) = (live, request.unsolicited) {
        tokio::spawn(tell_steps(live, link.clone(), poll));
    }
    Ok(created.to_raw())
}

/// Tells the client of the steps of a task, as far as it keeps up, until its end.
async fn tell_steps(mut task: LiveTask, link: Arc<dyn MessageSink>, poll: Duration) {
    let mut told = TaskState::Working;
    while task.seen.changed().await.is_ok() {
        let now = task.seen.borrow_and_update().clone();
        if now.state != told {
            told = now.state;
            let params = legacy_view(&now, poll).to_raw();
            link.offer(encode_notification("notifications/tasks/status", Some(&params)).into());
        }
        if told.is_terminal() {
            return;
        }
    }
}

/// How long the task is to be kept that a client wants; `None` where it wants none.
fn wanted(params: &Params, default: Duration) -> Result<Option<Duration>, RpcError> {
    let invalid = |why: &str| RpcError::invalid_params(why);
    params.check_object()?;
    let Some(task) = params.get(Member::Task) else {
        return Ok(None);
    };
    let task = RawObject::parse(task).map_err(|_| invalid("`task` must be an object"))?;
    let Some(ttl) = task.get("ttl") else {
        return Ok(Some(default));
    };
    let millis: f64 =
        serde_json::from_str(ttl.get()).map_err(|_| invalid("`ttl` must be a number"))?;
    let ttl = Duration::try_from_secs_f64(millis / 1_000.0);
    // More than a duration can hold is cut to what the server allows, like anything over that.
    let ttl = if millis < 0.0 {
        Err(invalid("`ttl` must not be negative"))
    } else {
        Ok(ttl.unwrap_or(Duration::MAX))
    };
    ttl.map(Some)
}

async fn get(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Outcome {
    let found = tasks.find(request).await?;
    Ok(legacy_view(&found.task, tasks.options.poll_interval).to_raw())
}

async fn cancel(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Outcome {
    let mut found = tasks.find(request).await?;
    let had_ended = found.task.state.is_terminal();
    found.cancel().await.map_err(gone)?;
    let now = &found.task;
    if had_ended || now.state.is_terminal() && now.state != TaskState::Canceled {
        let status = legacy_status(now);
        return Err(RpcError::invalid_params(format!(
            "the task has ended: {status}"
        )));
    }
    Ok(legacy_view(now, tasks.options.poll_interval).to_raw())
}

async fn list(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Outcome {
    let after = page_start(&request.request.params, TASKS)?;
    let owner = tasks.owner(&request.call.principal, request.session);
    let items_max = tasks.endpoint.options.page_items_max.max(1);
    let theirs = TaskFilter {
        scope: Some(tasks.live.scope.clone()),
        owner: Some(owner),
        ..TaskFilter::default()
    };
    let page = tasks.live.tasks.list(theirs, after, items_max).await;
    let (page, more) = page.map_err(|error| refused(error.into()))?;
    let seen: Vec<_> = page
        .iter()
        .map(|task| legacy_view(task, tasks.options.poll_interval))
        .collect();
    let mut result = RawObject::of("tasks", seen);
    let last = page.last().filter(|_| more);
    result.set_some("nextCursor", &last.map(|last| cursor(TASKS, last.number)));
    Ok(result.to_raw())
}

/// The list of tasks, in cursors.
const TASKS: &str = "task";

/// Waits for the end of a task. Meanwhile its questions go to whoever waits here.
async fn result(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Outcome {
    let mut found = tasks.find(request).await?;
    let (mut asked, mut delivering) = (FuturesUnordered::new(), found.delivering.subscribe());
    loop {
        delivering.mark_unchanged();
        found.refresh();
        if found.task.state.is_terminal() {
            return come_to(&found.task);
        }
        for open in &found.task.open {
            let Some(delivering) = Delivering::of(&found.delivering, &open.key) else {
                continue;
            };
            let question =
                question_with_meta(&open.question, RELATED_TASK, &related_meta(&found.task));
            let key = open.key.clone();
            asked.push(async move {
                let answer = match &request.call.caller {
                    Some(caller) => caller.ask(question).await,
                    None => Err(nobody_answers()),
                };
                (key, answer, delivering)
            });
        }
        tokio::select! {
            changed = found.changed() => changed.map_err(gone)?,
            // Whoever was asked may have gone: then a question is free again.
            Ok(()) = delivering.changed() => {}
            Some((key, answer, delivered)) = asked.next() => {
                // Nobody could be asked here and now; somebody may at the next `tasks/result`.
                if !matches!(&answer, Err(why) if why.kind == FailureKind::Cancelled) {
                    answer_question(&mut found, key, answer).await?;
                }
                drop(delivered);
            }
        }
    }
}

/// Just what the call itself would have answered, and which task it belongs to.
fn come_to(task: &Task) -> Outcome {
    match outcome(task) {
        Some(Ok(result)) => {
            let mut result = RawObject::parse(result).unwrap_or_default();
            let meta = result.object("_meta").unwrap_or_default();
            result.set("_meta", meta.with(RELATED_TASK, related_meta(task)));
            Ok(result.to_raw())
        }
        Some(Err(error)) => Err(error),
        None => Err(RpcError::new(mcp::CANCELLED, "the task was cancelled")),
    }
}
