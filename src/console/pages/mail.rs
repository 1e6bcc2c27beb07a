//! Page of the mail: threads, search, messages with receipts, composer.

use callboard_runtime::visible;
use maud::{Markup, html};

use super::elements::{ROWS_MAX, csrf_field, empty, encode, rows_left_out, time, visible_lines};
use super::frame::{PageFrame, page};

/// Maximum length of a subject in the composer: 200 characters.
const SUBJECT_CHARS_MAX: usize = 200;

/// Contents of the page of the mail.
#[derive(Default)]
pub(crate) struct MailPage {
    /// Mailrooms that the reader may see.
    pub rooms: Vec<String>,
    /// Mailroom that is shown; empty without any.
    pub room: String,
    /// Words that are searched for; empty without a search.
    pub query: String,
    /// Threads, newest first.
    pub threads: Vec<MailThreadLine>,
    /// Messages of the open thread; empty without one.
    pub messages: Vec<MailLine>,
    /// Whether the composer is shown.
    pub can_write: bool,
}

/// Thread as a line of the list.
pub(crate) struct MailThreadLine {
    /// Id: that of its first message.
    pub id: String,
    /// Subject.
    pub subject: String,
    /// Sender of its first message.
    pub from: String,
    /// Time of its latest message.
    pub at_ms: u64,
    /// Number of its messages.
    pub messages: usize,
    /// Whether a message is unread.
    pub unread: bool,
}

/// Message.
pub(crate) struct MailLine {
    /// Id.
    pub id: String,
    /// Sender.
    pub from: String,
    /// Recipients.
    pub to: Vec<String>,
    /// Time of the sending.
    pub at_ms: u64,
    /// Subject.
    pub subject: String,
    /// Text.
    pub body: String,
    /// Recipients with the state of the delivery.
    pub receipts: Vec<(String, String)>,
}

/// Renders the page of the mail.
pub(crate) fn mail(frame: &PageFrame<'_>, mail: &MailPage) -> Markup {
    let content = html! {
        @if mail.room.is_empty() {
            (empty("The topology has no mailroom that you may read."))
        } @else {
            (search(mail))
            (columns(frame, mail))
        }
    };
    page(frame, "Mail", content)
}

fn columns(frame: &PageFrame<'_>, mail: &MailPage) -> Markup {
    html! {
        div.columns {
            section aria-labelledby="threads-title" {
                h2 #threads-title { "Threads" }
                (threads(mail))
            }
            div {
                @if !mail.messages.is_empty() {
                    section aria-labelledby="messages-title" {
                        h2 #messages-title { "Messages" }
                        @for message in mail.messages.iter().take(ROWS_MAX) { (message_card(frame, message)) }
                        (rows_left_out(mail.messages.len(), "Search for the others."))
                    }
                }
                @if mail.can_write { (composer(frame, mail)) }
            }
        }
    }
}

fn search(mail: &MailPage) -> Markup {
    html! {
        form.filter role="search" method="get" action="/mail" {
            div.field {
                label for="room" { "Mailroom" }
                select #room name="room" data-submit {
                    @for room in &mail.rooms {
                        option value=(room) selected[*room == mail.room] { (visible(room)) }
                    }
                }
            }
            div.field {
                label for="query" { "Search" }
                input #query type="search" name="q" value=(mail.query) data-search aria-keyshortcuts="/" autocomplete="off";
            }
            button type="submit" { "Search" }
        }
    }
}

fn threads(mail: &MailPage) -> Markup {
    if mail.threads.is_empty() {
        return empty("No thread, or none that the search matches.");
    }
    let room = encode(&mail.room);
    html! {
        ul.list data-testid="threads" {
            @for thread in mail.threads.iter().take(ROWS_MAX) {
                li.unread[thread.unread] {
                    a href={ "/mail?room=" (room) "&thread=" (encode(&thread.id)) } data-testid="thread" {
                        (subject(&thread.subject))
                    }
                    @if thread.unread { " " span.badge.warn { "unread" } }
                    p.meta {
                        (visible(&thread.from)) " · " (thread.messages)
                        (if thread.messages == 1 { " message · " } else { " messages · " }) (time(thread.at_ms))
                    }
                }
            }
        }
        (rows_left_out(mail.threads.len(), "Search for the others."))
    }
}

/// Returns a subject as it is shown.
fn subject(text: &str) -> String {
    match text.trim() {
        "" => "(no subject)".to_owned(),
        text => visible(text),
    }
}

fn message_card(frame: &PageFrame<'_>, message: &MailLine) -> Markup {
    html! {
        article.card data-testid="message" {
            h3 { (subject(&message.subject)) }
            p.meta {
                (visible(&message.from)) " to " (visible(&message.to.join(", "))) " · " (time(message.at_ms))
            }
            @if frame.viewer.can_see_content {
                p.text { (visible_lines(&message.body)) }
            } @else {
                p.hint { "Its text needs the scope " code { "console.content" } "." }
            }
            @if !message.receipts.is_empty() {
                ul.receipts aria-label="Receipts" {
                    @for (recipient, state) in &message.receipts {
                        li { (visible(recipient)) ": " (visible(state)) }
                    }
                }
            }
        }
    }
}

/// Returns the id of the open thread; empty without one. The id of a thread is that of its first message.
fn open_thread(mail: &MailPage) -> &str {
    let is_first = |message: &&MailLine| mail.threads.iter().any(|thread| thread.id == message.id);
    let mut messages = mail.messages.iter();
    messages
        .find(is_first)
        .filter(|_| mail.query.is_empty())
        .map_or("", |message| message.id.as_str())
}

fn composer(frame: &PageFrame<'_>, mail: &MailPage) -> Markup {
    let thread = open_thread(mail);
    let is_reply = !thread.is_empty();
    html! {
        section aria-labelledby="composer-title" {
            h2 #composer-title { (if is_reply { "Reply to all" } else { "New message" }) }
            form.card method="post" action="/do/mail" data-testid="mail-form" {
                (csrf_field(frame.csrf))
                input type="hidden" name="room" value=(mail.room);
                input type="hidden" name="thread" value=(thread);
                @if !is_reply {
                    div.field {
                        label for="to" { "To: ids of members or groups, with commas" }
                        input #to type="text" name="to" required autocomplete="off";
                    }
                    div.field {
                        label for="subject" { "Subject" }
                        input #subject type="text" name="subject" maxlength=(SUBJECT_CHARS_MAX) autocomplete="off";
                    }
                }
                div.field {
                    label for="body" { "Text" }
                    textarea #body name="body" rows="5" required {}
                }
                div.actions {
                    button.primary type="submit" data-testid="send-mail" { "Send" }
                    @if is_reply {
                        a href={ "/mail?room=" (encode(&mail.room)) } { "New message" }
                    }
                }
            }
        }
    }
}
