//! Mail: bodies of requests as the listener reads them, and answers and events as clients read them. What is read is the same
//! after it is written and read again.

use callboard_message::mail::{
    AgentStatus, BroadcastMessage, MailEvent, MailView, MessageHistoryPage, NumberedMailEvent,
    ReplyMessage, SendMessage, SendReceipt,
};
use callboard_rpc::{DecodeLimits, check_json};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn messages(bytes: &[u8]) {
    let Ok(text) = check_json(bytes, &DecodeLimits::default()) else {
        return;
    };
    stays::<SendMessage>(text);
    stays::<BroadcastMessage>(text);
    stays::<ReplyMessage>(text);
    stays::<SendReceipt>(text);
    stays::<MailView>(text);
    stays::<MessageHistoryPage>(text);
    stays::<AgentStatus>(text);
    stays::<MailEvent>(text);
    stays::<NumberedMailEvent>(text);
}

fn stays<T: DeserializeOwned + Serialize + PartialEq>(text: &str) {
    let Ok(read) = serde_json::from_str::<T>(text) else {
        return;
    };
    let written = serde_json::to_string(&read).expect("what was read can be written");
    let again: T = serde_json::from_str(&written).expect("what was written can be read");
    assert!(again == read, "changed by writing it");
}
