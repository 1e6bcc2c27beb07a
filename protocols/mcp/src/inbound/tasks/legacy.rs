//! Tasks of 2025-11-25: the client decides which calls are tasks, and fetches their results.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{FailureKind, RawObject, TaskState};
use callboard_rpc::{RpcError, encode_notification};
use callboard_runtime::running::{QuestionClaim, RunningTask};
use callboard_runtime::{Task, TaskFilter};
use futures::stream::{FuturesUnordered, StreamExt};

use super::record::{
    RELATED_TASK, call_outcome, legacy_status, legacy_view, related_meta, task_error,
};
use super::{TaskRequest, TaskService, answer_question, lookup_error};
use crate::inbound::agent_adapter::{RpcResult, encode_cursor, parse_cursor};
use crate::inbound::client_messages::{MessageSink, no_responder, question_with_meta};
use crate::inbound::request::{ParamName, RequestParams};
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

/// Returns true if a call of a tool must run as a task.
///
/// # Errors
/// `METHOD_NOT_FOUND` if the tool can be called as a task only and the client doesn't want one, or
/// the reverse; `INVALID_PARAMS` if the param `task` is malformed.
pub(crate) fn begins_task(tasks: &TaskService, params: &RequestParams) -> Result<bool, RpcError> {
    let Some(tool) = params.text(ParamName::Name) else {
        return Ok(false);
    };
    let support = tasks.endpoint.adapter().task_support(&tool);
    let is_wanted = requested_ttl(params, tasks.options.ttl)?.is_some();
    match (support, is_wanted) {
        (TaskSupport::Forbidden, true) => Err(RpcError::method_not_found(
            "this tool can't be called as a task: leave out `task`",
        )),
        (TaskSupport::Required | TaskSupport::AfterQuestions, false) => Err(
            RpcError::method_not_found("this tool can be called as a task only: add `task`"),
        ),
        _ => Ok(is_wanted),
    }
}

/// Executes `tools/call` as a task.
pub(crate) async fn start(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    let ttl = requested_ttl(&request.request.params, tasks.options.ttl)?;
    let poll = tasks.options.poll_interval;
    let (task, live) = tasks
        .start_task(request, ttl.unwrap_or(tasks.options.ttl))
        .await?;
    let created = RawObject::single("task", legacy_view(&task, poll));
    if let (Some(live), Some(sink)) = (live, &request.unsolicited) {
        tokio::spawn(notify_steps(live, sink.clone(), poll));
    }
    Ok(created.to_raw())
}

/// Notifies the client of each change of a task's status until its end. Notifications are dropped
/// if the client reads slowly.
async fn notify_steps(mut task: RunningTask, sink: Arc<dyn MessageSink>, poll: Duration) {
    let mut sent_state = TaskState::Working;
    while task.updates.changed().await.is_ok() {
        let now = task.updates.borrow_and_update().clone();
        if now.state != sent_state {
            sent_state = now.state;
            let params = legacy_view(&now, poll).to_raw();
            sink.send_lossy(
                encode_notification("notifications/tasks/status", Some(&params)).into(),
            );
        }
        if sent_state.is_terminal() {
            return;
        }
    }
}

/// Returns the time for which the client wants the task to be kept: `default` if it names none,
/// `None` if it doesn't request a task.
///
/// # Errors
/// `INVALID_PARAMS` if `task` isn't an object, or its `ttl` isn't a number or is negative.
fn requested_ttl(params: &RequestParams, default: Duration) -> Result<Option<Duration>, RpcError> {
    let invalid = |why: &str| RpcError::invalid_params(why);
    params.check_object()?;
    let Some(task) = params.get(ParamName::Task) else {
        return Ok(None);
    };
    let task = RawObject::parse(task).map_err(|_| invalid("`task` must be an object"))?;
    let Some(ttl) = task.get("ttl") else {
        return Ok(Some(default));
    };
    let millis: f64 =
        serde_json::from_str(ttl.get()).map_err(|_| invalid("`ttl` must be a number"))?;
    let ttl = Duration::try_from_secs_f64(millis / 1_000.0);
    // A value beyond the range of a duration is cut to the server's maximum, like any above it.
    let ttl = if millis < 0.0 {
        Err(invalid("`ttl` must not be negative"))
    } else {
        Ok(ttl.unwrap_or(Duration::MAX))
    };
    ttl.map(Some)
}

/// Executes `tasks/get`.
pub(crate) async fn get(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    let found = tasks.find(request).await?;
    Ok(legacy_view(&found.task, tasks.options.poll_interval).to_raw())
}

/// Executes `tasks/cancel`.
pub(crate) async fn cancel(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    let mut found = tasks.find(request).await?;
    let had_ended = found.task.state.is_terminal();
    found.cancel().await.map_err(lookup_error)?;
    let now = &found.task;
    if had_ended || now.state.is_terminal() && now.state != TaskState::Canceled {
        let status = legacy_status(now);
        return Err(RpcError::invalid_params(format!(
            "the task has ended: {status}"
        )));
    }
    Ok(legacy_view(now, tasks.options.poll_interval).to_raw())
}

/// Executes `tasks/list`.
pub(crate) async fn list(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    let after = parse_cursor(&request.request.params, TASK_CURSOR)?;
    let owner = tasks.owner(&request.call.principal, request.session);
    let items_max = tasks.endpoint.options.page_items_max.max(1);
    let theirs = TaskFilter {
        scope: Some(tasks.live.scope.clone()),
        owner: Some(owner),
        ..TaskFilter::default()
    };
    let page = tasks.live.tasks.list(theirs, after, items_max).await;
    let (page, more) = page.map_err(|error| task_error(error.into()))?;
    let seen: Vec<_> = page
        .iter()
        .map(|task| legacy_view(task, tasks.options.poll_interval))
        .collect();
    let mut result = RawObject::single("tasks", seen);
    let last = page.last().filter(|_| more);
    result.set_some(
        "nextCursor",
        &last.map(|last| encode_cursor(TASK_CURSOR, last.number)),
    );
    Ok(result.to_raw())
}

/// Prefix of the cursors of `tasks/list`, which tells them from cursors of other lists.
const TASK_CURSOR: &str = "task";

/// Executes `tasks/result`: waits until a task ends and returns its result. Meanwhile the task's
/// questions are put to the waiting client.
pub(crate) async fn wait_result(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    let mut found = tasks.find(request).await?;
    let (mut asked, mut delivering) =
        (FuturesUnordered::new(), found.claimed_questions.subscribe());
    loop {
        delivering.mark_unchanged();
        found.refresh();
        if found.task.state.is_terminal() {
            return call_result(&found.task);
        }
        for open in &found.task.open_questions {
            let Some(delivering) = QuestionClaim::acquire(&found.claimed_questions, &open.key)
            else {
                continue;
            };
            let question =
                question_with_meta(&open.question, RELATED_TASK, &related_meta(&found.task));
            let key = open.key.clone();
            asked.push(async move {
                let answer = match &request.call.caller {
                    Some(caller) => caller.ask(question).await,
                    None => Err(no_responder()),
                };
                (key, answer, delivering)
            });
        }
        tokio::select! {
            changed = found.wait_until_changed() => changed.map_err(lookup_error)?,
            // A client that was asked may have disconnected: its question is free again.
            Ok(()) = delivering.changed() => {}
            Some((key, answer, delivered)) = asked.next() => {
                // The client couldn't be asked now; the next `tasks/result` may ask it.
                if !matches!(&answer, Err(why) if why.kind == FailureKind::Cancelled) {
                    answer_question(&mut found, key, answer).await?;
                }
                drop(delivered);
            }
        }
    }
}

/// Returns the result of a task's call, with the task's id in `_meta`; an error if the call failed
/// or was cancelled.
fn call_result(task: &Task) -> RpcResult {
    match call_outcome(task) {
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
