//! JSON of the console for programs, with the views that the pages show.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use callboard_gateway::approvals::PendingApproval;
use serde::Serialize;
use serde_json::json;

use super::request::{ConsoleError, ConsoleRequest, json_body};
use super::tasks::task_with_parts;
use super::views;
use crate::monitor::view::NodeView;

/// Default of the parameter `limit`: number of calls in a list.
const CALLS_DEFAULT: usize = 100;
/// Maximum of the parameter `limit`.
pub(super) const CALLS_MAX: usize = 1_000;

/// View that is served as JSON, below `/api/v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonView {
    Overview,
    Agents,
    Calls,
    Call,
    Questions,
    Upstreams,
    Tasks,
    Task,
    Tools,
    Approvals,
    Node,
}

/// Returns a view as JSON.
///
/// # Errors
/// 404 for a call or task that isn't kept; those of the store.
pub(super) async fn json_view(
    request: &ConsoleRequest<'_>,
    view: JsonView,
) -> Result<HttpResponse, ConsoleError> {
    let (console, client) = (request.console, &request.client);
    let monitor = &console.monitor;
    Ok(match view {
        JsonView::Overview => ok(&request.overview()),
        JsonView::Agents => ok(&monitor.agents()),
        JsonView::Calls => {
            let filter = request.query.text("filter");
            ok(&monitor.calls(filter, calls_limit(request)?))
        }
        JsonView::Call => {
            let timeline = views::timeline(console, client, request.path_part("id"))?;
            ok(&timeline)
        }
        JsonView::Questions => ok(&views::questions(console, client).await?),
        JsonView::Upstreams => ok(&views::upstreams(console, client).await),
        JsonView::Tasks => ok(&*views::tasks(console).await?),
        JsonView::Task => {
            let store = &*console.system().store().tasks;
            let found = task_with_parts(store, request.path_part("id")).await?;
            ok(&json!({ "task": found.0, "parts": found.1 }))
        }
        JsonView::Tools => ok(&views::tools(console).await?),
        JsonView::Approvals => {
            let pending = views::pending_approvals(console, client).await?;
            let pending = pending.iter().map(PendingApproval::from);
            ok(&pending.collect::<Vec<_>>())
        }
        JsonView::Node => {
            let node = NodeView {
                overview: request.overview(),
                agents: monitor.agents(),
                calls: monitor.calls("", calls_limit(request)?),
                questions: views::questions(console, client).await?,
                upstreams: views::upstreams(console, client).await,
            };
            ok(&node)
        }
    })
}

fn calls_limit(request: &ConsoleRequest<'_>) -> Result<usize, ConsoleError> {
    let Some(written) = request.query.get("limit") else {
        return Ok(CALLS_DEFAULT);
    };
    let limit = written
        .parse()
        .ok()
        .filter(|limit| (1..=CALLS_MAX).contains(limit));
    limit.ok_or_else(|| ConsoleError::invalid(format!("`limit` must be from 1 to {CALLS_MAX}")))
}

fn ok(body: &impl Serialize) -> HttpResponse {
    json_body(StatusCode::OK, body)
}
