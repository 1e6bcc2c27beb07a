//! a2a-handler: a program that talks with agents on a command line.

use std::path::Path;

use serde_json::Value;

use super::agent;
use crate::kit::{Peers, peers, soon, with};
use crate::round::ECHOED;

/// Returns the JSON that it prints, one value a line.
async fn handler(peers: &Peers, home: &Path, format: &str, arguments: &[&str]) -> Vec<Value> {
    let program = peers.folder().join("python-a2a/bin/handler");
    let mut command = with(peers.command(&program), ["--output", format]);
    // Where it keeps conversations.
    command.env("HOME", home).env("XDG_CONFIG_HOME", home);
    let output = soon("the handler's answer", command.args(arguments).output());
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let values = serde_json::Deserializer::from_str(&said).into_iter();
    values
        .collect::<Result<_, _>>()
        .unwrap_or_else(|e| panic!("{e} in {said}"))
}

/// Text of artifacts, wherever they are in the answers.
fn text(answer: &Value) -> String {
    match answer {
        Value::Object(members) => {
            let own = members.get("artifactId").and(members.get("parts"));
            let parts = own.and_then(Value::as_array).into_iter().flatten();
            let own = parts.filter_map(|part| part["text"].as_str());
            own.map(str::to_owned)
                .chain(members.values().map(text))
                .collect()
        }
        Value::Array(entries) => entries.iter().map(text).collect(),
        _ => String::new(),
    }
}

/// Goal: the program a2a-handler reads our card, and gets what our agent answers, at once and in pieces. Method: `card get`,
/// `message send` and `message stream`.
#[actix_web::test]
async fn handler_talks_with_our_agent() {
    let Some(peers) = peers() else { return };
    let (ours, home) = (agent::start(), tempfile::tempdir().unwrap());
    let home = home.path();

    let card = handler(&peers, home, "json", &["card", "get", "--url", &ours.url]).await;
    let interfaces = card[0]["supportedInterfaces"].as_array();
    let mut urls = interfaces.into_iter().flatten().map(|one| &one["url"]);
    let is_ours = |url: &Value| url.as_str().is_some_and(|url| url.starts_with(&ours.url));
    assert!(urls.any(is_ours), "{card:?}");

    let words = format!("echo {ECHOED}");
    let send = ["message", "send", "--url", &ours.url, "--text", &words];
    let sent = handler(&peers, home, "json", &send).await;
    assert_eq!(
        sent.iter().map(text).collect::<String>(),
        ECHOED,
        "{sent:?}"
    );

    let stream = ["message", "stream", "--url", &ours.url, "--text", "count"];
    // Each event comes with the task as it is by then.
    let events = handler(&peers, home, "ndjson", &stream).await;
    let last = events.last().map(text).unwrap_or_default();
    assert_eq!(last, "1 2 3", "{events:?}");
}
