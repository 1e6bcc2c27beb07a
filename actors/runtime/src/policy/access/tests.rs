use std::sync::Arc;

use callboard_message::capabilities::{
    CallTool, CompleteArgument, DescribeAgent, ForwardRequest, GetPrompt, ListTools, ReadResource,
    SubscribeResource,
};
use callboard_message::{DataClass, Message, Principal, PrincipalKind};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;

fn rules(written: Value) -> AccessRules {
    let rules = serde_json::from_value(written).unwrap();
    let class_of = |agent: &str| match agent {
        "ward" => DataClass::Clinical,
        _ => DataClass::Internal,
    };
    AccessRules::new(rules, Arc::new(class_of)).unwrap()
}

fn key(id: &str, scopes: &[&str]) -> Principal {
    Principal {
        id: id.to_owned(),
        kind: PrincipalKind::ApiKey,
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        purpose: None,
    }
}

/// Returns the id of the rule that decides about a message, with `!` before it if it denies; `?` for a message
/// that isn't judged by rules, but refused.
fn decided(
    rules: &AccessRules,
    principal: &Principal,
    agent: &str,
    message: &str,
    payload: Value,
) -> String {
    let payload = to_raw_value(&payload).unwrap();
    let Some(item) = AccessItem::of_message(message, &payload) else {
        return "?".to_owned();
    };
    let decision = rules.decide(principal, &AccessTarget { agent, item });
    let sign = if decision.is_permitted { "" } else { "!" };
    format!("{sign}{}", decision.rule.unwrap_or_default())
}

/// Goal: the first rule that applies decides, by each of its fields, and nothing is permitted without one.
/// Method: rows of principals and messages, for which another field of the rules doesn't hold.
#[test]
fn first_rule_that_applies() {
    let rules = rules(json!([
        { "id": "no-mallory", "effect": "deny", "principals": ["mallory"] },
        { "id": "no-writes", "effect": "deny", "agents": ["files"], "tools": ["write_*"] },
        { "id": "robots", "effect": "allow", "principals": ["token:corp.*"], "tools": ["files.read", "list"] },
        { "id": "readers", "effect": "allow", "scopes": ["role:reader"], "agents": ["files"],
          "resources": ["file:///public/*"], "prompts": ["greet"] },
        { "id": "care", "effect": "allow", "classes": ["clinical"], "purposes": ["treatment"] },
        { "id": "admins", "effect": "allow", "scopes": ["role:admin"] },
    ]));
    let robot = Principal {
        kind: PrincipalKind::Token,
        ..key("corp.robot", &[])
    };
    let nurse = key("nurse", &["purpose:treatment"]).with_purpose("treatment");
    let stating = key("nurse", &[]).with_purpose("treatment");
    let (reader, admin) = (key("r", &["role:reader"]), key("a", &["role:admin"]));
    let call = |tool: &str| (CallTool::NAME, json!({ "name": tool, "arguments": {} }));
    for (who, agent, (message, payload), expected) in [
        (&robot, "files", call("read"), "robots"),
        (&robot, "other", call("read"), "!"),
        (&robot, "other", call("list"), "robots"),
        (&robot, "files", call("write_all"), "!no-writes"),
        (&robot, "other", call("write_all"), "!"),
        (&robot, "files", ("read", json!({})), "robots"),
        (&key("corp.robot", &[]), "files", call("read"), "!"),
        (&admin, "files", call("write_all"), "!no-writes"),
        (&admin, "files", call("read"), "admins"),
        (
            &key("mallory", &["role:admin"]),
            "files",
            call("read"),
            "!no-mallory",
        ),
        (&reader, "files", call("read"), "!"),
        (
            &reader,
            "files",
            (GetPrompt::NAME, json!({ "name": "greet" })),
            "readers",
        ),
        (
            &reader,
            "files",
            (GetPrompt::NAME, json!({ "name": "other" })),
            "!",
        ),
        (
            &reader,
            "files",
            (ReadResource::NAME, json!({ "uri": "file:///public/a" })),
            "readers",
        ),
        (
            &reader,
            "files",
            (
                SubscribeResource::NAME,
                json!({ "uri": "file:///public/a" }),
            ),
            "readers",
        ),
        (
            &reader,
            "files",
            (ReadResource::NAME, json!({ "uri": "file:///etc/a" })),
            "!",
        ),
        (
            &reader,
            "files",
            (
                CompleteArgument::NAME,
                json!({ "ref": { "type": "ref/prompt", "name": "greet" } }),
            ),
            "readers",
        ),
        (
            &reader,
            "files",
            (
                CompleteArgument::NAME,
                json!({ "ref": { "type": "ref/resource", "uri": "file:///x" } }),
            ),
            "!",
        ),
        (
            &reader,
            "other",
            (GetPrompt::NAME, json!({ "name": "greet" })),
            "!",
        ),
        (&nurse, "ward", call("get_patient"), "care"),
        (&nurse, "files", call("get_patient"), "!"),
        (&stating, "ward", call("get_patient"), "!"),
        (
            &key("nurse", &["purpose:treatment"]),
            "ward",
            call("get_patient"),
            "!",
        ),
        (&Principal::anonymous(), "files", call("read"), "!"),
        (&Principal::local_operator(), "files", call("write_all"), ""),
        (&Principal::agent("planner"), "files", call("write_all"), ""),
        // Descriptions and lists are open to whom something of the agent is.
        (&reader, "files", (ListTools::NAME, json!({})), "readers"),
        (&reader, "other", (DescribeAgent::NAME, json!({})), "!"),
        (
            &key("mallory", &["role:admin"]),
            "files",
            (ListTools::NAME, json!({})),
            "!no-mallory",
        ),
        // An entry without a dot is about the tool alone, one with a dot about its agent too.
        (
            &robot,
            "list",
            (CallTool::NAME, json!({ "name": "wipe" })),
            "!",
        ),
        (
            &robot,
            "evil",
            (CallTool::NAME, json!({ "name": "files.read" })),
            "!",
        ),
        (
            &key("token:corp.x", &[]),
            "other",
            (CallTool::NAME, json!({ "name": "list" })),
            "!",
        ),
        (
            &admin,
            "files",
            (
                CallTool::NAME,
                json!({ "name": "read", "NAME": "write_all" }),
            ),
            "?",
        ),
        (
            &admin,
            "files",
            (
                CallTool::NAME,
                json!({ "name": "read", "argument\u{17f}": {} }),
            ),
            "?",
        ),
        (
            &reader,
            "files",
            (
                ReadResource::NAME,
                json!({ "uri": "file:///public/a", "URI": "x" }),
            ),
            "?",
        ),
        // Members of another type, or beside the one that counts, hide nothing.
        (
            &admin,
            "files",
            (CallTool::NAME, json!({ "name": "write_all", "uri": 1 })),
            "!no-writes",
        ),
        (&admin, "files", (CallTool::NAME, json!({ "name": 1 })), "?"),
        (&admin, "files", (CallTool::NAME, json!({})), "?"),
        (
            &reader,
            "files",
            (
                ReadResource::NAME,
                json!({ "uri": "file:///etc/a", "name": 1 }),
            ),
            "!",
        ),
        (
            &reader,
            "files",
            (GetPrompt::NAME, json!({ "name": "other", "uri": 1 })),
            "!",
        ),
        (
            &reader,
            "files",
            (
                CompleteArgument::NAME,
                json!({ "ref": { "type": "ref/resource", "uri": "y:", "name": "greet" } }),
            ),
            "?",
        ),
        (
            &reader,
            "files",
            (
                CompleteArgument::NAME,
                json!({ "ref": { "name": "greet" } }),
            ),
            "?",
        ),
        (
            &reader,
            "files",
            (ForwardRequest::NAME, json!({ "method": "tasks/get" })),
            "!",
        ),
        (
            &robot,
            "files",
            (ForwardRequest::NAME, json!({ "method": "read" })),
            "robots",
        ),
        (&robot, "files", (ForwardRequest::NAME, json!({})), "?"),
    ] {
        let found = decided(&rules, who, agent, message, payload.clone());
        assert_eq!(found, expected, "{who:?} {agent} {message} {payload}");
    }
}

/// Goal: conditions on arguments hold as their operators say, never for a missing argument, and all of them
/// must. Method: rows of conditions and arguments; a tool in a list for an allowing and a denying rule.
#[test]
fn conditions_on_arguments() {
    for (condition, arguments, holds) in [
        (
            json!({ "argument": "n", "min": 1 }),
            json!({ "n": 1 }),
            true,
        ),
        (
            json!({ "argument": "n", "min": 1 }),
            json!({ "n": 0.5 }),
            false,
        ),
        // Some servers take a name in another case for the same: a denying rule holds.
        (
            json!({ "argument": "path", "equals": "/etc" }),
            json!({ "path": "/tmp", "Path": "/etc" }),
            true,
        ),
        (
            json!({ "argument": "path", "equals": "/etc" }),
            json!({ "PATH": "/tmp" }),
            true,
        ),
        (
            json!({ "argument": "path", "equals": "/tmp" }),
            json!({ "path": "/tmp" }),
            true,
        ),
        (
            json!({ "argument": "path", "equals": "/tmp" }),
            json!({ "path": "/TMP" }),
            false,
        ),
        (
            json!({ "argument": "path", "equals": "/tmp" }),
            json!({}),
            false,
        ),
        (
            json!({ "argument": "n", "equals": 1 }),
            json!({ "n": 1.0 }),
            true,
        ),
        (
            json!({ "argument": "n", "equals": 9_007_199_254_740_993_u64 }),
            json!({ "n": 9_007_199_254_740_992_u64 }),
            false,
        ),
        (
            json!({ "argument": "env", "in": ["dev", "test"] }),
            json!({ "env": "test" }),
            true,
        ),
        (
            json!({ "argument": "env", "in": ["dev", "test"] }),
            json!({ "env": ["test"] }),
            false,
        ),
        (
            json!({ "argument": "env", "in": [] }),
            json!({ "env": "test" }),
            false,
        ),
        (
            json!({ "argument": "path", "matches": "/tmp/*" }),
            json!({ "path": "/tmp/a" }),
            true,
        ),
        (
            json!({ "argument": "path", "matches": "/tmp/*" }),
            json!({ "path": "x/tmp/a" }),
            false,
        ),
        (
            json!({ "argument": "path", "matches": "/tmp/*" }),
            json!({ "path": ["/tmp/a"] }),
            false,
        ),
        (
            json!({ "argument": "amount", "max": 100 }),
            json!({ "amount": 100 }),
            true,
        ),
        (
            json!({ "argument": "amount", "max": 100 }),
            json!({ "amount": 100.5 }),
            false,
        ),
        (
            json!({ "argument": "amount", "max": 100 }),
            json!({ "amount": "1" }),
            false,
        ),
        (
            json!({ "argument": "a.b", "equals": true }),
            json!({ "a": { "b": true } }),
            true,
        ),
        (
            json!({ "argument": "a.b", "equals": true }),
            json!({ "a.b": true }),
            false,
        ),
        (
            json!({ "argument": "n", "max": 9, "in": [8, 10] }),
            json!({ "n": 8 }),
            true,
        ),
        (
            json!({ "argument": "n", "max": 9, "in": [8, 10] }),
            json!({ "n": 10 }),
            false,
        ),
    ] {
        let rules = rules(json!([
            { "id": "no", "effect": "deny", "tools": ["t"], "when": [condition] },
            { "id": "yes", "effect": "allow" },
        ]));
        let expected = if holds { "!no" } else { "yes" };
        let call = json!({ "name": "t", "arguments": arguments });
        let found = decided(&rules, &key("a", &[]), "x", CallTool::NAME, call);
        assert_eq!(found, expected, "{condition} {arguments}");
        let found = decided(&rules, &key("a", &[]), "x", "t", arguments);
        assert_eq!(found, expected, "{condition}");
    }
    // Arguments that aren't known may be any.
    for (effect, expected) in [("allow", "!"), ("deny", "!r")] {
        let rules = rules(
            json!([{ "id": "r", "effect": effect, "when": [{ "argument": "a", "equals": 1 }] }]),
        );
        let found = decided(&rules, &key("a", &[]), "x", "t", Value::Null);
        assert_eq!(found, expected);
        let message =
            json!({ "name": "t", "arguments": { "a": 1 }, "_meta": { "callboard/said": {} } });
        let found = decided(&rules, &key("a", &[]), "x", CallTool::NAME, message);
        assert_eq!(found, expected);
    }
    let written = |effect: &str| {
        rules(
            json!([{ "id": "r", "effect": effect, "tools": ["t"], "when": [
            { "argument": "a", "equals": 1 }, { "argument": "b", "equals": 2 },
        ] }]),
        )
    };
    let both = json!({ "name": "t", "arguments": { "a": 1, "b": 2 } });
    let one = json!({ "name": "t", "arguments": { "a": 1, "b": 3 } });
    let allowed = written("allow");
    let who = key("a", &[]);
    assert_eq!(decided(&allowed, &who, "x", CallTool::NAME, both), "r");
    assert_eq!(decided(&allowed, &who, "x", CallTool::NAME, one), "!");
    let similar = json!({ "name": "t", "arguments": { "a": 1, "b": 2, "A": 3 } });
    assert_eq!(decided(&allowed, &who, "x", CallTool::NAME, similar), "!");
    for (effect, is_listed) in [("allow", true), ("deny", false)] {
        let item = AccessItem::tool("t");
        let target = AccessTarget { agent: "x", item };
        let decision = written(effect).decide(&who, &target).is_permitted;
        assert_eq!(decision, is_listed, "{effect}");
    }
}

/// Goal: lists have the items that a principal may use, and other replies stay as they are. Method: lists of
/// tools, prompts and resources with one item of several permitted; all of them; another message.
#[test]
fn lists_are_filtered() {
    let rules = rules(json!([
        { "id": "r", "effect": "allow", "principals": ["a"], "tools": ["read"], "prompts": ["greet"], "resources": ["x:*"] },
        { "id": "all", "effect": "allow", "principals": ["b"] },
    ]));
    let filtered = |id: &str, message: &str, reply: Value| {
        let reply = to_raw_value(&reply).unwrap();
        let reply = rules.filter_list(&key(id, &[]), "x", message, Ok(reply));
        serde_json::from_str::<Value>(reply.unwrap().get()).unwrap()
    };
    for (message, list, kept) in [
        (
            ListTools::NAME,
            json!({ "tools": [{ "name": "write" }, { "name": "read" }, {}], "nextCursor": "c" }),
            json!({ "tools": [{ "name": "read" }], "nextCursor": "c" }),
        ),
        (
            "callboard.prompts.list",
            json!({ "prompts": [{ "name": "greet" }, { "name": "other" }] }),
            json!({ "prompts": [{ "name": "greet" }] }),
        ),
        (
            "callboard.resources.list",
            json!({ "resources": [{ "uri": "y:1" }, { "uri": "x:1" }] }),
            json!({ "resources": [{ "uri": "x:1" }] }),
        ),
        (
            "callboard.resources.templates.list",
            json!({ "resourceTemplates": [{ "uriTemplate": "y:{a}" }, { "uriTemplate": "x:{a}" }] }),
            json!({ "resourceTemplates": [{ "uriTemplate": "x:{a}" }] }),
        ),
        (
            CallTool::NAME,
            json!({ "tools": [{ "name": "write" }] }),
            json!({ "tools": [{ "name": "write" }] }),
        ),
    ] {
        assert_eq!(filtered("a", message, list.clone()), kept, "{message}");
    }
    let tools = json!({ "tools": [{ "name": "write" }, { "name": "read" }] });
    assert_eq!(filtered("b", ListTools::NAME, tools.clone()), tools);
    assert_eq!(
        filtered("c", ListTools::NAME, tools),
        json!({ "tools": [] })
    );
}

/// Goal: mistakes are told with their rule, at each limit and one further. Method: rows.
#[test]
fn mistakes() {
    use AccessRuleError as Error;
    let rule = |id: &str, more: Value| {
        let mut rule = json!({ "id": id, "effect": "allow" });
        let more = more.as_object().unwrap().clone();
        rule.as_object_mut().unwrap().extend(more);
        serde_json::from_value::<AccessRule>(rule).unwrap()
    };
    let check =
        |rules: Vec<AccessRule>| AccessRules::new(rules, Arc::new(|_| DataClass::Public)).map(drop);
    let entries = |count: usize| json!({ "tools": vec!["t"; count] });
    let long = |bytes: usize| json!({ "agents": ["x".repeat(bytes)] });
    let many = |count: usize| {
        let rules = (0..count).map(|at| rule(&format!("r{at}"), json!({})));
        rules.collect::<Vec<_>>()
    };
    assert_eq!(check(many(ACCESS_RULES_MAX)), Ok(()));
    let over = Err((ACCESS_RULES_MAX, Error::TooMany));
    assert_eq!(check(many(ACCESS_RULES_MAX + 1)), over);
    let twice = vec![rule("a", json!({})), rule("a", json!({}))];
    assert_eq!(check(twice), Err((1, Error::Id)));
    let condition = json!({ "argument": "a", "max": 1 });
    for (id, more, expected) in [
        ("", json!({}), Err(Error::Id)),
        ("a b", json!({}), Err(Error::Id)),
        ("a.b_c-1", json!({}), Ok(())),
        ("a", entries(ACCESS_RULE_ENTRIES_MAX), Ok(())),
        (
            "a",
            entries(ACCESS_RULE_ENTRIES_MAX + 1),
            Err(Error::Entries),
        ),
        ("a", long(ACCESS_ENTRY_BYTES_MAX), Ok(())),
        ("a", long(ACCESS_ENTRY_BYTES_MAX + 1), Err(Error::Entries)),
        ("a", json!({ "scopes": [""] }), Err(Error::Entries)),
        (
            "a",
            json!({ "when": [{ "argument": "a" }] }),
            Err(Error::Condition),
        ),
        (
            "a",
            json!({ "when": [{ "argument": "", "max": 1 }] }),
            Err(Error::Condition),
        ),
        ("a", json!({ "when": [condition] }), Ok(())),
        (
            "a",
            json!({ "when": [condition], "prompts": ["x"] }),
            Err(Error::ConditionWithoutTools),
        ),
    ] {
        let checked = check(vec![rule(id, more)]);
        assert_eq!(checked.map_err(|(_, error)| error), expected, "{id:?}");
    }
}

/// Goal: a rule that needs an approval is about tools: it shows them, and holds in doubt; clinical data isn't kept for
/// approvers. Method: rows of uses, of which each shows whether it is permitted and needs an approval.
#[test]
fn rules_that_need_approvals() {
    let rules = rules(json!([
        { "id": "large", "effect": "approve", "tools": ["pay"], "approvers": ["role:lead"],
          "when": [{ "argument": "amount", "min": 100 }] },
        { "id": "ask", "effect": "approve", "agents": ["shop", "ward"], "tools": ["order"] },
        { "id": "kept", "effect": "approve", "agents": ["ward"], "approvers": ["role:lead"] },
        { "id": "rest", "effect": "allow" },
    ]));
    let alice = key("alice", &[]);
    let needs = |agent: &str, message: &str, payload: Value| {
        let payload = to_raw_value(&payload).unwrap();
        let item = AccessItem::of_message(message, &payload).unwrap();
        let checked = rules.check(&alice, &AccessTarget { agent, item });
        checked.map(|terms| terms.map(|terms| terms.rule.clone()))
    };
    let call = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments });
    let amount = |amount: Value| call("pay", json!({ "amount": amount }));
    let large = || Ok(Some("large".to_owned()));
    assert_eq!(needs("bank", CallTool::NAME, amount(json!(100))), large());
    assert_eq!(needs("bank", CallTool::NAME, amount(json!(99))), Ok(None));
    assert_eq!(needs("bank", "pay", json!({ "amount": 100 })), large());
    // In doubt it holds.
    let similar = call("pay", json!({ "amount": 1, "Amount": 100 }));
    assert_eq!(needs("bank", CallTool::NAME, similar), large());
    let order = || call("order", json!({}));
    let ask = || Ok(Some("ask".to_owned()));
    assert_eq!(needs("shop", CallTool::NAME, order()), ask());
    assert_eq!(needs("ward", CallTool::NAME, order()), ask());
    let kept = needs("ward", CallTool::NAME, call("read", json!({})));
    assert!(kept.unwrap_err().message.contains("clinical"));
    // Neither lists nor other items need it, and tools with it are listed.
    assert_eq!(needs("shop", ListTools::NAME, json!({})), Ok(None));
    assert_eq!(
        needs("ward", ReadResource::NAME, json!({ "uri": "x" })),
        Ok(None)
    );
    let listed = AccessTarget {
        agent: "bank",
        item: AccessItem::tool("pay"),
    };
    let decision = rules.decide(&alice, &listed);
    assert!(decision.is_permitted && decision.approval.is_some());
}
