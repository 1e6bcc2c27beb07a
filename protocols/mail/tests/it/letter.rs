//! Test messages for delivery agents.

use callboard_message::Failure;
use callboard_message::mail::{DeliverMessage, DisplayIds, MailMessageKind};
use callboard_runtime::AgentRef;

use crate::kit::soon;

pub fn letter(id: &str, text: &str) -> DeliverMessage {
    DeliverMessage {
        message_id: id.into(),
        number: 7,
        kind: MailMessageKind::Direct,
        from: "12345678-a".into(),
        to: "87654321-b".into(),
        thread: id.into(),
        reply_to: None,
        topic: None,
        urgent: false,
        sent: "2026-01-02T03:04:05.678Z".into(),
        attempt: 1,
        text: format!("[AGENT 12345678 TO AGENT 87654321]: {text}"),
        message: text.into(),
        display: DisplayIds {
            from: "12345678".into(),
            to: "87654321".into(),
        },
    }
}

pub async fn send(agent: &AgentRef, letter: DeliverMessage) -> Result<(), Failure> {
    soon(agent.ask(letter)).await.unwrap()
}
