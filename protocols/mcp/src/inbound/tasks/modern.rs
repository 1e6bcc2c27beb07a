//! The extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663): the server decides which calls are tasks.

use std::borrow::Cow;
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
use super::{TaskRequest, answer_question, ending, gone};
use crate::inbound::agent_adapter::Outcome;
use crate::inbound::client::parse_answer;
use crate::inbound::endpoint::Endpoint;
use crate::inbound::request::{Method, Params};
use crate::inbound::tools::TaskSupport;
use crate::wire::code as mcp;

/// The extension's name.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

pub(crate) async fn perform(endpoint: &Arc<Endpoint>, request: &TaskRequest<'_>) -> Option<Outcome> {
    match request.request.method {
        Method::CallTool => call(endpoint, request).await,
        Method::GetTask | Method::UpdateTask | Method::CancelTask if !declares(request.client) => {
            Some(Err(undeclared()))
        }
        Method::GetTask => Some(get(endpoint, request).await),
        Method::UpdateTask => Some(update(endpoint, request).await),
        Method::CancelTask => Some(cancel(endpoint, request).await),
        _ => None,
    }
}

/// Whether a client declared the extension with its request.
pub(crate) fn declares(client: &Abilities) -> bool {
    client.0.object("extensions").is_some_and(|extensions| extensions.has(EXTENSION))
}

/// What a client is told that should have declared the extension.
pub(crate) fn undeclared() -> RpcError {
    let extensions = RawObject::of(EXTENSION, RawObject::new());
    let data = RawObject::of("requiredCapabilities", RawObject::of("extensions", extensions));
    let message = format!("declare the extension {EXTENSION} in the request's client capabilities");
    RpcError { code: mcp::MISSING_CLIENT_CAPABILITY, message, data: to_raw_value(&data).ok() }
}

async fn call(endpoint: &Arc<Endpoint>, request: &TaskRequest<'_>) -> Option<Outcome> {
    let support = endpoint.adapter().task_support(&request.request.params.name()?);
    match (support, declares(request.client)) {
        (TaskSupport::Forbidden, _) | (TaskSupport::Optional, false) => None,
        (TaskSupport::Required | TaskSupport::AfterQuestions, false) => Some(Err(undeclared())),
        (TaskSupport::AfterQuestions, true) => None,
        (TaskSupport::Optional | TaskSupport::Required, true) => {
            let begun = endpoint.tasks.begin(endpoint, request, None).await;
            Some(begun.map(|(task, _)| created(endpoint, &task)))
        }
    }
}

/// `CreateTaskResult`.
fn created(endpoint: &Endpoint, task: &Task) -> Box<RawValue> {
    let seen = modern_view(task, endpoint.tasks.options.poll_interval);
    let mut created = RawObject::of("resultType", "task");
    seen.iter().for_each(|(name, value)| created.set_raw(name, value.to_owned()));
    created.to_raw()
}

/// Whether the call of this tool becomes a task once its first questions are answered.
pub(crate) fn asks_first(endpoint: &Endpoint, params: &Params, client: &Abilities) -> bool {
    let adapter = endpoint.adapter();
    let asks_first = |tool: Cow<'_, str>| adapter.task_support(&tool) == TaskSupport::AfterQuestions;
    adapter.has_task_tools() && params.name().is_some_and(asks_first) && declares(client)
}

/// Makes a task of a call that runs already, and keeps its own deadline: `CreateTaskResult`. `hand_over` puts somebody in the
/// place of its caller.
///
/// # Errors
/// `OVERLOADED` where too many are kept: the call is cancelled.
pub(crate) async fn adopt(
    endpoint: &Arc<Endpoint>,
    request: &TaskRequest<'_>,
    work: BoxFuture<'static, Outcome>,
    hand_over: impl FnOnce(Arc<dyn Caller>) + Send,
) -> Outcome {
    let work = Box::new(|caller, _| -> BoxFuture<'static, _> {
        hand_over(caller);
        Box::pin(async move { ending(work.await) })
    });
    let (task, _) = endpoint.tasks.run(endpoint, request, None, None, work).await?;
    Ok(created(endpoint, &task))
}

/// Those of `ids` that are tasks of the principal's, and a stream of `notifications/tasks` params for each of their steps.
pub(crate) async fn follow(
    endpoint: &Endpoint,
    principal: &Principal,
    ids: Vec<String>,
) -> (Vec<String>, BoxStream<'static, RawObject>) {
    let (tasks, poll) = (&endpoint.tasks, endpoint.tasks.options.poll_interval);
    let owner = tasks.owner(principal, None);
    let (mut followed, mut steps) = (Vec::new(), Vec::new());
    for id in ids {
        // Whatever stands in the way of one doesn't stand in the way of the others.
        let Ok(found) = tasks.find_of(&owner, &id).await else { continue };
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

async fn get(endpoint: &Arc<Endpoint>, request: &TaskRequest<'_>) -> Outcome {
    let found = endpoint.tasks.find(request).await?;
    Ok(detailed_view(&found.task, endpoint.tasks.options.poll_interval).to_raw())
}

async fn update(endpoint: &Arc<Endpoint>, request: &TaskRequest<'_>) -> Outcome {
    let mut found = endpoint.tasks.find(request).await?;
    let params = &request.request.params;
    params.check_object()?;
    let responses = params.input_responses().and_then(|raw| RawObject::parse(raw).ok());
    let responses = responses.ok_or_else(|| RpcError::invalid_params("`inputResponses` must be an object"))?;
    // All are read before one is taken.
    let mut answers = Vec::new();
    for open in &found.task.open {
        let Some(response) = responses.get(&open.key) else { continue };
        let answer = parse_answer(&open.question, response).map_err(|failure| {
            RpcError::invalid_params(format!("the response under a key doesn't fit: {}", failure.message))
        })?;
        answers.push((open.key.clone(), answer));
    }
    for (key, answer) in answers {
        answer_question(&mut found, key, Ok(answer)).await?;
    }
    Ok(acknowledged())
}

async fn cancel(endpoint: &Arc<Endpoint>, request: &TaskRequest<'_>) -> Outcome {
    endpoint.tasks.find(request).await?.cancel().await.map_err(gone)?;
    Ok(acknowledged())
}

fn acknowledged() -> Box<RawValue> {
    raw("{}".to_owned())
}
