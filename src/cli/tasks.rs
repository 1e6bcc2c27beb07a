//! `callboard tasks`: list, show and cancel tasks.

use std::time::{Duration, SystemTime};

use callboard_message::time::format_rfc3339;
use callboard_message::{DataClass, TaskState};
use callboard_runtime::{
    Store, Task, TaskActor, TaskError, TaskEvent, TaskFilter, TaskId, TaskOwner, TaskStore,
};
use callboard_store::{PAGE_ROWS_MAX, ReadOnlyStore};
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};

use super::arguments::{one_of_names, parse_span};
use super::output::{self, RowPrinter};
use super::store::StoreArguments;
use super::{CommandError, CommandResult, EXIT_ANSWERED};
use crate::text::format_value;

/// Default of `--limit`.
const LIST_LIMIT_DEFAULT: usize = 100;

#[derive(Debug, Subcommand)]
pub(super) enum TasksCommand {
    /// List tasks in the order of their creation, without requests and answers.
    List(TaskListArguments),
    /// Show one task with its steps.
    Show(TaskShowArguments),
    /// Cancel a task and its parts. A task that a node works on is cancelled by that node. Exit
    /// code 4 if it has ended.
    Cancel(TaskCancelArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct TaskListArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Only tasks in this state. May be repeated. (`--state` is the node's data folder, in every
    /// command.)
    #[arg(long, value_name = "STATE", value_parser = one_of_names(TaskState::ALL.iter().map(|it| (it.as_str(), *it))))]
    in_state: Vec<TaskState>,
    /// Only tasks of this owner, for example api_key:alice.
    #[arg(long)]
    owner: Option<String>,
    /// Only tasks of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// Only tasks of this scope, for example mcp:gateway.
    #[arg(long)]
    scope: Option<String>,
    /// Only parts of this task.
    #[arg(long, value_name = "ID", value_parser = |id: &str| TaskId::new(id))]
    parent: Option<TaskId>,
    /// Only tasks that changed within this time, for example 90s, 5m, 2h or 7d.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    since: Option<Duration>,
    /// Maximum number of tasks.
    #[arg(long, value_name = "N", default_value_t = LIST_LIMIT_DEFAULT)]
    limit: usize,
    /// Only tasks after this number: the next page.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct TaskShowArguments {
    /// Id of the task.
    #[arg(value_parser = |id: &str| TaskId::new(id))]
    id: TaskId,
    #[command(flatten)]
    store: StoreArguments,
    /// Also show request, artifacts and answer. Those of clinical tasks are never stored.
    #[arg(long)]
    bodies: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct TaskCancelArguments {
    /// Id of the task.
    #[arg(value_parser = |id: &str| TaskId::new(id))]
    id: TaskId,
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs `callboard tasks`.
pub(super) async fn run(command: TasksCommand) -> CommandResult {
    let (TasksCommand::List(TaskListArguments { store, .. })
    | TasksCommand::Show(TaskShowArguments { store, .. })
    | TasksCommand::Cancel(TaskCancelArguments { store, .. })) = &command;
    let act = async |visitor: &ReadOnlyStore| {
        // Who looks and cancels keeps no bodies, so nothing is marked.
        let tasks = visitor.tasks(Store::in_memory().audit);
        match &command {
            TasksCommand::List(arguments) => list_tasks(arguments, &*tasks).await,
            TasksCommand::Show(arguments) => show_task(arguments, &*tasks).await,
            TasksCommand::Cancel(arguments) => cancel_task(arguments, &*tasks).await,
        }
    };
    store.with_store(act).await?;
    Ok(EXIT_ANSWERED)
}

async fn list_tasks(
    arguments: &TaskListArguments,
    tasks: &dyn TaskStore,
) -> Result<(), CommandError> {
    let now = SystemTime::now();
    let filter = TaskFilter {
        scope: arguments.scope.clone(),
        owner: arguments.owner.clone().map(TaskOwner::from_text),
        agent: arguments.agent.clone(),
        message: None,
        parent: arguments.parent.clone(),
        states: arguments.in_state.clone(),
        since: arguments.since.and_then(|span| now.checked_sub(span)),
    };
    let rows = RowPrinter::with_heading(arguments.json, TASK_COLUMNS)?;
    let (mut left, mut after) = (arguments.limit, arguments.after);
    loop {
        let (page, is_more) = tasks
            .list(filter.clone(), after, left.min(PAGE_ROWS_MAX))
            .await?;
        for task in &page {
            rows.print_row(&task_row_json(task), || task_row(task))?;
        }
        left -= page.len().min(left);
        after = page.last().map_or(after, |task| task.number);
        // A page is bounded in bytes too.
        if !is_more || left == 0 {
            output::print_next_page(is_more.then_some(after));
            return Ok(());
        }
    }
}

async fn show_task(
    arguments: &TaskShowArguments,
    tasks: &dyn TaskStore,
) -> Result<(), CommandError> {
    let task = tasks
        .get(&arguments.id)
        .await?
        .ok_or_else(|| not_found_error(&arguments.id))?;
    let events = all_events(&task, tasks).await?;
    if arguments.json {
        return Ok(output::print_json(&task_json(
            &task,
            &events,
            arguments.bodies,
        ))?);
    }
    for line in task_lines(&task, arguments.bodies) {
        output::print_line(line)?;
    }
    output::print_line("events:")?;
    for event in &events {
        output::print_line(event_line(event, &task, arguments.bodies))?;
    }
    Ok(())
}

async fn all_events(task: &Task, tasks: &dyn TaskStore) -> Result<Vec<TaskEvent>, CommandError> {
    let mut events: Vec<TaskEvent> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.number);
        let page = tasks.events(&task.id, after, PAGE_ROWS_MAX).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page);
    }
}

async fn cancel_task(
    arguments: &TaskCancelArguments,
    tasks: &dyn TaskStore,
) -> Result<(), CommandError> {
    let id = &arguments.id;
    let task = match tasks.request_cancel(id, TaskActor::Operator).await {
        Ok(task) => task,
        Err(TaskError::NotFound) => return Err(not_found_error(id)),
        Err(TaskError::HasEnded(state)) => {
            return Err(CommandError::failed(format_args!(
                "the task {id} has ended already: it is {state}"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    let is_ended = task.state.is_terminal();
    let told = json!({ "id": id, "state": task.state, "cancelled": is_ended });
    let done = if is_ended {
        "cancelled"
    } else {
        "asked the node to cancel"
    };
    Ok(RowPrinter::without_heading(arguments.json).print_row(&told, || format!("{done} {id}"))?)
}

fn not_found_error(id: &TaskId) -> CommandError {
    CommandError::failed(format_args!("there is no task {id}"))
}

/// Columns of the list.
const TASK_COLUMNS: &str = "NUMBER\tID\tSTATE\tAGENT\tMESSAGE\tOWNER\tUPDATED\tSAID";
/// Text in place of a body that is not stored.
const NOT_STORED: &str = "not kept";

/// Formats a row of the list.
pub(super) fn task_row(task: &Task) -> String {
    let cells = [
        &*task.number.to_string(),
        task.id.as_str(),
        task.state.as_str(),
        &task.agent,
        &task.message,
        task.owner.as_str(),
        &format_rfc3339(task.updated),
        task.status_message.as_deref().unwrap_or_default(),
    ];
    cells.map(single_line_cell).join("\t")
}

/// Returns the JSON object of a task in a list.
fn task_row_json(task: &Task) -> Value {
    json!({
        "number": task.number,
        "id": task.id,
        "state": task.state,
        "parent": task.parent_id(),
        "agent": task.agent,
        "message": task.message,
        "owner": task.owner,
        "updated": format_rfc3339(task.updated),
        "said": task.status_message,
        "open": task.open_questions.len(),
        "children_open": task.open_children,
        "waiting": task.pending_needs,
    })
}

/// Members of a task's JSON object that are shown to people, in order.
const SHOWN_MEMBERS: [&str; 20] = [
    "id",
    "number",
    "state",
    "scope",
    "owner",
    "agent",
    "message",
    "class",
    "on_restart",
    "created",
    "updated",
    "expires",
    "deadline",
    "parent",
    "needs",
    "waiting",
    "children_open",
    "questions",
    "cancel_wanted",
    "worker",
];

/// Returns the lines that describe a task, without empty members.
fn task_lines(task: &Task, with_bodies: bool) -> Vec<String> {
    let told = task_json(task, &[], false);
    let texts = |name: &str| match &told[name] {
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::Number(number) if number.as_u64() == Some(0) => Vec::new(),
        Value::Array(items) => items.iter().map(format_value).collect(),
        Value::String(by) if name == "worker" => vec![format!(
            "{by} until {}",
            format_value(&told["worker_until"])
        )],
        value => vec![format_value(value)],
    };
    let label = |name| if name == "questions" { "open" } else { name };
    let of = |name: &'static str| texts(name).into_iter().map(move |text| (label(name), text));
    let said = task.status_message.clone().map(|said| ("said", said));
    let bodies = if with_bodies {
        body_lines(task)
    } else {
        Vec::new()
    };
    let all = SHOWN_MEMBERS
        .into_iter()
        .flat_map(of)
        .chain(said)
        .chain(bodies);
    all.map(|(name, text)| format!("{name}: {}", single_line_cell(&text)))
        .collect()
}

/// Returns the lines with request, artifacts and answer.
fn body_lines(task: &Task) -> Vec<(&'static str, String)> {
    if task.class == DataClass::Clinical {
        return vec![
            ("request", NOT_STORED.to_owned()),
            ("outcome", NOT_STORED.to_owned()),
        ];
    }
    let request = task
        .request
        .as_ref()
        .map(|request| ("request", request.get().to_owned()));
    let artifacts = task
        .artifacts
        .iter()
        .map(|artifact| ("artifact", artifact.to_raw().get().to_owned()));
    let outcome = task
        .outcome
        .as_ref()
        .map(|outcome| ("outcome", to_json_text(outcome)));
    request
        .into_iter()
        .chain(artifacts)
        .chain(outcome)
        .collect()
}

/// Formats an event of a task: number, time, state after it, and step.
fn event_line(event: &TaskEvent, task: &Task, with_bodies: bool) -> String {
    let (at, state, step) = (
        format_rfc3339(event.at),
        event.state.as_str(),
        event.step.name(),
    );
    let line = format!("{}\t{at}\t{state}\t{step}", event.number);
    match with_bodies {
        false => line,
        true if task.class == DataClass::Clinical => format!("{line}\t{NOT_STORED}"),
        true => format!("{line}\t{}", single_line_cell(&to_json_text(&event.step))),
    }
}

/// Returns the JSON object of a task with its events. With `with_bodies` it has request, outcome,
/// artifacts and the events' contents, unless the task is clinical.
fn task_json(task: &Task, events: &[TaskEvent], with_bodies: bool) -> Value {
    let may_show = with_bodies && task.class != DataClass::Clinical;
    let event = |event: &TaskEvent| {
        let mut told = json!({
            "number": event.number, "at": format_rfc3339(event.at), "state": event.state, "step": event.step.name(),
        });
        if may_show {
            told["body"] = to_json_value(&event.step);
        }
        told
    };
    let mut told = task_row_json(task);
    let lease = task.lease.as_ref();
    let more = json!({
        "scope": task.scope,
        "class": task.class,
        "on_restart": task.on_restart,
        "created": format_rfc3339(task.created),
        "expires": format_rfc3339(task.expires),
        "deadline": task.deadline.map(format_rfc3339),
        "needs": task.needs,
        "cancel_wanted": task.cancel_requested,
        "worker": lease.map(|lease| &lease.worker),
        "worker_until": lease.map(|lease| format_rfc3339(lease.until)),
        "questions": task.open_questions.iter().map(|question| &question.key).collect::<Vec<_>>(),
        "events": events.iter().map(event).collect::<Vec<_>>(),
    });
    if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
        told.extend(more);
    }
    if may_show {
        told["request"] = to_json_value(&task.request);
        told["outcome"] = to_json_value(&task.outcome);
        told["artifacts"] = task
            .artifacts
            .iter()
            .map(|artifact| to_json_value(&artifact.to_raw()))
            .collect();
    } else if with_bodies {
        told["request"] = json!(NOT_STORED);
        told["outcome"] = json!(NOT_STORED);
    }
    told
}

fn to_json_text(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap_or_default()
}

fn to_json_value(body: &impl Serialize) -> Value {
    // Raw JSON within the body serialises only as text.
    serde_json::from_str(&to_json_text(body)).unwrap_or_default()
}

/// Formats a text as one table cell, without control characters.
fn single_line_cell(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use callboard_message::{DataClass, Principal};
    use callboard_runtime::{NewTask, Task, TaskStep};
    use serde_json::value::RawValue;

    use super::{TASK_COLUMNS, task_json, task_lines, task_row};

    fn task(class: DataClass) -> Task {
        let mut new = NewTask::new(
            Principal::anonymous(),
            "a\tb\n",
            "ask",
            UNIX_EPOCH + Duration::from_secs(60),
        );
        new.request = Some(RawValue::from_string("{\"secret\":1}".to_owned()).unwrap());
        new.class = class;
        let mut task = Task::new_submitted(new, 7, 0, UNIX_EPOCH);
        task.apply(&TaskStep::Start, UNIX_EPOCH).unwrap();
        task.apply(&TaskStep::Said("half\x1b[2J".to_owned()), UNIX_EPOCH)
            .unwrap();
        task
    }

    /// Goal: nobody's text breaks a line or moves the cursor. Method: tabs, a line break and an escape in names.
    #[test]
    fn a_row_is_a_row() {
        let row = task_row(&task(DataClass::Internal));
        assert_eq!(row.split('\t').count(), TASK_COLUMNS.split('\t').count());
        assert!(!row.contains(['\n', '\x1b']), "{row:?}");
        assert!(
            row.starts_with("7\t") && row.contains("\tworking\ta b \task\t"),
            "{row:?}"
        );
    }

    /// Goal: bodies are shown when they are asked for, and clinical ones never. Method: each way.
    #[test]
    fn bodies() {
        let shown = |class, with_bodies| {
            let task = task(class);
            format!(
                "{} {}",
                task_lines(&task, with_bodies).join("\n"),
                task_json(&task, &[], with_bodies)
            )
        };
        assert!(
            shown(DataClass::Internal, true)
                .matches("\"secret\":1")
                .count()
                == 2
        );
        assert!(!shown(DataClass::Internal, false).contains("secret"));
        let clinical = shown(DataClass::Clinical, true);
        assert!(
            !clinical.contains("secret") && clinical.contains("request: not kept"),
            "{clinical}"
        );
    }
}
