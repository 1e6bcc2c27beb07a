use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use callboard::store::{SqlStore, StoreOptions};
use callboard::{Lease, NewTask, Principal, TaskActor, TaskStep, TaskStore};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kit::gateway::{MCP, NODE, Session, end, said, script, serve};
use crate::kit::{Home, Running, soon, until};

const SECRET: &str = "what-was-asked";

/// A node that keeps in `n.journal.sqlite`.
fn topology(home: &Home, store: &str) -> String {
    home.write(
        "n.toml",
        &format!("{NODE}{store}{}{MCP}", script(home, "a", "a")),
    )
}

async fn kill(running: Running) {
    running.signal("KILL").await;
    assert_eq!(running.finished().await.code, None);
}

/// A task of this agent that `tasks` has begun.
async fn begin(tasks: &dyn TaskStore, agent: &str) -> (String, Lease) {
    let expires = SystemTime::now() + Duration::from_secs(3_600);
    let mut new = NewTask::new(Principal::local_operator(), agent, "sum", expires);
    new.request = Some(RawValue::from_string(format!("{{\"text\":\"{SECRET}\"}}")).unwrap());
    match tasks.create(new).await.unwrap() {
        callboard::CreateOutcome::Created(task, lease) => (task.id.as_str().to_owned(), lease),
        callboard::CreateOutcome::Existing(_) => panic!("it has no key"),
    }
}

/// Creates the store of an earlier process: a task that has ended, one interrupted by a kill, and
/// one of another writer.
async fn earlier(file: &Path) -> [String; 3] {
    let open = async |writer: &str| {
        SqlStore::open(&StoreOptions::sqlite(file).writer(writer))
            .await
            .unwrap()
    };
    let mine = open("n").await;
    let tasks = mine.tasks(mine.audit());
    let (ended, lease) = begin(&*tasks, "ended").await;
    let reply = RawValue::from_string("{\"sum\":3}".to_owned()).unwrap();
    tasks
        .apply(
            &lease.task,
            TaskActor::Worker(&lease),
            vec![TaskStep::Completed(reply)],
        )
        .await
        .unwrap();
    let (left, _) = begin(&*tasks, "left").await;
    mine.close().await;
    let other = open("elsewhere").await;
    let (leased, _) = begin(&*other.tasks(other.audit()), "leased").await;
    other.close().await;
    [ended, left, leased]
}

/// The rows of a list, as JSON.
async fn listed(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let done = home
        .run(&[&["tasks", "list", "--json"], arguments].concat())
        .await
        .with(0, "");
    done.out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Goal: what a node kept is there after it was killed and started again, and can be looked at beside it. Method: tasks in
/// its store; serve, SIGKILL, serve; each command meanwhile.
#[tokio::test]
async fn tasks_beside_a_node_that_was_killed() {
    let home = Home::new();
    let file = topology(&home, "");
    let ids = earlier(&home.path("n.journal.sqlite")).await;
    let (running, _) = serve(&home, &[&file]).await;
    kill(running).await;
    let (running, _) = serve(&home, &[&file]).await;

    let all = listed(&home, &["--topology", &file]).await;
    let found: Vec<_> = all
        .iter()
        .map(|task| task["id"].as_str().unwrap())
        .collect();
    assert_eq!(found, ids);
    assert_eq!(all[0]["state"], "completed");
    assert_eq!(all[1]["state"], "working");
    let some = listed(
        &home,
        &[
            "--topology",
            &file,
            "--in-state",
            "working",
            "--agent",
            "left",
            "--since",
            "1h",
        ],
    )
    .await;
    assert_eq!(some.len(), 1);
    let page = home
        .run(&["tasks", "list", "--topology", &file, "--limit", "1"])
        .await;
    assert_eq!(page.out.lines().count(), 1, "{page:?}");
    assert!(
        page.out.starts_with("1\t") && page.out.contains("\tcompleted\tended\tsum\t"),
        "{page:?}"
    );
    assert_eq!(page.err, "more: --after 1\n");
    assert_eq!(
        listed(&home, &["--topology", &file, "--after", "1"])
            .await
            .len(),
        2
    );

    let shown = home
        .run(&["tasks", "show", &ids[0], "--topology", &file])
        .await;
    assert!(
        shown.out.contains("\nstate: completed\n")
            && shown.out.contains("\tcompleted\tcompleted\n"),
        "{shown:?}"
    );
    assert!(!shown.out.contains(SECRET), "{shown:?}");
    let shown = home
        .run(&[
            "tasks",
            "show",
            &ids[0],
            "--topology",
            &file,
            "--bodies",
            "--json",
        ])
        .await;
    let shown = shown.json();
    assert_eq!(shown["request"]["text"], SECRET);
    assert_eq!(
        shown["events"].as_array().unwrap().last().unwrap()["step"],
        "completed"
    );
    end(running, &home).await;
}

/// Goal: a task is ended from beside the node: at once where nobody works on it, else its worker is told; one that has
/// ended stays as it is. Method: one of each, and one that isn't there.
#[tokio::test]
async fn tasks_are_cancelled_beside_the_node() {
    let home = Home::new();
    let file = topology(&home, "");
    let [ended, left, leased] = earlier(&home.path("n.journal.sqlite")).await;
    let (running, _) = serve(&home, &[&file]).await;
    let cancel = async |id: &str| {
        let done = home
            .run(&["tasks", "cancel", id, "--topology", &file])
            .await;
        (done.code.unwrap(), done.out + &done.err)
    };
    assert_eq!(cancel(&left).await, (0, format!("cancelled {left}\n")));
    assert_eq!(
        cancel(&leased).await,
        (0, format!("asked the node to cancel {leased}\n"))
    );
    assert_eq!(
        cancel(&ended).await,
        (
            4,
            format!("callboard: the task {ended} has ended already: it is completed\n")
        )
    );
    assert_eq!(
        cancel(&left).await,
        (
            4,
            format!("callboard: the task {left} has ended already: it is canceled\n")
        )
    );
    assert_eq!(
        cancel("nobody").await,
        (4, "callboard: there is no task nobody\n".to_owned())
    );
    let states: Vec<_> = listed(&home, &["--topology", &file])
        .await
        .iter()
        .map(|task| task["state"].clone())
        .collect();
    assert_eq!(states, ["completed", "canceled", "working"]);
    end(running, &home).await;
}

/// Goal: what crossed a node's boundary is in its audit after a kill, and the chain is whole; one changed byte is named, with an
/// exit code of its own. Method: a call, SIGKILL once it is kept, another start; `audit show` and `verify` beside it; then
/// an export with another word in it.
/// Rows: H-39.
#[tokio::test]
async fn the_audit_outlives_a_kill() {
    let home = Home::new();
    let file = topology(&home, "[store]\naudit = \"all\"\n");
    let (running, listening) = serve(&home, &[&file]).await;
    assert_eq!(
        said(&Session::begin(&listening[0].1).await.call("who").await),
        "a"
    );
    let audit = async |arguments: &[&str]| home.run(&[&["audit"], arguments].concat()).await;
    let kept = async {
        while !audit(&["show", "--event", "reply", "--json", "--topology", &file])
            .await
            .out
            .contains("\"reply\"")
        {}
    };
    soon("an entry of the reply", kept).await;
    kill(running).await;
    let (running, _) = serve(&home, &[&file]).await;
    let starts = audit(&[
        "show",
        "--event",
        "run.started",
        "--json",
        "--topology",
        &file,
    ])
    .await;
    assert_eq!(starts.out.lines().count(), 2, "{starts:?}");
    for (limit, code) in [("1000", 0), ("1001", 2), ("0", 2)] {
        let shown = audit(&["show", "--limit", limit, "--topology", &file]).await;
        assert_eq!(shown.code, Some(code), "{shown:?}");
        assert_eq!(
            shown.err.contains("write 1 to 1000"),
            code == 2,
            "{shown:?}"
        );
    }
    let messages = audit(&["show", "--event", "message", "--json", "--topology", &file]).await;
    assert!(messages.out.lines().count() > 0, "{messages:?}");
    let verified = audit(&["verify", "--topology", &file]).await.with(0, "");
    assert!(verified.out.starts_with("ok n 1.."), "{verified:?}");
    end(running, &home).await;

    let out = home.path("audit.jsonl").display().to_string();
    assert_eq!(
        audit(&["export", &out, "--topology", &file]).await.code,
        Some(0)
    );
    let key = home.path("audit.pub").display().to_string();
    audit(&["verify-export", &out, "--public-key", &key])
        .await
        .with(0, "");
    let text = fs::read_to_string(&out).unwrap();
    let changed = home.write(
        "changed.jsonl",
        &text.replacen("run.started", "run.strated", 1),
    );
    let found = audit(&["verify-export", &changed, "--public-key", &key])
        .await
        .with(3, "");
    assert!(found.out.starts_with("bad n entry 1: "), "{found:?}");
}

/// Goal: two nodes never write to one file, and the second says so. Method: a second `serve` of the same file; then the
/// first goes on.
#[tokio::test]
async fn one_file_has_one_node() {
    let home = Home::new();
    let file = topology(&home, "");
    let (running, _) = serve(&home, &[&file]).await;
    let second = home
        .run(&["serve", &file])
        .await
        .with(4, "n.journal.sqlite is in use by another process");
    assert!(second.err.contains(&running.id().to_string()), "{second:?}");
    assert_eq!(listed(&home, &["--topology", &file]).await.len(), 0);
    end(running, &home).await;
}

/// Goal: a backup of a running node is a store with the same in it, is private, and never replaces a file. Method: one
/// beside a node; the commands on it; a node that starts with it; a second one to the same file.
#[tokio::test]
async fn a_backup_is_a_store() {
    let home = Home::new();
    let file = topology(&home, "");
    let ids = earlier(&home.path("n.journal.sqlite")).await;
    let (running, _) = serve(&home, &[&file]).await;
    let copy = home.path("copy.sqlite").display().to_string();
    let done = home
        .run(&["backup", &copy, "--topology", &file])
        .await
        .with(0, "");
    let bytes = fs::metadata(&copy).unwrap().len();
    assert!(
        done.out
            .starts_with(&format!("backed up to {copy}: {bytes} bytes, audit up to ")),
        "{done:?}"
    );
    assert!(done.out.contains("n:"), "{done:?}");
    assert_eq!(
        fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
        0o600
    );
    home.run(&["backup", &copy, "--topology", &file])
        .await
        .with(4, "is there already");
    end(running, &home).await;

    let url = format!("sqlite:{copy}");
    let there = listed(&home, &["--store", &url]).await;
    let there: Vec<_> = there
        .iter()
        .map(|task| task["id"].as_str().unwrap())
        .collect();
    assert_eq!(there, ids);
    let file = topology(&home, &format!("[store]\nurl = \"{url}\"\n"));
    let (running, _) = serve(&home, &[&file]).await;
    assert_eq!(listed(&home, &["--topology", &file]).await.len(), 3);
    end(running, &home).await;
}

/// Goal: a store isn't changed under what runs. Method: a reload with another `[store]`; the complaint, then the old one goes
/// on, and the next start takes the new one.
#[tokio::test]
async fn another_store_wants_a_restart() {
    let home = Home::new();
    let file = topology(&home, "");
    let (running, _) = serve(&home, &[&file]).await;
    topology(&home, "[store]\nurl = \"sqlite:other.sqlite\"\n");
    running.signal("HUP").await;
    let complains = || {
        fs::read_to_string(home.path("stderr"))
            .unwrap()
            .contains("restart the node")
    };
    until("a complaint", complains).await;
    assert!(!home.path("other.sqlite").exists());
    end(running, &home).await;
    let (running, _) = serve(&home, &[&file]).await;
    assert!(home.path("other.sqlite").exists());
    end(running, &home).await;
}

/// Goal: a node that keeps in memory leaves nothing, and a command says that there is nothing; so it does where no node has
/// been. Method: both; what the commands say and how they end.
#[tokio::test]
async fn no_store_to_look_into() {
    let home = Home::new();
    let file = topology(&home, "[store]\nurl = \"memory\"\n");
    let (running, _) = serve(&home, &[&file]).await;
    end(running, &home).await;
    assert!(!home.path("n.journal.sqlite").exists());
    let listed = home.run(&["tasks", "list", "--topology", &file]).await;
    assert_eq!(
        (listed.code, &*listed.err),
        (
            Some(2),
            "callboard: the node keeps its data in memory: there is no store to look into; add a section [store]\n"
        )
    );

    let file = topology(&home, "");
    home.run(&["tasks", "list", "--topology", &file])
        .await
        .with(4, "start the node first");
    assert!(!home.path("n.journal.sqlite").exists());
}

/// Goal: a file that is something else stops the node, and is left as it is. Method: a text where the store should be.
#[tokio::test]
async fn a_file_that_is_no_store() {
    let home = Home::new();
    let file = topology(&home, "");
    let text = "dear diary, ".repeat(1_000);
    home.write("n.journal.sqlite", &text);
    let done = home.run(&["serve", &file]).await.with(4, "");
    assert!(
        done.err
            .contains("is not a callboard store; it was left as it is"),
        "{done:?}"
    );
    assert_eq!(
        fs::read_to_string(home.path("n.journal.sqlite")).unwrap(),
        text
    );
}

/// Goal: a directory comes back as it was given, members that nobody knows included, and a file that is none changes nothing.
/// Method: import beside a node, export after its kill and another start, import again; files with a mistake.
/// Rows: B-6, B-14.
#[tokio::test]
async fn the_directory_outlives_the_node() {
    let home = Home::new();
    let file = topology(&home, "");
    let (running, _) = serve(&home, &[&file]).await;
    let text =
        r#"{"version":1,"agents":{"@ann":{"name":"Ann","x-more":[1,2.50]},"@bob":{"name":"Bob"}}}"#;
    let given = home.write("agents.json", text);
    let import = async |file_given: &str| {
        home.run(&["directory", "import", file_given, "--topology", &file])
            .await
    };
    import(&given)
        .await
        .printing(0, "2 new, 0 changed, 0 the same\n");
    kill(running).await;
    let (running, _) = serve(&home, &[&file]).await;
    let out = home.path("out.json").display().to_string();
    home.run(&["directory", "export", &out, "--topology", &file])
        .await
        .with(0, "");
    assert_eq!(fs::read_to_string(&out).unwrap().trim_end(), text);
    home.run(&["directory", "export", &out, "--topology", &file])
        .await
        .with(4, "");
    home.write("agents.json", &text.replace("Bob", "Rob"));
    assert_eq!(import(&given).await.out, "0 new, 1 changed, 1 the same\n");
    for wrong in [
        "",
        "[]",
        r#"{"version":2,"agents":{}}"#,
        r#"{"version":1,"agents":{"a":7}}"#,
    ] {
        assert_eq!(
            import(&home.write("wrong.json", wrong)).await.code,
            Some(2),
            "{wrong}"
        );
    }
    let done = home
        .run(&["directory", "export", "-", "--topology", &file])
        .await;
    assert_eq!(done.out.trim_end(), text.replace("Bob", "Rob"));
    end(running, &home).await;
}
