//! Arguments of a use as an approver reads them, in one form for all texts with the same meaning.

use callboard_message::Message as _;
use callboard_message::capabilities::{CallTool, SOURCE_MESSAGE_META_KEY};
use callboard_message::text::is_invisible;
use serde_json::Value;
use serde_json::value::RawValue;

/// Members of a conversation that are other ones in each message. Its context is no such member: the same words are
/// another matter in another conversation.
const MESSAGE_IDS: [&str; 2] = ["key", "task"];
/// Members of a call that are shown apart, or concern only how it is answered.
const CALL_MEMBERS: [&str; 5] = [
    "name",
    "arguments",
    "task",
    "inputResponses",
    "requestState",
];
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
/// payload. What else the payload of a call has follows, because the tool gets it too.
pub(crate) fn shown_arguments(
    message: &str,
    payload: &RawValue,
    arguments: Option<&RawValue>,
) -> String {
    let is_known = |arguments: &&RawValue| arguments.get() != RawValue::NULL.get();
    let Some(arguments) = arguments.filter(is_known) else {
        return without_ids(payload);
    };
    let text = canonical(arguments.get());
    if message != CallTool::NAME {
        return text;
    }
    let payload: Value = serde_json::from_str(payload.get()).unwrap_or_default();
    let mut others = payload.as_object().cloned().unwrap_or_default();
    others.retain(|name, _| !CALL_MEMBERS.contains(&name.as_str()));
    if let Some(meta) = others.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.retain(|name, _| !is_of_call(name));
    }
    others.retain(|_, value| value.as_object().is_none_or(|members| !members.is_empty()));
    match others.is_empty() {
        true => text,
        false => format!("{text} and {}", Value::Object(others)),
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
            let shown = shown_arguments("pay", &none, Some(&raw(arguments)));
            assert_eq!(shown, expected);
        }
        let call = |call: Value| {
            let call = to_raw_value(&call).unwrap();
            shown_arguments(CallTool::NAME, &call, Some(&none))
        };
        let of_call = json!({ "traceparent": "x", "callboard/purpose": "p", "progressToken": 1 });
        let plain = json!({ "name": "t", "arguments": {}, "task": {}, "_meta": of_call });
        assert_eq!(call(plain), "{}");
        let vendor = json!({ "vendor/mode": "all", "tracestate": "x" });
        for (payload, expected) in [
            (
                json!({ "name": "t", "_meta": vendor }),
                r#"{} and {"_meta":{"vendor/mode":"all"}}"#,
            ),
            (
                json!({ "name": "t", "arguments": {}, "mode": "all" }),
                r#"{} and {"mode":"all"}"#,
            ),
        ] {
            assert_eq!(call(payload), expected);
        }
        let said = |key: &str| json!({ "content": ["x"], "key": key, "context": "c", "task": key });
        let conversation = to_raw_value(&said("k")).unwrap();
        let expected = r#"{"content":["x"],"context":"c"}"#;
        let null = Some(RawValue::NULL);
        let shown = shown_arguments("callboard.converse", &conversation, null);
        assert_eq!(shown, expected);
        let message = json!({ "name": "t", "arguments": {}, "_meta": { SOURCE_MESSAGE_META_KEY: said("k") } });
        let shown = shown_arguments(CallTool::NAME, &to_raw_value(&message).unwrap(), null);
        assert!(shown.contains(expected), "{shown}");
    }
}
