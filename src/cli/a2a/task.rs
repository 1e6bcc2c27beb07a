//! `callboard a2a task`, `list` and `cancel`.

use callboard_a2a::outbound::{Peer, PeerError};
use callboard_a2a::wire::{GetTaskRequest, ListTasksRequest, Message, Role, SendMessageResponse, Task, Wire};
use callboard_message::TaskState;
use callboard_message::time::rfc3339;

use super::talk::{Shown, with_history};
use super::words::{exit_code, go_on, print, text_of};
use super::{CancelArguments, CommandError, ListArguments, Outcome, TaskArguments, show};
use crate::cli::mcp::terminal::Terminal;
use crate::cli::{EXIT_ANSWERED, printable};

/// Most tasks of one page (specification 1.0, section 3.1.4).
const PAGE_MAX: i32 = 100;

pub(super) async fn show(arguments: &TaskArguments) -> Outcome {
    let TaskArguments { agent, id, history, follow } = arguments;
    if *follow {
        let (shown, person) = (Shown::new(agent.json), Terminal::new(false, false, Vec::new()));
        let following = async |peer: &Peer| peer.follow(id, &person, &|event| shown.event(event)).await;
        let response = shown.end(agent.within(following).await)?;
        go_on(&response, &agent.url);
        return Ok(exit_code(&response));
    }
    let request =
        GetTaskRequest { id: id.clone(), history_length: Some((*history).into()), ..GetTaskRequest::default() };
    let fetching = async |peer: &Peer| {
        let task = peer.get(request).await?;
        let short = SendMessageResponse::Task(Task { history: None, ..task.clone() });
        let whole = if agent.json { short } else { with_history(peer, short).await };
        Ok::<_, PeerError>((task, whole))
    };
    let (task, whole) = agent.within(fetching).await?;
    if agent.json {
        show::raw(task.to_json())?;
        return Ok(exit_code(&SendMessageResponse::Task(task)));
    }
    show::line(in_line(&task))?;
    for said in task.history.iter().flatten() {
        show::line(format_args!("{}: {}", speaker(said), text_of(said)))?;
    }
    print(&whole, &agent.url)?;
    Ok(exit_code(&whole))
}

pub(super) async fn list(arguments: &ListArguments) -> Outcome {
    let listed = async |peer: &Peer| {
        let (mut tasks, limit) = (Vec::<Task>::new(), i32::from(arguments.limit));
        let mut request = ListTasksRequest {
            context_id: arguments.context.clone().unwrap_or_default(),
            status: arguments.state,
            history_length: Some(0),
            ..ListTasksRequest::default()
        };
        loop {
            let left = limit.saturating_sub(i32::try_from(tasks.len()).unwrap_or(limit));
            if left <= 0 {
                return Ok::<_, PeerError>(tasks);
            }
            request.page_size = Some(left.min(PAGE_MAX));
            let page = peer.list(request.clone()).await?;
            let is_last = page.next_page_token.is_empty() || page.tasks.is_empty();
            tasks.extend(page.tasks);
            if is_last {
                return Ok(tasks);
            }
            request.page_token = page.next_page_token;
        }
    };
    let tasks = arguments.agent.within(listed).await?;
    for task in tasks.iter().take(arguments.limit.into()) {
        show::raw(if arguments.agent.json { task.to_json() } else { printable(&in_line(task)) })?;
    }
    Ok(EXIT_ANSWERED)
}

pub(super) async fn cancel(CancelArguments { agent, id }: &CancelArguments) -> Outcome {
    let task = agent.within(async |peer: &Peer| peer.cancel(id).await).await?;
    if agent.json {
        show::raw(task.to_json())?;
    }
    match task.status.state {
        TaskState::Canceled if agent.json => {}
        TaskState::Canceled => show::line(format_args!("cancelled {}", task.id))?,
        state => return Err(CommandError::failed(format_args!("the task is {state}"))),
    }
    Ok(EXIT_ANSWERED)
}

fn in_line(task: &Task) -> String {
    let updated = task.status.timestamp.map(rfc3339).unwrap_or_default();
    // A peer's ids stand in one column each.
    let plain = |id: &str| id.replace(['\t', '\n'], " ");
    format!("{}\t{}\t{}\t{updated}", plain(&task.id), task.status.state, plain(&task.context_id))
}

fn speaker(said: &Message) -> &'static str {
    if said.role == Role::Agent { "agent" } else { "user" }
}
