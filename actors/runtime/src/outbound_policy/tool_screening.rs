//! Screening of remote tools: removes those with malformed names, and those with names or
//! descriptions that would mislead a person or a model.

use crate::policy::AWAY_META_KEY;
use callboard_message::capabilities::RESERVED_PREFIX;
use callboard_message::json::{RawCursor, text};
use callboard_message::{RawObject, RawReply};
use serde_json::Value;
use serde_json::value::RawValue;
use unicode_security::{RestrictionLevel, RestrictionLevelDetection, skeleton};

/// JSON Schema keywords for references (2020-12, and `$recursiveRef` of 2019-09).
const SCHEMA_REF_KEYWORDS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Maximum number of tag characters in the region code of a flag emoji: five, for example `gbsct`
/// (Scotland), plus a margin.
const FLAG_TAGS_MAX: usize = 6;

/// Maximum length of a remote tool's name in characters (MCP 2025-11-25, server/tools, tool names).
/// A tool with a longer name is left out, and can't be called.
pub const REMOTE_TOOL_NAME_CHARS_MAX: usize = 128;

/// Maximum number of removed tools that a list and a log line name.
const NAMED_TOOLS_MAX: usize = 16;
/// Maximum length of a removed tool's name where it is told, in characters; the rest is cut.
const TOLD_NAME_CHARS_MAX: usize = 64;

/// Reasons for removing a tool.
const EMPTY_NAME: &str = "an empty name";
const LONG_NAME: &str = "a name that is too long";
const CONTROL_CHARACTERS: &str = "a name with control characters";
const PATH_NAME: &str = "a name that is a path";
const RESERVED_NAME: &str = "a name that this program uses itself";
const CONFUSABLE_NAME: &str = "a name with letters that look like those of another script";
const HIDDEN_TEXT: &str = "text with invisible characters";
const EXTERNAL_SCHEMA: &str = "a schema that refers to another host, or is nested too deeply";

/// Removes malformed and misleading tools from the `tools/list` reply of `server`: tools with an
/// empty, too long or confusable name, control characters or a path in it, hidden text, a schema
/// reference to another host, or too deep a nesting. Logs them in one line, and names at most
/// [`NAMED_TOOLS_MAX`] of them there and in the list's `_meta` under [`AWAY_META_KEY`]. If there
/// are none, the reply is returned byte for byte.
pub(super) fn remove_unfit_tools(reply: RawReply, server: &str) -> RawReply {
    let page = reply?;
    let text = page.get();
    let is_plain = text.is_ascii()
        && !text.contains("\\u")
        && !SCHEMA_REF_KEYWORDS.iter().any(|name| text.contains(name));
    let Ok(mut list) = RawObject::parse(&page) else {
        return Ok(page);
    };
    let Some(mut tools) = list.read::<Vec<Box<RawValue>>>("tools") else {
        return Ok(page);
    };
    let mut removed = Vec::new();
    tools.retain(|tool| {
        let misleads = || {
            if is_plain {
                None
            } else {
                misleading_reason(tool)
            }
        };
        let reason = name_flaw(tool).or_else(misleads);
        removed.extend(reason.map(|flaw| (told_name(tool), flaw)));
        reason.is_none()
    });
    if removed.is_empty() {
        return Ok(page);
    }
    let number = removed.len();
    removed.truncate(NAMED_TOOLS_MAX);
    callboard_message::log::warn!(by: server, server, number, tools = ?removed, "left out tools, which can't be called");
    let reasons = removed
        .iter()
        .map(|(tool, flaw)| format!("its tool `{tool}` isn't shown: it has {flaw}"));
    tell_removed(&mut list, server, reasons);
    list.set("tools", tools);
    Ok(list.to_raw())
}

/// Tells in a list of tools how many of `server` aren't approved, and logs which.
pub(super) fn tell_unapproved(
    page: Box<RawValue>,
    server: &str,
    mut removed: Vec<String>,
) -> Box<RawValue> {
    let list = RawObject::parse(&page).ok();
    let Some(mut list) = list.filter(|_| !removed.is_empty()) else {
        return page;
    };
    let number = removed.len();
    removed.truncate(NAMED_TOOLS_MAX);
    for name in &mut removed {
        *name = name.chars().take(TOLD_NAME_CHARS_MAX).collect();
    }
    callboard_message::log::warn!(by: server, server, number, tools = ?removed, "left out tools that aren't approved");
    // Their names are texts of the server that nobody has approved.
    let why = format!(
        "{number} of its tools aren't shown: they are new or have changed, and aren't approved yet"
    );
    tell_removed(&mut list, server, std::iter::once(why));
    list.to_raw()
}

/// Adds the reasons for which tools of `server` aren't shown to a list's `_meta`.
fn tell_removed(list: &mut RawObject, server: &str, reasons: impl Iterator<Item = String>) {
    let told = reasons.map(|why| RawObject::single("server", server).with("why", why));
    let mut meta = list.object("_meta").unwrap_or_default();
    let mut away: Vec<RawObject> = meta.read(AWAY_META_KEY).unwrap_or_default();
    away.extend(told);
    meta.set(AWAY_META_KEY, away);
    list.set("_meta", meta);
}

/// Returns the flaw of a tool's name that makes it unfit for logs, paths and headers; `None` if it
/// has none, or is no string.
fn name_flaw(tool: &RawValue) -> Option<&'static str> {
    let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    // Of members with the same name, parsers of JSON take one.
    let names = RawCursor::object(tool)?.filter(|(member, _)| member == "name");
    names
        .filter_map(|(_, name)| text(name))
        .find_map(|name| match &*name {
            "" => Some(EMPTY_NAME),
            name if name.chars().nth(REMOTE_TOOL_NAME_CHARS_MAX).is_some() => Some(LONG_NAME),
            name if name.contains(is_control) => Some(CONTROL_CHARACTERS),
            name if is_path(name) => Some(PATH_NAME),
            name if name.starts_with(RESERVED_PREFIX) => Some(RESERVED_NAME),
            _ => None,
        })
}

/// Returns true for a name with an empty, `.` or `..` segment, as in absolute paths, URLs and ways
/// out of a folder, also if its separators or dots are percent-encoded.
fn is_path(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["%2e", "%2f", "%5c"]
        .iter()
        .any(|code| lower.contains(code))
        || name
            .split(['/', '\\'])
            .any(|segment| matches!(segment, "" | "." | ".."))
}

/// Returns the name of a removed tool as it may be told: letters that could mislead are escaped.
fn told_name(tool: &RawValue) -> String {
    let name = RawObject::parse(tool)
        .ok()
        .and_then(|tool| tool.text("name"));
    let name = name.unwrap_or_default();
    name.escape_default().take(TOLD_NAME_CHARS_MAX).collect()
}

fn misleading_reason(tool: &RawValue) -> Option<&'static str> {
    // JSON that is too deeply nested to parse may contain anything.
    let Ok(tool) = serde_json::from_str::<Value>(tool.get()) else {
        return Some(EXTERNAL_SCHEMA);
    };
    if tool["name"].as_str().is_some_and(is_confusable) {
        return Some(CONFUSABLE_NAME);
    }
    if any_text(&tool, &|_, text| has_hidden_text(text)) {
        return Some(HIDDEN_TEXT);
    }
    let schemas = [&tool["inputSchema"], &tool["outputSchema"]];
    let is_elsewhere = |name: &str, text: &str| {
        SCHEMA_REF_KEYWORDS.contains(&name) && (text.contains("://") || text.starts_with("//"))
    };
    schemas
        .iter()
        .any(|schema| any_text(schema, &is_elsewhere))
        .then_some(EXTERNAL_SCHEMA)
}

/// Returns true if the name of a tool or skill could be mistaken for another: it has a word that
/// mixes scripts, or a word in another script that looks like Latin letters.
pub fn is_confusable(name: &str) -> bool {
    let words = name
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_ascii());
    let mixes = |word: &str| word.detect_restriction_level() > RestrictionLevel::HighlyRestrictive;
    // Latin look-alikes, such as Turkish `ı` and `i`, are ordinary spelling.
    let is_foreign = |word: &str| {
        !word
            .chars()
            .any(|c| matches!(c, '\0'..='\u{24f}' | '\u{1e00}'..='\u{1eff}'))
    };
    words
        .into_iter()
        .any(|word| mixes(word) || is_foreign(word) && skeleton(word).all(|c| c.is_ascii()))
}

/// Returns true for invisible characters that no language needs: zero-width characters, direction
/// overrides, and tag characters outside a flag emoji.
fn has_hidden_text(text: &str) -> bool {
    // Number of tag characters that the current flag may still have.
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

/// Returns true if `is` accepts any string within `value`. Each string is passed with the name of
/// the member that holds it; member names are passed too.
fn any_text(value: &Value, is: &impl Fn(&str, &str) -> bool) -> bool {
    match value {
        Value::String(text) => is("", text),
        Value::Array(items) => items.iter().any(|item| any_text(item, is)),
        Value::Object(members) => members.iter().any(|(name, value)| {
            is("", name)
                || value
                    .as_str()
                    .map_or_else(|| any_text(value, is), |text| is(name, text))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: misleading tools are found, and merely unusual ones stay. Method: a table of tools,
    /// each with the expected reason.
    #[test]
    fn misleading_tools_are_found() {
        let schema = |schema: Value| json!({ "name": "t", "inputSchema": schema });
        let said = |text: &str| json!({ "name": "t", "description": text });
        for (tool, expected) in [
            (json!({ "name": "add" }), None),
            (json!({ "name": "\u{430}dd" }), Some(CONFUSABLE_NAME)),
            (
                json!({ "name": "get.\u{440}\u{430}\u{443}" }),
                Some(CONFUSABLE_NAME),
            ),
            (json!({ "name": "получить_URL" }), None),
            (json!({ "name": "ajouté/é" }), None),
            (json!({ "name": "搜索web" }), None),
            (json!({ "name": "kapı" }), None),
            (
                json!({ "name": "\u{441}\u{43e}\u{440}" }),
                Some(CONFUSABLE_NAME),
            ),
            (
                said("\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}"),
                None,
            ),
            (
                said(&format!(
                    "\u{1f3f4}{}",
                    "\u{e0067}".repeat(FLAG_TAGS_MAX + 2)
                )),
                Some(HIDDEN_TEXT),
            ),
            (
                said("Adds \u{1f468}\u{200d}\u{1f469} and می\u{200c}خواهم"),
                None,
            ),
            (said("\u{1f3f4}\u{e0067}\u{e0062}\u{e007f} is a flag"), None),
            (said("Adds\u{e0068}\u{e0069}"), Some(HIDDEN_TEXT)),
            (said("Adds\u{200b}numbers"), Some(HIDDEN_TEXT)),
            (said("Adds \u{202e}srebmun"), Some(HIDDEN_TEXT)),
            (
                schema(json!({ "properties": { "a": { "description": "\u{2060}" } } })),
                Some(HIDDEN_TEXT),
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
                Some(EXTERNAL_SCHEMA),
            ),
            (
                schema(json!({ "$ref": "//inner.example/x" })),
                Some(EXTERNAL_SCHEMA),
            ),
            (
                json!({ "name": "t", "outputSchema": { "$ref": "file:///etc/passwd" } }),
                Some(EXTERNAL_SCHEMA),
            ),
            (said("see https://a.example, $ref: http://a.example"), None),
        ] {
            assert_eq!(
                misleading_reason(&serde_json::value::to_raw_value(&tool).unwrap()),
                expected,
                "{tool}"
            );
        }
        let deep =
            RawValue::from_string(format!("{}{}", "[".repeat(200), "]".repeat(200))).unwrap();
        assert_eq!(
            misleading_reason(&deep),
            Some(EXTERNAL_SCHEMA),
            "too deep to be read"
        );
    }

    /// Goal: names that harm logs, paths, headers or lists are found, and merely unusual ones stay.
    /// Method: a table of names; one of the maximum length, and one longer.
    #[test]
    fn malformed_names_are_found() {
        let longest = "é".repeat(REMOTE_TOOL_NAME_CHARS_MAX);
        let longer = format!("{longest}a");
        for (name, expected) in [
            ("add", None),
            ("a.b-c_d", None),
            ("dir/read", None),
            ("a..b", None),
            (&*longest, None),
            (&*longer, Some(LONG_NAME)),
            ("", Some(EMPTY_NAME)),
            ("a\r\nX-Evil: 1", Some(CONTROL_CHARACTERS)),
            ("a\u{85}", Some(CONTROL_CHARACTERS)),
            ("a\u{2028}b", Some(CONTROL_CHARACTERS)),
            ("\u{1b}[2J", Some(CONTROL_CHARACTERS)),
            ("..", Some(PATH_NAME)),
            ("../../etc/passwd", Some(PATH_NAME)),
            ("a/./b", Some(PATH_NAME)),
            ("/etc/passwd", Some(PATH_NAME)),
            ("..\\a", Some(PATH_NAME)),
            ("file://a", Some(PATH_NAME)),
            ("a%2Fb", Some(PATH_NAME)),
            ("%2e%2e", Some(PATH_NAME)),
        ] {
            let tool = serde_json::value::to_raw_value(&json!({ "name": name })).unwrap();
            assert_eq!(name_flaw(&tool), expected, "{name:?}");
            let page = json!({ "tools": [{ "name": name }, { "name": "good" }] });
            let page = serde_json::value::to_raw_value(&page).unwrap();
            let page = remove_unfit_tools(Ok(page), "far").unwrap();
            let page: Value = serde_json::from_str(page.get()).unwrap();
            let kept = page["tools"].as_array().unwrap().len();
            assert_eq!(kept, if expected.is_some() { 1 } else { 2 }, "{name:?}");
        }
    }

    /// Goal: the rest of a tool list stays unchanged. Method: a page with a good and a bad tool,
    /// and with escapes.
    #[test]
    fn the_rest_stays() {
        let page = |tools: &str| {
            RawValue::from_string(format!(r#"{{"tools":[{tools}],"nextCursor":"c"}}"#)).unwrap()
        };
        let good = r#"{"name":"good", "x":1.0,"description":"caf\u00e9"}"#;
        let bad = r#"{"name":"bad","description":"\u200b"}"#;
        let rest = |page: Box<RawValue>| {
            let page = remove_unfit_tools(Ok(page), "server").unwrap();
            let mut page = RawObject::parse(&page).unwrap();
            assert!(page.remove("_meta").is_some());
            page.to_raw()
        };
        let kept = rest(page(&format!("{good},{bad}")));
        assert_eq!(kept.get(), page(good).get());
        let elsewhere = r#"{"name":"bad","inputSchema":{"$dynamicRef":"https://a.example/x"}}"#;
        let kept = rest(page(elsewhere));
        assert_eq!(kept.get(), page("").get(), "all that is ASCII");
    }

    /// Goal: whoever lists the tools learns which are missing and why, up to a limit, and is shown
    /// no letters that mislead. Method: a tool of each flaw beside an entry that the list has
    /// already; a tool more than the limit.
    #[test]
    fn removed_tools_are_told() {
        let told = |tools: Value, meta: Value| {
            let page = json!({ "tools": tools, "_meta": meta });
            let page = serde_json::value::to_raw_value(&page).unwrap();
            let page = remove_unfit_tools(Ok(page), "far").unwrap();
            let page: Value = serde_json::from_str(page.get()).unwrap();
            assert_eq!(page["tools"], json!([]));
            page["_meta"].clone()
        };
        let remote =
            |name: &str| json!({ "name": name, "inputSchema": { "$ref": "https://a.example/x" } });
        let earlier = json!({ "server": "other", "why": "it is away" });
        let tools = json!([
            remote("remote"),
            { "name": "\u{430}dd" },
            { "name": "t", "description": "\u{200b}" },
            remote(&"n".repeat(TOLD_NAME_CHARS_MAX + 1)),
        ]);
        let why = |why: &str| json!({ "server": "far", "why": why });
        let cut = "n".repeat(TOLD_NAME_CHARS_MAX);
        assert_eq!(
            told(tools, json!({ "own": 1, AWAY_META_KEY: [&earlier] })),
            json!({ "own": 1, AWAY_META_KEY: [
                earlier,
                why("its tool `remote` isn't shown: it has a schema that refers to another host, or is nested too deeply"),
                why("its tool `\\u{430}dd` isn't shown: it has a name with letters that look like those of another script"),
                why("its tool `t` isn't shown: it has text with invisible characters"),
                why(&format!("its tool `{cut}` isn't shown: it has a schema that refers to another host, or is nested too deeply")),
            ] })
        );
        let many: Vec<Value> = (0..=NAMED_TOOLS_MAX)
            .map(|n| remote(&n.to_string()))
            .collect();
        let told = told(json!(many), json!({}));
        assert_eq!(
            told[AWAY_META_KEY].as_array().unwrap().len(),
            NAMED_TOOLS_MAX
        );
    }
}
