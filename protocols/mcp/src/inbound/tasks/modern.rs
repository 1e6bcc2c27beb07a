//! The extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663): the server decides which calls are tasks.

use std::sync::Arc;

use callboard_message::json::raw;
use callboard_message::{Abilities, Principal, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::{Caller, Task};
use futures::future::{BoxFuture, ready};
use futures::stream;
use futures::stream::{BoxStream, StreamExt};
use serde_json::value::{RawValue, to_raw_value};

use super::record::{detailed_view, modern_view};
use super::{TaskRequest, TaskService, answer_question, ending, gone};
use crate::inbound::agent_adapter::Outcome;
use crate::inbound::client::parse_answer;
use crate::inbound::request::{Member, Method};
use crate::inbound::tools::TaskSupport;
use crate::wire::code as mcp;

/// The extension's name.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

pub(crate) async fn perform(
    tasks: &Arc<TaskService>,
    request: &TaskRequest<'_>,
) -> Option<Outcome> {
    match request.request.method {
        Method::CallTool => call(tasks, request).await,
        Method::GetTask | Method::UpdateTask | Method::CancelTask if !declares(request.client) => {
            Some(Err(undeclared()))
        }
        Method::GetTask => Some(get(tasks, request).await),
        Method::UpdateTask => Some(update(tasks, request).await),
        Method::CancelTask => Some(cancel(tasks, request).await),
        _ => None,
    }
}

/// Whether a client declared the extension with its request.
pub(crate) fn declares(client: &Abilities) -> bool {
    client
        .0
        .object("extensions")
        .is_some_and(|extensions| extensions.has(EXTENSION))
}

/// What a client is told that should have declared the extension.
pub(crate) fn undeclared() -> RpcError {
    let extensions = RawObject::of(EXTENSION, RawObject::new());
    let data = RawObject::of(
        "requiredCapabilities",
        RawObject::of("extensions", extensions),
    );
    let message = format!("declare the extension {EXTENSION} in the request's client capabilities");
    RpcError {
        code: mcp::MISSING_CLIENT_CAPABILITY,
        message,
        data: to_raw_value(&data).ok(),
    }
}

async fn call(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Option<Outcome> {
    let support = tasks
        .endpoint
        .adapter()
        .task_support(&request.request.params.name()?);
    match (support, declares(request.client)) {
        (TaskSupport::Forbidden, _) | (TaskSupport::Optional, false) => None,
        (TaskSupport::Required | TaskSupport::AfterQuestions, false) => Some(Err(undeclared())),
        (TaskSupport::AfterQuestions, true) => None,
        (TaskSupport::Optional | TaskSupport::Required, true) => {
            let begun = tasks.begin(request, tasks.options.ttl).await;
            Some(begun.map(|(task, _)| created(tasks, &task)))
        }
    }
}

/// `CreateTaskResult`.
fn created(tasks: &TaskService, task: &Task) -> Box<RawValue> {
    let seen = modern_view(task, tasks.options.poll_interval);
    let mut created = RawObject::of("resultType", "task");
    seen.iter()
        .for_each(|(name, value)| created.set_raw(name, value.to_owned()));
    created.to_raw()
}

/// Makes a task of a call that runs already, and keeps its own deadline: `CreateTaskResult`. `hand_over` puts somebody in the
/// place of its caller.
///
/// # Errors
/// `OVERLOADED` where too many are kept: the call is cancelled.
pub(crate) async fn adopt(
    tasks: &TaskService,
    request: &TaskRequest<'_>,
    work: BoxFuture<'static, Outcome>,
    hand_over: impl FnOnce(Arc<dyn Caller>) + Send,
) -> Outcome {
    let work = Box::new(|caller, _| -> BoxFuture<'static, _> {
        hand_over(caller);
        Box::pin(async move { ending(work.await) })
    });
    let (task, _) = tasks.run(request, tasks.options.ttl, None, work).await?;
    Ok(created(tasks, &task))
}

/// Those of `ids` that are tasks of the principal's, and a stream of `notifications/tasks` params for each of their steps.
pub(crate) async fn follow(
    tasks: &TaskService,
    principal: &Principal,
    ids: Vec<String>,
) -> (Vec<String>, BoxStream<'static, RawObject>) {
    let poll = tasks.options.poll_interval;
    let owner = tasks.owner(principal, None);
    let (mut followed, mut steps) = (Vec::new(), Vec::new());
    for id in ids {
        // Whatever stands in the way of one doesn't stand in the way of the others.
        let Ok(found) = tasks.find_of(&owner, &id).await else {
            continue;
        };
        followed.push(id);
        // What it is at the beginning is told too: it may have moved since the client looked.
        let first = stream::once(ready(detailed_view(&found.task, poll)));
        let later = stream::unfold(found, move |mut found| async move {
            found.changed().await.ok()?;
            Some((detailed_view(&found.task, poll), found))
        });
        steps.push(first.chain(later).boxed());
    }
    (followed, stream::select_all(steps).boxed())
}

async fn get(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Outcome {
    let found = tasks.find(request).await?;
    Ok(detailed_view(&found.task, tasks.options.poll_interval).to_raw())
}

async fn update(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Outcome {
    let mut found = tasks.find(request).await?;
    let params = &request.request.params;
    params.check_object()?;
    let responses = params
        .get(Member::InputResponses)
        .and_then(|raw| RawObject::parse(raw).ok());
    let responses =
        responses.ok_or_else(|| RpcError::invalid_params("`inputResponses` must be an object"))?;
    // All are read before one is taken.
    let mut answers = Vec::new();
    for open in &found.task.open {
        let Some(response) = responses.get(&open.key) else {
            continue;
        };
        let answer = parse_answer(&open.question, response).map_err(|failure| {
            RpcError::invalid_params(format!(
                "the response under a key doesn't fit: {}",
                failure.message
            ))
        })?;
        answers.push((open.key.clone(), answer));
    }
    for (key, answer) in answers {
        answer_question(&mut found, key, Ok(answer)).await?;
    }
    Ok(acknowledged())
}

async fn cancel(tasks: &Arc<TaskService>, request: &TaskRequest<'_>) -> Outcome {
    tasks.find(request).await?.cancel().await.map_err(gone)?;
    Ok(acknowledged())
}

fn acknowledged() -> Box<RawValue> {
    raw("{}".to_owned())
}
