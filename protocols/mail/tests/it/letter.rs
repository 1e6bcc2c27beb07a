//! A letter for whatever is a way out.

use callboard_message::Failure;
use callboard_message::mail::{Deliver, Displayed, LetterKind};
use callboard_runtime::AgentRef;

use crate::kit::soon;

pub fn letter(id: &str, text: &str) -> Deliver {
    Deliver {
        message_id: id.into(),
        number: 7,
        kind: LetterKind::Direct,
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
        display: Displayed {
            from: "12345678".into(),
            to: "87654321".into(),
        },
    }
}

pub async fn send(agent: &AgentRef, letter: Deliver) -> Result<(), Failure> {
    soon(agent.ask(letter)).await.unwrap()
}
