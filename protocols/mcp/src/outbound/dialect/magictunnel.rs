//! Conversion of questions and answers of MagicTunnel's external servers.

use callboard_message::{
    Content, Elicitation, Failure, Question, RawObject, SamplingRequest, Speaker,
};
use serde_json::value::RawValue;

/// Renamed members of a sampling request: MagicTunnel's name, then MCP's.
const SAMPLE_NAMES: [(&str, &str); 5] = [
    ("max_tokens", "maxTokens"),
    ("system_prompt", "systemPrompt"),
    ("stop", "stopSequences"),
    ("stop_sequences", "stopSequences"),
    ("include_context", "includeContext"),
];
/// Renamed members of model preferences: MagicTunnel's name, then MCP's.
const PREFERENCE_NAMES: [(&str, &str); 3] = [
    ("cost", "costPriority"),
    ("speed", "speedPriority"),
    ("intelligence", "intelligencePriority"),
];
/// Member of a question's `metadata` that names the client whose call caused the question, as
/// claimed by the server. Answers repeat it.
const CLAIMED_ORIGIN_MEMBER: &str = "original_client_id";
/// Member of an answer's `_meta` that names who answered (`by`) and how (`strategy`).
const ANSWERED_BY_META: &str = "callboard/answered";
const USAGE_META: &str = "callboard/usage";
const PROVIDER_META: &str = "callboard/provider";

/// Parses a sampling request of MagicTunnel's dialect and returns it as an MCP
/// `sampling/createMessage` request. `client` names the client whose call caused it.
///
/// # Errors
/// `InvalidInput` if a member has the wrong type.
pub(crate) fn parse_sample(
    mut body: RawObject,
    client: Option<&str>,
) -> Result<SamplingRequest, Failure> {
    for (theirs, ours) in SAMPLE_NAMES {
        rename_member(&mut body, theirs, ours);
    }
    if let Some(preferences) = body.remove("model_preferences") {
        let preferences = RawObject::parse(&preferences)
            .map_err(|_| invalid_input("`model_preferences` must be an object"))?;
        if !body.has("modelPreferences") {
            body.set("modelPreferences", convert_model_preferences(preferences)?);
        }
    }
    let messages: Vec<RawObject> = body
        .read("messages")
        .ok_or_else(|| invalid_input("`messages` must be an array of objects"))?;
    let (system, messages): (Vec<_>, Vec<_>) = messages
        .into_iter()
        .partition(|message| message.text("role").as_deref() == Some("system"));
    if !system.is_empty() {
        let prompts = body
            .text("systemPrompt")
            .into_iter()
            .chain(system.iter().filter_map(|turn| turn.text("content")));
        body.set("systemPrompt", prompts.collect::<Vec<_>>().join("\n"));
    }
    let messages: Vec<RawObject> = messages
        .into_iter()
        .map(convert_message)
        .collect::<Result<_, _>>()?;
    body.set("messages", messages);
    merge_metadata(&mut body, client)?;
    Ok(SamplingRequest(body))
}

fn convert_message(mut message: RawObject) -> Result<RawObject, Failure> {
    if message.read::<Speaker>("role").is_none() {
        return Err(invalid_input(
            "the role of a message must be user or assistant",
        ));
    }
    let Some(content) = message.get("content") else {
        return Err(invalid_input("a message must have content"));
    };
    let content = match content.get().as_bytes().first() {
        Some(b'"') => text_block(content.to_owned()).to_raw(),
        Some(b'[') => {
            let parts: Vec<RawObject> = message.read("content").ok_or_else(|| {
                invalid_input("the parts of a message's `content` must be objects")
            })?;
            let parts: Vec<RawObject> = parts
                .into_iter()
                .map(convert_media_part)
                .collect::<Result<_, _>>()?;
            RawObject::single("all", parts)
                .remove("all")
                .unwrap_or_default()
        }
        Some(b'{') => return Ok(message),
        _ => return Err(invalid_input("a message's content must be text or parts")),
    };
    message.set_raw("content", content);
    Ok(message)
}

/// Converts an image or audio part from MagicTunnel's form, with its data in `source`, to an MCP
/// content block. Fails if `source` has no data.
fn convert_media_part(mut part: RawObject) -> Result<RawObject, Failure> {
    let Some(mut source) = part.object("source") else {
        return Ok(part);
    };
    let data = source
        .remove("data")
        .ok_or_else(|| invalid_input("pictures and sounds must come as data, not by address"))?;
    part.remove("source");
    part.set_raw("data", data);
    part.set_some("mimeType", &source.remove("media_type"));
    Ok(part)
}

fn convert_model_preferences(mut theirs: RawObject) -> Result<RawObject, Failure> {
    for (name, ours) in PREFERENCE_NAMES {
        rename_member(&mut theirs, name, ours);
    }
    let Some(preferred) = theirs.remove("preferred_models") else {
        return Ok(theirs);
    };
    let preferred: Vec<String> = serde_json::from_str(preferred.get())
        .map_err(|_| invalid_input("`preferred_models` must be an array of strings"))?;
    let mut hints: Vec<RawObject> = theirs.read("hints").unwrap_or_default();
    hints.extend(preferred.iter().map(|name| RawObject::single("name", name)));
    Ok(theirs.with("hints", hints))
}

/// Parses an elicitation request of MagicTunnel's dialect and returns it as an MCP elicitation.
/// `client` names the client whose call caused it.
///
/// # Errors
/// `InvalidInput` if `message` is no string or `metadata` no object.
pub(crate) fn parse_elicitation(
    mut body: RawObject,
    client: Option<&str>,
) -> Result<Question, Failure> {
    rename_member(&mut body, "requested_schema", "requestedSchema");
    if body.text("message").is_none() {
        return Err(invalid_input("`message` must be a string"));
    }
    merge_metadata(&mut body, client)?;
    Ok(Question::Elicit(Elicitation(body)))
}

/// Moves the members of `metadata` to `_meta`; members already in `_meta` take precedence.
/// `original_client_id` is dropped if it equals `client`. Otherwise it stays, so that the false
/// claim can be recorded.
fn merge_metadata(body: &mut RawObject, client: Option<&str>) -> Result<(), Failure> {
    let Some(hints) = body.remove("metadata").filter(|raw| raw.get() != "null") else {
        return Ok(());
    };
    let hints =
        RawObject::parse(&hints).map_err(|_| invalid_input("`metadata` must be an object"))?;
    let mut meta = body.object("_meta").unwrap_or_default();
    for (name, hint) in hints.iter() {
        let is_true_claim = name == CLAIMED_ORIGIN_MEMBER
            && client.is_some_and(|client| {
                serde_json::from_str::<String>(hint.get()).is_ok_and(|it| it == client)
            });
        if !is_true_claim && !meta.has(name) {
            meta.set_raw(name, hint.to_owned());
        }
    }
    if !meta.is_empty() {
        body.set("_meta", meta);
    }
    Ok(())
}

/// Converts an MCP sampling result to MagicTunnel's `SamplingResponse`. `client` names the client
/// whose call caused the request.
pub(crate) fn sampling_response(answer: &RawObject, client: Option<&str>) -> RawObject {
    let meta = answer.object("_meta").unwrap_or_default();
    let mut message = RawObject::single(
        "role",
        answer.read::<Speaker>("role").unwrap_or(Speaker::Assistant),
    );
    message.set_some("content", &answer.get("content").map(plain_content));
    let mut response = RawObject::single("message", message);
    response.set_some("model", &answer.get("model"));
    if let Some(usage) = meta.object(USAGE_META) {
        let count = |name| usage.read::<u64>(name).unwrap_or_default();
        let (input, output) = (count("inputTokens"), count("outputTokens"));
        response.set(
            "usage",
            RawObject::single("input_tokens", input).with("output_tokens", output),
        );
    }
    let answered = meta.object(ANSWERED_BY_META).unwrap_or_default();
    let by = match answered.text("by").as_deref() {
        None | Some("client") => "client",
        Some(by) if by.starts_with("server:") => "external_server",
        Some(_) => "magictunnel",
    };
    let mut metadata = RawObject::single("processed_by", by);
    metadata.set_some("llm_provider", &meta.text(PROVIDER_META));
    metadata.set(
        "strategy",
        answered
            .text("strategy")
            .unwrap_or_else(|| "client_forwarded".to_owned()),
    );
    metadata.set_some(CLAIMED_ORIGIN_MEMBER, &client);
    response.with("metadata", metadata)
}

/// Returns content that consists of text blocks as one JSON string, joined by line feeds. Returns
/// other content unchanged.
fn plain_content(content: &RawValue) -> Box<RawValue> {
    let blocks: Vec<Content> = match content.get().as_bytes().first() {
        Some(b'[') => serde_json::from_str(content.get()).unwrap_or_default(),
        _ => serde_json::from_str(content.get())
            .map(|block| vec![block])
            .unwrap_or_default(),
    };
    match blocks.as_slice() {
        [Content(block)] if block.text("type").as_deref() == Some("text") => block
            .get("text")
            .map(RawValue::to_owned)
            .unwrap_or_default(),
        _ => {
            let texts: Option<Vec<String>> = blocks.iter().map(Content::as_text).collect();
            match texts.filter(|texts| !texts.is_empty()) {
                Some(texts) => RawObject::single("text", texts.join("\n"))
                    .remove("text")
                    .unwrap_or_default(),
                None => content.to_owned(),
            }
        }
    }
}

/// Converts an MCP elicitation result to MagicTunnel's `ElicitationResponse`.
pub(crate) fn elicitation_response(mut answer: RawObject) -> RawObject {
    rename_member(&mut answer, "content", "data");
    answer
}

fn text_block(text: Box<RawValue>) -> RawObject {
    let mut block = RawObject::single("type", "text");
    block.set_raw("text", text);
    block
}

/// Renames member `from` of `body` to `to`. If `to` exists already, `from` is only removed.
fn rename_member(body: &mut RawObject, from: &str, to: &str) {
    if let Some(value) = body.remove(from)
        && !body.has(to)
    {
        body.set_raw(to, value);
    }
}

fn invalid_input(why: &str) -> Failure {
    Failure::invalid(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callboard_message::FailureKind;
    use serde_json::{Value, json};

    fn object(json: Value) -> RawObject {
        serde_json::from_value(json).unwrap()
    }

    fn value(body: &RawObject) -> Value {
        serde_json::from_str(body.to_raw().get()).unwrap()
    }

    /// Goal: a request in MagicTunnel's dialect is converted to MCP in every part. Method: one with
    /// all parts.
    /// Rows: M-10, M-11.
    #[test]
    fn samples_are_reworded() {
        let theirs = object(json!({
            "messages": [
                { "role": "system", "content": "be brief" },
                { "role": "user", "content": "a \"b\"" },
                { "role": "assistant", "content": [
                    { "type": "text", "text": "c" },
                    { "type": "image", "source": { "media_type": "image/png", "data": "AA==" } }
                ]},
                { "role": "user", "content": { "type": "text", "text": "d" } }
            ],
            "model_preferences": { "preferred_models": ["gpt-4", "claude-3-opus"], "cost": 0.3, "odd": 1 },
            "system_prompt": "you are kind", "max_tokens": 7, "stop": ["x"], "temperature": 0.5,
            "metadata": { "original_client_id": "b", "tool_execution_context": "t", "kept": 2 },
            "_meta": { "kept": 1 }
        }));
        let ours = parse_sample(theirs, Some("a")).unwrap();
        assert_eq!(
            value(&ours.0),
            json!({
                "messages": [
                    { "role": "user", "content": { "type": "text", "text": "a \"b\"" } },
                    { "role": "assistant", "content": [
                        { "type": "text", "text": "c" },
                        { "type": "image", "data": "AA==", "mimeType": "image/png" }
                    ]},
                    { "role": "user", "content": { "type": "text", "text": "d" } }
                ],
                "modelPreferences": {
                    "hints": [{ "name": "gpt-4" }, { "name": "claude-3-opus" }], "costPriority": 0.3, "odd": 1
                },
                "systemPrompt": "you are kind\nbe brief", "maxTokens": 7, "stopSequences": ["x"], "temperature": 0.5,
                "_meta": { "original_client_id": "b", "tool_execution_context": "t", "kept": 1 }
            })
        );
    }

    /// Goal: invalid requests are rejected with a reason. Method: rows.
    #[test]
    fn bad_requests_are_refused() {
        let turn = |turn: Value| json!({ "messages": [turn] });
        for theirs in [
            json!({}),
            json!({ "messages": "m" }),
            json!({ "messages": ["m"] }),
            turn(json!({ "content": "m" })),
            turn(json!({ "role": "tool", "content": "m" })),
            turn(json!({ "role": "user" })),
            turn(json!({ "role": "user", "content": 1 })),
            turn(json!({ "role": "user", "content": ["m"] })),
            turn(
                json!({ "role": "user", "content": [{ "type": "image", "source": { "url": "u" } }] }),
            ),
            json!({ "messages": [], "model_preferences": [] }),
            json!({ "messages": [], "model_preferences": { "preferred_models": "gpt-4" } }),
            json!({ "messages": [], "metadata": "m" }),
        ] {
            let refused = parse_sample(object(theirs.clone()), None).unwrap_err();
            assert_eq!(refused.kind, FailureKind::InvalidInput, "{theirs}");
        }
        assert!(parse_elicitation(object(json!({ "requested_schema": {} })), None).is_err());
    }

    /// Goal: answers are complete in MagicTunnel's format, and have nothing else. Method: text,
    /// several texts, an image; with all metadata and with none.
    /// Rows: M-27.
    #[test]
    fn answers_are_reworded() {
        let worded = |answer: Value| value(&sampling_response(&object(answer), None));
        let text = |text: &str| json!({ "type": "text", "text": text });
        assert_eq!(
            worded(
                json!({ "role": "assistant", "content": text("é"), "model": "m", "stopReason": "endTurn" })
            ),
            json!({
                "message": { "role": "assistant", "content": "é" }, "model": "m",
                "metadata": { "processed_by": "client", "strategy": "client_forwarded" }
            })
        );
        assert_eq!(
            worded(json!({ "content": [text("a"), text("b")] }))["message"]["content"],
            "a\nb"
        );
        let picture = json!([text("a"), { "type": "image", "data": "", "mimeType": "image/png" }]);
        assert_eq!(
            worded(json!({ "content": picture }))["message"]["content"],
            picture
        );
        let by = |by: &str| {
            let meta = json!({ "callboard/answered": { "by": by, "strategy": "hybrid" } });
            worded(json!({ "content": text("a"), "_meta": meta }))["metadata"]["processed_by"]
                .clone()
        };
        assert_eq!(
            [by("client"), by("model:m"), by("server:s")],
            ["client", "magictunnel", "external_server"]
        );
        let accepted = elicitation_response(object(
            json!({ "action": "accept", "content": { "name": "n" } }),
        ));
        assert_eq!(
            value(&accepted),
            json!({ "action": "accept", "data": { "name": "n" } })
        );
    }
}
