//! JSON values inside of an answer's text.

use serde_json::{Deserializer, Value};

use super::statements::{has_echo, is_bare};

/// Maximum number of brackets in a text that begin no JSON value. After these, the rest is read as
/// plain text.
const FAILED_BRACKETS_MAX: usize = 8;

/// Splits a text into the JSON values in it and the text around them. A value without names, such as
/// `[1]`, and one with an echo of the request stay in the text.
pub(super) fn split_json(text: &str) -> (Vec<Value>, String) {
    let (mut values, mut around) = (Vec::new(), String::new());
    let (mut at, mut copied, mut failed) = (0, 0, 0);
    while failed < FAILED_BRACKETS_MAX
        && let Some(start) = memchr::memchr2(b'{', b'[', &text.as_bytes()[at..]).map(|n| at + n)
    {
        let mut stream = Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) if !is_bare(&value) && !has_echo(&value) => {
                around.push_str(&text[copied..start]);
                around.push('\n');
                at = start + stream.byte_offset();
                copied = at;
                values.push(value);
            }
            _ => {
                at = start + 1;
                failed += 1;
            }
        }
    }
    around.push_str(&text[copied..]);
    (values, around)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: JSON values are told from other brackets. Method: a table of values and rest.
    #[test]
    fn values_in_text() {
        for (text, count, rest) in [
            (
                r#"Found: {"name": "Losartan", "dose": 50}."#,
                1,
                "Found: \n.",
            ),
            (r#"[{"a": "b"}] and {"c": "d"}"#, 2, "\n and \n"),
            ("Losartan [1] 50 mg {oral}", 0, "Losartan [1] 50 mg {oral}"),
            (r#"{"query": "losartan"}"#, 0, r#"{"query": "losartan"}"#),
            ("{{{{{{{{{{", 0, "{{{{{{{{{{"),
        ] {
            let (values, around) = split_json(text);
            assert_eq!((values.len(), around.as_str()), (count, rest), "{text}");
        }
    }
}
