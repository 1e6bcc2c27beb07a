//! Tests of the rules about who may use what in topologies.

use super::{NODE, told};

/// Goal: a mistake in a rule about who may use what names the rule. Method: rows of rules, after one without a
/// mistake.
#[test]
fn mistakes_in_rules() {
    let first = "[[policy.rules]]\nid = \"first\"\neffect = \"allow\"\n";
    let upstream = "[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\n";
    for (rule, expected) in [
        ("id = \"second\"\nagents = [\"a\", \"b*\"]", None),
        ("id = \"first\"", Some("the rule `first`: `id` must")),
        (
            "id = \"second\"\nagents = [\"b\"]",
            Some("the rule `second`: no agent or upstream is called b"),
        ),
        (
            "id = \"second\"\nwhen = [{ argument = \"x\" }]",
            Some("the rule `second`: each condition"),
        ),
    ] {
        let text = format!("{NODE}{first}[[policy.rules]]\neffect = \"deny\"\n{rule}\n{upstream}");
        let told = told(&text, false);
        let found = told.iter().find(|line| line.contains("the rule"));
        match expected {
            None => assert_eq!(found, None, "{rule}"),
            Some(expected) => assert!(found.unwrap().contains(expected), "{rule} {told:?}"),
        }
    }
}
