//! Views that the console makes of the store, the inboxes of people and the topology, beside those of the node's monitor.

use std::sync::Arc;
use std::time::Duration;

use callboard_person::{InboxRequest, inbox};
use callboard_runtime::{Approval, PinnedTool, ToolVersion, approvals, pinned_tools, visible};
use serde_json::Value;
use tokio::time::timeout;

use super::ConsoleState;
use super::access::{ConsoleClient, Role};
use super::pages::{ConnectTarget, TopologyPicture};
use super::request::ConsoleError;
use crate::monitor::view::{QuestionView, TaskView, Timeline, ToolView, UpstreamView};

/// Beginning of the ids of questions that wait in the inbox of a person.
pub(super) const INBOX_PREFIX: &str = "inbox:";
/// Maximum time of the store to answer how many questions wait in inboxes. Pages are shown without the number then.
const INBOX_COUNT_TIMEOUT: Duration = Duration::from_millis(500);
/// Member of an upstream's state with the last lines of its program's standard error.
const STDERR_MEMBER: &str = "stderr";
/// Maximum size of a tool's definition that is shown, in bytes. A larger one isn't.
const DEFINITION_BYTES_MAX: usize = 64 * 1024;

/// Returns the timeline of a call. Requests and replies are for clients with the right to see contents, and only of agents
/// whose texts may be shown now, whatever was recorded.
///
/// # Errors
/// 404 if the call isn't kept.
pub(super) fn timeline(
    console: &ConsoleState,
    client: &ConsoleClient,
    call: &str,
) -> Result<Timeline, ConsoleError> {
    let found = console.monitor.timeline(call, client.has(Role::Content));
    let mut timeline = found.ok_or_else(|| {
        ConsoleError::not_found("there is no such call, or it is too long ago: the latest are kept")
    })?;
    for step in &mut timeline.steps {
        if !(console.shown_agents)(&step.agent) {
            (step.request, step.reply) = (None, None);
        }
    }
    Ok(timeline)
}

/// Returns the questions that wait: of calls, and in the inboxes of people; oldest first. Text and form are there only for
/// clients that may see them.
///
/// # Errors
/// Those of the store.
pub(super) async fn questions(
    console: &ConsoleState,
    client: &ConsoleClient,
) -> Result<Vec<QuestionView>, ConsoleError> {
    // The form has texts too.
    let mut questions = console.monitor.questions(client.has(Role::Content));
    for question in &mut questions {
        let is_shown = (console.shown_agents)(&question.agent);
        if !is_shown {
            question.message.clear();
            question.schema = Value::Null;
        }
        question.can_answer &= is_shown && client.has(Role::Act);
    }
    let waiting = inbox_requests(console).await?;
    questions.extend(waiting.iter().map(|request| inbox_view(request, client)));
    questions.sort_by_key(|question| question.at_ms);
    Ok(questions)
}

/// Returns the questions in the inboxes of all people.
///
/// # Errors
/// Those of the store.
async fn inbox_requests(console: &ConsoleState) -> Result<Arc<Vec<InboxRequest>>, ConsoleError> {
    let reading = inbox(&*console.system().store().kv, None);
    let waiting = console.inbox.get(reading).await;
    waiting.map_err(ConsoleError::of_store)
}

/// Returns the number of questions in the inboxes of all people; 0 if the store doesn't answer within
/// [`INBOX_COUNT_TIMEOUT`].
pub(super) async fn inbox_count(console: &ConsoleState) -> usize {
    let waiting = timeout(INBOX_COUNT_TIMEOUT, inbox_requests(console)).await;
    waiting
        .ok()
        .and_then(Result::ok)
        .map_or(0, |waiting| waiting.len())
}

/// Returns the states of the upstreams. The last lines of their programs' standard error are for clients with the right
/// to see contents, and only of agents whose texts may be shown.
pub(super) async fn upstreams(console: &ConsoleState, client: &ConsoleClient) -> Vec<UpstreamView> {
    let mut upstreams = console.monitor.upstreams().await;
    for upstream in &mut upstreams {
        let is_shown = client.has(Role::Content) && (console.shown_agents)(&upstream.name);
        if !is_shown && let Some(detail) = upstream.detail.as_object_mut() {
            detail.remove(STDERR_MEMBER);
        }
    }
    upstreams
}

/// Returns a question in an inbox. Its text and form are for whoever may answer for the person.
fn inbox_view(request: &InboxRequest, client: &ConsoleClient) -> QuestionView {
    let can_answer = client.may_answer_for(&request.person);
    let (message, schema) = match can_answer {
        true => (request.question.clone(), request.schema.clone()),
        false => (String::new(), None),
    };
    QuestionView {
        id: format!("{INBOX_PREFIX}{}", request.id),
        call: String::new(),
        at_ms: request.asked_s.saturating_mul(1_000),
        agent: visible(&request.requester),
        principal: visible(&request.person),
        message,
        schema: schema.unwrap_or_default(),
        can_answer,
    }
}

/// Returns the tasks that changed within the last week, newest first.
///
/// # Errors
/// Those of the store.
pub(super) async fn tasks(console: &ConsoleState) -> Result<Arc<Vec<TaskView>>, ConsoleError> {
    let tasks = console.tasks.get(&*console.system().store().tasks).await;
    tasks.map_err(ConsoleError::of_store)
}

/// Returns the uses of tools that wait for the client's approval, without their arguments if the client may not see
/// contents.
///
/// # Errors
/// Those of the store.
pub(super) async fn pending_approvals(
    console: &ConsoleState,
    client: &ConsoleClient,
) -> Result<Vec<Approval>, ConsoleError> {
    let pending = approvals(&*console.system().store().kv, &client.principal).await;
    let mut pending = pending.map_err(ConsoleError::of_store)?;
    if !client.has(Role::Content) {
        pending.iter_mut().for_each(|approval| {
            approval.arguments.clear();
            approval.purpose.clear();
        });
    }
    Ok(pending)
}

/// Returns the pinned tools of all upstreams.
///
/// # Errors
/// Those of the store.
pub(super) async fn tools(console: &ConsoleState) -> Result<Vec<ToolView>, ConsoleError> {
    let topology = console.topology();
    let mut tools = Vec::new();
    for upstream in &topology.pinned {
        let pinned = pinned_tools(&*console.system().store().kv, upstream).await;
        let pinned = pinned.map_err(ConsoleError::of_store)?;
        tools.extend(pinned.iter().map(|tool| tool_view(upstream, tool)));
    }
    Ok(tools)
}

fn tool_view(upstream: &str, tool: &PinnedTool) -> ToolView {
    let definition = |version: &Option<ToolVersion>| {
        let definition = version.as_ref()?.definition.as_ref()?;
        let text = serde_json::to_string_pretty(definition).ok()?;
        (text.len() <= DEFINITION_BYTES_MAX).then_some(text)
    };
    let offered_hash = tool.offered.as_ref().map(|version| version.hash.clone());
    ToolView {
        upstream: upstream.to_owned(),
        tool: tool.name.clone(),
        state: tool.state().to_owned(),
        approved: definition(&tool.approved).unwrap_or_default(),
        offered: definition(&tool.offered).unwrap_or_default(),
        offered_hash: offered_hash.unwrap_or_default(),
    }
}

/// Returns the MCP addresses of the node, for clients.
pub(super) fn connect_targets(console: &ConsoleState) -> Vec<ConnectTarget> {
    let topology = console.topology();
    let mcp = topology
        .listeners
        .iter()
        .filter(|listener| listener.protocol == "mcp");
    mcp.flat_map(|listener| {
        let needs_key = listener.needs_credential;
        listener
            .agents
            .iter()
            .map(move |(name, url)| ConnectTarget {
                name: name.clone(),
                url: url.clone(),
                needs_key,
            })
    })
    .collect()
}

/// Returns the topology with the states of its upstreams.
pub(super) async fn topology_picture(console: &ConsoleState) -> TopologyPicture {
    let topology = console.topology();
    let states = console.monitor.upstreams().await;
    let state_of = |id: &String| {
        let known = states.iter().find(|state| state.name == *id);
        let state = known.map_or_else(|| "unknown".to_owned(), |known| known.state.clone());
        (id.clone(), state)
    };
    let names = |agents: &[(String, String)]| -> Vec<String> {
        // The agent that stands for all is listed with its own address too.
        let mut names: Vec<String> = agents.iter().map(|(name, _)| name.clone()).collect();
        names.dedup();
        names
    };
    let listeners = topology.listeners.iter().map(|listener| {
        let (url, protocol) = (listener.url.clone(), listener.protocol.clone());
        (url, protocol, names(&listener.agents))
    });
    TopologyPicture {
        node: topology.node.clone(),
        listeners: listeners.collect(),
        agents: topology.agents.clone(),
        upstreams: topology.upstreams.iter().map(state_of).collect(),
    }
}
