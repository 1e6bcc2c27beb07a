use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::gateway::{A2A, NODE, began, edit, end, reloaded, script, started};
use crate::kit::{Home, a2a, found, soon, until};

/// A call under way, answered once it has ended.
fn call(url: &str, skill: &str) -> tokio::task::JoinHandle<Value> {
    let (url, params) = (url.to_owned(), a2a::for_skill(skill, false));
    tokio::spawn(async move { a2a::ask(&url, "SendMessage", params).await })
}

/// All that a streamed call tells, once it has ended.
fn stream(url: &str, skill: &str) -> tokio::task::JoinHandle<String> {
    let request = a2a::request(url, "SendStreamingMessage", a2a::for_skill(skill, false));
    tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() })
}

async fn says(url: &str, skill: &str) -> String {
    a2a::said(&a2a::ask(url, "SendMessage", a2a::for_skill(skill, false)).await).to_owned()
}

async fn card(url: &str) -> (u16, Value) {
    document(url, "agent-card.json").await
}

async fn document(url: &str, name: &str) -> (u16, Value) {
    let url = format!("{}/.well-known/{name}", url.strip_suffix("/a2a").unwrap());
    let request = reqwest::Client::new().get(url).header("a2a-version", "1.0");
    let response = soon("a card", request.send()).await.unwrap();
    (
        response.status().as_u16(),
        response.json().await.unwrap_or_default(),
    )
}

/// Goal: a card says what the file says that its agent is for, also once the file says something else, and of the others what their skills
/// say; whoever comes in without a key, on this machine, sees the list of such tasks, and an agent is at the listener's bare address too. Method: two
/// upstreams of which one is described, otherwise after a reload; a call to the bare address, and the list.
#[tokio::test]
async fn cards_say_what_agents_are_for() {
    let home = Home::new();
    let declared = |what: &str| {
        let [a, b] = ["a", "b"].map(|id| script(&home, id, id));
        format!("{NODE}{a}description = \"{what}\"\n{b}{A2A}")
    };
    let (mut running, before) = started(&home, &declared("Knows who.")).await;
    let [all, a, b] = [0, 1, 2].map(|at| before[at].1.clone());
    let catalogued =
        async || document(&all, "ai-catalog.json").await.1["entries"][0]["description"].clone();
    assert_eq!(
        (&card(&a).await.1["description"], catalogued().await),
        (&json!("Knows who."), json!("Knows who."))
    );
    for url in [&all, &b] {
        let told = card(url).await.1["description"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(told.contains("who"), "{told}");
    }
    assert_eq!(
        reloaded(&home, &mut running, &declared("Knows more.")).await,
        before
    );
    assert_eq!(
        (&card(&a).await.1["description"], catalogued().await),
        (&json!("Knows more."), json!("Knows more."))
    );

    let base = all.strip_suffix("/a2a").unwrap();
    let task =
        a2a::ask(base, "SendMessage", a2a::for_skill("a__who", false)).await["task"]["id"].clone();
    let listed = a2a::ask(&all, "ListTasks", json!({})).await;
    assert_eq!(
        (&listed["totalSize"], &listed["tasks"][0]["id"]),
        (&json!(1), &task),
        "{listed}"
    );
    // Whichever address it was begun at.
    assert_eq!(
        a2a::ask(&a, "GetTask", json!({ "id": task })).await["id"],
        task
    );
    let own = a2a::ask(&b, "SendMessage", a2a::for_skill("who", false)).await["task"]["id"].clone();
    let listed = a2a::ask(&all, "ListTasks", json!({})).await;
    assert_eq!(listed["tasks"][0]["id"], own, "{listed}");
    assert_eq!(
        a2a::ask(&all, "GetTask", json!({ "id": own })).await["id"],
        own
    );
    end(running, &home).await;
}

/// Goal: whoever is behind an A2A listener is replaced, added and removed, while what was begun ends with whom it began: answers,
/// streams, and tasks that nobody waits for. Method: a call of each kind in flight while the file changes.
#[tokio::test]
async fn calls_in_flight_finish() {
    let home = Home::new();
    // One does one thing at a time.
    let three = |name: &str| ["a", "b", "c"].map(|id| script(&home, id, name)).concat();
    let other = script(&home, "other", "other");
    let (mut running, before) =
        started(&home, &format!("{NODE}{}{other}{A2A}", three("old"))).await;
    let [all, a, b, c, gone] = [0, 1, 2, 3, 4].map(|at| before[at].1.clone());
    assert_eq!(
        (says(&all, "a__who").await, says(&all, "other__who").await),
        ("old".into(), "other".into())
    );
    let (answer, streamed, removed) = (
        call(&all, "a__wait"),
        stream(&b, "wait"),
        call(&gone, "wait"),
    );
    let task =
        a2a::ask(&c, "SendMessage", a2a::for_skill("wait", true)).await["task"]["id"].clone();
    until("the calls to begin", || began(&home) == 4).await;

    let now = reloaded(
        &home,
        &mut running,
        &format!(
            "{NODE}{}{}{A2A}",
            three("new"),
            script(&home, "added", "added")
        ),
    )
    .await;
    let names: Vec<_> = now.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["n", "a", "b", "c", "added"]);
    assert_eq!(now[..4], before[..4]);
    for (url, skill, wanted) in [
        (&all, "a__who", "new"),
        (&a, "who", "new"),
        (&all, "added__who", "added"),
        (&now[4].1, "who", "added"),
    ] {
        assert_eq!(says(url, skill).await, wanted, "{url} {skill}");
    }
    let skills = card(&all).await.1["skills"].to_string();
    assert!(
        skills.contains("added__who") && !skills.contains("other__who"),
        "{skills}"
    );
    assert_eq!(card(&gone).await.0, 404);

    assert!(!answer.is_finished() && !streamed.is_finished() && !removed.is_finished());
    let state = async || a2a::ask(&c, "GetTask", json!({ "id": task })).await;
    assert_eq!(state().await["status"]["state"], "TASK_STATE_WORKING");
    home.write("go", "");
    assert_eq!(
        a2a::said(&soon("the old call", answer).await.unwrap()),
        "old"
    );
    assert_eq!(
        a2a::said(&soon("the call of one that is gone", removed).await.unwrap()),
        "other"
    );
    let told = soon("the old stream", streamed).await.unwrap();
    assert!(
        told.contains("\"old\"") && told.contains("TASK_STATE_COMPLETED"),
        "{told}"
    );
    let is_done = |task: &Value| task["status"]["state"] == "TASK_STATE_COMPLETED";
    let done = found("the old task", async || Some(state().await).filter(is_done)).await;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "old", "{done}");
    end(running, &home).await;
}

/// Goal: a listener that is declared anew takes over its address without a connection lost, and its card says what is new; calls in
/// flight end, and tasks of before are there. Method: another version, with a call and a stream in flight.
#[tokio::test]
async fn a_listener_is_declared_anew() {
    let home = Home::new();
    let three = ["a", "b", "c"].map(|id| script(&home, id, id)).concat();
    let (mut running, before) =
        started(&home, &format!("{NODE}{three}{A2A}version = \"1\"\n")).await;
    let [all, a, c] = [0, 1, 3].map(|at| before[at].1.clone());
    assert_eq!(card(&all).await.1["version"], "1");
    let ended =
        a2a::ask(&c, "SendMessage", a2a::for_skill("who", false)).await["task"]["id"].clone();
    let (answer, streamed) = (call(&all, "b__wait"), stream(&a, "wait"));
    until("the calls to begin", || began(&home) == 2).await;

    assert_eq!(
        reloaded(
            &home,
            &mut running,
            &format!("{NODE}{three}{A2A}version = \"2\"\n")
        )
        .await,
        before
    );
    let is_new = async || (card(&all).await.1["version"] == "2").then_some(());
    found("the new card", is_new).await;
    assert_eq!(says(&all, "c__who").await, "c");
    assert_eq!(
        a2a::ask(&c, "GetTask", json!({ "id": ended })).await["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
    assert!(!answer.is_finished() && !streamed.is_finished());
    home.write("go", "");
    assert_eq!(a2a::said(&soon("the old call", answer).await.unwrap()), "b");
    let told = soon("the old stream", streamed).await.unwrap();
    assert!(
        told.contains("\"a\"") && told.contains("TASK_STATE_COMPLETED"),
        "{told}"
    );
    end(running, &home).await;
}

/// Goal: a task that nobody waits for goes on when its listener is declared anew, and can be followed there. Method: one that works
/// while the old listener ends, which cuts a connection that is kept.
#[tokio::test]
async fn a_task_outlives_its_listener() {
    let home = Home::new();
    let one = script(&home, "a", "a");
    let (mut running, before) = started(&home, &format!("{NODE}{one}{A2A}version = \"1\"\n")).await;
    let url = before[0].1.clone();
    let task =
        a2a::ask(&url, "SendMessage", a2a::for_skill("wait", true)).await["task"]["id"].clone();
    until("the call to begin", || began(&home) == 1).await;
    let address: SocketAddr = url
        .strip_prefix("http://")
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let mut kept = TcpStream::connect(address).await.unwrap();
    kept.write_all(
        format!("GET /.well-known/jwks.json HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes(),
    )
    .await
    .unwrap();
    soon("an answer", kept.read_u8()).await.unwrap();

    assert_eq!(
        reloaded(
            &home,
            &mut running,
            &format!("{NODE}{one}{A2A}version = \"2\"\n")
        )
        .await,
        before
    );
    soon("the old listener's end", kept.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    let followed = a2a::request(&url, "SubscribeToTask", json!({ "id": task }));
    let followed = soon("a stream", followed.send()).await.unwrap();
    home.write("go", "");
    let told = soon("the task's end", followed.text()).await.unwrap();
    assert!(
        told.contains("\"text\":\"a\"") && told.contains("TASK_STATE_COMPLETED"),
        "{told}"
    );
    end(running, &home).await;
}

/// Goal: an operator's rules stop what they name at every boundary, others once the file says others, and a rule that can't be used is
/// an error of the file, at its place. Method: an agent whose name a rule names, a reload, three wrong rules.
#[tokio::test]
async fn guard_rules_are_of_the_file() {
    let home = Home::new();
    let agent = script(&home, "a", "codename");
    let declared = |rule: &str| {
        format!(
            "{NODE}{agent}{A2A}[policy]\nguard = true\n[[policy.guard_rules]]\nid = \"site.names\"\n{rule}\n"
        )
    };
    let (mut running, before) = started(&home, &declared("phrases = [\"Codename\"]")).await;
    let url = before[1].1.clone();
    let said = async || {
        a2a::response(a2a::request(
            &url,
            "SendMessage",
            a2a::for_skill("who", false),
        ))
        .await
        .to_string()
    };
    let blocked = said().await;
    assert!(
        blocked.contains("blocked by guardrails") && !blocked.contains("codename"),
        "{blocked}"
    );
    reloaded(&home, &mut running, &declared("pattern = \"another\"")).await;
    assert!(said().await.contains("codename"));
    end(running, &home).await;

    for (rule, why) in [
        ("", "it must have `phrases` or a `pattern`"),
        ("pattern = \"(\"", "unclosed group"),
        ("phrase = [\"x\"]", "phrase"),
    ] {
        edit(&home, &declared(rule));
        let run = home.run(&["check", "n.toml"]).await.with(2, "");
        assert!(
            run.out.contains(why) && run.out.contains("n.toml"),
            "{rule}: {}",
            run.out
        );
    }
}
