//! Rules about who may use what (`[[policy.rules]]`): lists, calls and explanations.

use serde_json::{Value, json};

use crate::kit::gateway::{
    A2A, KeyClient, MCP, NODE, address_of, began, end, is_refused, reloaded, said, script, server,
    started,
};
use crate::kit::{Home, soon};

const RULES: &str = r#"
[[policy.rules]]
id = "no-waiting"
effect = "deny"
principals = ["alice"]
tools = ["one.wait"]

[[policy.rules]]
id = "alice"
effect = "allow"
principals = ["alice"]
agents = ["one"]

[[policy.rules]]
id = "who"
effect = "allow"
scopes = ["role:*"]
tools = ["who"]
"#;

/// Goal: lists, calls and cards have what the rules permit, of all agents as one and of each, for MCP and A2A;
/// a changed rule counts without a restart, and the command says which rule decides. Method: three keys at two
/// upstreams with two tools each; a reload.
/// Rows: X-20.
#[tokio::test]
async fn rules_shape_lists_and_calls() {
    let home = Home::new();
    let alice = KeyClient::new(&home, "alice", &["role:nurse"]).await;
    let bob = KeyClient::new(&home, "bob", &["role:nurse"]).await;
    let carol = KeyClient::new(&home, "carol", &[]).await;
    let agents = format!(
        "{}{}",
        script(&home, "one", "one"),
        script(&home, "two", "two")
    );
    let keyed = "keys = \"keys.toml\"\n";
    let listeners = format!("{MCP}{keyed}{A2A}{keyed}");
    let text = format!("{NODE}{agents}{listeners}");
    let (mut running, listening) = started(&home, &format!("{text}{RULES}")).await;
    let [all, one, two] = ["/mcp", "/one/mcp", "/two/mcp"].map(|end| address_of(&listening, end));

    for (caller, expected) in [
        (&alice, &["one__who", "two__who"][..]),
        (&bob, &["one__who", "two__who"]),
        (&carol, &[]),
    ] {
        assert_eq!(caller.tools(all).await, expected);
    }
    assert_eq!(alice.tools(one).await, ["who"]);
    assert_eq!(bob.tools(two).await, ["who"]);
    let [denied] = &carol.tools(one).await[..] else {
        panic!("a list")
    };
    assert!(denied.contains("don't permit you this agent"), "{denied}");

    assert_eq!(said(&bob.call(all, "two__who").await), "two");
    assert_eq!(said(&alice.call(one, "who").await), "one");
    for (caller, url, tool) in [
        (&alice, all, "one__wait"),
        (&alice, all, "one.wait"),
        (&alice, one, "wait"),
        (&alice, two, "wait"),
        (&bob, all, "two__wait"),
        (&bob, two, "wait"),
        (&carol, all, "one__who"),
        (&carol, one, "who"),
    ] {
        let refused = caller.call(url, tool).await;
        assert!(is_refused(&refused), "{tool}: {refused}");
        let told = refused.to_string();
        assert!(told.contains("don't permit you this tool"), "{told}");
        assert!(!told.contains("no-waiting"), "{told}");
    }

    let agents_url = address_of(&listening, "/a2a");
    let one_url = address_of(&listening, "/one/a2a");
    assert_eq!(bob.skills(agents_url).await, ["one__who", "two__who"]);
    assert_eq!(alice.skills(one_url).await, ["who"]);
    assert!(carol.skills(agents_url).await.is_empty());
    assert!(
        bob.ask(agents_url, "two__who")
            .await
            .to_string()
            .contains("\"two\"")
    );
    for refused in [
        bob.ask(agents_url, "two__wait").await,
        bob.ask(one_url, "wait").await,
        carol.ask(one_url, "who").await,
    ] {
        let told = refused.to_string();
        let is_denied = told.contains("don't permit you") || told.contains("no skill");
        assert!(is_denied, "{refused}");
    }

    let explain = ["policy", "explain", "--topology", "n.toml"];
    for (question, code, said) in [
        (
            &["--as", "alice", "--agent", "one", "--tool", "wait"][..],
            3,
            "one\tdenied\tby the rule no-waiting\n",
        ),
        (
            &["--as", "bob", "--tool", "who"],
            0,
            "one\tpermitted\tby the rule who\ntwo\tpermitted\tby the rule who\n",
        ),
        (
            &["--as", "carol", "--agent", "two"],
            3,
            "two\tdenied\tno rule applies\n",
        ),
        (
            &["--as", "carol", "--scope", "role:x", "--agent", "two"],
            0,
            "two\tpermitted\tby the rule who\n",
        ),
        (
            &["--as", "token:alice", "--agent", "one", "--tool", "who"],
            0,
            "one\tpermitted\tby the rule alice\n",
        ),
        (
            &["--as", "local_operator:x", "--agent", "one"],
            0,
            "one\tpermitted\trules don't bind it\n",
        ),
    ] {
        let explained = home.run(&[&explain[..], question].concat()).await;
        assert_eq!(
            (explained.code, &*explained.out),
            (Some(code), said),
            "{question:?}"
        );
    }
    // No agent is asked which tools it has.
    let of_all = ["--as", "bob", "--tool", "who"];
    for (more, is_noted) in [
        (&[][..], true),
        (&["--agent", "one"], false),
        (&["--json"], false),
    ] {
        let explained = home.run(&[&explain[..], &of_all, more].concat()).await;
        let note = "agents without the tool `who` are listed too";
        assert_eq!(explained.err.contains(note), is_noted, "{explained:?}");
    }
    let absent = home.run(&[&explain[..], &["--as", "dave"]].concat()).await;
    assert!(
        absent.code == Some(2) && absent.err.contains("no key"),
        "{absent:?}"
    );

    let for_all = "[[policy.rules]]\nid = \"all\"\neffect = \"allow\"\n";
    reloaded(&home, &mut running, &format!("{text}{for_all}")).await;
    assert_eq!(carol.tools(one).await, ["who", "wait"]);
    assert_eq!(said(&carol.call(all, "one__who").await), "one");
    end(running, &home).await;
}

/// Returns the example of docs/policy.md that has a rule with this id.
fn example_with(rule: &str) -> String {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policy.md"));
    let page = page.unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let mut blocks = blocks.map(|block| block.split("```").next().unwrap());
    let id = format!("id = \"{rule}\"");
    let found = blocks.find(|block| block.contains(&id));
    found.unwrap_or_else(|| panic!("{rule}")).to_owned()
}

/// Goal: the examples of docs/policy.md do what the page says. Method: each as a file, and questions about it.
#[tokio::test]
async fn examples_of_the_page() {
    let blocks = [
        "no-deletes",
        "small-payments",
        "never",
        "treatment",
        "write-below-code",
    ];
    let [start, payments, developers, clinic, coding] = &blocks.map(example_with);
    let home = Home::new();
    let upstream =
        |id: &str, more: &str| format!("[[upstream]]\nid = \"{id}\"\ncommand = [\"true\"]\n{more}");
    let agents: String = ["files", "tickets", "payments-api", "room"]
        .map(|id| upstream(id, ""))
        .concat();
    let agents = agents + &upstream("ward", "class = \"clinical\"\n");
    let treatment = ["--scope", "purpose:treatment", "--purpose", "treatment"];
    let [developer, clinician] = ["role:developer", "role:clinician"].map(|role| ["--scope", role]);
    let on = |agent: &'static str, tool: &'static str| ["--agent", agent, "--tool", tool];
    for (rules, question, expected) in [
        (
            start,
            [&developer[..], &on("files", "read")].concat(),
            "permitted\tby the rule developers",
        ),
        (
            start,
            [&developer[..], &on("files", "delete_all")].concat(),
            "denied\tby the rule no-deletes",
        ),
        (
            start,
            [&developer[..], &on("room", "read")].concat(),
            "denied\tno rule applies",
        ),
        (
            payments,
            [
                &on("files", "pay")[..],
                &[
                    "--arg",
                    "amount=100",
                    "--arg",
                    "currency=EUR",
                    "--arg",
                    "account={\"owner\":\"acme-1\"}",
                ],
            ]
            .concat(),
            "permitted\tby the rule small-payments",
        ),
        (
            payments,
            [
                &on("files", "pay")[..],
                &[
                    "--arg",
                    "amount=101",
                    "--arg",
                    "currency=EUR",
                    "--arg",
                    "account={\"owner\":\"acme-1\"}",
                ],
            ]
            .concat(),
            "denied\tno rule applies",
        ),
        (
            developers,
            [&developer[..], &on("payments-api", "get_bill")].concat(),
            "permitted\tby the rule everybody-reads",
        ),
        (
            developers,
            [&developer[..], &on("payments-api", "pay")].concat(),
            "denied\tno rule applies",
        ),
        (
            developers,
            [
                &["--scope", "role:payments"][..],
                &on("payments-api", "pay"),
            ]
            .concat(),
            "permitted\tby the rule payments-team",
        ),
        (
            developers,
            [&["--scope", "role:platform"][..], &on("files", "drop_all")].concat(),
            "denied\tby the rule never",
        ),
        (
            clinic,
            [&clinician[..], &treatment, &on("ward", "get_patient")].concat(),
            "permitted\tby the rule treatment",
        ),
        (
            clinic,
            [&clinician[..], &on("ward", "get_patient")].concat(),
            "denied\tby the rule no-clinical-data",
        ),
        (
            clinic,
            [&developer[..], &on("tickets", "list")].concat(),
            "permitted\tby the rule staff",
        ),
        (
            coding,
            [&on("files", "write")[..], &["--arg", "path=/code/a"]].concat(),
            "permitted\tby the rule write-below-code",
        ),
        (
            coding,
            [&on("files", "write")[..], &["--arg", "path=/etc/a"]].concat(),
            "denied\tno rule applies",
        ),
        (
            coding,
            on("room", "send_message").to_vec(),
            "permitted\tby the rule mail",
        ),
    ] {
        home.write("n.toml", &format!("{NODE}{agents}{rules}"));
        let explain = [
            "policy",
            "explain",
            "--topology",
            "n.toml",
            "--as",
            "api_key:someone",
        ];
        let explained = home.run(&[&explain[..], &question].concat()).await;
        assert!(
            explained.out.trim().ends_with(expected),
            "{question:?} {explained:?}"
        );
    }
}

/// Cases of a server with resources, prompts and completions, two of each, which answers everything.
const CASES: &str = r#"
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"open","inputSchema":{"type":"object"}},{"name":"shut","inputSchema":{"type":"object"}},{"name":"callboard.tools.list","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*) say "$id" '{"content":[{"type":"text","text":"DONE"}]}' ;;
    *'"method":"resources/list"'*) say "$id" '{"resources":[{"uri":"x:open","name":"o"},{"uri":"x:shut","name":"s"}]}' ;;
    *'"method":"resources/read"'*) say "$id" '{"contents":[{"uri":"x:any","text":"DONE"}]}' ;;
    *'"method":"resources/subscribe"'*) say "$id" '{}' ;;
    *'"method":"prompts/list"'*) say "$id" '{"prompts":[{"name":"open"},{"name":"shut"}]}' ;;
    *'"method":"prompts/get"'*) say "$id" '{"messages":[{"role":"user","content":{"type":"text","text":"DONE"}}]}' ;;
    *'"method":"completion/complete"'*) say "$id" '{"completion":{"values":["DONE"]}}' ;;
    *'"method":"notifications/'*) ;;
    *) say "$id" '{"DONE":true}' ;;"#;

/// Goal: whatever else a request says, nothing that the rules deny is read, called, completed or watched, and what
/// they permit is. Method: a server that answers everything, alone and as a part of all agents; each method for
/// what is permitted and what isn't, with further members by which it could be taken for something else.
#[tokio::test]
async fn requests_cannot_hide_what_they_use() {
    let home = Home::new();
    let alice = KeyClient::new(&home, "alice", &[]).await;
    let script = home.write("rich.sh", &server(CASES));
    let rules = "[[policy.rules]]\nid = \"shut\"\neffect = \"deny\"\ntools = [\"shut\"]\nresources = [\"x:shut\"]\nprompts = [\"shut\"]\n\
                 [[policy.rules]]\nid = \"open\"\neffect = \"allow\"\ntools = [\"*\"]\nresources = [\"x:open\"]\nprompts = [\"open\"]\n";
    let upstream = |id: &str| {
        format!("[[upstream]]\nid = \"{id}\"\nera = \"legacy\"\ncommand = [\"sh\", \"{script}\"]\n")
    };
    let agents = upstream("one") + &upstream("two");
    let text = format!("{NODE}{agents}{MCP}keys = \"keys.toml\"\n{rules}");
    let (running, listening) = started(&home, &text).await;
    let [all, one] = ["/mcp", "/one/mcp"].map(|end| address_of(&listening, end));
    let prompt = |name: &str| json!({ "type": "ref/prompt", "name": name });
    let argument = json!({ "name": "a", "value": "" });
    for (url, prefix) in [(one, ""), (all, "one__")] {
        assert!(
            !alice
                .tools(url)
                .await
                .iter()
                .any(|name| name.contains("shut") || name.contains("callboard"))
        );
        let named = |name: &str| format!("{prefix}{name}");
        for (method, params) in [
            (
                "tools/call",
                json!({ "name": named("open"), "arguments": {} }),
            ),
            ("resources/read", json!({ "uri": "x:open" })),
            ("prompts/get", json!({ "name": named("open") })),
            (
                "completion/complete",
                json!({ "ref": prompt(&named("open")), "argument": argument }),
            ),
        ] {
            let answer = alice.mcp(url, method, params).await;
            assert!(answer.to_string().contains("DONE"), "{method} {answer}");
        }
        for (method, params) in [
            (
                "tools/call",
                json!({ "name": named("shut"), "arguments": {} }),
            ),
            (
                "tools/call",
                json!({ "name": named("shut"), "arguments": {}, "uri": 1 }),
            ),
            (
                "tools/call",
                json!({ "name": named("callboard.tools.list"), "arguments": {} }),
            ),
            (
                "tools/call",
                json!({ "name": "callboard.forward", "arguments": { "method": "tools/call", "params": { "name": "shut" } } }),
            ),
            ("resources/read", json!({ "uri": "x:shut" })),
            ("resources/read", json!({ "uri": "x:shut", "name": 1 })),
            ("resources/read", json!({ "uri": "x:other" })),
            ("prompts/get", json!({ "name": named("shut") })),
            ("prompts/get", json!({ "name": named("shut"), "uri": 1 })),
            (
                "completion/complete",
                json!({ "ref": prompt(&named("shut")), "argument": argument }),
            ),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/resource", "uri": "x:shut" }, "argument": argument }),
            ),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/resource", "uri": "x:shut", "name": named("open") }, "argument": argument }),
            ),
        ] {
            let answer = alice.mcp(url, method, params.clone()).await;
            assert!(is_refused(&answer), "{method} {params} {answer}");
            assert!(!answer.to_string().contains("DONE"), "{answer}");
        }
        for method in ["resources/list", "prompts/list"] {
            let listed = alice.mcp(url, method, json!({})).await.to_string();
            assert!(
                listed.contains("open") && !listed.contains("shut"),
                "{listed}"
            );
        }
    }
    end(running, &home).await;
}

/// Cases of a server with the tools of the examples, which does all of them.
const EXAMPLE_CASES: &str = r#"
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"tools/list"'*) say "$id" '{"tools":[{"name":"get_bill","inputSchema":{"type":"object"}},{"name":"pay","inputSchema":{"type":"object"}},{"name":"drop_all","inputSchema":{"type":"object"}},{"name":"read","inputSchema":{"type":"object"}},{"name":"write","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*) say "$id" '{"content":[{"type":"text","text":"DONE"}]}' ;;
    *'"method":"resources/list"'*) say "$id" '{"resources":[{"uri":"x:open","name":"o"}]}' ;;"#;

/// Use of a tool in an example: caller, agent, tool, arguments, purpose, and whether it is permitted.
type ExampleUse<'a> = (
    &'a KeyClient,
    &'static str,
    &'static str,
    Value,
    &'static str,
    bool,
);

/// Serves an example, sends each use, and compares it with what is listed. Method of the tests below.
async fn check_example(home: &Home, rule: &str, agents: &str, uses: &[ExampleUse<'_>]) {
    let rules = example_with(rule);
    let text = format!("{NODE}{agents}{MCP}keys = \"keys.toml\"\n{rules}");
    let (running, listening) = started(home, &text).await;
    for (caller, agent, tool, arguments, purpose, is_permitted) in uses {
        let url = address_of(&listening, &format!("/{agent}/mcp"));
        let meta = match *purpose {
            "" => json!({}),
            purpose => json!({ "callboard/purpose": purpose }),
        };
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let answer = caller.mcp(url, "tools/call", params).await;
        let expected = if *is_permitted {
            "DONE"
        } else {
            "don't permit you this"
        };
        assert!(
            answer.to_string().contains(expected),
            "{rule} {agent} {tool} {arguments}: {answer}"
        );
        let listed = caller
            .mcp(url, "tools/list", json!({ "_meta": meta }))
            .await;
        let is_listed = listed.to_string().contains(&format!("\"{tool}\""));
        // A tool with conditions is listed for arguments that are permitted.
        let is_conditional = *arguments != json!({});
        assert!(
            is_listed == *is_permitted || is_conditional,
            "{rule} {agent} {tool}: {listed}"
        );
    }
    end(running, home).await;
}

/// Goal: a node with an example of docs/policy.md permits, denies and lists what the page says. Method: each example
/// with servers that do everything, and calls by principals with and without its roles.
#[tokio::test]
async fn examples_in_a_node() {
    let home = Home::new();
    let script = home.write("example.sh", &server(EXAMPLE_CASES));
    let upstream = |id: &str, more: &str| {
        format!(
            "[[upstream]]\nid = \"{id}\"\nera = \"legacy\"\ncommand = [\"sh\", \"{script}\"]\n{more}"
        )
    };
    let developer = KeyClient::new(&home, "dev", &["role:developer"]).await;
    let payer = KeyClient::new(&home, "payer", &["role:developer", "role:payments"]).await;
    let platform = KeyClient::new(&home, "platform", &["role:platform"]).await;
    let clinician = KeyClient::new(&home, "doc", &["role:clinician", "purpose:treatment"]).await;
    let nobody = KeyClient::new(&home, "nobody", &[]).await;
    let none = || json!({});
    let servers = upstream("files", "") + &upstream("payments-api", "");
    let uses = [
        (&developer, "payments-api", "get_bill", none(), "", true),
        (&developer, "payments-api", "pay", none(), "", false),
        (&payer, "payments-api", "pay", none(), "", true),
        (&payer, "files", "pay", none(), "", false),
        (&payer, "payments-api", "drop_all", none(), "", false),
        (&platform, "files", "write", none(), "", true),
        (&platform, "files", "drop_all", none(), "", false),
        (&nobody, "files", "get_bill", none(), "", false),
    ];
    check_example(&home, "never", &servers, &uses).await;
    let servers = upstream("ward", "class = \"clinical\"\n") + &upstream("tickets", "");
    let uses = [
        (&clinician, "ward", "read", none(), "treatment", true),
        (&clinician, "ward", "read", none(), "", false),
        (&clinician, "ward", "read", none(), "research", false),
        (&developer, "ward", "read", none(), "treatment", false),
        (&developer, "tickets", "read", none(), "", true),
        (&nobody, "tickets", "read", none(), "", false),
    ];
    check_example(&home, "treatment", &servers, &uses).await;
    let below = || json!({ "path": "/code/a" });
    let above = || json!({ "path": "/etc/passwd" });
    let uses = [
        (&developer, "files", "read", none(), "", true),
        (&developer, "files", "write", below(), "", true),
        (&developer, "files", "write", above(), "", false),
        (
            &developer,
            "files",
            "write",
            json!({ "path": ["/code/a"] }),
            "",
            false,
        ),
        (
            &developer,
            "files",
            "write",
            json!({ "Path": "/code/a", "path": "/etc/x" }),
            "",
            false,
        ),
        (&developer, "files", "drop_all", none(), "", false),
    ];
    check_example(&home, "write-below-code", &upstream("files", ""), &uses).await;
}

/// Goal: a batch doesn't hide a call that rules deny or that needs an approval: what is permitted in it is done, and
/// nothing else. Method: a batch of three calls in the revision that has batches.
#[tokio::test]
async fn batches_cannot_hide_calls() {
    const RULES: &str = r#"
[[policy.rules]]
id = "no-waiting"
effect = "deny"
tools = ["wait"]

[[policy.rules]]
id = "ask"
effect = "approve"
agents = ["two"]

[[policy.rules]]
id = "rest"
effect = "allow"
"#;
    let home = Home::new();
    let alice = KeyClient::new(&home, "alice", &[]).await;
    let agents = script(&home, "one", "one") + &script(&home, "two", "two");
    let text = format!("{NODE}{agents}{MCP}keys = \"keys.toml\"\n{RULES}");
    let (running, listening) = started(&home, &text).await;
    let url = address_of(&listening, "/mcp");
    let post = |body: Value| {
        let post = reqwest::Client::new().post(url);
        let post = post.header("accept", "application/json, text/event-stream");
        alice.signed(post.json(&body))
    };
    let params = json!({ "protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let opened = soon("a session", post(hello).send()).await.unwrap();
    let session = opened.headers()["mcp-session-id"].clone();
    let call = |id: u32, tool: &str| {
        let params = json!({ "name": tool, "arguments": {} });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let batch = json!([
        call(1, "one__who"),
        call(2, "one__wait"),
        call(3, "two__who")
    ]);
    let batch = post(batch).header("mcp-session-id", session);
    let answered = soon("a batch", batch.send()).await.unwrap();
    let answers = soon("a body", answered.text()).await.unwrap();
    assert!(answers.contains("\"one\""), "{answers}");
    assert!(answers.contains("don't permit you this tool"), "{answers}");
    assert!(answers.contains("elicitation"), "{answers}");
    assert!(!answers.contains("\"two\""), "{answers}");
    assert_eq!(began(&home), 0);
    end(running, &home).await;
}
