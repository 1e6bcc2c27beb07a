//! Pinned tools of an upstream (`pin`), which are approved by a command.

use serde_json::{Value, json};

use crate::kit::gateway::{MCP, NODE, end, is_refused, modern, said, server, started};
use crate::kit::{Home, found};

/// Cases of a server whose tools are those of the file `tools`.
const CASES: &str = r#"
    *'"method":"initialize"'*) say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1.0"}}' ;;
    *'"method":"tools/list"'*) say "$id" "$(cat "$PLACE/tools")" ;;
    *'"method":"tools/call"'*) say "$id" '{"content":[{"type":"text","text":"done"}]}' ;;"#;

/// Writes the tools of the server, pairs of name and description.
fn offer(home: &Home, tools: &[(&str, &str)]) {
    let tools = tools.iter().map(|(name, description)| {
        json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
    });
    let tools: Vec<_> = tools.collect();
    home.write("tools", &json!({ "tools": tools }).to_string());
}

fn topology(home: &Home, pin: &str) -> String {
    let (script, place) = (
        home.write("server.sh", &server(CASES)),
        home.path("").display().to_string(),
    );
    format!(
        "{NODE}[store]\n[[upstream]]\nid = \"up\"\nera = \"legacy\"\ncommand = [\"sh\", \"{script}\"]\nenv = {{ PLACE = \"{place}\" }}\n\
         pin = \"{pin}\"\n{MCP}agent = \"up\"\n"
    )
}

async fn listed(url: &str) -> Vec<String> {
    let list = modern(url, "tools/list", json!({})).await.1;
    let tools = list["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{list}"));
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

async fn call(url: &str, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": {} });
    modern(url, "tools/call", params).await.1
}

/// Goal: the first list is pinned, also past a restart; a tool that has changed, is new, or has swapped its name
/// with another is neither listed nor callable until it is approved, which shows the difference and needs no
/// restart. Method: a server whose list is another one after each restart of its node.
#[tokio::test]
async fn changed_tools_wait_for_approval() {
    let home = Home::new();
    let text = topology(&home, "trust-first");
    offer(&home, &[("who", "says who"), ("wait", "waits")]);
    let (running, listening) = started(&home, &text).await;
    let url = &listening[0].1;
    assert_eq!(listed(url).await, ["who", "wait"]);
    assert_eq!(said(&call(url, "who").await), "done");
    end(running, &home).await;

    offer(
        &home,
        &[
            ("who", "sends secrets"),
            ("wait", "waits"),
            ("new", "is new"),
        ],
    );
    let (running, listening) = started(&home, &text).await;
    let url = &listening[0].1;
    assert_eq!(listed(url).await, ["wait"]);
    for tool in ["who", "new"] {
        let refused = call(url, tool).await;
        assert!(is_refused(&refused), "{refused}");
        assert!(
            refused.to_string().contains("callboard tools approve"),
            "{refused}"
        );
    }
    assert_eq!(said(&call(url, "wait").await), "done");
    let at = ["--topology", "n.toml"];
    let list = home
        .run(&[&["tools", "list", "up"][..], &at].concat())
        .await;
    let list = list.with(0, "");
    assert_eq!(list.out, "new\tnew\nwait\tapproved\nwho\tchanged\n");
    let approve = |more: &[&'static str]| [&["tools", "approve", "up"][..], more, &at].concat();
    let unasked = home.run(&approve(&[])).await;
    assert!(
        unasked.code == Some(2) && unasked.err.contains("--yes"),
        "{unasked:?}"
    );
    let unknown = home.run(&approve(&["whom", "--yes"])).await;
    assert!(
        unknown.code == Some(2) && unknown.err.contains("no tool whom"),
        "{unknown:?}"
    );
    let approved = home.run(&approve(&["who", "--yes"])).await;
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let shown =
        "who (changed)\n  - description: \"says who\"\n  + description: \"sends secrets\"\n";
    assert_eq!(approved.out, shown);
    let is_callable = async || (!is_refused(&call(url, "who").await)).then_some(());
    found("the approved tool", is_callable).await;
    assert_eq!(listed(url).await, ["who", "wait"]);
    assert!(is_refused(&call(url, "new").await));
    end(running, &home).await;

    offer(&home, &[("who", "waits"), ("wait", "sends secrets")]);
    let (running, listening) = started(&home, &text).await;
    let url = &listening[0].1;
    assert!(listed(url).await.is_empty());
    assert!(is_refused(&call(url, "who").await));
    end(running, &home).await;
}

/// Goal: with `review` no tool is used before it is approved, without a pin each. Method: one list for both.
#[tokio::test]
async fn reviewed_tools() {
    let home = Home::new();
    offer(&home, &[("who", "says who")]);
    let (running, listening) = started(&home, &topology(&home, "review")).await;
    let url = &listening[0].1;
    assert!(is_refused(&call(url, "who").await));
    assert!(listed(url).await.is_empty());
    let approve = ["tools", "approve", "up", "--yes", "--topology", "n.toml"];
    let approved = home.run(&approve).await;
    assert!(
        approved
            .out
            .contains("who (new)\n  + description: \"says who\""),
        "{approved:?}"
    );
    let is_listed = async || (listed(url).await == ["who"]).then_some(());
    found("the approved tool", is_listed).await;
    assert_eq!(said(&call(url, "who").await), "done");
    end(running, &home).await;

    let (running, listening) = started(&home, &topology(&home, "off")).await;
    offer(&home, &[("who", "says who"), ("new", "is new")]);
    assert_eq!(listed(&listening[0].1).await, ["who", "new"]);
    end(running, &home).await;
}
