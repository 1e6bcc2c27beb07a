//! Asking a person for one field.

use callboard::message::{ElicitAnswer, Elicitation, Failure};
use callboard::{Cx, FailureKind};
use serde_json::json;

/// Asks for a text and waits for it. Whoever can't be asked live answers under `key`.
pub async fn form(cx: &Cx, key: &str, message: &str, field: &str) -> Result<String, Failure> {
    let schema = json!({ "type": "object", "properties": { field: { "type": "string" } }, "required": [field] });
    let answer = cx.elicit(Elicitation::form(message, schema).key(key)).await?;
    let text = answer.content().and_then(|content| content[field].as_str().map(str::to_owned));
    text.ok_or_else(|| Failure::new(FailureKind::Rejected, format!("{message} Nobody said.")))
}

/// What a person did, for a reader.
pub fn told(answer: &ElicitAnswer) -> String {
    let action = answer.0.text("action").unwrap_or_default();
    format!("action={action}, content={}", answer.content().unwrap_or(json!({})))
}
