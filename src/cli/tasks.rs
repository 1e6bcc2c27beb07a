//! `callboard tasks`: what runs, what came of it, and an end to it.

use std::time::{Duration, SystemTime};

use callboard_message::time::rfc3339;
use callboard_message::{DataClass, TaskState};
use callboard_runtime::{
    By, Store, Task, TaskError, TaskEvent, TaskFilter, TaskId, TaskOwner, Tasks,
};
use callboard_store::{PAGE_MAX, Visitor};
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};

use super::arguments::{one_of, span};
use super::show::{self, Rows};
use super::store::StoreArguments;
use super::{CommandError, EXIT_ANSWERED, Outcome};
use crate::text::told_value;

/// Tasks that are listed without `--limit`.
const LIMIT_DEFAULT: usize = 100;

#[derive(Debug, Subcommand)]
pub(super) enum TasksCommand {
    /// List tasks, in the order in which they began. Never shows what was asked or answered.
    List(ListArguments),
    /// Show one task, and each of its steps.
    Show(ShowArguments),
    /// End a task and its parts, or ask the node that works on it to. Exit code 4 where it has ended.
    Cancel(CancelArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// In this state. May be repeated. (`--state` is the node's state directory, in every command.)
    #[arg(long, value_name = "STATE", value_parser = one_of(TaskState::ALL.iter().map(|it| (it.as_str(), *it))))]
    in_state: Vec<TaskState>,
    /// Of this owner, for example api_key:alice.
    #[arg(long)]
    owner: Option<String>,
    /// Of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// Of this scope, for example mcp:gateway.
    #[arg(long)]
    scope: Option<String>,
    /// Parts of this task.
    #[arg(long, value_name = "ID", value_parser = |id: &str| TaskId::new(id))]
    parent: Option<TaskId>,
    /// Whose last step is at most so long ago, for example 90s, 5m, 2h or 7d.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    since: Option<Duration>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
    limit: usize,
    /// Those after this number: the next page.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowArguments {
    /// The task.
    #[arg(value_parser = |id: &str| TaskId::new(id))]
    id: TaskId,
    #[command(flatten)]
    store: StoreArguments,
    /// Show what was asked, made and answered too. Of clinical tasks that is never kept.
    #[arg(long)]
    bodies: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct CancelArguments {
    /// The task.
    #[arg(value_parser = |id: &str| TaskId::new(id))]
    id: TaskId,
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Does it, and says how it ended.
pub(super) async fn run(command: TasksCommand) -> Outcome {
    let (TasksCommand::List(ListArguments { store, .. })
    | TasksCommand::Show(ShowArguments { store, .. })
    | TasksCommand::Cancel(CancelArguments { store, .. })) = &command;
    let act = async |visitor: &Visitor| {
        // Who looks and cancels keeps no bodies, so nothing is marked.
        let tasks = visitor.tasks(Store::in_memory().audit);
        match &command {
            TasksCommand::List(arguments) => list(arguments, &*tasks).await,
            TasksCommand::Show(arguments) => show_one(arguments, &*tasks).await,
            TasksCommand::Cancel(arguments) => cancel(arguments, &*tasks).await,
        }
    };
    store.visit(act).await?;
    Ok(EXIT_ANSWERED)
}

async fn list(arguments: &ListArguments, tasks: &dyn Tasks) -> Result<(), CommandError> {
    let now = SystemTime::now();
    let filter = TaskFilter {
        scope: arguments.scope.clone(),
        owner: arguments.owner.clone().map(TaskOwner::named),
        agent: arguments.agent.clone(),
        message: None,
        parent: arguments.parent.clone(),
        states: arguments.in_state.clone(),
        since: arguments.since.and_then(|span| now.checked_sub(span)),
    };
    let rows = Rows::begin(arguments.json, COLUMNS)?;
    let (mut left, mut after) = (arguments.limit, arguments.after);
    loop {
        let (page, is_more) = tasks
            .list(filter.clone(), after, left.min(PAGE_MAX))
            .await?;
        for task in &page {
            rows.row(&row_as_json(task), || row(task))?;
        }
        left -= page.len().min(left);
        after = page.last().map_or(after, |task| task.number);
        // A page is bounded in bytes too.
        if !is_more || left == 0 {
            show::more(is_more.then_some(after));
            return Ok(());
        }
    }
}

async fn show_one(arguments: &ShowArguments, tasks: &dyn Tasks) -> Result<(), CommandError> {
    let task = tasks
        .get(&arguments.id)
        .await?
        .ok_or_else(|| missing(&arguments.id))?;
    let events = all_events(&task, tasks).await?;
    if arguments.json {
        return Ok(show::json(&as_json(&task, &events, arguments.bodies))?);
    }
    for line in lines(&task, arguments.bodies) {
        show::line(line)?;
    }
    show::line("events:")?;
    for event in &events {
        show::line(event_line(event, &task, arguments.bodies))?;
    }
    Ok(())
}

async fn all_events(task: &Task, tasks: &dyn Tasks) -> Result<Vec<TaskEvent>, CommandError> {
    let mut events: Vec<TaskEvent> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.number);
        let page = tasks.events(&task.id, after, PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page);
    }
}

async fn cancel(arguments: &CancelArguments, tasks: &dyn Tasks) -> Result<(), CommandError> {
    let id = &arguments.id;
    let task = match tasks.want_cancel(id, By::Operator).await {
        Ok(task) => task,
        Err(TaskError::NotFound) => return Err(missing(id)),
        Err(TaskError::HasEnded(state)) => {
            return Err(CommandError::failed(format_args!(
                "{id} has ended: {state}"
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
    Ok(Rows::plain(arguments.json).row(&told, || format!("{done} {id}"))?)
}

fn missing(id: &TaskId) -> CommandError {
    CommandError::failed(format_args!("there is no task {id}"))
}

/// The columns of a list.
const COLUMNS: &str = "NUMBER\tID\tSTATE\tAGENT\tMESSAGE\tOWNER\tUPDATED\tSAID";
/// In place of what is on no disk.
const NOT_KEPT: &str = "not kept";

/// A row of the list.
pub(super) fn row(task: &Task) -> String {
    let cells = [
        &*task.number.to_string(),
        task.id.as_str(),
        task.state.as_str(),
        &task.agent,
        &task.message,
        task.owner.as_str(),
        &rfc3339(task.updated),
        task.said.as_deref().unwrap_or_default(),
    ];
    cells.map(plain).join("\t")
}

/// What the list says of a task, for a program.
fn row_as_json(task: &Task) -> Value {
    json!({
        "number": task.number,
        "id": task.id,
        "state": task.state,
        "agent": task.agent,
        "message": task.message,
        "owner": task.owner,
        "updated": rfc3339(task.updated),
        "said": task.said,
        "open": task.open.len(),
        "children_open": task.children_open,
        "waiting": task.waiting,
    })
}

/// Members of a task's JSON object that people read, in their order.
const SHOWN: [&str; 20] = [
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

/// All that is known of a task, a line each: what is nothing, none or no is left out.
fn lines(task: &Task, with_bodies: bool) -> Vec<String> {
    let told = as_json(task, &[], false);
    let texts = |name: &str| match &told[name] {
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::Number(number) if number.as_u64() == Some(0) => Vec::new(),
        Value::Array(items) => items.iter().map(told_value).collect(),
        Value::String(by) if name == "worker" => {
            vec![format!("{by} until {}", told_value(&told["worker_until"]))]
        }
        value => vec![told_value(value)],
    };
    let label = |name| if name == "questions" { "open" } else { name };
    let of = |name: &'static str| texts(name).into_iter().map(move |text| (label(name), text));
    let said = task.said.clone().map(|said| ("said", said));
    let bodies = if with_bodies {
        bodies(task)
    } else {
        Vec::new()
    };
    let all = SHOWN.into_iter().flat_map(of).chain(said).chain(bodies);
    all.map(|(name, text)| format!("{name}: {}", plain(&text)))
        .collect()
}

/// What was asked, made and answered.
fn bodies(task: &Task) -> Vec<(&'static str, String)> {
    if task.class == DataClass::Clinical {
        return vec![
            ("request", NOT_KEPT.to_owned()),
            ("outcome", NOT_KEPT.to_owned()),
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
        .map(|outcome| ("outcome", written(outcome)));
    request
        .into_iter()
        .chain(artifacts)
        .chain(outcome)
        .collect()
}

/// A line of a task's life: number, time, state after it, what happened.
fn event_line(event: &TaskEvent, task: &Task, with_bodies: bool) -> String {
    let (at, state, step) = (rfc3339(event.at), event.state.as_str(), event.step.name());
    let line = format!("{}\t{at}\t{state}\t{step}", event.number);
    match with_bodies {
        false => line,
        true if task.class == DataClass::Clinical => format!("{line}\t{NOT_KEPT}"),
        true => format!("{line}\t{}", plain(&written(&event.step))),
    }
}

/// The same for a program.
fn as_json(task: &Task, events: &[TaskEvent], with_bodies: bool) -> Value {
    let may_show = with_bodies && task.class != DataClass::Clinical;
    let event = |event: &TaskEvent| {
        let mut told = json!({
            "number": event.number, "at": rfc3339(event.at), "state": event.state, "step": event.step.name(),
        });
        if may_show {
            told["body"] = value(&event.step);
        }
        told
    };
    let mut told = row_as_json(task);
    let lease = task.lease.as_ref();
    let more = json!({
        "scope": task.scope,
        "class": task.class,
        "on_restart": task.on_restart,
        "created": rfc3339(task.created),
        "expires": rfc3339(task.expires),
        "deadline": task.deadline.map(rfc3339),
        "parent": task.parent,
        "needs": task.needs,
        "cancel_wanted": task.cancel_wanted,
        "worker": lease.map(|lease| &lease.by),
        "worker_until": lease.map(|lease| rfc3339(lease.until)),
        "questions": task.open.iter().map(|question| &question.key).collect::<Vec<_>>(),
        "events": events.iter().map(event).collect::<Vec<_>>(),
    });
    if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
        told.extend(more);
    }
    if may_show {
        told["request"] = value(&task.request);
        told["outcome"] = value(&task.outcome);
        told["artifacts"] = task
            .artifacts
            .iter()
            .map(|artifact| value(&artifact.to_raw()))
            .collect();
    } else if with_bodies {
        told["request"] = json!(NOT_KEPT);
        told["outcome"] = json!(NOT_KEPT);
    }
    told
}

fn written(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap_or_default()
}

fn value(body: &impl Serialize) -> Value {
    // By its text: what is raw in it has no other form.
    serde_json::from_str(&written(body)).unwrap_or_default()
}

/// A text that is one cell of one line, and moves no cursor: somebody else may have chosen it.
fn plain(text: &str) -> String {
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

    use super::{COLUMNS, as_json, lines, row};

    fn task(class: DataClass) -> Task {
        let mut new = NewTask::new(
            Principal::anonymous(),
            "a\tb\n",
            "ask",
            UNIX_EPOCH + Duration::from_secs(60),
        );
        new.request = Some(RawValue::from_string("{\"secret\":1}".to_owned()).unwrap());
        new.class = class;
        let mut task = Task::submitted(new, 7, 0, UNIX_EPOCH);
        task.step(&TaskStep::Start, UNIX_EPOCH).unwrap();
        task.step(&TaskStep::Said("half\x1b[2J".to_owned()), UNIX_EPOCH)
            .unwrap();
        task
    }

    /// Goal: nobody's text breaks a line or moves the cursor. Method: tabs, a line break and an escape in names.
    #[test]
    fn a_row_is_a_row() {
        let row = row(&task(DataClass::Internal));
        assert_eq!(row.split('\t').count(), COLUMNS.split('\t').count());
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
                lines(&task, with_bodies).join("\n"),
                as_json(&task, &[], with_bodies)
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
