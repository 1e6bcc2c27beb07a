//! Page with the pinned tools of upstreams, and the differences of changed ones.

use maud::{Markup, html};

use super::difference::{LineChange, difference};
use super::elements::{ROWS_MAX, badge, csrf_field, empty, rows_left_out, scrolling};
use super::frame::{PageFrame, page};
use crate::monitor::view::ToolView;

/// Renders the page of the tools: new and changed ones with their difference, then a table of the approved ones.
pub(crate) fn tools(frame: &PageFrame<'_>, tools: &[ToolView]) -> Markup {
    let (approved, waiting): (Vec<_>, Vec<_>) =
        tools.iter().partition(|tool| tool.state == "approved");
    let content = html! {
        section aria-labelledby="waiting-title" {
            h2 #waiting-title { "New and changed" }
            @if waiting.is_empty() { (empty("No tool waits for an approval.")) }
            @for (nth, tool) in waiting.iter().take(ROWS_MAX).enumerate() { (card(frame, tool, nth)) }
            (rows_left_out(waiting.len(), "Approve these first."))
        }
        section aria-labelledby="approved-title" {
            h2 #approved-title { "Approved" }
            @if approved.is_empty() {
                (empty("No upstream has pinned tools. Set pin in the table of an upstream."))
            } @else {
                (scrolling("Table of approved tools", approved_table(&approved)))
                (rows_left_out(approved.len(), "All are in /api/v1/tools."))
            }
        }
    };
    page(frame, "Tools", content)
}

fn approved_table(tools: &[&ToolView]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Upstream" }
                    th scope="col" { "Tool" }
                    th scope="col" { "State" }
                }
            }
            tbody {
                @for tool in tools.iter().take(ROWS_MAX) {
                    tr {
                        td { (tool.upstream) }
                        th scope="row" { (tool.tool) }
                        td { (badge(&tool.state)) }
                    }
                }
            }
        }
    }
}

fn card(frame: &PageFrame<'_>, tool: &ToolView, nth: usize) -> Markup {
    html! {
        article.card id={ "tool-" (nth) } data-testid="tool" {
            h2.small { (tool.upstream) "." (tool.tool) " " (badge(&tool.state)) }
            @if tool.offered.is_empty() {
                p.hint { "Its definition is too large to show. Look at it with " code { "callboard tools list" } "." }
            } @else {
                (difference_block(tool))
            }
            @if frame.viewer.can_act && !tool.offered_hash.is_empty() {
                form method="post" action="/do/tool" data-testid="tool-form" {
                    (csrf_field(frame.csrf))
                    input type="hidden" name="upstream" value=(tool.upstream);
                    input type="hidden" name="tool" value=(tool.tool);
                    input type="hidden" name="hash" value=(tool.offered_hash);
                    button.primary type="submit" data-testid="approve-tool" { "Approve this definition" }
                }
            }
        }
    }
}

/// Renders the difference of the approved and the offered definition.
fn difference_block(tool: &ToolView) -> Markup {
    let label = format!("Difference of {}.{}", tool.upstream, tool.tool);
    html! {
        pre.difference tabindex="0" role="region" aria-label=(label) {
            @for (change, text) in difference(&tool.approved, &tool.offered) {
                @match change {
                    LineChange::Same => { span { "  " (text) "\n" } }
                    LineChange::Removed => { del { "- " (text) "\n" } }
                    LineChange::Added => { ins { "+ " (text) "\n" } }
                }
            }
        }
    }
}
