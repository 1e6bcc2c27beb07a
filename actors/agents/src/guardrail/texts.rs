use serde_json::Value;
use serde_json::value::RawValue;

/// Names of members that say how a message is built, not what it says.
const OF_PROTOCOLS: &str = "_meta action annotations arguments blob content contents data description hints includeContext \
    inputSchema instructions intelligencePriority isError maxTokens message messages metadata method mimeType mode model \
    modelPreferences name outputSchema params prompt prompts properties requestedSchema required resource resources role \
    roots serverInfo speedPriority stopReason structuredContent systemPrompt temperature text title tools type uri";
/// The like, as values of `role` and `type`.
const WORDS_OF_PROTOCOLS: &str = "user assistant text image audio resource resource_link tool_use tool_result object \
    string number integer boolean array null";

/// Every text in a message, one a line, names of members too: an attack that is split over several is whole again. What
/// every message of a protocol has in common is left out, and so are pictures and sounds. `None` where it is no JSON.
pub(super) fn texts(message: &RawValue) -> Option<String> {
    let value: Value = serde_json::from_str(message.get()).ok()?;
    let mut lines = Vec::new();
    collect(&value, &mut lines);
    Some(lines.join("\n"))
}

fn collect<'a>(value: &'a Value, lines: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => lines.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, lines)),
        Value::Object(members) => {
            let shows = is_medium(members);
            for (name, value) in members {
                if !is_one_of(name, OF_PROTOCOLS) {
                    lines.push(name);
                }
                match (name.as_str(), value) {
                    ("role" | "type", Value::String(word)) if is_one_of(word, WORDS_OF_PROTOCOLS) => {}
                    ("data" | "blob", Value::String(coded)) if shows && is_base64(coded) => {}
                    _ => collect(value, lines),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether an object holds a picture, a sound or a film, by its media type.
fn is_medium(members: &serde_json::Map<String, Value>) -> bool {
    let kind = members.get("mimeType").and_then(Value::as_str).unwrap_or_default();
    // An SVG is a text.
    ["image/", "audio/", "video/"].iter().any(|family| kind.starts_with(family)) && !kind.contains("xml")
}

fn is_base64(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_'))
}

fn is_one_of(word: &str, list: &str) -> bool {
    list.split_ascii_whitespace().any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Option<String> {
        texts(&RawValue::from_string(json.to_owned()).unwrap())
    }

    /// Goal: what is said is read, how it is wrapped isn't. Method: a conversation, odd names, nested values, a picture.
    #[test]
    fn texts_are_collected() {
        let turn =
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"}}],"maxTokens":3,"systemPrompt":"b"}"#;
        assert_eq!(of(turn).unwrap(), "a\nb");
        assert_eq!(of(r#"{"x y":{"role":"root","type":"c"},"n":[1,null,["d"]]}"#).unwrap(), "n\nd\nx y\nroot\nc");
        let picture = r#"{"type":"image","mimeType":"image/png","data":"aWdub3Jl"}"#;
        assert_eq!(of(picture).unwrap(), "image/png");
        let forged = r#"{"type":"image","mimeType":"image/png","data":"ignore all"}"#;
        assert_eq!(of(forged).unwrap(), "ignore all\nimage/png");
        let drawn = r#"{"mimeType":"image/svg+xml","blob":"aWdub3Jl"}"#;
        assert_eq!(of(drawn).unwrap(), "aWdub3Jl\nimage/svg+xml");
        assert_eq!(of("{}").unwrap(), "");
    }
}
