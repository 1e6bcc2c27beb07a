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

/// Goal: a rule that needs an approval is about tools, and says who approves only then. Method: rows, the longest
/// time and a minute more.
#[test]
fn mistakes_in_approvals() {
    for (rule, expected) in [
        ("effect = \"approve\"\ntools = [\"x\"]", None),
        (
            "effect = \"approve\"\napprovers = [\"role:a\"]\napproval_minutes = 43200",
            None,
        ),
        (
            "effect = \"approve\"\napprovers = [\"role:a\"]\napproval_minutes = 43201",
            Some("between 1 and 43200"),
        ),
        (
            "effect = \"approve\"\napprovers = [\"role:a\"]\napproval_minutes = 0",
            Some("between 1 and 43200"),
        ),
        (
            "effect = \"approve\"\napproval_minutes = 5",
            Some("needs `approvers`"),
        ),
        (
            "effect = \"allow\"\napprovers = [\"role:a\"]",
            Some("need `effect = \"approve\"`"),
        ),
        (
            "effect = \"approve\"\nresources = [\"x\"]",
            Some("leave out `resources`"),
        ),
        (
            "effect = \"approve\"\napprovers = [\"\"]",
            Some("a list may have at most"),
        ),
    ] {
        let text = format!("{NODE}[[policy.rules]]\nid = \"r\"\n{rule}\n");
        let told = told(&text, false);
        let found = told.iter().find(|line| line.contains("the rule"));
        match expected {
            None => assert_eq!(found, None, "{rule}"),
            Some(expected) => {
                let found = found.unwrap_or_else(|| panic!("{rule} {told:?}"));
                assert!(found.contains(expected), "{rule} {found}");
            }
        }
    }
}

/// Goal: a mistake in a quota is told with its id. Method: rows.
#[test]
fn mistakes_in_quotas() {
    let first = "[[policy.quotas]]\nid = \"first\"\nwindow = \"day\"\ncalls = 1\n";
    let upstream = "[[upstream]]\nid = \"a\"\nurl = \"http://x/\"\n";
    for (quota, expected) in [
        ("id = \"q\"\ncalls = 1\nagents = [\"a\", \"b*\"]", None),
        ("id = \"first\"\ncalls = 1", Some("the quota `first`")),
        ("id = \"q\"", Some("the quota `q`")),
        ("id = \"q\"\ntokens = 1", Some("the quota `q`")),
        (
            "id = \"q\"\ncalls = 1\nagents = [\"b\"]",
            Some("the quota `q`: no agent or upstream is called b"),
        ),
        (
            "id = \"q\"\ntokens = 1\nmodels = [\"a\"]",
            Some("the quota `q`: no model is called a"),
        ),
    ] {
        let text =
            format!("{NODE}{first}[[policy.quotas]]\nwindow = \"month\"\n{quota}\n{upstream}");
        let told = told(&text, false);
        let found = told.iter().find(|line| line.contains("the quota"));
        match expected {
            None => assert_eq!(found, None, "{quota}"),
            Some(expected) => {
                let found = found.unwrap_or_else(|| panic!("{quota} {told:?}"));
                assert!(found.contains(expected), "{quota} {found}");
            }
        }
    }
}
