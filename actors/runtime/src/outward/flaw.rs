//! Tools that aren't what they look like: whoever reads their description, a person or a model, would be misled.

use callboard_message::{RawObject, RawReply};
use serde_json::Value;
use serde_json::value::RawValue;
use unicode_security::{RestrictionLevel, RestrictionLevelDetection, skeleton};

/// What a schema says where it goes on elsewhere (JSON Schema 2020-12, and `$recursiveRef` of 2019-09).
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Longest name of a flag's region in tag characters: `gbsct`, with some to spare.
const FLAG_TAGS_MAX: usize = 6;

/// What makes a tool mislead.
const NAME: &str = "a name in letters that look like others";
const HIDDEN: &str = "text that can't be seen";
const ELSEWHERE: &str = "a schema that is elsewhere";

/// The reply to `tools/list` without flawed tools; the others stay byte for byte.
pub(super) fn without_flawed(reply: RawReply, server: &str) -> RawReply {
    let page = reply?;
    let is_plain = page.get().is_ascii() && !page.get().contains("\\u");
    if is_plain && !REFERENCES.iter().any(|name| page.get().contains(name)) {
        return Ok(page);
    }
    let Ok(list) = RawObject::parse(&page) else {
        return Ok(page);
    };
    let Some(mut tools) = list.read::<Vec<Box<RawValue>>>("tools") else {
        return Ok(page);
    };
    let before = tools.len();
    tools.retain(|tool| match flaw(tool) {
        Some(flaw) => {
            callboard_message::log::warn!(by: server, server, flaw, "a tool is left out");
            false
        }
        None => true,
    });
    Ok(if tools.len() == before {
        page
    } else {
        list.with("tools", tools).to_raw()
    })
}

fn flaw(tool: &RawValue) -> Option<&'static str> {
    // What can't be read, for it is too deep, may say anything.
    let Ok(tool) = serde_json::from_str::<Value>(tool.get()) else {
        return Some(ELSEWHERE);
    };
    if tool["name"].as_str().is_some_and(is_disguised) {
        return Some(NAME);
    }
    if any(&tool, &|_, text| hides(text)) {
        return Some(HIDDEN);
    }
    let schemas = [&tool["inputSchema"], &tool["outputSchema"]];
    let is_elsewhere = |name: &str, text: &str| {
        REFERENCES.contains(&name) && (text.contains("://") || text.starts_with("//"))
    };
    schemas
        .iter()
        .any(|schema| any(schema, &is_elsewhere))
        .then_some(ELSEWHERE)
}

/// Whether a name of a tool or a skill could be taken for another: a word that mixes scripts, or one of another script that looks
/// like Latin letters.
pub fn is_disguised(name: &str) -> bool {
    let words = name
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_ascii());
    let mixes = |word: &str| word.detect_restriction_level() > RestrictionLevel::HighlyRestrictive;
    // Latin letters that look alike, as Turkish `ı` and `i`, are how a word is written.
    let is_foreign = |word: &str| {
        !word
            .chars()
            .any(|c| matches!(c, '\0'..='\u{24f}' | '\u{1e00}'..='\u{1eff}'))
    };
    words
        .into_iter()
        .any(|word| mixes(word) || is_foreign(word) && skeleton(word).all(|c| c.is_ascii()))
}

/// Whether a text has characters that nobody sees and no language needs: zero width, turned direction, tags that are no flag's.
fn hides(text: &str) -> bool {
    // Behind a flag: how many tags it may still have.
    let mut of_flag = 0;
    text.chars().any(|c| match c {
        '\u{1f3f4}' => {
            of_flag = FLAG_TAGS_MAX + 1;
            false
        }
        '\u{e0000}'..='\u{e007f}' => {
            let is_hidden = of_flag == 0;
            of_flag = if c == '\u{e007f}' { 0 } else { of_flag.saturating_sub(1) };
            is_hidden
        }
        _ => {
            of_flag = 0;
            matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}' | '\u{2060}'..='\u{2064}')
                || matches!(c, '\u{feff}' | '\u{180e}')
        }
    })
}

/// Whether a text below `value` is one that `is`, which is given the name of its member too; names are texts as well.
fn any(value: &Value, is: &impl Fn(&str, &str) -> bool) -> bool {
    match value {
        Value::String(text) => is("", text),
        Value::Array(items) => items.iter().any(|item| any(item, is)),
        Value::Object(members) => members.iter().any(|(name, value)| {
            is("", name)
                || value
                    .as_str()
                    .map_or_else(|| any(value, is), |text| is(name, text))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: what misleads is left out, and what only looks odd stays. Method: rows of tools, each with what is wrong.
    #[test]
    fn misleading_tools_are_found() {
        let schema = |schema: Value| json!({ "name": "t", "inputSchema": schema });
        let said = |text: &str| json!({ "name": "t", "description": text });
        for (tool, expected) in [
            (json!({ "name": "add" }), None),
            (json!({ "name": "\u{430}dd" }), Some(NAME)),
            (json!({ "name": "get.\u{440}\u{430}\u{443}" }), Some(NAME)),
            (json!({ "name": "получить_URL" }), None),
            (json!({ "name": "ajouté/é" }), None),
            (json!({ "name": "搜索web" }), None),
            (json!({ "name": "kapı" }), None),
            (json!({ "name": "\u{441}\u{43e}\u{440}" }), Some(NAME)),
            (
                said("\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}"),
                None,
            ),
            (
                said(&format!(
                    "\u{1f3f4}{}",
                    "\u{e0067}".repeat(FLAG_TAGS_MAX + 2)
                )),
                Some(HIDDEN),
            ),
            (
                said("Adds \u{1f468}\u{200d}\u{1f469} and می\u{200c}خواهم"),
                None,
            ),
            (said("\u{1f3f4}\u{e0067}\u{e0062}\u{e007f} is a flag"), None),
            (said("Adds\u{e0068}\u{e0069}"), Some(HIDDEN)),
            (said("Adds\u{200b}numbers"), Some(HIDDEN)),
            (said("Adds \u{202e}srebmun"), Some(HIDDEN)),
            (
                schema(json!({ "properties": { "a": { "description": "\u{2060}" } } })),
                Some(HIDDEN),
            ),
            (
                schema(json!({ "properties": { "a": { "$ref": "#/$defs/a" } } })),
                None,
            ),
            (
                schema(json!({ "properties": { "$ref": { "type": "string" } } })),
                None,
            ),
            (
                schema(json!({ "anyOf": [{ "$ref": "http://169.254.169.254/x" }] })),
                Some(ELSEWHERE),
            ),
            (
                schema(json!({ "$ref": "//inner.example/x" })),
                Some(ELSEWHERE),
            ),
            (
                json!({ "name": "t", "outputSchema": { "$ref": "file:///etc/passwd" } }),
                Some(ELSEWHERE),
            ),
            (said("see https://a.example, $ref: http://a.example"), None),
        ] {
            assert_eq!(
                flaw(&serde_json::value::to_raw_value(&tool).unwrap()),
                expected,
                "{tool}"
            );
        }
        let deep =
            RawValue::from_string(format!("{}{}", "[".repeat(200), "]".repeat(200))).unwrap();
        assert_eq!(flaw(&deep), Some(ELSEWHERE), "too deep to be read");
    }

    /// Goal: the rest of a list stays as it was. Method: a page with one of each, and escapes.
    #[test]
    fn the_rest_stays() {
        let page = |tools: &str| {
            RawValue::from_string(format!(r#"{{"tools":[{tools}],"nextCursor":"c"}}"#)).unwrap()
        };
        let good = r#"{"name":"good", "x":1.0,"description":"caf\u00e9"}"#;
        let bad = r#"{"name":"bad","description":"\u200b"}"#;
        let kept = without_flawed(Ok(page(&format!("{good},{bad}"))), "server").unwrap();
        assert_eq!(kept.get(), page(good).get());
        let elsewhere = r#"{"name":"bad","inputSchema":{"$dynamicRef":"https://a.example/x"}}"#;
        let kept = without_flawed(Ok(page(elsewhere)), "server").unwrap();
        assert_eq!(kept.get(), page("").get(), "all that is ASCII");
    }
}
