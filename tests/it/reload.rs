use std::fs;

use serde_json::json;

use crate::kit::gateway::{
    MCP, NODE, Session, addresses, began, edit, end, is_refused, modern, reloaded, said, script,
    started,
};
use crate::kit::{Home, soon, until};

async fn complaint(home: &Home, text: &str) {
    let complains = || {
        fs::read_to_string(home.path("stderr"))
            .unwrap()
            .contains(text)
    };
    until(text, complains).await;
}

/// Goal: an upstream that is replaced finishes what it began, and then ends; the next call is the new one's; sessions go on
/// and are told; one that is added is there, one that is removed isn't. Method: a call of each era in flight while the
/// file changes.
#[tokio::test]
async fn calls_in_flight_finish() {
    let home = Home::new();
    let (kept, other) = (
        script(&home, "kept", "kept"),
        script(&home, "other", "other"),
    );
    let (mut running, listening) = started(
        &home,
        &format!("{NODE}{}{kept}{other}{MCP}", script(&home, "a", "old")),
    )
    .await;
    let url = listening[0].1.clone();
    let session = Session::begin(&url).await;
    let mut stream = session.listen().await;
    assert_eq!(said(&session.call("a__who").await), "old");
    assert_eq!(said(&session.call("kept__who").await), "kept");
    assert_eq!(said(&session.call("other__who").await), "other");
    let legacy = tokio::spawn({
        let session = session.clone();
        async move { session.call("a__wait").await }
    });
    let stateless = tokio::spawn({
        let url = url.clone();
        async move {
            modern(
                &url,
                "tools/call",
                json!({ "name": "a__wait", "arguments": {} }),
            )
            .await
            .1
        }
    });
    let removed = tokio::spawn({
        let session = Session::begin(&listening[3].1).await;
        async move { session.call("wait").await }
    });
    until("the calls to begin", || began(&home) == 3).await;
    let before = home.processes();

    let now = reloaded(
        &home,
        &mut running,
        &format!(
            "{NODE}{}{kept}{}{MCP}",
            script(&home, "a", "new"),
            script(&home, "added", "added")
        ),
    )
    .await;
    let names: Vec<_> = now.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["n", "a", "kept", "added"]);
    assert_eq!(now[0].1, url);
    assert_eq!(said(&session.call("a__who").await), "new");
    assert_eq!(said(&session.call("added__who").await), "added");
    assert_eq!(
        said(
            &modern(
                &url,
                "tools/call",
                json!({ "name": "a__who", "arguments": {} })
            )
            .await
            .1
        ),
        "new"
    );
    let (status, gone) = session
        .ask(
            "tools/call",
            json!({ "name": "other__who", "arguments": {} }),
        )
        .await;
    assert!(status == 200 && is_refused(&gone), "{gone}");
    let told = async {
        let mut all = String::new();
        while !all.contains("notifications/tools/list_changed") {
            all.push_str(&String::from_utf8_lossy(
                &stream.chunk().await.unwrap().unwrap(),
            ));
        }
    };
    soon("the session to be told", told).await;
    // At their own addresses.
    assert_eq!(
        said(
            &modern(
                &now[1].1,
                "tools/call",
                json!({ "name": "who", "arguments": {} })
            )
            .await
            .1
        ),
        "new"
    );
    assert_eq!(
        said(
            &modern(
                &now[3].1,
                "tools/call",
                json!({ "name": "who", "arguments": {} })
            )
            .await
            .1
        ),
        "added"
    );
    assert_eq!(
        modern(&listening[3].1, "tools/list", json!({})).await.0,
        404
    );

    assert!(!legacy.is_finished() && !stateless.is_finished() && !removed.is_finished());
    home.write("go", "");
    assert_eq!(said(&soon("the old call", legacy).await.unwrap()), "old");
    assert_eq!(said(&soon("the old call", stateless).await.unwrap()), "old");
    assert_eq!(
        said(&soon("the call of one that is gone", removed).await.unwrap()),
        "other"
    );
    // What was kept is still the same process.
    let still = || {
        home.processes()
            .iter()
            .filter(|id| before.contains(id))
            .count()
    };
    assert!(
        still() >= 2,
        "the node, and one of the server that was kept"
    );
    let scripts = |name: &str| {
        let holds = |id: &u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == format!("NAME={name}").as_bytes())
        };
        home.processes().iter().filter(|id| holds(id)).count()
    };
    until("the old ones to end", || {
        scripts("old") == 0 && scripts("other") == 0
    })
    .await;
    assert!(scripts("kept") > 0 && scripts("new") > 0);
    end(running, &home).await;
}

/// Goal: what can't be used changes nothing and is told; SIGHUP reads again in any case. Method: a broken file, one that
/// names a key file that isn't there, then good ones.
#[tokio::test]
async fn a_broken_file_is_refused() {
    let home = Home::new();
    let good = format!("{NODE}{}{MCP}", script(&home, "a", "one"));
    let (mut running, listening) = started(&home, &good).await;
    let session = Session::begin(&listening[0].1).await;
    edit(
        &home,
        &good.replace("era = \"legacy\"", "era = \"ancient\""),
    );
    complaint(&home, "`era` can't be `ancient`").await;
    edit(&home, &format!("{good}keys = \"no_such_keys\"\n"));
    complaint(&home, "there is no key file").await;
    let logged = fs::read_to_string(home.path("stderr")).unwrap();
    assert!(
        !logged.contains("topology warning"),
        "an error is logged once: {logged}"
    );
    assert_eq!(said(&session.call("who").await), "one");
    assert_eq!(
        reloaded(
            &home,
            &mut running,
            &format!("{good}hosts = [\"gateway.example\"]\n")
        )
        .await
        .len(),
        2
    );
    running.signal("HUP").await;
    assert_eq!(addresses(&mut running, "reloaded").await.len(), 2);
    let session = Session::begin(&listening[0].1).await;
    assert_eq!(said(&session.call("who").await), "one");
    end(running, &home).await;
}

/// Goal: listeners come and go, and one that stays keeps its sessions. Method: one is added, then the first is removed.
#[tokio::test]
async fn listeners_come_and_go() {
    let home = Home::new();
    let (a, b) = (script(&home, "a", "one"), script(&home, "b", "two"));
    let second = MCP.replace("127.0.0.1:0", "127.0.0.2:0");
    let (mut running, first) = started(&home, &format!("{NODE}{a}{b}{MCP}agent = \"a\"\n")).await;
    let session = Session::begin(&first[0].1).await;
    let both = reloaded(
        &home,
        &mut running,
        &format!("{NODE}{a}{b}{MCP}agent = \"a\"\n{second}agent = \"b\"\n"),
    )
    .await;
    assert_eq!((both.len(), &both[..2]), (4, &first[..]));
    assert_eq!(said(&session.call("who").await), "one");
    let other = Session::begin(&both[2].1).await;
    assert_eq!(said(&other.call("who").await), "two");
    assert_eq!(
        reloaded(
            &home,
            &mut running,
            &format!("{NODE}{a}{b}{second}agent = \"b\"\n")
        )
        .await,
        &both[2..]
    );
    assert_eq!(said(&other.call("who").await), "two");
    let address = first[0]
        .1
        .trim_start_matches("http://")
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let refused = async { while tokio::net::TcpStream::connect(&address).await.is_ok() {} };
    soon("a refused connection", refused).await;
    end(running, &home).await;
}
