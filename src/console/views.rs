//! Views that the console makes of the store, the inboxes of people and the topology, beside those of the node's monitor.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_person::{InboxRequest, inbox};
use callboard_runtime::{
    Approval, PinnedTool, Task, TaskFilter, TaskId, ToolVersion, approvals, pinned_tools, visible,
};
use serde_json::Value;

use super::ConsoleState;
use super::access::{ConsoleClient, Role};
use super::pages::{ConnectTarget, TopologyPicture};
use super::request::ConsoleError;
use crate::monitor::view::{QuestionView, TaskView, ToolView, UpstreamView};

/// Beginning of the ids of questions that wait in the inbox of a person.
pub(super) const INBOX_PREFIX: &str = "inbox:";
/// Member of an upstream's state with the last lines of its program's standard error.
const STDERR_MEMBER: &str = "stderr";
/// Maximum number of tasks in a list: the newest ones.
pub(super) const TASKS_SHOWN_MAX: usize = 500;
/// Maximum number of parts of a task that are shown.
const TASK_PARTS_MAX: usize = 200;
/// Maximum number of tasks that a list examines: those that changed lately, in order of creation.
const TASKS_SCANNED_MAX: usize = 20_000;
/// Number of tasks that are read from the store at once.
const TASK_PAGE: usize = 500;
/// Time since its latest change for which a task is listed.
const TASK_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum size of a tool's definition that is shown, in bytes. A larger one isn't.
const DEFINITION_BYTES_MAX: usize = 64 * 1024;

/// Returns a time in milliseconds since the Unix epoch.
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the questions that wait: of calls, and in the inboxes of people; oldest first.
///
/// # Errors
/// Those of the store.
pub(super) async fn questions(
    console: &ConsoleState,
    client: &ConsoleClient,
) -> Result<Vec<QuestionView>, ConsoleError> {
    // Who answers sees the form, also without the right to see the text.
    let has_forms = client.has(Role::Content) || client.has(Role::Act);
    let mut questions = console.monitor.questions(has_forms);
    let waiting = inbox(&*console.system().store().kv, None).await;
    let waiting = waiting.map_err(ConsoleError::of_store)?;
    questions.extend(waiting.into_iter().map(inbox_view));
    for question in &mut questions {
        if !client.has(Role::Content) {
            question.message.clear();
        }
        if !has_forms {
            // Titles of fields are texts of the question.
            question.schema = Value::Null;
        }
        question.can_answer &= client.has(Role::Act);
    }
    questions.sort_by_key(|question| question.at_ms);
    Ok(questions)
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

fn inbox_view(request: InboxRequest) -> QuestionView {
    QuestionView {
        id: format!("{INBOX_PREFIX}{}", request.id),
        call: String::new(),
        at_ms: request.asked_s.saturating_mul(1_000),
        agent: visible(&request.requester),
        principal: visible(&request.person),
        message: request.question,
        schema: request.schema.unwrap_or_default(),
        can_answer: true,
    }
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
    let state = match (&tool.approved, &tool.offered) {
        (Some(_), None) => "approved",
        (Some(_), Some(_)) => "changed",
        (None, _) => "new",
    };
    let offered_hash = tool.offered.as_ref().map(|version| version.hash.clone());
    ToolView {
        upstream: upstream.to_owned(),
        tool: tool.name.clone(),
        state: state.to_owned(),
        approved: definition(&tool.approved).unwrap_or_default(),
        offered: definition(&tool.offered).unwrap_or_default(),
        offered_hash: offered_hash.unwrap_or_default(),
    }
}

/// Returns the tasks that changed within the last week, newest first, at most [`TASKS_SHOWN_MAX`].
///
/// # Errors
/// Those of the store.
pub(super) async fn tasks(console: &ConsoleState) -> Result<Vec<TaskView>, ConsoleError> {
    let filter = TaskFilter {
        since: SystemTime::now().checked_sub(TASK_TIME),
        ..TaskFilter::default()
    };
    let mut tasks = list_tasks(console, filter, TASKS_SHOWN_MAX).await?;
    tasks.reverse();
    Ok(tasks)
}

/// Returns a task with its parts, in order of creation, at most [`TASK_PARTS_MAX`].
///
/// # Errors
/// 404 if there is no such task; those of the store.
pub(super) async fn task_with_parts(
    console: &ConsoleState,
    id: &str,
) -> Result<(TaskView, Vec<TaskView>), ConsoleError> {
    let unknown = || ConsoleError::not_found("there is no such task, or it isn't kept any more");
    let id = TaskId::new(id).map_err(|_| unknown())?;
    let task = console.system().store().tasks.get(&id).await;
    let task = task.map_err(ConsoleError::of_store)?.ok_or_else(unknown)?;
    let (mut parts, mut parents) = (Vec::new(), vec![id]);
    // Parts of parts too, level by level.
    while let Some(parent) = parents.pop() {
        let left = TASK_PARTS_MAX - parts.len();
        if left == 0 {
            break;
        }
        let filter = TaskFilter {
            parent: Some(parent),
            ..TaskFilter::default()
        };
        let children = list_tasks(console, filter, left).await?;
        let ids = children
            .iter()
            .filter_map(|task| TaskId::new(&*task.id).ok());
        parents.extend(ids);
        parts.extend(children);
    }
    Ok((task_view(&task), parts))
}

/// Returns the last `tasks_max` of the tasks that match a filter, in order of creation.
async fn list_tasks(
    console: &ConsoleState,
    filter: TaskFilter,
    tasks_max: usize,
) -> Result<Vec<TaskView>, ConsoleError> {
    let store = &console.system().store().tasks;
    let (mut tasks, mut after, mut scanned) = (Vec::new(), 0, 0);
    loop {
        let page = store.list(filter.clone(), after, TASK_PAGE).await;
        let (page, is_more) = page.map_err(ConsoleError::of_store)?;
        scanned += page.len();
        after = page.last().map_or(after, |task| task.number);
        tasks.extend(page.iter().map(|task| task_view(task)));
        tasks.drain(..tasks.len().saturating_sub(tasks_max));
        if !is_more || page.is_empty() || scanned >= TASKS_SCANNED_MAX {
            return Ok(tasks);
        }
    }
}

fn task_view(task: &Task) -> TaskView {
    let parent = task.parent_id().map(|id| id.as_str().to_owned());
    TaskView {
        id: task.id.as_str().to_owned(),
        parent: parent.unwrap_or_default(),
        agent: visible(&task.agent),
        owner: visible(task.owner.as_str()),
        state: task.state.as_str().to_owned(),
        created_ms: unix_ms(task.created),
        changed_ms: unix_ms(task.updated),
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
        agents.iter().map(|(name, _)| name.clone()).collect()
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
