//! Names that programs rely on: members of `--json`, and kinds of audit entries.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use callboard::store::{SqlStore, StoreOptions};
use serde_json::Value;
use walkdir::WalkDir;

use crate::kit::gateway::serve;
use crate::kit::mail::Office;
use crate::kit::{Home, soon};

const QUESTION: &str = "Which cardiology patients take atorvastatin?";
/// A node with an agent that says everything back.
const ECHO: &str = "[node]\nname = \"n\"\n[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n\
    [[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nagent = \"echo\"\n";
const MAILROOM: &str = "[[agent]]\nkind = \"mailroom\"\nid = \"mailroom\"\n";

/// Notes each member, with its place.
fn members(value: &Value, at: &str, lines: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let place = format!("{at}.{name}");
                members(value, &place, lines);
                lines.insert(place);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| members(item, &format!("{at}[]"), lines)),
        _ => {}
    }
}

/// A command and the members of what it prints: a JSON value a line.
fn told(command: &[&str], out: &str) -> String {
    let mut lines = BTreeSet::new();
    for line in out.lines() {
        members(
            &serde_json::from_str(line).unwrap_or_else(|e| panic!("{command:?}: {e}: {line}")),
            "  ",
            &mut lines,
        );
    }
    assert!(!lines.is_empty(), "{command:?} printed nothing");
    let words: Vec<&str> = command
        .iter()
        .take_while(|word| !word.starts_with('-'))
        .copied()
        .collect();
    lines
        .iter()
        .fold(format!("{}\n", words.join(" ")), |text, line| {
            text + line + "\n"
        })
}

/// Words of a command, then what it is about.
async fn json(home: &Home, command: &[&str], about: &[&str]) -> String {
    let ended = home.run(&[command, about, &["--json"]].concat()).await;
    assert!(matches!(ended.code, Some(0 | 2)), "{command:?}: {ended:?}");
    told(command, &ended.out)
}

/// The newest store that a released version left, opened once by this one.
async fn store(home: &Home) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("actors/store/tests/data/upgrade");
    let folders = fs::read_dir(fixtures)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir());
    let newest = folders.max().unwrap();
    for (from, to) in [
        ("db", "store.sqlite"),
        ("key", "audit.key"),
        ("pub", "audit.pub"),
        ("anchor", "audit.anchor"),
    ] {
        fs::copy(newest.join(format!("sqlite.{from}")), home.path(to)).unwrap();
    }
    let file = home.path("store.sqlite");
    SqlStore::open(&StoreOptions::sqlite(&file))
        .await
        .unwrap()
        .close()
        .await;
    format!("sqlite:{}", file.display())
}

/// Goal: programs that read `--json` find what they found. Method: the members of what each command prints that needs no
/// node.
#[tokio::test]
async fn json_without_a_node() {
    let home = Home::new();
    let wrong = home.write("wrong.toml", "[node]\nnam = 1\n");
    let store = store(&home).await;
    let at = ["--store", &store];
    let out = home.path("out.jsonl").display().to_string();
    assert_eq!(
        home.run(&["audit", "export", &out, at[0], at[1]])
            .await
            .code,
        Some(0)
    );
    let keys = home.path("audit.pub").display().to_string();
    let server = format!("{} stdio example:hmcp-emr", env!("CARGO_BIN_EXE_callboard"));
    let data = r#"{"clinical_data":{"diagnosis":"x"},"patient_id":"PT12345"}"#;
    let commands: [(&[&str], &[&str]); 11] = [
        (&["ask"], &[QUESTION]),
        (&["check"], &[&wrong]),
        (&["eval", "routing"], &[]),
        (&["tasks", "list"], &at),
        (&["tasks", "show"], &["completed", "--bodies", at[0], at[1]]),
        (&["tasks", "cancel"], &["resumed", at[0], at[1]]),
        (&["audit", "verify"], &at),
        (&["audit", "verify-export"], &[&out, "--public-key", &keys]),
        (&["audit", "show"], &at),
        (&["mcp", "list"], &[&server, "--era", "modern"]),
        (
            &["mcp", "call"],
            &[
                &server,
                "write_clinical_data",
                "--era",
                "modern",
                "--json-args",
                data,
            ],
        ),
    ];
    let mut all = String::new();
    for (command, about) in commands {
        all += &json(&home, command, about).await;
    }
    insta::assert_snapshot!("json_without_a_node", all);
}

/// Goal: as above, of the commands that speak to an agent. Method: a node that says everything back.
#[tokio::test]
async fn json_of_an_agent() {
    let home = Home::new();
    let (_node, listening) = serve(&home, &[&home.write("echo.toml", ECHO)]).await;
    let url = &*listening[0].1;
    let mut all = json(&home, &["a2a", "card"], &[url]).await;
    all += &json(&home, &["ask"], &["--to", url, "hello"]).await;
    all += &json(&home, &["agents"], &[url]).await;
    let sent = home.run(&["a2a", "send", url, "hello", "--json"]).await.out;
    all += &told(&["a2a", "send"], &sent);
    // It has ended: what is shown of it doesn't change any more.
    let sent: Value = serde_json::from_str(&sent).unwrap();
    all += &json(
        &home,
        &["a2a", "task"],
        &[url, sent["task"]["id"].as_str().unwrap()],
    )
    .await;
    all += &json(&home, &["a2a", "list"], &[url]).await;
    insta::assert_snapshot!("json_of_an_agent", all);
}

/// Goal: as above, of agent mail. Method: a mailroom; what two members are shown.
#[tokio::test]
async fn json_of_mail() {
    let office = Office::open(MAILROOM, &[("ann", &["mail.admin"]), ("bob", &[])]).await;
    for id in ["ann", "bob"] {
        soon("its first word", office.client(id).agents(None))
            .await
            .unwrap();
    }
    let run = async |who: &str, command: &[&str], about: &[&str]| {
        let ended = office
            .run(who, "", &[command, about, &["--json"]].concat())
            .await
            .with(0, "");
        ended.out
    };
    let sent = run(
        "ann",
        &["mail", "send"],
        &["bob", "hello", "--topic", "ci", "--urgent"],
    )
    .await;
    let id = serde_json::from_str::<Value>(&sent).unwrap()["message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut all = told(&["mail", "send"], &sent);
    for (who, command, about) in [
        ("ann", &["mail", "broadcast"][..], &["to all"][..]),
        ("bob", &["mail", "inbox"], &["--read"]),
        ("ann", &["mail", "show"], &[&id, "--receipts"]),
        ("ann", &["mail", "history"], &[]),
        ("ann", &["mail", "members"], &[]),
        ("ann", &["mail", "members", "end"], &["bob"]),
        ("ann", &["mail", "members", "back"], &["bob"]),
    ] {
        all += &told(command, &run(who, command, about).await);
    }
    insta::assert_snapshot!("json_of_mail", all);
}

/// Goal: whoever searches the audit finds what it found. Method: the names of events and of their members, as the source
/// has them.
#[test]
fn audit_kinds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut kinds = BTreeSet::from(["event audit.cut".to_owned()]);
    for folder in ["actors", "protocols", "src"] {
        for entry in WalkDir::new(root.join(folder)) {
            let path = entry.unwrap().into_path();
            let is_test = path.to_string_lossy().contains("test");
            if is_test || path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            if !text.contains("AuditEntry") && !text.contains(".audit_entry(") {
                continue;
            }
            for (call, what) in [
                ("AuditEntry::new(\"", "event"),
                (".entry(\"", "event"),
                (".audit_entry(\"", "event"),
                ("let event = \"", "event"),
                (".with_detail(\"", "member"),
            ] {
                // Bodies of messages have members too; an entry's statement names it.
                let statements = text.split(';').filter(|text| {
                    ["entry", "Entry", "event", "told"]
                        .iter()
                        .any(|word| text.contains(word))
                });
                let names = statements
                    .flat_map(|text| text.split(call).skip(1))
                    .filter_map(|rest| rest.split('"').next());
                kinds.extend(names.map(|name| format!("{what} {name}")));
            }
        }
    }
    // Of what crosses a boundary.
    kinds.extend(["reply", "question", "answer"].map(|part| format!("event {part}")));
    insta::assert_snapshot!(
        "audit_kinds",
        kinds.into_iter().collect::<Vec<_>>().join("\n")
    );
}
