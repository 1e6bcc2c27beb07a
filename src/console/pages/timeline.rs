//! Page with the timeline of a call.

use maud::{Markup, html};

use super::elements::{DEPTH_MAX, badge, duration, encode, scrolling, size, text_block, time};
use super::frame::{PageFrame, page};
use crate::monitor::view::{CallStep, Timeline};

/// Renders the page of a call.
pub(crate) fn timeline(frame: &PageFrame<'_>, timeline: &Timeline) -> Markup {
    let title = format!("{}.{}", timeline.line.agent, timeline.line.target);
    let content = html! {
        (timeline_steps(timeline))
        @if !frame.viewer.can_see_content {
            p.hint { "Texts of requests and replies need the scope " code { "console.content" } "." }
        }
        p { a href="/" { "All calls" } }
    };
    page(frame, &title, content)
}

/// Renders the summary and the steps of a call. They are fetched again until the call has ended.
pub(crate) fn timeline_steps(timeline: &Timeline) -> Markup {
    let line = &timeline.line;
    let is_running = line.ms.is_none();
    let source = is_running.then(|| format!("/part/timeline?call={}", encode(&line.call)));
    let trigger = is_running.then_some("sse:change");
    html! {
        div #steps data-testid="timeline" data-live[is_running] hx-get=[source] hx-trigger=[trigger] hx-swap="outerHTML"
            hx-sync="this:queue last" {
            dl.facts {
                div { dt { "Outcome" } dd { (badge(&line.outcome)) } }
                div { dt { "Caller" } dd { (line.principal) } }
                div { dt { "Protocol" } dd { (line.protocol) } }
                div { dt { "Began" } dd { (time(line.at_ms)) } }
                div { dt { "Duration" } dd { (duration(line.ms)) } }
                div { dt { "Trace" } dd.trace { (line.trace) } }
                div { dt { "Call" } dd.trace { (line.call) } }
            }
            @if line.outcome == "asks" {
                p { a #timeline-questions href="/questions" { "Answer its question" } }
            }
            (scrolling("Steps of the call", steps_table(timeline)))
            @if timeline.more > 0 {
                p.hint { (timeline.more) " more steps aren't shown." }
            }
        }
    }
}

fn steps_table(timeline: &Timeline) -> Markup {
    let ends = timeline
        .steps
        .iter()
        .map(|step| step.start_ms + step.ms.unwrap_or_default());
    let total_ms = ends.fold(timeline.line.ms.unwrap_or_default(), f64::max);
    html! {
        table.steps {
            thead {
                tr {
                    th scope="col" { "Step" }
                    th scope="col" { "When" }
                    th.number scope="col" { "Start" }
                    th.number scope="col" { "Duration" }
                    th scope="col" { "Outcome" }
                    th.number.wide scope="col" { "Request" }
                    th.number.wide scope="col" { "Reply" }
                    th.wide scope="col" { "Span" }
                }
            }
            tbody {
                @for (nth, step) in timeline.steps.iter().enumerate() {
                    (step_row(step, total_ms))
                    (content_row(step, nth))
                }
            }
        }
    }
}

fn step_row(step: &CallStep, total_ms: f64) -> Markup {
    html! {
        tr {
            th scope="row" class={ "d" (step.depth.min(DEPTH_MAX)) } {
                (badge(&step.kind)) " "
                span.name { (step.agent) @if !step.target.is_empty() { "." (step.target) } }
                @if !step.protocol.is_empty() { " " span.kind { (step.protocol) } }
            }
            td.chart { (bar(step, total_ms)) }
            td.number { (duration(Some(step.start_ms))) }
            td.number { (duration(step.ms)) }
            td {
                (badge(&step.outcome))
                @if !step.detail.is_empty() { " " span.detail { (step.detail) } }
            }
            td.number.wide { (size(step.request_bytes)) }
            td.number.wide { (size(step.reply_bytes)) }
            td.wide.trace title={ "parent " (step.parent) } { (step.span) }
        }
    }
}

/// Renders the share of a step in the time of the call. A step that runs reaches to the end.
fn bar(step: &CallStep, total_ms: f64) -> Markup {
    let total_ms = total_ms.max(0.001);
    let start = (step.start_ms / total_ms * 100.0).clamp(0.0, 99.0);
    let rest = 100.0 - start;
    let width = step.ms.map_or(rest, |ms| ms / total_ms * 100.0);
    html! {
        svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect x=(format!("{start:.2}")) y="0" height="8" width=(format!("{:.2}", width.min(rest).max(1.0)))
                class={ "bar-" (step.kind) } {}
        }
    }
}

/// Renders the texts of a step; nothing if there are none.
fn content_row(step: &CallStep, nth: usize) -> Markup {
    if step.request.is_none() && step.reply.is_none() {
        return html! {};
    }
    html! {
        tr.content {
            td colspan="8" {
                details id={ "content-" (nth) } {
                    summary { "Request and reply of " (step.agent) "." (step.target) }
                    @if let Some(request) = &step.request {
                        h2.small { "Request" }
                        (text_block(request, &format!("Request of step {}", nth + 1)))
                    }
                    @if let Some(reply) = &step.reply {
                        h2.small { "Reply" }
                        (text_block(reply, &format!("Reply of step {}", nth + 1)))
                    }
                }
            }
        }
    }
}
