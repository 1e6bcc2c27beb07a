//! `callboard audit follow`: each entry is printed as it is stored, and none is missed over runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use callboard::store::{Retention, SqlStore, StoreOptions};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;

use crate::kit::gateway::{MCP, NODE, Session, end, said, script, serve};
use crate::kit::{Finished, Home, ended, soon};

fn topology(home: &Home) -> String {
    home.write("n.toml", &format!("{NODE}{}{MCP}", script(home, "a", "a")))
}

/// Opens the node's store as this writer would at its start, and ends.
async fn start_and_end(file: &Path, writer: &str) {
    let options = StoreOptions::sqlite(file).writer(writer);
    let store = SqlStore::open(&options).await.unwrap();
    store.close().await;
}

async fn follow(home: &Home, more: &[&str]) -> Finished {
    let words = ["audit", "follow", "--once", "--topology", "n.toml"];
    home.run(&[&words[..], more].concat()).await
}

fn objects(out: &str) -> Vec<Value> {
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Waits for a line that contains `text`.
async fn line_with(lines: &mut Lines<BufReader<ChildStdout>>, text: &str) {
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return;
            }
        }
        panic!("ended without {text:?}");
    };
    soon(text, reading).await;
}

/// Goal: over two runs with a cursor, each entry and each call is printed once, in the documented form. Method: a node with a
/// call before each run; both together are what one run without a cursor prints.
#[tokio::test]
async fn each_entry_once_over_runs() {
    let home = Home::new();
    let file = topology(&home);
    let mut printed = Vec::new();
    for _ in 0..2 {
        let (running, listening) = serve(&home, &[&file]).await;
        let session = Session::begin(&listening[0].1).await;
        assert_eq!(said(&session.call("who").await), "a");
        end(running, &home).await;
        let done = follow(&home, &["--from-start", "--calls", "--cursor", "cursor"]).await;
        let done = done.quiet(0);
        let found = objects(&done.out);
        let call = found.iter().find(|object| object["event"] == "call");
        let call = call.unwrap_or_else(|| panic!("{done:?}"));
        assert_eq!(call["tool"], "who");
        assert_eq!(call["outcome"], "answered");
        for member in ["at", "chain", "number", "principal", "agent", "ms", "call"] {
            assert!(!call[member].is_null(), "{member} {call}");
        }
        let started = found.iter().find(|object| object["event"] == "run.started");
        let started = started.unwrap_or_else(|| panic!("{done:?}"));
        assert_eq!(started["chain"], "n");
        assert!(started["details"]["worker"].is_string(), "{started}");
        assert!(started["at"].as_str().unwrap().ends_with('Z'), "{started}");
        printed.extend(done.out.lines().map(str::to_owned));
    }
    let again = follow(&home, &["--calls", "--cursor", "cursor"]).await;
    again.quiet(0).printing(0, "");

    let all = follow(&home, &["--since", "1d", "--calls"]).await.quiet(0);
    let all: Vec<_> = all.out.lines().map(str::to_owned).collect();
    let distinct: BTreeSet<_> = printed.iter().collect();
    assert_eq!(distinct.len(), printed.len(), "{printed:?}");
    let expected: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct, expected);
    let without = follow(&home, &["--from-start"]).await.quiet(0);
    let is_call = |line: &&String| line.contains(r#""event":"call""#);
    let calls = all.iter().filter(is_call).count();
    assert_eq!((calls, without.out.lines().count()), (2, all.len() - 2));
}

/// Goal: an entry that is added while it runs is printed soon, and a reader that has gone ends it with success. Method: calls
/// beside a running node; standard output is closed.
#[tokio::test]
async fn entries_appear_while_it_runs() {
    let home = Home::new();
    let file = topology(&home);
    let (running, listening) = serve(&home, &[&file]).await;
    let session = Session::begin(&listening[0].1).await;
    let words = [
        "audit",
        "follow",
        "--from-start",
        "--calls",
        "--topology",
        file.as_str(),
    ];
    let mut follower = home.callboard(&words).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    line_with(&mut lines, "run.started").await;
    assert_eq!(said(&session.call("who").await), "a");
    line_with(&mut lines, r#""tool":"who""#).await;
    drop(lines);
    assert_eq!(said(&session.call("who").await), "a");
    let ended = soon("its end", follower.wait()).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    end(running, &home).await;
}

/// Goal: without an option, only new entries are printed, those of a new chain too. Method: runs of two writers, and the
/// command after each.
#[tokio::test]
async fn a_first_run_prints_new_entries() {
    let home = Home::new();
    topology(&home);
    let store = home.path("n.journal.sqlite");
    start_and_end(&store, "n").await;
    let cursor = ["--cursor", "cursor"];
    follow(&home, &cursor).await.quiet(0).printing(0, "");
    start_and_end(&store, "elsewhere").await;
    let done = follow(&home, &cursor).await.quiet(0);
    let found = objects(&done.out);
    assert!(!found.is_empty(), "{done:?}");
    assert!(
        found.iter().all(|object| object["chain"] == "elsewhere"),
        "{done:?}"
    );
}

/// Goal: entries that retention removed before they were read are counted, and the rest is printed. Method: a cursor at the
/// start, and a cleanup that keeps nothing.
#[tokio::test]
async fn removed_entries_are_told() {
    let home = Home::new();
    topology(&home);
    let file = home.path("n.journal.sqlite");
    start_and_end(&file, "n").await;
    let retention = Retention {
        audit: Some(Duration::ZERO),
        ..Retention::default()
    };
    let options = StoreOptions::sqlite(&file)
        .writer("n")
        .retention(retention)
        .cleanup_interval(None);
    let store = SqlStore::open(&options).await.unwrap();
    let removed = async {
        loop {
            let removed = store.clean().await.unwrap().audit;
            if removed > 0 {
                return removed;
            }
        }
    };
    let removed = soon("a removal", removed).await;
    store.close().await;
    home.write("cursor", r#"{"version":1,"chains":{"n":0}}"#);
    let done = follow(&home, &["--cursor", "cursor"]).await;
    let told = format!("{removed} audit entries were removed by retention");
    let done = done.with(0, &told);
    let found = objects(&done.out);
    assert_eq!(found[0]["number"], removed + 1, "{done:?}");
    follow(&home, &["--cursor", "cursor"]).await.quiet(0);
}

/// Goal: a cursor that can't be used is an error with its remedy, and stays as it is. Method: files that are none, and one
/// of another store.
#[tokio::test]
async fn cursors_that_cannot_be() {
    let home = Home::new();
    topology(&home);
    start_and_end(&home.path("n.journal.sqlite"), "n").await;
    for text in [
        "",
        "5",
        r#"{"version":0,"chains":{}}"#,
        r#"{"version":3,"chains":{}}"#,
        r#"{"version":1,"chains":{"n":-1}}"#,
        r#"{"version":2,"chains":{"n":{"number":1,"hash":"00"}}}"#,
        r#"{"version":1,"chains":{"n":1000}}"#,
    ] {
        home.write("cursor", text);
        let done = follow(&home, &["--cursor", "cursor"]).await;
        let done = done.with(2, "remove the file, and begin with --from-start or --since");
        assert_eq!((&*done.out, done.err.contains("cursor: ")), ("", true));
        assert_eq!(fs::read_to_string(home.path("cursor")).unwrap(), text);
    }
    follow(&home, &["--cursor", "no/such/folder"])
        .await
        .with(4, "failed to write no/such/folder");
}

/// Goal: the position of another store isn't used, also if that one has more entries. Method: two stores with the same
/// chain, and the cursor of the shorter one.
#[tokio::test]
async fn a_cursor_of_another_store() {
    let home = Home::new();
    for (name, runs) in [("one", 1), ("two", 3)] {
        fs::create_dir(home.path(name)).unwrap();
        for _ in 0..runs {
            start_and_end(&home.path(name).join("n.sqlite"), "n").await;
        }
    }
    let follow = async |name: &str, more: &[&str]| {
        let url = format!("sqlite:{name}/n.sqlite");
        let words = [
            "audit", "follow", "--once", "--cursor", "cursor", "--store", &url,
        ];
        home.run(&[&words[..], more].concat()).await
    };
    follow("one", &["--from-start"]).await.quiet(0);
    follow("two", &[])
        .await
        .with(2, "isn't the one that was read last")
        .printing(2, "");
    follow("one", &[]).await.quiet(0).printing(0, "");
}

/// Goal: two runs don't use one cursor at a time. Method: the lock of another run, held and released.
#[tokio::test]
async fn one_run_for_a_cursor() {
    let home = Home::new();
    topology(&home);
    start_and_end(&home.path("n.journal.sqlite"), "n").await;
    let lock = fs::File::create(home.path("cursor.lock")).unwrap();
    lock.lock().unwrap();
    let cursor = ["--from-start", "--cursor", "cursor"];
    let refused = follow(&home, &cursor).await;
    refused.with(2, "another run of").printing(2, "");
    lock.unlock().unwrap();
    let done = follow(&home, &cursor).await.quiet(0);
    assert!(!objects(&done.out).is_empty(), "{done:?}");
}

/// Goal: a run whose standard output is a file writes all of it, and the next one continues. Method: two runs to a file.
#[tokio::test]
async fn output_to_a_file() {
    let home = Home::new();
    topology(&home);
    let store = home.path("n.journal.sqlite");
    start_and_end(&store, "n").await;
    let mut lines = Vec::new();
    for _ in 0..2 {
        let words = ["audit", "follow", "--once", "--topology", "n.toml"];
        let cursor = ["--from-start", "--cursor", "cursor"];
        let out = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(home.path("audit.jsonl"))
            .unwrap();
        let mut command = home.callboard(&[&words[..], &cursor[..]].concat());
        ended(command.stdout(out), None).await.quiet(0);
        let printed = fs::read_to_string(home.path("audit.jsonl")).unwrap();
        lines.push(printed.lines().count());
    }
    assert!(lines[0] > 0 && lines[0] == lines[1], "{lines:?}");
}
