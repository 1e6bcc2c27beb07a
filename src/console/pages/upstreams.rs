//! Page of the upstreams.

use maud::{Markup, html};

use super::elements::{badge, csrf_field, empty, scrolling, text_block};
use super::frame::{PageFrame, page};
use crate::monitor::view::UpstreamView;

/// Renders the page of the upstreams.
pub(crate) fn upstreams(frame: &PageFrame<'_>, upstreams: &[UpstreamView]) -> Markup {
    let content = html! {
        div #upstreams data-live hx-get="/part/upstreams" hx-trigger="sse:change throttle:1s, every 5s"
            hx-sync="this:queue last" { (upstreams_table(frame, upstreams)) }
    };
    page(frame, "Upstreams", content)
}

/// Renders the upstreams, with buttons for whoever may act.
pub(crate) fn upstreams_table(frame: &PageFrame<'_>, upstreams: &[UpstreamView]) -> Markup {
    if upstreams.is_empty() {
        return empty("The topology has no upstream.");
    }
    let table = html! {
        table data-testid="upstreams" {
            thead {
                tr {
                    th scope="col" { "Upstream" }
                    th scope="col" { "State" }
                    th.number scope="col" { "Failures" }
                    th scope="col" { "Next attempt" }
                    th scope="col" { "Details" }
                    @if frame.viewer.can_act { th scope="col" { "Actions" } }
                }
            }
            tbody {
                @for upstream in upstreams { (row(frame, upstream)) }
            }
        }
    };
    scrolling("Table of upstreams", table)
}

fn row(frame: &PageFrame<'_>, upstream: &UpstreamView) -> Markup {
    let retry = upstream
        .retry_ms
        .map(|ms| format!("in {} s", ms.div_ceil(1_000)));
    html! {
        tr {
            th scope="row" { (upstream.name) }
            td { (badge(&upstream.state)) }
            td.number.bad[upstream.failures > 0] { (upstream.failures) }
            td.nowrap { (retry.as_deref().unwrap_or("–")) }
            td {
                @if upstream.detail.is_null() {
                    "–"
                } @else {
                    details id={ "detail-" (upstream.name) } {
                        summary { "State of " (upstream.name) }
                        (text_block(&format!("{:#}", upstream.detail), &format!("State of {}", upstream.name)))
                    }
                }
            }
            @if frame.viewer.can_act { td { (actions(frame, upstream)) } }
        }
    }
}

fn actions(frame: &PageFrame<'_>, upstream: &UpstreamView) -> Markup {
    let offered: &[(&str, &str)] = match upstream.state.as_str() {
        "disabled" => &[("enable", "Enable")],
        "connected" | "connecting" | "apart" => &[("disable", "Disable")],
        _ => &[("retry", "Retry now"), ("disable", "Disable")],
    };
    html! {
        form.actions method="post" action="/do/upstream" {
            (csrf_field(frame.csrf))
            input type="hidden" name="name" value=(upstream.name);
            @for (action, label) in offered {
                button type="submit" id={ (action) "-" (upstream.name) } name="action" value=(action)
                    aria-label={ (label) ": " (upstream.name) } data-testid={ (action) "-upstream" } { (label) }
            }
        }
    }
}
