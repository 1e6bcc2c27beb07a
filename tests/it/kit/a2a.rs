//! A2A 1.0 over JSON-RPC, as it is on the wire.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::soon;

/// A request, to which headers may be added.
pub fn request(url: &str, method: &str, params: Value) -> RequestBuilder {
    let request = reqwest::Client::new().post(url).header("content-type", "application/json");
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    request.header("a2a-version", "1.0").body(body)
}

/// The whole response.
pub async fn response(request: RequestBuilder) -> Value {
    let response = soon("an answer", request.send()).await.unwrap();
    let text = soon("a body", response.text()).await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no answer: {text}"))
}

/// The result.
pub async fn ask(url: &str, method: &str, params: Value) -> Value {
    let mut answer = response(request(url, method, params)).await;
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].take()
}

/// What SendMessage takes: an empty message for a skill. Answered at once, or when there is something to answer.
pub fn for_skill(skill: &str, at_once: bool) -> Value {
    // No two messages may have one id.
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let id = format!("m-{}", NEXT.fetch_add(1, Relaxed));
    let metadata = json!({ "skill": skill });
    let message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": "{}" }], "metadata": metadata });
    json!({ "message": message, "configuration": { "returnImmediately": at_once } })
}

/// What a task came to, or a message says.
pub fn said(result: &Value) -> &str {
    let parts = if result["message"].is_object() { &result["message"] } else { &result["task"]["artifacts"][0] };
    parts["parts"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
