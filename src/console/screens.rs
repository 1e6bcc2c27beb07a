//! Pages of the console, and the parts of pages that a browser fetches again after a change.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use callboard_runtime::AgentRef;
use maud::{Markup, PreEscaped};

use super::access::Role;
use super::mail::mail_page;
use super::pages::{self, MailPage, PlayPage};
use super::play::list_tools;
use super::request::{ConsoleError, ConsoleRequest, html};
use super::tasks::task_with_parts;
use super::views;
use crate::monitor::view::QuestionView;

/// Maximum number of calls in the live feed of a page.
const FEED_CALLS_MAX: usize = 200;

/// Page of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Dashboard,
    Call,
    Questions,
    Approvals,
    Tools,
    Tasks,
    Task,
    Upstreams,
    Mail,
    Play,
    Connect,
    Topology,
}

/// Part of a page that is fetched again after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PagePart {
    Counts,
    Agents,
    Calls,
    CallSteps,
    QuestionList,
    QuestionForm,
    Tasks,
    Upstreams,
    PlayRun,
}

/// Renders a page.
///
/// # Errors
/// 404 for a call, task or mailroom that isn't there; failures of the store and of agents.
pub(super) async fn show_page(
    request: &ConsoleRequest<'_>,
    page: Page,
) -> Result<HttpResponse, ConsoleError> {
    let (console, client) = (request.console, &request.client);
    let monitor = &console.monitor;
    Ok(match page {
        Page::Dashboard => {
            let filter = request.query.text("filter");
            let (agents, calls) = (monitor.agents(), monitor.calls(filter, FEED_CALLS_MAX));
            request.page(|frame| pages::dashboard(frame, &agents, &calls, filter))
        }
        Page::Call => {
            let timeline = views::timeline(console, client, request.path_part("id"))?;
            request.page(|frame| pages::timeline(frame, &timeline))
        }
        Page::Questions => {
            let questions = views::questions(console, client).await?;
            request.page(|frame| pages::questions(frame, &questions))
        }
        Page::Approvals => {
            let pending = views::pending_approvals(console, client).await?;
            request.page(|frame| pages::approvals(frame, &pending))
        }
        Page::Tools => {
            let tools = views::tools(console).await?;
            request.page(|frame| pages::tools(frame, &tools))
        }
        Page::Tasks => {
            let tasks = views::tasks(console).await?;
            request.page(|frame| pages::tasks(frame, &tasks))
        }
        Page::Task => {
            let store = &*console.system().store().tasks;
            let found = task_with_parts(store, request.path_part("id")).await?;
            request.page(|frame| pages::task(frame, &found.0, &found.1))
        }
        Page::Upstreams => {
            let upstreams = views::upstreams(console, client).await;
            request.page(|frame| pages::upstreams(frame, &upstreams))
        }
        Page::Mail => {
            let mail = mail(request).await?;
            request.page(|frame| pages::mail(frame, &mail))
        }
        Page::Play => {
            let play = play(request).await?;
            request.page(|frame| pages::play(frame, &play))
        }
        Page::Connect => {
            let targets = views::connect_targets(console);
            request.page(|frame| pages::connect(frame, &targets))
        }
        Page::Topology => {
            let picture = views::topology_picture(console).await;
            request.page(|frame| pages::topology(frame, &picture))
        }
    })
}

/// Renders a part of a page.
///
/// # Errors
/// 404 for a call or run that isn't kept any more; those of the store.
pub(super) async fn show_part(
    request: &ConsoleRequest<'_>,
    part: PagePart,
) -> Result<HttpResponse, ConsoleError> {
    let (console, client, query) = (request.console, &request.client, &request.query);
    let monitor = &console.monitor;
    Ok(match part {
        PagePart::Counts => rendered(pages::counts(&request.overview())),
        PagePart::Agents => rendered(pages::agents_table(&monitor.agents())),
        PagePart::Calls => {
            let calls = monitor.calls(query.text("filter"), FEED_CALLS_MAX);
            rendered(pages::calls_table(&calls))
        }
        PagePart::CallSteps => {
            let timeline = views::timeline(console, client, query.text("call"))?;
            rendered(pages::timeline_steps(&timeline))
        }
        PagePart::QuestionList => {
            let questions = views::questions(console, client).await?;
            rendered(pages::questions_list(&questions))
        }
        PagePart::QuestionForm => {
            let questions = views::questions(console, client).await?;
            let is_asked = |question: &&QuestionView| question.id == query.text("id");
            match questions.iter().find(is_asked) {
                Some(question) => request.page(|frame| pages::question_form(frame, question)),
                None => rendered(PreEscaped(String::new())),
            }
        }
        PagePart::Tasks => rendered(pages::tasks_table(&views::tasks(console).await?)),
        PagePart::Upstreams => {
            let upstreams = views::upstreams(console, client).await;
            request.page(|frame| pages::upstreams_table(frame, &upstreams))
        }
        PagePart::PlayRun => {
            let run = console.runs.find(query.text("id"), &client.principal);
            let run = run.ok_or_else(unknown_run)?;
            rendered(pages::play_run(&run, client.csrf()))
        }
    })
}

fn rendered(markup: Markup) -> HttpResponse {
    html(StatusCode::OK, markup)
}

fn unknown_run() -> ConsoleError {
    ConsoleError::not_found("there is no such run of yours: the latest are kept")
}

/// Returns a mailroom of the node, the first if `room` is empty.
///
/// # Errors
/// 404 if there is none.
pub(super) fn mailroom(request: &ConsoleRequest<'_>, room: &str) -> Result<AgentRef, ConsoleError> {
    let topology = request.console.topology();
    let mut rooms = topology.mailrooms.iter();
    let found = rooms.find(|id| room.is_empty() || *id == room);
    let found = found.and_then(|id| request.console.system().directory().get(id));
    found.ok_or_else(|| ConsoleError::not_found("the node has no such mailroom"))
}

async fn mail(request: &ConsoleRequest<'_>) -> Result<MailPage, ConsoleError> {
    let (query, client) = (&request.query, &request.client);
    let rooms = request.console.topology().mailrooms.clone();
    if rooms.is_empty() {
        return Ok(MailPage::default());
    }
    let room = mailroom(request, query.text("room"))?;
    let (words, thread) = (query.text("q"), query.text("thread"));
    let page = mail_page(&room, rooms, &client.principal, words, thread).await?;
    Ok(MailPage {
        can_write: client.has(Role::Act),
        ..page
    })
}

/// Returns an agent that may be called from the console.
///
/// # Errors
/// 404 if there is none with this id.
pub(super) fn callable_agent(
    request: &ConsoleRequest<'_>,
    id: &str,
) -> Result<AgentRef, ConsoleError> {
    let topology = request.console.topology();
    let is_callable = topology.callable.iter().any(|known| known == id);
    let agent = request.console.system().directory().get(id);
    let agent = agent.filter(|_| is_callable);
    agent.ok_or_else(|| ConsoleError::not_found("the node has no such agent to call"))
}

async fn play(request: &ConsoleRequest<'_>) -> Result<PlayPage, ConsoleError> {
    let (query, principal) = (&request.query, &request.client.principal);
    let (id, tool) = (query.text("agent"), query.text("tool"));
    let tools = match id {
        "" => Vec::new(),
        id => list_tools(&callable_agent(request, id)?, principal).await?,
    };
    let runs = &request.console.runs;
    let run = match query.get("run") {
        Some(run) => runs.find(run, principal),
        None => runs.latest(id, tool, principal),
    };
    Ok(PlayPage {
        agents: request.console.topology().callable.clone(),
        agent: id.to_owned(),
        tools,
        tool: tool.to_owned(),
        run,
    })
}
