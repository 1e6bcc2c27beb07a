//! What a program needs of a message, and a model mustn't get.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MailView;
use super::wire::mail_message;

/// Give me these as they were sent, letter by letter; I have them by that.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchMail {
    /// Which: at most [`MAIL_HISTORY_MAX`](super::MAIL_HISTORY_MAX). Those that whoever asks may not see are left out.
    pub message_ids: Vec<String>,
    /// Also how far each has come with each recipient: to its sender only.
    #[serde(default)]
    pub receipts: bool,
}

/// What was asked for, as far as it is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fetched {
    /// In the order that they were asked for, whole, with `message`.
    pub messages: Vec<MailView>,
}

mail_message! {
    FetchMail = "callboard.mail.fetch" -> Fetched, "", more: [];
}
