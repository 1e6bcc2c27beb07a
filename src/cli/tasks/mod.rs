//! `callboard tasks`: what runs, what came of it, and an end to it.

mod words;

use std::time::{Duration, SystemTime};

use callboard_message::TaskState;
use callboard_runtime::{By, Store, Task, TaskError, TaskEvent, TaskFilter, TaskId, TaskOwner, Tasks};
use callboard_store::{PAGE_MAX, Visitor};
use clap::Subcommand;
use serde_json::json;

use super::arguments::{one_of, span};
use super::show::{self, Rows};
use super::store::StoreArguments;
use super::{CommandError, EXIT_ANSWERED, Outcome};

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
    #[arg(long, value_name = "ID", value_parser = id)]
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
    #[arg(value_parser = id)]
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
    #[arg(value_parser = id)]
    id: TaskId,
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn id(text: &str) -> Result<TaskId, String> {
    TaskId::new(text).map_err(|error| error.to_string())
}

/// Does it, and says how it ended.
pub(super) async fn run(command: &TasksCommand) -> Outcome {
    let store = match command {
        TasksCommand::List(arguments) => &arguments.store,
        TasksCommand::Show(arguments) => &arguments.store,
        TasksCommand::Cancel(arguments) => &arguments.store,
    };
    let act = async |visitor: &Visitor| {
        // Who looks and cancels keeps no bodies, so nothing is marked.
        let tasks = visitor.tasks(Store::in_memory().audit);
        match command {
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
    let rows = Rows::begin(arguments.json, words::COLUMNS)?;
    let (mut left, mut after) = (arguments.limit, arguments.after);
    loop {
        let (page, is_more) = tasks.list(filter.clone(), after, left.min(PAGE_MAX)).await?;
        for task in &page {
            rows.row(&words::row_as_json(task), || words::row(task))?;
        }
        left -= page.len().min(left);
        after = page.last().map_or(after, |task| task.number);
        match (is_more, left) {
            (false, _) => return Ok(()),
            (true, 0) => {
                show::more(Some(after));
                return Ok(());
            }
            // A page is bounded in bytes too.
            (true, _) => {}
        }
    }
}

async fn show_one(arguments: &ShowArguments, tasks: &dyn Tasks) -> Result<(), CommandError> {
    let task = tasks.get(&arguments.id).await?.ok_or_else(|| missing(&arguments.id))?;
    let events = all_events(&task, tasks).await?;
    if arguments.json {
        return Ok(show::json(&words::as_json(&task, &events, arguments.bodies))?);
    }
    for line in words::lines(&task, arguments.bodies) {
        show::line(line)?;
    }
    show::line("events:")?;
    for event in &events {
        show::line(words::event(event, &task, arguments.bodies))?;
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
        Err(TaskError::HasEnded(state)) => return Err(CommandError::failed(format_args!("{id} has ended: {state}"))),
        Err(error) => return Err(error.into()),
    };
    let is_ended = task.state.is_terminal();
    let told = json!({ "id": id, "state": task.state, "cancelled": is_ended });
    let done = if is_ended { "cancelled" } else { "asked the node to cancel" };
    Ok(Rows::plain(arguments.json).row(&told, || format!("{done} {id}"))?)
}

fn missing(id: &TaskId) -> CommandError {
    CommandError::failed(format_args!("there is no task {id}"))
}
