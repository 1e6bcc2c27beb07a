//! `callboard a2a task`, `list` and `cancel`.

use callboard_a2a::wire::{GetTaskRequest, ListTasksRequest, Message, Role, SendMessageResponse, Task, Wire};
use callboard_message::TaskState;
use callboard_message::time::rfc3339;

use super::agent::{Person, peer, within};
use super::send::with_history;
use super::stream::Shown;
use super::words::{exit_code, go_on, print, text_of};
use super::{CancelArguments, ListArguments, Stopped, TaskArguments, show};
use crate::cli::mcp::words::printable;
use crate::cli::{EXIT_ANSWERED, EXIT_FAILED};

/// Most tasks of one page (specification 1.0, section 3.1.4).
const PAGE_MAX: i32 = 100;

pub(super) async fn show(arguments: &TaskArguments) -> Result<u8, Stopped> {
    let peer = peer(&arguments.agent)?;
    if arguments.follow {
        let shown = Shown::new(arguments.agent.json);
        let person = Person::new(false, false);
        let followed = within(&arguments.agent, &peer, async {
            Ok(peer.follow(&arguments.id, &person, &|event| shown.event(event)).await?)
        });
        let response = shown.end(followed.await)?;
        go_on(&response, &arguments.agent.url);
        return Ok(exit_code(&response));
    }
    let request = GetTaskRequest {
        id: arguments.id.clone(),
        history_length: Some(arguments.history.into()),
        ..GetTaskRequest::default()
    };
    let (task, whole) = within(&arguments.agent, &peer, async {
        let task = peer.get(request).await?;
        let short = SendMessageResponse::Task(Task { history: None, ..task.clone() });
        let whole = if arguments.agent.json { short } else { with_history(&peer, short).await };
        Ok((task, whole))
    })
    .await?;
    if arguments.agent.json {
        show::line(&task.to_json())?;
        return Ok(exit_code(&SendMessageResponse::Task(task)));
    }
    show::line(&in_line(&task))?;
    for said in task.history.iter().flatten() {
        show::line(&printable(&format!("{}: {}", speaker(said), text_of(said))))?;
    }
    print(&whole, &arguments.agent.url)?;
    Ok(exit_code(&whole))
}

pub(super) async fn list(arguments: &ListArguments) -> Result<u8, Stopped> {
    let peer = peer(&arguments.agent)?;
    let tasks = within(&arguments.agent, &peer, async {
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
                return Ok(tasks);
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
    })
    .await?;
    for task in tasks.iter().take(arguments.limit.into()) {
        show::line(&if arguments.agent.json { task.to_json() } else { in_line(task) })?;
    }
    Ok(EXIT_ANSWERED)
}

pub(super) async fn cancel(arguments: &CancelArguments) -> Result<u8, Stopped> {
    let peer = peer(&arguments.agent)?;
    let task = within(&arguments.agent, &peer, async { Ok(peer.cancel(&arguments.id).await?) }).await?;
    if arguments.agent.json {
        show::line(&task.to_json())?;
    }
    match task.status.state {
        TaskState::Canceled if arguments.agent.json => {}
        TaskState::Canceled => show::line(&printable(&format!("cancelled {}", task.id)))?,
        state => {
            show::complain(format!("the task is {state}"));
            return Ok(EXIT_FAILED);
        }
    }
    Ok(EXIT_ANSWERED)
}

fn in_line(task: &Task) -> String {
    let updated = task.status.timestamp.map(rfc3339).unwrap_or_default();
    // A peer's ids stand in one column each.
    let plain = |id: &str| printable(id).replace(['\t', '\n'], " ");
    format!("{}\t{}\t{}\t{updated}", plain(&task.id), task.status.state, plain(&task.context_id))
}

fn speaker(said: &Message) -> &'static str {
    if said.role == Role::Agent { "agent" } else { "user" }
}
