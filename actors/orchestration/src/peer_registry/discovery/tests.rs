//! Tests of discovery.

use serde_json::json;

use super::*;

/// Goal: destructive tools are recognized by their MCP annotations, with the default values,
/// but only tools that take a single text. Method: rows.
#[test]
fn hints_are_heard() {
    let text =
        json!({ "type": "object", "required": ["t"], "properties": { "t": { "type": "string" } } });
    let two = json!({ "type": "object", "required": ["t", "u"], "properties": {} });
    for (hints, schema, expect) in [
        (json!({}), &text, false),
        (json!({ "destructiveHint": true }), &text, true),
        (
            json!({ "destructiveHint": true, "readOnlyHint": false }),
            &text,
            true,
        ),
        (
            json!({ "destructiveHint": false, "readOnlyHint": false }),
            &text,
            false,
        ),
        (json!({ "readOnlyHint": false }), &text, true),
        (
            json!({ "destructiveHint": true, "readOnlyHint": true }),
            &text,
            false,
        ),
        (json!({ "destructiveHint": "yes" }), &text, false),
        (json!({ "destructiveHint": true }), &two, false),
    ] {
        let listed =
            json!({ "name": "drop", "annotations": hints, "inputSchema": schema, "tags": ["db"] });
        let listed: RawObject = serde_json::from_value(listed).unwrap();
        let tags =
            |skill: Option<SkillView>| skill.unwrap().tags.contains(&DESTRUCTIVE_TAG.to_owned());
        assert_eq!(tags(skill_of_bare_tool(&listed)), expect, "{hints}");
        assert!(
            !tags(skill_of_tool(&listed)),
            "who converses decides for itself"
        );
    }
}
