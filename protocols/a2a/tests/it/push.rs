//! Push notifications: order, format, credentials, retries and end of delivery.

use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::inbound::{
    A2aOptions, A2aServer, ListenOptions, PUSH_CONFIGS_MAX, PUSH_CONSECUTIVE_DROPS_MAX,
    PUSH_ID_BYTES_MAX, PUSH_RETRIES_MAX, PUSH_SECRET_BYTES_MAX, PUSH_URL_BYTES_MAX,
    PUSH_WORKERS_MAX,
};
use callboard_message::RawObject;
use callboard_runtime::{
    AuditEntry, JournalResult, KvEntry, KvError, KvStore, MemoryAuditStore, MemoryKvStore, Store,
};
use serde_json::{Value, json};

use crate::kit::{Peer, SOON, Seen, Served, given, options, said, serving, soon};
use crate::receiver::{Answers, Post, Receiver};

/// Allows receivers on this machine, with short retries.
fn here(options: &mut A2aOptions) {
    options.push.allowed_networks = vec!["127.0.0.0/8".parse().unwrap()];
    options.push.retry_delay = Duration::from_millis(1);
}

/// Begins `book`, which asks for a name, with a push configuration. Returns the task's id.
async fn booking(peer: &Peer, config: Value) -> String {
    let id = uuid::Uuid::new_v4().to_string();
    let params = json!({ "message": given(&id, json!({}), "book"),
        "configuration": { "taskPushNotificationConfig": config } });
    let sent = peer.result("SendMessage", params).await;
    assert_eq!(
        sent["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
        "{sent}"
    );
    sent["task"]["id"].as_str().unwrap().to_owned()
}

async fn answer(peer: &Peer, task: &str) {
    let message = json!({ "messageId": "m-name", "role": "ROLE_USER", "taskId": task, "parts": [{ "text": "Ada" }] });
    let sent = peer
        .result("SendMessage", json!({ "message": message }))
        .await;
    assert_eq!(
        sent["task"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{sent}"
    );
}

/// Waits until the condition holds.
async fn until(holds: impl AsyncFn() -> bool) {
    soon(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn state(post: &Post) -> &str {
    post.body["statusUpdate"]["status"]["state"]
        .as_str()
        .unwrap_or("artifact")
}

/// Goal: all events of a task arrive once, in order, in the format of 1.0, with the receiver's
/// credentials and token. Method: a task that asks, is answered and ends.
#[tokio::test]
async fn events_arrive_in_order() {
    let served = Served::with(here).await;
    let mut receiver = Receiver::start("127.0.0.1", &["204 Fine"]).await;
    let peer = served.client();
    let config = json!({ "url": receiver.url(), "token": "t-1",
        "authentication": { "scheme": "Bearer", "credentials": "c-1" } });
    let task = booking(&peer, config).await;
    let (began, asked) = (receiver.post().await, receiver.post().await);
    assert_eq!(
        (state(&began), state(&asked)),
        ("TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED")
    );
    answer(&peer, &task).await;
    let mut posts = vec![began, asked];
    while posts
        .last()
        .is_some_and(|post| state(post) != "TASK_STATE_COMPLETED")
    {
        posts.push(receiver.post().await);
    }
    let events: Vec<_> = posts.iter().map(Post::event).collect();
    assert!(events.is_sorted_by(|a, b| a < b), "{events:?}");
    assert!(posts.iter().any(
        |post| post.body["artifactUpdate"]["artifact"]["parts"][0]["text"] == "booked for Ada"
    ));
    for post in &posts {
        assert_eq!(post.header("content-type"), Some("application/a2a+json"));
        assert_eq!(post.header("a2a-version"), Some("1.0"));
        assert_eq!(post.header("authorization"), Some("Bearer c-1"));
        assert_eq!(post.header("x-a2a-notification-token"), Some("t-1"));
        let told = post.body.as_object().unwrap().values().next().unwrap();
        assert_eq!(told["taskId"], *task);
    }
    assert_eq!(receiver.waiting(), 0);
    served.stop().await;
}

/// Goal: receivers of older versions get the task in their format. Method: a configuration of each,
/// on a task that asks and is answered.
#[tokio::test]
async fn older_versions_get_the_task() {
    let (served, peer) = serving(here).await;
    for (method, version, kind) in [
        ("tasks/pushNotificationConfig/set", "0.3", json!("task")),
        ("tasks/pushNotification/set", "0.1", Value::Null),
    ] {
        let mut receiver = Receiver::start("127.0.0.1", &["200 OK"]).await;
        let task = booking(&peer, json!({ "url": "https://nobody.invalid/" })).await;
        let id = if version == "0.1" { "id" } else { "taskId" };
        let config = json!({ id: task, "pushNotificationConfig": { "url": receiver.url() } });
        let set = peer.result(method, config).await;
        assert_eq!(
            set["pushNotificationConfig"]["url"],
            receiver.url(),
            "{set}"
        );
        answer(&peer, &task).await;
        let mut post = receiver.post().await;
        while post.body["status"]["state"] != "completed" {
            post = receiver.post().await;
        }
        assert_eq!(
            (&post.body["id"], &post.body["kind"]),
            (&json!(task), &kind),
            "{}",
            post.body
        );
        assert_eq!(post.header("content-type"), Some("application/json"));
        assert_eq!(post.header("a2a-version"), Some(version));
    }
    served.stop().await;
}

/// Goal: a refused event is posted again before any later one. Method: a receiver that refuses
/// twice.
#[tokio::test]
async fn refused_posts_come_again() {
    let (served, peer) = serving(here).await;
    let answers = ["500 Oh", "503 Busy\r\nRetry-After: 0", "200 OK"];
    let mut receiver = Receiver::start("127.0.0.1", &answers).await;
    let task = booking(&peer, json!({ "url": receiver.url() })).await;
    answer(&peer, &task).await;
    let mut events = Vec::new();
    loop {
        let post = receiver.post().await;
        events.push(post.event());
        if state(&post) == "TASK_STATE_COMPLETED" {
            break;
        }
    }
    assert!(
        events[0] == events[1] && events[1] == events[2],
        "{events:?}"
    );
    assert!(events[2..].is_sorted_by(|a, b| a < b), "{events:?}");
    served.stop().await;
}

/// Goal: a receiver that answers 410 gets no more events, and its configuration is deleted. Method:
/// one that does so.
#[tokio::test]
async fn gone_is_gone() {
    let (served, peer) = serving(here).await;
    let mut receiver = Receiver::start("127.0.0.1", &["410 Gone"]).await;
    let task = booking(&peer, json!({ "id": "c", "url": receiver.url() })).await;
    receiver.post().await;
    let config = json!({ "taskId": task, "id": "c" });
    let is_gone = async || {
        peer.rpc("GetTaskPushNotificationConfig", config.clone())
            .await["error"]["code"]
            == -32001
    };
    until(is_gone).await;
    answer(&peer, &task).await;
    assert_eq!(receiver.waiting(), 0);
    served.stop().await;
}

/// Goal: an event that can't be delivered is dropped with an audit entry, and after many in a row
/// delivery ends. Method: a receiver that always refuses, and a task with more events.
#[tokio::test]
async fn a_dead_receiver_is_left_alone() {
    let audit = Arc::new(MemoryAuditStore::default());
    let store = Store {
        audit: audit.clone(),
        ..Store::in_memory()
    };
    let served = Served::with(|options| {
        here(options);
        options.tasks.store = Some(store.clone());
    })
    .await;
    let peer = served.client();
    let receiver = Receiver::start("127.0.0.1", &["500 Never"]).await;
    let count = PUSH_CONSECUTIVE_DROPS_MAX + 5;
    let params = json!({ "message": given("m", json!({ "count": count }), "pieces"),
        "configuration": { "taskPushNotificationConfig": { "url": receiver.url() } } });
    peer.result("SendMessage", params).await;
    let dropped = || -> Vec<AuditEntry> {
        audit
            .entries()
            .into_iter()
            .filter(|entry| entry.event == "a2a.push_dropped")
            .collect()
    };
    // This flag keeps other processes from continuing delivery.
    until(async || {
        let notes = store
            .kv
            .list("a2a-push/a2a:everything", None, 2)
            .await
            .unwrap();
        notes.len() == 1 && notes[0].body.read("givenUp") == Some(true)
    })
    .await;
    // Audit entries are written in the background.
    until(async || dropped().len() >= PUSH_CONSECUTIVE_DROPS_MAX as usize).await;
    let entries = dropped();
    assert_eq!(entries.len(), PUSH_CONSECUTIVE_DROPS_MAX as usize);
    assert_eq!(
        receiver.waiting(),
        (PUSH_CONSECUTIVE_DROPS_MAX * (1 + PUSH_RETRIES_MAX)) as usize
    );
    assert_eq!(
        (entries[0].peer.as_deref(), entries[0].outcome.as_deref()),
        (Some("127.0.0.1"), Some("refused"))
    );
    served.stop().await;
}

/// Goal: another process continues with the stored configurations. Method: a receiver that refuses
/// until the first server has stopped; a second one with the same store.
#[tokio::test]
async fn a_restart_loses_nothing() {
    let store = Store::in_memory();
    let served = Served::with(|options| {
        here(options);
        options.push.retry_delay = SOON;
        options.tasks.store = Some(store.clone());
    })
    .await;
    let mut receiver = Receiver::start("127.0.0.1", &["500 Not yet", "200 OK"]).await;
    let task = booking(
        &served.client(),
        json!({ "id": "c", "url": receiver.url() }),
    )
    .await;
    let before = receiver.post().await;
    served.stop().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut again = options(&listener);
    here(&mut again);
    again.tasks.store = Some(store);
    let (system, watched) = (
        callboard_runtime::System::start(1).unwrap(),
        crate::kit::Watched::new(),
    );
    let server = A2aServer::new(watched.spawn(&system), again);
    let served = Served::serving(listener, system, watched, server, &ListenOptions::default());
    let after = receiver.post().await;
    assert_eq!(after.event(), before.event());
    let kept = served
        .client()
        .result(
            "GetTaskPushNotificationConfig",
            json!({ "taskId": task, "id": "c" }),
        )
        .await;
    assert_eq!(kept["url"], receiver.url());
    served.stop().await;
}

/// Goal: configurations are stored, found, listed by pages, replaced and deleted; without an id the
/// latest is returned. Method: a task that has ended.
#[tokio::test]
async fn configurations_are_kept() {
    let (served, peer) = serving(here).await;
    let sent = peer
        .result(
            "SendMessage",
            json!({ "message": said("m", "hello", "echo") }),
        )
        .await;
    let task = &sent["task"]["id"];
    let url = |n: usize| format!("https://hook.invalid/{n}");
    for n in 0..PUSH_CONFIGS_MAX {
        let config =
            json!({ "taskId": task, "id": format!("c{n:02}"), "url": url(n), "token": "t" });
        let made = peer
            .result("CreateTaskPushNotificationConfig", config.clone())
            .await;
        assert_eq!(made, config);
    }
    let one_more = json!({ "taskId": task, "id": "over", "url": url(0) });
    assert_eq!(
        peer.code("CreateTaskPushNotificationConfig", one_more)
            .await,
        -32_602
    );
    let replaced = json!({ "taskId": task, "id": "c03", "url": url(99) });
    peer.result("CreateTaskPushNotificationConfig", replaced.clone())
        .await;
    let get = |id: &str| {
        peer.rpc(
            "GetTaskPushNotificationConfig",
            json!({ "taskId": task, "id": id }),
        )
    };
    assert_eq!(get("c03").await["result"], replaced);
    let latest = peer
        .result("tasks/pushNotificationConfig/get", json!({ "id": task }))
        .await;
    assert_eq!(latest["pushNotificationConfig"]["url"], url(99));
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = json!({ "taskId": task, "pageSize": 5, "pageToken": token });
        let page = peer.result("ListTaskPushNotificationConfigs", page).await;
        let configs = page["configs"].as_array().unwrap();
        assert!(configs.len() <= 5);
        found.extend(
            configs
                .iter()
                .map(|config| config["id"].as_str().unwrap().to_owned()),
        );
        token = page["nextPageToken"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(
        found,
        (0..PUSH_CONFIGS_MAX)
            .map(|n| format!("c{n:02}"))
            .collect::<Vec<_>>()
    );
    let delete = json!({ "taskId": task, "id": "c03" });
    for _ in 0..2 {
        peer.result("DeleteTaskPushNotificationConfig", delete.clone())
            .await;
    }
    assert_eq!(get("c03").await["error"]["code"], -32_001);
    served.stop().await;
}

/// Goal: values that fit no header or are too long are rejected. Method: each limit and one more;
/// line breaks.
#[tokio::test]
async fn limits() {
    let (served, peer) = serving(here).await;
    let sent = peer
        .result(
            "SendMessage",
            json!({ "message": said("m", "hello", "echo") }),
        )
        .await;
    let task = &sent["task"]["id"];
    let url = |bytes: usize| format!("{:x<bytes$}", "https://hook.invalid/");
    let at = |n: usize| "x".repeat(n);
    let credentials =
        |text: &str| json!({ "authentication": { "scheme": "Bearer", "credentials": text } });
    let rows = [
        (json!({ "id": at(PUSH_ID_BYTES_MAX) }), true),
        (json!({ "id": at(PUSH_ID_BYTES_MAX + 1) }), false),
        (json!({ "id": "a\u{1}b" }), false),
        (json!({ "url": url(PUSH_URL_BYTES_MAX) }), true),
        (json!({ "url": url(PUSH_URL_BYTES_MAX + 1) }), false),
        (json!({ "url": "" }), false),
        (json!({ "token": at(PUSH_SECRET_BYTES_MAX) }), true),
        (json!({ "token": at(PUSH_SECRET_BYTES_MAX + 1) }), false),
        (json!({ "token": "a\r\nX-Evil: 1" }), false),
        (credentials(&at(PUSH_SECRET_BYTES_MAX)), true),
        (credentials(&at(PUSH_SECRET_BYTES_MAX + 1)), false),
        (credentials("a\nb"), false),
        (
            json!({ "authentication": { "scheme": "Bea rer", "credentials": "c" } }),
            false,
        ),
        (
            json!({ "authentication": { "scheme": "Bearer\r\nX: ", "credentials": "c" } }),
            false,
        ),
    ];
    for (change, fits) in rows {
        let mut config = json!({ "taskId": task, "id": "c", "url": "https://hook.invalid/" });
        for (name, value) in change.as_object().unwrap() {
            config[name] = value.clone();
        }
        let answer = peer.rpc("CreateTaskPushNotificationConfig", config).await;
        let code = if fits { Value::Null } else { json!(-32_602) };
        assert_eq!(answer["error"]["code"], code, "{change}: {answer}");
        // An error never repeats a secret.
        assert!(fits || !answer.to_string().contains("Evil"), "{answer}");
    }
    served.stop().await;
}

/// Goal: after its configuration is deleted a receiver gets no more events. Method: delete while
/// the task waits.
#[tokio::test]
async fn deleted_is_deleted() {
    let (mut served, peer) = serving(here).await;
    let mut receiver = Receiver::start("127.0.0.1", &["200 OK"]).await;
    let params = json!({ "message": given("m", json!({}), "linger"), "configuration": { "returnImmediately": true,
        "taskPushNotificationConfig": { "id": "c", "url": receiver.url() } } });
    let sent = peer.result("SendMessage", params).await;
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    // The change of state, and the progress message.
    for _ in 0..2 {
        assert_eq!(state(&receiver.post().await), "TASK_STATE_WORKING");
    }
    let task = &sent["task"]["id"];
    peer.result(
        "DeleteTaskPushNotificationConfig",
        json!({ "taskId": task, "id": "c" }),
    )
    .await;
    served.watched.watch.go_on.send(true).unwrap();
    let is_over = async || {
        let task = peer.result("GetTask", json!({ "id": task })).await;
        task["status"]["state"] == "TASK_STATE_COMPLETED"
    };
    until(is_over).await;
    assert_eq!(receiver.waiting(), 0);
    served.stop().await;
}

/// Store whose every call gives way to others.
struct YieldingStore(MemoryKvStore);

#[async_trait::async_trait]
impl KvStore for YieldingStore {
    async fn get(&self, space: &str, key: &str) -> JournalResult<Option<KvEntry>> {
        self.0.get(space, key).await
    }

    async fn put(
        &self,
        space: &str,
        key: &str,
        body: RawObject,
        expected: Option<u64>,
    ) -> Result<u64, KvError> {
        tokio::task::yield_now().await;
        self.0.put(space, key, body, expected).await
    }

    async fn remove(&self, space: &str, key: &str) -> JournalResult<bool> {
        self.0.remove(space, key).await
    }

    async fn list(
        &self,
        space: &str,
        after: Option<&str>,
        entries_max: usize,
    ) -> JournalResult<Vec<KvEntry>> {
        let listed = self.0.list(space, after, entries_max).await;
        tokio::task::yield_now().await;
        listed
    }

    async fn clear(&self, space: &str) -> JournalResult<u64> {
        self.0.clear(space).await
    }
}

/// Goal: configurations that are created at the same time don't exceed the limit of their task.
/// Method: twice as many as the limit at once, on a store that lets each see the same number.
#[tokio::test]
async fn configurations_at_once_are_bounded() {
    let store = Store {
        kv: Arc::new(YieldingStore(MemoryKvStore::default())),
        ..Store::in_memory()
    };
    let mut served = Served::with(|options| {
        here(options);
        options.tasks.store = Some(store);
    })
    .await;
    let peer = served.client();
    let message = given("m-1", json!({}), "linger");
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let task = peer.result("SendMessage", params).await["task"]["id"].clone();
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    let create = |n: usize| {
        let config = json!({ "taskId": task, "id": n.to_string(), "url": "http://127.0.0.1:9/" });
        let peer = &peer;
        async move { peer.rpc("CreateTaskPushNotificationConfig", config).await }
    };
    let answers = futures::future::join_all((0..2 * PUSH_CONFIGS_MAX).map(create)).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| answer.get("result").is_some());
    assert_eq!(made.len(), PUSH_CONFIGS_MAX);
    assert!(
        refused
            .iter()
            .all(|answer| answer["error"]["code"] == -32_602)
    );
    served.stop().await;
}

/// Goal: the number of configurations with delivery is limited; capacity that becomes free is used.
/// Method: tasks that wait, each with the maximum of configurations, to a receiver that can't be
/// resolved.
#[tokio::test]
async fn workers_are_bounded() {
    let mut served = Served::with(|options| {
        options.push.resolver = Some(Answers::new(&[None]));
        options.push.retry_delay = SOON * 10;
    })
    .await;
    let peer = served.client();
    let mut tasks = Vec::new();
    for n in 0..=PUSH_WORKERS_MAX / PUSH_CONFIGS_MAX {
        let message = given(&format!("m-{n}"), json!({}), "linger");
        let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
        tasks.push(peer.result("SendMessage", params).await["task"]["id"].clone());
        assert_eq!(served.watched.watch.event().await, Seen::Began);
    }
    let last = tasks.pop().unwrap();
    let config = |task: &Value, n: usize| json!({ "taskId": task, "id": n.to_string(), "url": "https://hook.invalid/" });
    for task in &tasks {
        for n in 0..PUSH_CONFIGS_MAX {
            peer.result("CreateTaskPushNotificationConfig", config(task, n))
                .await;
        }
    }
    let over = peer
        .rpc("CreateTaskPushNotificationConfig", config(&last, 0))
        .await;
    assert_eq!(over["error"]["data"][0]["reason"], "OVERLOADED", "{over}");
    // An existing configuration may be replaced.
    peer.result("CreateTaskPushNotificationConfig", config(&tasks[0], 0))
        .await;
    peer.result("DeleteTaskPushNotificationConfig", config(&tasks[0], 0))
        .await;
    peer.result("CreateTaskPushNotificationConfig", config(&last, 0))
        .await;
    served.stop().await;
}

/// Goal: of several servers of one agent in a process one delivers, and when it stops another takes
/// over. Method: a second server on the same store while two tasks ask; one is answered beside the
/// first server, the other when that is gone.
#[tokio::test]
async fn one_of_several_servers_posts() {
    let store = Store::in_memory();
    let with_store = |options: &mut A2aOptions| {
        here(options);
        options.tasks.store = Some(store.clone());
    };
    let first = Served::with(with_store).await;
    let mut receivers = Vec::new();
    for _ in 0..2 {
        let mut receiver = Receiver::start("127.0.0.1", &["204 Fine"]).await;
        let task = booking(&first.client(), json!({ "url": receiver.url() })).await;
        let events = [receiver.post().await.event(), receiver.post().await.event()];
        receivers.push((receiver, task, events.to_vec()));
    }
    let second = Served::with(with_store).await;
    let (mut first, mut left) = (Some(first), None);
    for (receiver, task, events) in &mut receivers {
        answer(&second.client(), task).await;
        loop {
            let post = receiver.post().await;
            events.push(post.event());
            if state(&post) == "TASK_STATE_COMPLETED" {
                break;
            }
        }
        assert!(events.is_sorted_by(|a, b| a < b), "{events:?}");
        if let Some(first) = first.take() {
            left = Some(first.leave().await);
        }
    }
    assert!(
        receivers
            .iter()
            .all(|(receiver, ..)| receiver.waiting() == 0)
    );
    second.stop().await;
    left.unwrap().shutdown(Duration::ZERO).await;
}
