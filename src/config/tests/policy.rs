//! Tests of the rules about who may use what in topologies.

use std::path::Path;
use std::time::Duration;

use callboard_guardrail::DetectorOptions;

use super::{NODE, told};
use crate::config::{PolicyDeclaration, Topology};

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

/// Goal: the detector is an agent of the file, with a time limit and a setting for its absence.
/// Method: the default, all keys, and an unknown agent.
#[test]
fn detectors() {
    let options = |keys: &str| {
        let text = format!(
            "{NODE}[policy]\n{keys}\n[[upstream]]\nid = \"classifier\"\nurl = \"https://c.example/mcp\"\n"
        );
        let topology =
            Topology::parse(&text, false, Path::new("")).map_err(|_| told(&text, false))?;
        Ok::<_, Vec<String>>(
            topology
                .section::<PolicyDeclaration>()
                .unwrap()
                .detector_options(),
        )
    };
    assert_eq!(options("guard = true"), Ok(None));
    let default = DetectorOptions::new("classifier");
    assert_eq!(
        options("detector = \"classifier\""),
        Ok(Some(default.clone()))
    );
    let all = "detector = \"classifier\"\ndetector_timeout_ms = 300\ndetector_required = false";
    let expected = DetectorOptions {
        timeout: Duration::from_millis(300),
        is_required: false,
        ..default
    };
    assert_eq!(options(all), Ok(Some(expected)));
    let unknown = options("detector = \"clasifier\"").unwrap_err();
    assert!(
        unknown[0].contains("there is no agent clasifier to judge texts"),
        "{unknown:?}"
    );
}
