//! Mail of the viewer at the node's mailrooms: threads, search, receipts, and a composer. The mailroom decides what the
//! viewer may see and send, as for every member.

use std::sync::Arc;

use callboard_message::mail::{
    DeliveryState, FetchMail, FetchedMail, MAIL_HISTORY_MAX, MailDirection, MailView,
    MessageHistory, MessageHistoryPage, ReplyMessage, SendMessage, SendReceipt,
};
use callboard_message::time::parse_rfc3339;
use callboard_message::{Failure, FailureKind, Principal};
use callboard_runtime::AgentRef;

use super::pages::{MailLine, MailPage, MailThreadLine};
use super::play::ask_agent;
use crate::monitor::unix_ms;

/// Maximum number of recipients of a message from the console.
const RECIPIENTS_MAX: usize = 100;

/// Message that a viewer writes.
pub(super) struct MailDraft<'a> {
    /// Ids of the recipients, separated by commas or spaces. A reply has none: it goes to all of its thread.
    pub(super) to: &'a str,
    /// Topic; empty without one. A reply has none.
    pub(super) subject: &'a str,
    /// Text.
    pub(super) body: &'a str,
    /// Id of the thread to reply in; empty for a new one.
    pub(super) thread: &'a str,
}

/// Returns the mail of a viewer at a mailroom: the threads that fit `query`, and the messages of `thread`; nothing of a
/// thread if that is empty.
///
/// # Errors
/// Returns the failure of the mailroom, for example if the viewer has no mailbox.
pub(super) async fn mail_page(
    room: &AgentRef,
    rooms: Vec<String>,
    principal: &Arc<Principal>,
    query: &str,
    thread: &str,
) -> Result<MailPage, Failure> {
    let history = search(room, principal, Some(query), None).await?;
    let messages = match thread {
        "" => Vec::new(),
        thread => read_thread(room, principal, thread).await?,
    };
    Ok(MailPage {
        rooms,
        room: room.to_string(),
        query: query.to_owned(),
        threads: threads(&history, &principal.id),
        messages: messages.into_iter().map(mail_line).collect(),
        ..MailPage::default()
    })
}

/// Sends a message as a viewer. Returns the mailroom's explanation of the result.
///
/// # Errors
/// `InvalidInput` for a draft without recipients, and for a reply with some or with a topic; else the failure of the
/// mailroom.
pub(super) async fn send(
    room: &AgentRef,
    principal: &Arc<Principal>,
    draft: &MailDraft<'_>,
) -> Result<SendReceipt, Failure> {
    let message = draft.body.to_owned();
    if !draft.thread.is_empty() {
        check_reply(draft)?;
        let newest = search(room, principal, None, Some(draft.thread)).await?;
        let newest = newest.into_iter().next();
        let newest = newest.ok_or_else(|| Failure::not_found("you have no such thread"))?;
        let reply = ReplyMessage {
            message_id: newest.message_id,
            message,
            to_all: true,
            ..ReplyMessage::default()
        };
        return ask_agent(room, principal, &reply).await;
    }
    let separators = [',', ';', ' ', '\n', '\r', '\t'];
    let to: Vec<String> = draft
        .to
        .split(separators)
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect();
    if to.is_empty() || to.len() > RECIPIENTS_MAX {
        return Err(Failure::invalid(format!(
            "write the ids of 1 to {RECIPIENTS_MAX} recipients, separated by commas"
        )));
    }
    let message = SendMessage {
        message,
        recipient_agent_ids: to,
        topic: Some(draft.subject.to_owned()).filter(|topic| !topic.is_empty()),
        ..SendMessage::default()
    };
    ask_agent(room, principal, &message).await
}

/// Checks that a reply has nothing that would be lost.
///
/// # Errors
/// `InvalidInput` if it has recipients or a topic.
fn check_reply(draft: &MailDraft<'_>) -> Result<(), Failure> {
    match draft.to.is_empty() && draft.subject.is_empty() {
        true => Ok(()),
        false => Err(Failure::invalid(
            "a reply goes to all of the thread: leave To and Subject out",
        )),
    }
}

async fn search(
    room: &AgentRef,
    principal: &Arc<Principal>,
    text: Option<&str>,
    thread: Option<&str>,
) -> Result<Vec<MailView>, Failure> {
    let asked = MessageHistory {
        text: text.filter(|text| !text.is_empty()).map(str::to_owned),
        thread: thread.map(str::to_owned),
        direction: Some(MailDirection::All),
        limit: Some(MAIL_HISTORY_MAX),
        ..MessageHistory::default()
    };
    let page: MessageHistoryPage = ask_agent(room, principal, &asked).await?;
    Ok(page.messages)
}

/// Returns the messages of a thread, oldest first, whole; with their receipts, unless these are too many.
async fn read_thread(
    room: &AgentRef,
    principal: &Arc<Principal>,
    thread: &str,
) -> Result<Vec<MailView>, Failure> {
    let found = search(room, principal, None, Some(thread)).await?;
    let mut message_ids: Vec<_> = found.into_iter().map(|mail| mail.message_id).collect();
    if message_ids.is_empty() {
        return Ok(Vec::new());
    }
    message_ids.reverse();
    let mut asked = FetchMail {
        message_ids,
        receipts: true,
    };
    let fetched: Result<FetchedMail, Failure> = ask_agent(room, principal, &asked).await;
    let fetched = match fetched {
        Err(failure) if failure.kind == FailureKind::InvalidInput => {
            asked.receipts = false;
            ask_agent(room, principal, &asked).await?
        }
        fetched => fetched?,
    };
    Ok(fetched.messages)
}

/// Returns the threads of messages, which are newest first, in the order of their newest message.
fn threads(messages: &[MailView], own_id: &str) -> Vec<MailThreadLine> {
    let mut threads: Vec<MailThreadLine> = Vec::new();
    for mail in messages {
        let is_unread = mail.from != own_id && mail.state != DeliveryState::Read;
        let subject = mail.topic.clone().unwrap_or_default();
        if let Some(known) = threads.iter_mut().find(|known| known.id == mail.thread) {
            known.messages += 1;
            known.unread |= is_unread;
            known.from.clone_from(&mail.from);
            if !subject.is_empty() {
                // That of the oldest message with one.
                known.subject = subject;
            }
            continue;
        }
        threads.push(MailThreadLine {
            id: mail.thread.clone(),
            subject,
            from: mail.from.clone(),
            at_ms: sent_ms(mail),
            messages: 1,
            unread: is_unread,
        });
    }
    threads
}

fn sent_ms(mail: &MailView) -> u64 {
    parse_rfc3339(&mail.sent).map_or(0, unix_ms)
}

fn mail_line(mail: MailView) -> MailLine {
    let at_ms = sent_ms(&mail);
    let receipts = mail.receipts.unwrap_or_default().into_iter();
    let receipts = receipts.map(|receipt| (receipt.agent_id, receipt.state.to_string()));
    MailLine {
        id: mail.message_id,
        from: mail.from,
        to: mail.to,
        at_ms,
        subject: mail.topic.unwrap_or_default(),
        body: mail.message.unwrap_or(mail.text),
        receipts: receipts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use callboard_message::mail::{MailMessageKind, Priority};

    use super::*;

    fn mail(id: &str, thread: &str, from: &str, state: DeliveryState) -> MailView {
        MailView {
            message_id: id.to_owned(),
            number: 1,
            kind: MailMessageKind::Direct,
            from: from.to_owned(),
            to: Vec::new(),
            to_count: 1,
            thread: thread.to_owned(),
            reply_to: None,
            topic: Some(format!("about {id}")),
            priority: Priority::Normal,
            sent: "2026-11-25T15:00:00Z".to_owned(),
            expires: String::new(),
            state,
            text: "cut".to_owned(),
            cut: true,
            message: None,
            receipts: None,
        }
    }

    /// Goal: nothing that somebody wrote into a reply is passed over. Method: each field that a reply doesn't have.
    #[test]
    fn replies_have_no_recipients() {
        let draft = |to, subject| MailDraft {
            to,
            subject,
            body: "text",
            thread: "t1",
        };
        assert!(check_reply(&draft("", "")).is_ok());
        for (to, subject) in [("bob", ""), ("", "Another topic")] {
            let refused = check_reply(&draft(to, subject)).unwrap_err();
            assert!(refused.message.contains("leave To and Subject out"));
        }
    }

    /// Goal: a thread is one line, unread if the viewer hasn't read one of its messages, which the viewer's own
    /// aren't. Method: two threads.
    #[test]
    fn lines_of_threads() {
        let messages = [
            mail("m3", "t1", "me", DeliveryState::Delivered),
            mail("m2", "t2", "bob", DeliveryState::Delivered),
            mail("m1", "t1", "bob", DeliveryState::Read),
        ];
        let lines = threads(&messages, "me");
        let told = |line: &MailThreadLine| (line.id.clone(), line.messages, line.unread);
        assert_eq!(
            lines.iter().map(told).collect::<Vec<_>>(),
            [("t1".to_owned(), 2, false), ("t2".to_owned(), 1, true)]
        );
        assert_eq!(lines[0].subject, "about m1");
        assert_eq!(lines[0].from, "bob");
        let [_, _, m1] = messages;
        assert_eq!(mail_line(m1).body, "cut");
    }
}
