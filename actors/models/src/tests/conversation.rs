//! Invalid requests, rejected before any provider is contacted.

use callboard_message::FailureKind;
use serde_json::{Value, json};

use super::kit::{params, rich, said};
use crate::request::{MODEL_BLOCKS_MAX, MODEL_TOOLS_MAX, ModelRequest};

fn refusal(request: &Value) -> String {
    let failure = ModelRequest::parse(&params(request)).err().unwrap();
    assert_eq!(failure.kind, FailureKind::InvalidInput);
    failure.message
}

/// Goal: an invalid member is rejected by name, without its content. Method: rows.
#[test]
fn members_that_do_not_fit() {
    let content = |content: Value| json!({ "messages": [{ "role": "user", "content": content }], "maxTokens": 5 });
    let rows = [
        (json!({}), "`messages` must be an array of objects"),
        (
            json!({ "messages": "Marta" }),
            "`messages` must be an array of objects",
        ),
        (json!({ "messages": [] }), "`messages` is empty"),
        (
            json!({ "messages": [{ "role": "Marta", "content": [] }] }),
            "`role` must be `user` or `assistant`",
        ),
        (
            json!({ "messages": [{ "role": "user" }] }),
            "a message has no `content`",
        ),
        (
            content(json!("Marta")),
            "`content` must be a block or an array of blocks",
        ),
        (
            content(json!(["Marta"])),
            "`content` must be a block or an array of blocks",
        ),
        (
            content(json!({ "text": "Marta" })),
            "`type` must be a string",
        ),
        (
            content(json!({ "type": "text" })),
            "`text` must be a string",
        ),
        (
            content(json!({ "type": "Marta" })),
            "content block has an unsupported `type`: use text, image or resource",
        ),
        (
            content(json!({ "type": "image", "data": "", "mimeType": "image/png;Marta" })),
            "`mimeType` must be a media type that begins with `image/`",
        ),
        (
            content(json!({ "type": "audio", "data": "", "mimeType": "image/png" })),
            "`mimeType` must be a media type that begins with `audio/`",
        ),
        (
            content(json!({ "type": "tool_use", "id": "1", "name": "a", "input": {} })),
            "tool uses must be in a message with the role `assistant`",
        ),
        (
            content(json!({ "type": "tool_result", "toolUseId": "1", "content": [] })),
            "a tool result matches no tool use of the previous message",
        ),
    ];
    for (request, expected) in rows {
        assert_eq!(refusal(&request), expected);
    }
    for (member, wrong, expected) in [
        (
            "maxTokens",
            json!("many"),
            "`maxTokens` must be a whole number of tokens",
        ),
        (
            "maxTokens",
            json!(-1),
            "`maxTokens` must be a whole number of tokens",
        ),
        ("maxTokens", json!(0), "`maxTokens` must be at least 1"),
        (
            "temperature",
            json!("hot"),
            "`temperature` must be a number",
        ),
        (
            "stopSequences",
            json!("END"),
            "`stopSequences` must be an array of strings",
        ),
        ("systemPrompt", json!(1), "`systemPrompt` must be a string"),
        (
            "tools",
            json!([{ "name": "a" }]),
            "`inputSchema` must be an object",
        ),
        (
            "toolChoice",
            json!({ "mode": "a" }),
            "`toolChoice.mode` must be `auto`, `required` or `none`",
        ),
    ] {
        let mut request = said("Hi");
        request[member] = wrong;
        assert_eq!(refusal(&request), expected);
    }
}

/// Goal: tool calls and results must match as specified. Method: a complete conversation with one
/// change each.
#[test]
fn uses_and_results_fit_together() {
    assert!(ModelRequest::parse(&params(&rich())).is_ok());
    let bent = |bend: &dyn Fn(&mut Value)| {
        let mut request = rich();
        bend(&mut request["messages"]);
        refusal(&request)
    };
    let alone = "tool results must be alone in a message with the role `user`";
    let unanswered = "a tool use has no result in the next message";
    assert_eq!(bent(&|m| drop(m.as_array_mut().unwrap().pop())), unanswered);
    assert_eq!(
        bent(&|m| m[2] = json!({ "role": "user", "content": { "type": "text", "text": "well?" } })),
        unanswered
    );
    assert_eq!(bent(&|m| m[2]["role"] = json!("assistant")), alone);
    let result = json!({ "type": "tool_result", "toolUseId": "t1", "content": [] });
    assert_eq!(
        bent(&|m| m[2]["content"] = json!([result, { "type": "text", "text": "and" }])),
        alone
    );
    assert_eq!(
        bent(&|m| m[2]["content"]["toolUseId"] = json!("t2")),
        "a tool result matches no tool use of the previous message"
    );
    let twice = json!({ "type": "tool_use", "id": "t1", "name": "look", "input": {} });
    assert_eq!(
        bent(&|m| m[1]["content"] = json!([twice, twice])),
        "two tool uses have the same id"
    );
}

/// Goal: a conversation and its tools are limited. Method: at each limit, and one more.
#[test]
fn conversations_have_limits() {
    let blocks = |count: usize| {
        let blocks = vec![json!({ "type": "text", "text": "a" }); count];
        params(&json!({ "messages": [{ "role": "user", "content": blocks }] }))
    };
    assert!(ModelRequest::parse(&blocks(MODEL_BLOCKS_MAX)).is_ok());
    assert!(ModelRequest::parse(&blocks(MODEL_BLOCKS_MAX + 1)).is_err());
    let tools = |count: usize| {
        let mut request = said("Hi");
        request["tools"] = json!(vec![json!({ "name": "a", "inputSchema": {} }); count]);
        params(&request)
    };
    assert!(ModelRequest::parse(&tools(MODEL_TOOLS_MAX)).is_ok());
    assert!(ModelRequest::parse(&tools(MODEL_TOOLS_MAX + 1)).is_err());
}
