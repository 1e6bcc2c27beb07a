//! Page with the agents as a tree and the live calls.

use std::collections::HashMap;

use maud::{Markup, html};

use super::elements::{
    DEPTH_MAX, ROWS_MAX, badge, duration, empty, encode, rows_left_out, scrolling, time,
};
use super::frame::{PageFrame, page};
use crate::monitor::view::{AgentView, CallLine};

/// Number of digits of a trace id that are shown: 8. The title has all of them.
const TRACE_DIGITS: usize = 8;

/// Renders the page with agents and calls. `filter` is the one that the calls were chosen by.
pub(crate) fn dashboard(
    frame: &PageFrame<'_>,
    agents: &[AgentView],
    calls: &[CallLine],
    filter: &str,
) -> Markup {
    let content = html! {
        div.columns {
            section aria-labelledby="agents-title" {
                div.bar { h2 #agents-title { "Agents" } }
                div #agents data-live hx-get="/part/agents" hx-trigger="sse:change throttle:1s, every 5s"
                    hx-sync="this:queue last" { (agents_table(agents)) }
            }
            section aria-labelledby="calls-title" {
                div.bar {
                    h2 #calls-title { "Live calls" }
                    form.filter role="search" method="get" action="/" {
                        label.visually-hidden for="filter" { "Filter calls by principal, agent, tool, outcome or trace" }
                        input #filter type="search" name="filter" value=(filter) placeholder="Filter" autocomplete="off"
                            aria-keyshortcuts="/" data-search hx-get="/part/calls" hx-target="#calls"
                            hx-trigger="input changed delay:250ms, search" hx-sync="#calls:replace";
                    }
                }
                div #calls data-live hx-get="/part/calls" hx-trigger="sse:change" hx-include="#filter"
                    hx-sync="this:queue last" { (calls_table(calls)) }
            }
        }
    };
    page(frame, "Agents and calls", content)
}

/// Renders the agents, in the order of the tree; at most [`ROWS_MAX`].
pub(crate) fn agents_table(agents: &[AgentView]) -> Markup {
    if agents.is_empty() {
        return empty("No agent runs.");
    }
    let depths = depths(agents);
    let table = html! {
        table data-testid="agents" {
            thead {
                tr {
                    th scope="col" { "Agent" }
                    th scope="col" { "State" }
                    th scope="col" { "Mailbox" }
                    th.number scope="col" { "Calls" }
                    th.number scope="col" { "Failed" }
                    th.number scope="col" { "Restarts" }
                }
            }
            tbody {
                @for (agent, depth) in agents.iter().zip(&depths).take(ROWS_MAX) {
                    (agent_row(agent, *depth))
                }
            }
        }
    };
    html! {
        (scrolling("Table of agents", table))
        (rows_left_out(agents.len(), "All are in /api/v1/agents."))
    }
}

fn agent_row(agent: &AgentView, depth: usize) -> Markup {
    let name = agent.name.as_deref().unwrap_or(&agent.id);
    let max = agent.mailbox_max.max(1);
    html! {
        tr {
            th scope="row" class={ "d" (depth) } {
                span.name title=(agent.id) { (name) }
                " " span.kind { (agent.kind) }
                @if let Some(error) = &agent.last_error {
                    p.row-error { (error) }
                }
            }
            td { (badge(&agent.state)) }
            td.nowrap {
                meter min="0" max=(max) high=(max / 4 * 3) value=(agent.mailbox) aria-label={ "Mailbox of " (name) } {}
                " " span.fill { (agent.mailbox) "/" (agent.mailbox_max) }
                @if agent.in_flight > 0 {
                    span.dim title="Handlers that wait" { " +" (agent.in_flight) }
                }
            }
            td.number { (agent.calls) }
            td.number.bad[agent.failures > 0] { (agent.failures) }
            td.number.warn[agent.restarts > 0] { (agent.restarts) }
        }
    }
}

/// Returns the level of each agent in the tree. Parents stand before their parts.
fn depths(agents: &[AgentView]) -> Vec<usize> {
    let mut known: HashMap<&str, usize> = HashMap::with_capacity(agents.len());
    let mut depths = Vec::with_capacity(agents.len());
    for agent in agents {
        let parent = agent.parent.as_deref().and_then(|parent| known.get(parent));
        let depth = parent.map_or(0, |depth| (depth + 1).min(DEPTH_MAX));
        known.insert(&agent.id, depth);
        depths.push(depth);
    }
    depths
}

/// Renders calls, newest first; at most [`ROWS_MAX`].
pub(crate) fn calls_table(calls: &[CallLine]) -> Markup {
    if calls.is_empty() {
        return empty("No call yet, or none that the filter matches.");
    }
    let table = html! {
        table.calls data-testid="calls" {
            thead {
                tr {
                    th scope="col" { "Time" }
                    th scope="col" { "Caller" }
                    th scope="col" { "Agent and tool" }
                    th.number scope="col" { "Duration" }
                    th scope="col" { "Outcome" }
                    th.wide scope="col" { "Trace" }
                }
            }
            tbody {
                @for call in calls.iter().take(ROWS_MAX) { (call_row(call)) }
            }
        }
    };
    html! {
        (scrolling("Table of calls", table))
        (rows_left_out(calls.len(), "Narrow the filter."))
    }
}

fn call_row(call: &CallLine) -> Markup {
    html! {
        tr {
            td.nowrap { (time(call.at_ms)) }
            td { (call.principal) " " span.kind { (call.protocol) } }
            td {
                a id={ "call-" (call.call) } href={ "/calls/" (encode(&call.call)) } data-testid="call" {
                    (call.agent) "." (call.target)
                }
            }
            td.number { (duration(call.ms)) }
            td {
                (badge(&call.outcome))
                @if call.outcome == "asks" {
                    " " a id={ "answer-" (call.call) } href="/questions" { "answer" }
                }
            }
            td.wide.trace title=(call.trace) { (call.trace.get(..TRACE_DIGITS).unwrap_or(&call.trace)) }
        }
    }
}
