//! The extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663): the server decides which
//! calls are tasks.

use std::sync::Arc;

use callboard_message::json::raw_from_written;
use callboard_message::{CallerCapabilities, Principal, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::{Caller, Task};
use futures::future::{BoxFuture, ready};
use futures::stream;
use futures::stream::{BoxStream, StreamExt};
use serde_json::value::{RawValue, to_raw_value};

use super::record::{detailed_view, modern_view};
use super::{TaskRequest, TaskService, answer_question, lookup_error, task_ending};
use crate::inbound::agent_adapter::RpcResult;
use crate::inbound::client_messages::parse_answer;
use crate::inbound::request::{ParamName, RequestParams};
use crate::inbound::tools::TaskSupport;
use crate::wire::code as mcp;

pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Returns true if the client capabilities of a request declare the tasks extension.
pub(crate) fn declares_extension(client: &CallerCapabilities) -> bool {
    client
        .0
        .object("extensions")
        .is_some_and(|extensions| extensions.has(TASKS_EXTENSION))
}

fn check_extension(client: &CallerCapabilities) -> Result<(), RpcError> {
    match declares_extension(client) {
        true => Ok(()),
        false => Err(missing_extension()),
    }
}

/// Returns the error for a client that hasn't declared the tasks extension.
pub(crate) fn missing_extension() -> RpcError {
    let extensions = RawObject::single(TASKS_EXTENSION, RawObject::new());
    let data = RawObject::single(
        "requiredCapabilities",
        RawObject::single("extensions", extensions),
    );
    let message =
        format!("declare the extension {TASKS_EXTENSION} in the request's client capabilities");
    RpcError {
        data: to_raw_value(&data).ok(),
        ..RpcError::new(mcp::MISSING_CLIENT_CAPABILITY, message)
    }
}

/// Returns true if a call of a tool must run as a task from its start.
///
/// # Errors
/// `MISSING_CLIENT_CAPABILITY` if it must, but the client hasn't declared the extension.
pub(crate) fn begins_task(
    tasks: &TaskService,
    params: &RequestParams,
    client: &CallerCapabilities,
) -> Result<bool, RpcError> {
    let Some(tool) = params.text(ParamName::Name) else {
        return Ok(false);
    };
    let support = tasks.endpoint.adapter().task_support(&tool);
    match (support, declares_extension(client)) {
        (TaskSupport::Required | TaskSupport::AfterQuestions, false) => Err(missing_extension()),
        (TaskSupport::Optional | TaskSupport::Required, true) => Ok(true),
        _ => Ok(false),
    }
}

/// Executes `tools/call` as a task.
pub(crate) async fn start(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    let (task, _) = tasks.start_task(request, tasks.options.ttl).await?;
    Ok(create_task_result(tasks, &task))
}

/// Returns the `CreateTaskResult` object of the tasks extension.
fn create_task_result(tasks: &TaskService, task: &Task) -> Box<RawValue> {
    let seen = modern_view(task, tasks.options.poll_interval);
    let mut created = RawObject::single("resultType", "task");
    seen.iter()
        .for_each(|(name, value)| created.set_raw(name, value.to_owned()));
    created.to_raw()
}

/// Converts a running call to a task, and returns the tasks extension's `CreateTaskResult`. The
/// call keeps its own deadline. `hand_over` receives the caller that replaces the client.
///
/// # Errors
/// `OVERLOADED` if there are too many tasks. The call is then cancelled.
pub(crate) async fn adopt_call(
    tasks: &TaskService,
    request: &TaskRequest<'_>,
    work: BoxFuture<'static, RpcResult>,
    hand_over: impl FnOnce(Arc<dyn Caller>) + Send,
) -> RpcResult {
    let work = Box::new(|caller, _| -> BoxFuture<'static, _> {
        hand_over(caller);
        Box::pin(async move { task_ending(work.await) })
    });
    let (task, _) = tasks
        .start_work(request, tasks.options.ttl, None, work)
        .await?;
    Ok(create_task_result(tasks, &task))
}

/// Follows those of the tasks `ids` that belong to the principal; others are skipped. Returns the
/// ids of the followed tasks, and a stream of `notifications/tasks` params: the current state of
/// each task, then each of its changes.
pub(crate) async fn follow_tasks(
    tasks: &TaskService,
    principal: &Principal,
    ids: Vec<String>,
) -> (Vec<String>, BoxStream<'static, RawObject>) {
    let poll = tasks.options.poll_interval;
    let owner = tasks.owner(principal, None);
    let (mut followed, mut steps) = (Vec::new(), Vec::new());
    for id in ids {
        // The failure of one task must not prevent the others.
        let Ok(found) = tasks.find_owned(&owner, &id).await else {
            continue;
        };
        followed.push(id);
        // The initial state is sent too, because it may have changed since the client's last
        // request.
        let first = stream::once(ready(detailed_view(&found.task, poll)));
        let later = stream::unfold(found, move |mut found| async move {
            found.wait_until_changed().await.ok()?;
            Some((detailed_view(&found.task, poll), found))
        });
        steps.push(first.chain(later).boxed());
    }
    (followed, stream::select_all(steps).boxed())
}

/// Executes `tasks/get`.
pub(crate) async fn get(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    check_extension(&request.client)?;
    let found = tasks.find(request).await?;
    Ok(detailed_view(&found.task, tasks.options.poll_interval).to_raw())
}

/// Executes `tasks/update`.
pub(crate) async fn update(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    check_extension(&request.client)?;
    let mut found = tasks.find(request).await?;
    let params = &request.request.params;
    params.check_object()?;
    let responses = params
        .get(ParamName::InputResponses)
        .and_then(|raw| RawObject::parse(raw).ok());
    let responses =
        responses.ok_or_else(|| RpcError::invalid_params("`inputResponses` must be an object"))?;
    // All answers are validated before the first is stored.
    let mut answers = Vec::new();
    for open in &found.task.open_questions {
        let Some(response) = responses.get(&open.key) else {
            continue;
        };
        let answer = parse_answer(&open.question, response).map_err(|failure| {
            RpcError::invalid_params(format!(
                "`inputResponses.{}` doesn't fit its question: {}",
                open.key, failure.message
            ))
        })?;
        answers.push((open.key.clone(), answer));
    }
    for (key, answer) in answers {
        answer_question(&mut found, key, Ok(answer)).await?;
    }
    Ok(empty_result())
}

/// Executes `tasks/cancel`.
pub(crate) async fn cancel(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> RpcResult {
    check_extension(&request.client)?;
    tasks
        .find(request)
        .await?
        .cancel()
        .await
        .map_err(lookup_error)?;
    Ok(empty_result())
}

fn empty_result() -> Box<RawValue> {
    raw_from_written("{}".to_owned())
}
