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
        div #questions-list data-live hx-get="/part/questions-list" hx-trigger="sse:change throttle:1s, every 5s"
            hx-sync="this:queue last" {
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
            @if shows_text(frame, question) {
                p.text { (visible_lines(&question.message)) }
            }
            @if question.can_answer {
                (answer_form(frame, question))
            }
            @if let Some(hint) = hint(frame, question) { p.hint { (hint) } }
        }
    }
}

/// Returns whether a question is for the inbox of a person, which only whoever may answer for the person reads.
fn is_for_person(question: &QuestionView) -> bool {
    question.call.is_empty()
}

/// Returns whether the reader sees the text and the form of a question.
fn shows_text(frame: &PageFrame<'_>, question: &QuestionView) -> bool {
    match is_for_person(question) {
        true => question.can_answer,
        false => frame.viewer.can_see_content,
    }
}

/// Returns what the reader lacks to see the question or to answer it; `None` if nothing.
fn hint(frame: &PageFrame<'_>, question: &QuestionView) -> Option<Markup> {
    let may_read = shows_text(frame, question);
    if is_for_person(question) {
        return (!may_read).then(|| {
            html! { "Text and answer are for the scope " code { "person:" (question.principal) } "." }
        });
    }
    match (may_read, frame.viewer.can_act, question.can_answer) {
        (true, _, true) => None,
        (true, true, false) => Some(html! { "It can be answered only by the caller." }),
        (true, false, false) => {
            Some(html! { "An answer needs the scope " code { "console.act" } "." })
        }
        (false, ..) => Some(html! {
            "Its text and form need the scope " code { "console.content" } "."
        }),
    }
}

fn answer_form(frame: &PageFrame<'_>, question: &QuestionView) -> Markup {
    let prefix = format!("question-{}", question.id);
    // Nobody fills in a form unseen.
    let accepts = shows_text(frame, question);
    html! {
        form method="post" action="/do/answer" data-testid="question-form" {
            (csrf_field(frame.csrf))
            input type="hidden" name="id" value=(question.id);
            @if accepts && question.schema.is_object() {
                (form::fields(&question.schema, &prefix))
            }
            div.actions {
                @if accepts {
                    button.primary type="submit" name="action" value="accept" data-testid="answer" { "Answer" }
                }
                button type="submit" name="action" value="decline" formnovalidate data-testid="decline" { "Decline" }
                button type="submit" name="action" value="cancel" formnovalidate data-testid="cancel" { "Cancel" }
            }
        }
    }
}
