//! Page with the uses of tools that wait for an approval.

use callboard_runtime::{APPROVAL_REASON_BYTES_MAX, Approval, ApprovalState, visible};
use maud::{Markup, html};

use super::elements::{age, badge, csrf_field, empty, text_block};
use super::frame::{PageFrame, page};

/// Renders the page of the approvals. Arguments are shown to readers of contents alone.
pub(crate) fn approvals(frame: &PageFrame<'_>, approvals: &[Approval]) -> Markup {
    let content = html! {
        p.hint { "Whoever decides needs a scope that the rule names, and can't be the requester." }
        @if approvals.is_empty() { (empty("No use of a tool waits for an approval.")) }
        @for approval in approvals { (card(frame, approval)) }
    };
    page(frame, "Approvals", content)
}

fn card(frame: &PageFrame<'_>, approval: &Approval) -> Markup {
    let requester = format!("{}:{}", approval.requester_kind, approval.requester);
    let tool = visible(&format!("{}.{}", approval.agent, approval.tool));
    html! {
        article.card id={ "approval-" (approval.id) } data-testid="approval" {
            h2 { (visible(&requester)) " wants to run " (tool) }
            p.meta {
                (badge(state(approval))) " asked " (age(approval.requested_s.saturating_mul(1_000))) " ago · rule "
                code { (visible(&approval.rule)) } " · approvers " code { (visible(&approval.approvers.join(", "))) }
            }
            @if !approval.purpose.is_empty() {
                p.meta { "Purpose: " (visible(&approval.purpose)) }
            }
            @if !frame.viewer.can_see_content {
                p.hint { "Its arguments, and an approval, need the scope " code { "console.content" } "." }
            } @else if !approval.arguments.is_empty() {
                (text_block(&approval.arguments, &format!("Arguments of {tool} for {}", approval.id)))
            }
            @if approval.state == ApprovalState::Pending && frame.viewer.can_act {
                (decision_form(frame, approval))
            }
        }
    }
}

/// Returns the state as its word.
fn state(approval: &Approval) -> &'static str {
    match approval.state {
        ApprovalState::Pending => "pending",
        ApprovalState::Approved => "approved",
        ApprovalState::Denied => "denied",
    }
}

fn decision_form(frame: &PageFrame<'_>, approval: &Approval) -> Markup {
    let id = format!("reason-{}", approval.id);
    html! {
        form method="post" action="/do/approval" data-testid="approval-form" {
            (csrf_field(frame.csrf))
            input type="hidden" name="id" value=(approval.id);
            div.field {
                label for=(id) { "Reason, which the requester of a denied use is told" }
                input #(id) type="text" name="reason" maxlength=(APPROVAL_REASON_BYTES_MAX)
                    autocomplete="off";
            }
            div.actions {
                // Nobody approves arguments unseen.
                @if frame.viewer.can_see_content {
                    button.primary type="submit" name="decision" value="approve" data-testid="approve" { "Approve" }
                }
                button.danger type="submit" name="decision" value="deny" data-testid="deny" { "Deny" }
            }
        }
    }
}
