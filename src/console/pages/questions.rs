//! Page with the questions that wait, each with its form.

use maud::{Markup, html};

use super::elements::{age, csrf_field, empty, encode, visible_lines};
use super::frame::{PageFrame, page};
use crate::console::form;
use crate::monitor::view::QuestionView;

/// Renders the page of the questions. The list is fetched again; the forms stay, and the script adds those of new
/// questions.
pub(crate) fn questions(frame: &PageFrame<'_>, questions: &[QuestionView]) -> Markup {
    let content = html! {
        div #questions-list data-live hx-get="/part/questions-list" hx-trigger="sse:change" hx-sync="this:queue last" {
            (questions_list(questions))
        }
        div #question-forms {
            @for question in questions { (question_form(frame, question)) }
        }
    };
    page(frame, "Questions", content)
}

/// Renders the list of the questions that wait, without forms.
pub(crate) fn questions_list(questions: &[QuestionView]) -> Markup {
    if questions.is_empty() {
        return empty("No question waits.");
    }
    html! {
        ul.list data-testid="questions" {
            @for question in questions {
                @let id = encode(&question.id);
                li data-question=(question.id) {
                    a id={ "link-" (question.id) } href={ "/questions?id=" (id) "#question-" (id) } {
                        (question.agent) " asks " (question.principal)
                    }
                    " waits " (age(question.at_ms))
                }
            }
        }
    }
}

/// Renders a question with its form.
pub(crate) fn question_form(frame: &PageFrame<'_>, question: &QuestionView) -> Markup {
    html! {
        article.card id={ "question-" (question.id) } data-question-card=(question.id) data-testid="question" {
            h2 { (question.agent) " asks " (question.principal) }
            p.meta {
                "waits " (age(question.at_ms))
                @if !question.call.is_empty() {
                    " · " a href={ "/calls/" (encode(&question.call)) } { "timeline of the call" }
                }
            }
            @if frame.viewer.can_see_content {
                p.text { (visible_lines(&question.message)) }
            } @else {
                p.hint { "Its text needs the scope " code { "console.content" } "." }
            }
            @if !frame.viewer.can_act {
                p.hint { "An answer needs the scope " code { "console.act" } "." }
            } @else if !question.can_answer {
                p.hint { "It can be answered only by the caller." }
            } @else {
                (answer_form(frame, question))
            }
        }
    }
}

fn answer_form(frame: &PageFrame<'_>, question: &QuestionView) -> Markup {
    let prefix = format!("question-{}", question.id);
    html! {
        form method="post" action="/do/answer" data-testid="question-form" {
            (csrf_field(frame.csrf))
            input type="hidden" name="id" value=(question.id);
            @if question.schema.is_object() {
                (form::fields(&question.schema, &prefix))
            }
            div.actions {
                button.primary type="submit" name="action" value="accept" data-testid="answer" { "Answer" }
                button type="submit" name="action" value="decline" formnovalidate data-testid="decline" { "Decline" }
                button type="submit" name="action" value="cancel" formnovalidate data-testid="cancel" { "Cancel" }
            }
        }
    }
}
