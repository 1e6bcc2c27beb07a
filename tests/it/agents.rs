use serde_json::json;

use crate::kit::Home;
use crate::kit::gateway::{A2A, MCP, NODE, serve};
use crate::kit::mail::Office;

const ECHO: &str =
    "[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\ndescription = \"Repeats.\"\n";
const PLANNER: &str = "[[agent]]\nkind = \"orchestrator\"\nid = \"planner\"\n";

/// Goal: the agents of a file are listed without starting them. Method: a file with two, as rows and as JSON; an example; files that
/// can't be used.
#[tokio::test]
async fn agents_of_a_file() {
    let home = Home::new();
    let file = home.write("two.toml", &format!("{NODE}{ECHO}{PLANNER}"));
    let rows = home.run(&["agents", &file]).await.quiet(0).out;
    assert_eq!(
        rows.lines().next(),
        Some("echo\tmodel\tRepeats.\t-"),
        "{rows}"
    );
    assert!(
        rows.lines().count() == 2 && rows.contains("\nplanner\torchestrator\t"),
        "{rows}"
    );
    let listed = home.run(&["agents", &file, "--json"]).await.quiet(0).out;
    let first: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!(
        first,
        json!({ "id": "echo", "kind": "model", "description": "Repeats." })
    );
    home.run(&["agents", "example:agent1"])
        .await
        .has(&["\torchestrator\t"]);
    for (target, part) in [
        ("missing.toml", "missing.toml"),
        ("builder", "neither a file nor an address"),
        ("ftp://x", "not ftp://"),
    ] {
        home.run(&["agents", target])
            .await
            .with(2, part)
            .printing(2, "");
    }
}

/// Goal: the agents of an address are listed from its catalogue, else its card, else its MCP server. Method: a listener of several
/// agents, at three of its addresses; one of MCP; one that is closed.
#[tokio::test]
async fn agents_of_an_address() {
    let home = Home::new();
    let other = ECHO
        .replace("\"echo\"\nprovider", "\"other\"\nprovider")
        .replace("Repeats.", "Repeats too.");
    let (_node, listening) = serve(
        &home,
        &[&home.write("n.toml", &format!("{NODE}{ECHO}{other}{A2A}{MCP}"))],
    )
    .await;
    let (a2a, mcp) = (
        listening[0].1.as_str(),
        listening.last().unwrap().1.as_str(),
    );
    let base = a2a.strip_suffix("/a2a").unwrap();
    let host = base.strip_prefix("http://").unwrap();
    for url in [a2a, base, host] {
        let rows = home.run(&["agents", url]).await.quiet(0).out;
        let rows: Vec<Vec<&str>> = rows
            .lines()
            .map(|line| line.split('\t').collect())
            .collect();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(rows[0][..3], ["echo", "a2a", "Repeats."], "{rows:?}");
        assert!(
            rows[0][3].ends_with("/agents/echo/.well-known/agent-card.json"),
            "{rows:?}"
        );
    }
    let served = home.run(&["agents", mcp, "--json"]).await.quiet(0).json();
    assert_eq!(
        (&served["kind"], &served["url"]),
        (&json!("mcp"), &json!(mcp))
    );
    home.run(&["agents", "http://127.0.0.1:9"])
        .await
        .printing(4, "");
}

/// Goal: what listed the members of a mailroom before names its new command. Method: the old forms, in a member's environment.
#[tokio::test]
async fn old_forms_name_mail_members() {
    let office = Office::open(
        "[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n",
        &[("ann", &["mail.admin"])],
    )
    .await;
    for arguments in [
        &["agents"][..],
        &["agents", "--state", "active"],
        &["agents", "--url", &office.mail],
        &["agents", "--as", "ann", "--json"],
        &["agents", "end", "ann"],
    ] {
        office
            .run("ann", "", arguments)
            .await
            .with(2, "`callboard mail members`")
            .printing(2, "");
    }
    office
        .run("ann", "", &["agents", &office.mail])
        .await
        .with(4, "`callboard mail members`");
    office.close().await;
}
