//! Tests of renamed keys: the old name is accepted with a warning, and rejected beside the new one.

use std::path::Path;

use super::{NODE, told};
use crate::config::{AnonymousAccess, ServedProtocol, Topology};

/// Returns a topology with an upstream and the table `head` with `lines`.
fn with(head: &str, lines: &str) -> String {
    let upstream = "[[upstream]]\nid = \"a\"\n";
    match head {
        "[[upstream]]" => format!("{NODE}{upstream}command = [\"sh\"]\n{lines}\n"),
        _ => format!("{NODE}{upstream}url = \"http://x/\"\n{head}\n{lines}\n"),
    }
}

const A2A: &str = "[[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:7100\"";
const MCP: &str = "[[listener]]\nprotocol = \"mcp\"\nbind = \"127.0.0.1:7100\"\nagent = \"a\"";
const MAILROOM: &str = "[[agent]]\nkind = \"mailroom\"\nid = \"m\"";
const ORCHESTRATOR: &str = "[[agent]]\nkind = \"orchestrator\"\nid = \"o\"";

/// Table, old line, new line, and the warning.
const ROWS: [(&str, &str, &str, &str); 14] = [
    (
        "[store.retention]",
        "inbox_days = 3",
        "mail_days = 3",
        "`inbox_days` is now `mail_days`",
    ),
    (
        "[[upstream]]",
        "set = { A = \"b\" }",
        "env = { A = \"b\" }",
        "`set` is now `env`",
    ),
    (
        "[[upstream]]",
        "environment = [\"PATH\"]",
        "env_passthrough = [\"PATH\"]",
        "`environment` is now `env_passthrough`",
    ),
    (
        "[[upstream]]",
        "directory = \"/\"",
        "working_directory = \"/\"",
        "`directory` is now `working_directory`",
    ),
    (
        ORCHESTRATOR,
        "directory = { allow = [] }",
        "registry = { allow = [] }",
        "`directory` is now `registry`",
    ),
    (
        ORCHESTRATOR,
        "command = { allow = [\"ls\"], directory = \"/\" }",
        "command = { allow = [\"ls\"], working_directory = \"/\" }",
        "`directory` is now `working_directory`",
    ),
    (
        MAILROOM,
        "example_ids = true",
        "short_ids = true",
        "`example_ids` is now `short_ids`",
    ),
    (
        MAILROOM,
        "member = [{ id = \"x\", apart = true }]",
        "member = [{ id = \"x\", exclude_from_broadcast = true }]",
        "`apart` is now `exclude_from_broadcast`",
    ),
    (
        A2A,
        "list_anonymous = true",
        "anonymous_task_listing = true",
        "`list_anonymous` is now `anonymous_task_listing`",
    ),
    (
        A2A,
        "repeat_s = 5",
        "idempotency_window_s = 5",
        "`repeat_s` is now `idempotency_window_s`",
    ),
    (
        A2A,
        "trust = \"loopback_operator\"",
        "anonymous = \"operator\"",
        "`trust = \"loopback_operator\"` is now `anonymous = \"operator\"`",
    ),
    (
        A2A,
        "trust = \"anonymous\"",
        "anonymous = \"guest\"",
        "`trust = \"anonymous\"` is now `anonymous = \"guest\"`",
    ),
    (
        MCP,
        "dialect = \"bare\"",
        "compat = [\"bare\"]",
        "`dialect = \"bare\"` is now `compat = [\"bare\"]`",
    ),
    (
        "[routing]",
        "sampling.fallback_to_magictunnel = false",
        "sampling.fallback_to_models = false",
        "",
    ),
];

/// Goal: a file with an old name works as before, and says the new one. Method: each line under both names.
#[test]
fn old_names_work_with_a_warning() {
    for (table, old, new, warning) in ROWS {
        let told_of = |line| told(&with(table, line), false);
        let unrelated = told_of(new);
        let mut old_problems = told_of(old);
        old_problems.retain(|problem| !unrelated.contains(problem));
        match warning {
            "" => assert_eq!(old_problems, [""; 0], "{old}: an alias isn't warned of"),
            _ => assert!(
                old_problems.len() == 1 && old_problems[0].ends_with(warning),
                "{old}: {old_problems:?}"
            ),
        }
        let parsed = |line| Topology::parse(&with(table, line), false, Path::new("")).unwrap();
        let (before, after) = (parsed(old), parsed(new));
        // Options without an explicit value, as `trust = "anonymous"` was, take the default.
        let shown = |topology: &Topology| {
            format!(
                "{:?} {:?} {:?}",
                topology.agents, topology.upstreams, topology.tables
            )
        };
        assert_eq!(shown(&before), shown(&after), "{old}");
        for (before, after) in before.listeners.iter().zip(&after.listeners) {
            assert_eq!(before.anonymous_access(), after.anonymous_access(), "{old}");
            assert_eq!(before.served_protocol(), after.served_protocol(), "{old}");
            assert_eq!(before.lists_anonymous(), after.lists_anonymous(), "{old}");
            assert_eq!(
                before.idempotency_window_s, after.idempotency_window_s,
                "{old}"
            );
        }
    }
}

/// Goal: a key under both names is an error that names both. Method: both lines of each row in one table.
#[test]
fn both_names_are_an_error() {
    for (table, old, new, _) in ROWS {
        let both = match old
            .split_once(", ")
            .filter(|_| old.contains("= [{") || old.starts_with("command"))
        {
            // The key stands in an inline table.
            Some((head, key)) => format!(
                "{head}, {}, {key}",
                new.split_once(", ")
                    .unwrap()
                    .1
                    .trim_end_matches([' ', '}', ']'])
            ),
            None => format!("{old}\n{new}"),
        };
        let told = told(&with(table, &both), false);
        let key = |line: &str| {
            let line = line
                .rsplit_once(", ")
                .filter(|_| line.contains("{ id") || line.starts_with("command"))
                .map_or(line, |(_, key)| key);
            let key = line.split(" = ").next().unwrap();
            key.rsplit('.').next().unwrap().to_owned()
        };
        let wanted = format!("`{}` and `{}` can't both be set", key(old), key(new));
        assert!(
            told.iter().any(|line| line.contains(&wanted)),
            "{both}: {wanted}: {told:?}"
        );
    }
}

/// Goal: strategies named after MagicTunnel are the models'. Method: both names of each.
/// Rows: M-22.
#[test]
fn strategies_keep_their_older_names() {
    let model = "[[agent]]\nkind = \"model\"\nid = \"m\"\nprovider = \"echo\"\n";
    for (old, new) in [
        ("magictunnel_handled", "models"),
        ("magictunnel_first", "models_first"),
    ] {
        let strategy = |name: &str| {
            let text = with(
                "[routing]",
                &format!("sampling.default_strategy = \"{name}\"\n{model}"),
            );
            assert_eq!(told(&text, false), [""; 0], "{name}");
            Topology::parse(&text, false, Path::new(""))
                .unwrap()
                .answer_options()
                .sampling
                .default_strategy
        };
        assert_eq!(strategy(old), strategy(new));
    }
}

/// Goal: anonymous clients are guests on this machine, refused beyond it, and never what can't be. Method: rows of listeners.
#[test]
fn anonymous_access() {
    let listener = |lines: &str| {
        with(
            "[[listener]]",
            &format!("protocol = \"mcp\"\ndialect = \"mcp\"\nagent = \"a\"\n{lines}"),
        )
    };
    for (lines, access) in [
        ("bind = \"127.0.0.1:0\"", AnonymousAccess::Guest),
        (
            "bind = \"127.0.0.1:0\"\nanonymous = \"guest\"",
            AnonymousAccess::Guest,
        ),
        (
            "bind = \"127.0.0.1:0\"\nanonymous = \"operator\"",
            AnonymousAccess::Operator,
        ),
        (
            "bind = \"127.0.0.1:0\"\nkeys = \"k\"",
            AnonymousAccess::Denied,
        ),
        (
            "bind = \"127.0.0.1:0\"\nkeys = \"k\"\nanonymous = false",
            AnonymousAccess::Denied,
        ),
        (
            "bind = \"127.0.0.1:0\"\nkeys = \"k\"\ntrust = \"anonymous\"",
            AnonymousAccess::Denied,
        ),
        (
            "bind = \"10.0.0.1:0\"\nkeys = \"k\"",
            AnonymousAccess::Denied,
        ),
        (
            "bind = \"10.0.0.1:0\"\nanonymous = \"guest\"",
            AnonymousAccess::Guest,
        ),
    ] {
        let topology = Topology::parse(&listener(lines), false, Path::new("")).unwrap();
        assert_eq!(topology.listeners[0].anonymous_access(), access, "{lines}");
        assert_eq!(topology.listeners[0].served_protocol(), ServedProtocol::Mcp);
    }
    for (lines, wanted) in [
        (
            "bind = \"127.0.0.1:0\"\nanonymous = true",
            "`anonymous`: it must be \"guest\", \"operator\" or false",
        ),
        (
            "bind = \"127.0.0.1:0\"\nanonymous = \"gest\"",
            "`anonymous` can't be `gest`",
        ),
        (
            "bind = \"127.0.0.1:0\"\nanonymous = false",
            "every request would be refused",
        ),
        (
            "bind = \"127.0.0.1:0\"\nkeys = \"k\"\nanonymous = \"guest\"",
            "leave `anonymous` out",
        ),
        ("bind = \"10.0.0.1:0\"", "keys are needed"),
        (
            "bind = \"10.0.0.1:0\"\nanonymous = false",
            "keys are needed",
        ),
        (
            "bind = \"10.0.0.1:0\"\ntrust = \"anonymous\"",
            "keys are needed",
        ),
        (
            "bind = \"10.0.0.1:0\"\nanonymous = \"operator\"",
            "can't be the operator",
        ),
    ] {
        let told = told(&listener(lines), false);
        assert!(
            told.iter().any(|line| line.contains(wanted)),
            "{lines}: {told:?}"
        );
    }
}
