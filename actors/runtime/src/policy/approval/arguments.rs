//! Arguments of a use as an approver reads them, in one form for all texts with the same meaning.

use callboard_message::capabilities::SOURCE_MESSAGE_META_KEY;
use callboard_message::text::is_invisible;
use serde_json::Value;
use serde_json::value::RawValue;

/// Members of a conversation that are other ones in each message.
const MESSAGE_IDS: [&str; 3] = ["key", "context", "task"];
/// Members of `_meta` that are other ones in each call, or concern only the connection to the caller.
const CALL_IDS: [&str; 4] = ["progressToken", "traceparent", "tracestate", "baggage"];
/// Beginnings of the names of members of `_meta` that the protocols define.
const PROTOCOL_PREFIXES: [&str; 2] = ["io.modelcontextprotocol/", "callboard/"];
/// Number of digits from which a number may not be exact when it is read and written again.
const EXACT_DIGITS_MAX: usize = 15;

/// Use of a tool that needs an approval.
pub(crate) struct ToolUse<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// Name of the tool.
    pub tool: &'a str,
    /// Arguments as an approver reads them.
    pub arguments: String,
}

/// Returns the arguments of a message as they are shown and compared: members in order, without spaces, texts
/// without escapes that hide their letters. `arguments` are those of a tool, if they are known; else they are in the
/// payload. Further members of the payload's `_meta` follow, because the tool gets them too.
pub(crate) fn shown_arguments(payload: &RawValue, arguments: Option<&RawValue>) -> String {
    let is_known = |arguments: &&RawValue| arguments.get() != RawValue::NULL.get();
    let Some(arguments) = arguments.filter(is_known) else {
        return without_ids(payload);
    };
    let text = canonical(arguments.get());
    let payload: Value = serde_json::from_str(payload.get()).unwrap_or_default();
    // A message that is itself the arguments has no other members.
    let is_call = payload["name"].is_string() && payload.get("arguments").is_some();
    let meta = payload["_meta"].as_object().filter(|_| is_call);
    let others: serde_json::Map<_, _> = meta
        .into_iter()
        .flatten()
        .filter(|(name, _)| !is_of_call(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    match others.is_empty() {
        true => text,
        false => format!("{text} _meta: {}", Value::Object(others)),
    }
}

fn is_of_call(name: &str) -> bool {
    let mut prefixes = PROTOCOL_PREFIXES.iter();
    CALL_IDS.contains(&name) || prefixes.any(|prefix| name.starts_with(prefix))
}

/// Returns a message without the ids that are other ones in each message.
fn without_ids(payload: &RawValue) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(payload.get()) else {
        return payload.get().to_owned();
    };
    if !is_exact(payload.get()) {
        return payload.get().to_owned();
    }
    remove_ids(&mut value);
    if let Some(meta) = value.get_mut("_meta").and_then(Value::as_object_mut) {
        if let Some(source) = meta.get_mut(SOURCE_MESSAGE_META_KEY) {
            remove_ids(source);
        }
        meta.retain(|name, _| name == SOURCE_MESSAGE_META_KEY || !is_of_call(name));
    }
    value.to_string()
}

fn remove_ids(value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, _| !MESSAGE_IDS.contains(&name.as_str()));
    }
}

/// Returns a JSON text with members in order, without spaces and needless escapes; unchanged if it has numbers that
/// would not stay exact.
fn canonical(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if is_exact(text) => value.to_string(),
        _ => text.to_owned(),
    }
}

/// Returns whether each number in a JSON text has few enough digits to stay exact.
fn is_exact(text: &str) -> bool {
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    let mut numbers = text.split(|c: char| !is_of_number(c));
    numbers.all(|number| {
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        digits <= EXACT_DIGITS_MAX && !(digits > 0 && number.contains(['e', 'E']))
    })
}

/// Returns what an approver reads: requester, agent, tool, purpose and all of the arguments.
pub(super) fn describe(requester: &str, purpose: &str, used: &ToolUse<'_>) -> String {
    let purpose = match purpose {
        "" => String::new(),
        purpose => format!(" for the purpose {purpose}"),
    };
    visible(&format!(
        "{requester} wants to run the tool {} of {}{purpose} with these arguments: {}",
        used.tool, used.agent, used.arguments
    ))
}

/// Returns a text in which control and invisible characters, and blanks other than a space, are escaped.
pub fn visible(text: &str) -> String {
    let is_hidden = |c: char| {
        let is_blank = c.is_whitespace() && c != ' ';
        c.is_control() || is_blank || is_invisible(c) || matches!(c, '\u{2800}' | '\u{3164}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    /// Goal: texts with the same meaning are one, what a tool gets is shown, and ids that change aren't. Method: rows of
    /// payloads and arguments.
    #[test]
    fn one_form() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let none = raw("{}");
        for (arguments, expected) in [
            (r#"{ "b" : 1, "a":2 }"#, r#"{"a":2,"b":1}"#),
            (r#"{"path":"\u002fetc"}"#, r#"{"path":"/etc"}"#),
            (
                r#"{"n":12345678901234567890 }"#,
                r#"{"n":12345678901234567890 }"#,
            ),
            (r#"{"n": 1e400}"#, r#"{"n": 1e400}"#),
            (r#"{"n": 1.5}"#, r#"{"n":1.5}"#),
        ] {
            assert_eq!(shown_arguments(&none, Some(&raw(arguments))), expected);
        }
        let call = |meta: Value| {
            let call = json!({ "name": "t", "arguments": {}, "_meta": meta });
            shown_arguments(&to_raw_value(&call).unwrap(), Some(&none))
        };
        assert_eq!(
            call(json!({ "traceparent": "x", "callboard/purpose": "p" })),
            "{}"
        );
        assert_eq!(
            call(json!({ "vendor/mode": "all", "tracestate": "x" })),
            r#"{} _meta: {"vendor/mode":"all"}"#
        );
        let said = |key: &str| json!({ "content": ["x"], "key": key, "context": key, "task": key });
        let conversation = to_raw_value(&said("k")).unwrap();
        assert_eq!(shown_arguments(&conversation, None), r#"{"content":["x"]}"#);
        let message = json!({ "name": "t", "arguments": {}, "_meta": { SOURCE_MESSAGE_META_KEY: said("k") } });
        let shown = shown_arguments(&to_raw_value(&message).unwrap(), Some(RawValue::NULL));
        assert!(
            shown.contains("content") && !shown.contains("\"k\""),
            "{shown}"
        );
    }
}
