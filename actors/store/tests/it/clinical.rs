use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{DataClass, Failure, Principal, Question, RawObject, TaskState};
use callboard_runtime::*;
use futures::StreamExt;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::kit::{Opened, stores};

const HOUR: Duration = Duration::from_secs(3_600);
/// Text that must never be on disk.
const SECRET: &str = "Dona Aurelia tem asma";

fn new(id: &str) -> NewTask {
    let expires = SystemTime::now() + HOUR;
    NewTask {
        id: TaskId::new(id).unwrap(),
        class: DataClass::Clinical,
        on_restart: OnRestart::Resume,
        request: Some(to_raw_value(SECRET).unwrap()),
        ..NewTask::new(Principal::agent("ann"), "clinic", "ask", expires)
    }
}

fn of(opened: &Opened) -> Arc<dyn TaskStore> {
    opened.sql.tasks(Arc::new(MemoryAuditStore::default()))
}

/// Returns everything the store has on disk, or the rows of all Postgres tables.
async fn kept(opened: &Opened) -> String {
    if !opened.is_sqlite() {
        return dumped(opened).await;
    }
    let files = std::fs::read_dir(opened.folder()).unwrap();
    let texts = files.map(|file| {
        String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).into_owned()
    });
    texts.collect()
}

async fn dumped(opened: &Opened) -> String {
    use sqlx::{Connection, Row};
    let told = opened.child_store();
    let mut db = sqlx::PgConnection::connect(told.split(' ').next().unwrap())
        .await
        .unwrap();
    let mut all = String::new();
    for table in [
        "SELECT t::text FROM task AS t",
        "SELECT t::text FROM task_request AS t",
        "SELECT t::text FROM task_event AS t",
        "SELECT t::text FROM audit AS t",
    ] {
        for row in sqlx::query(table).fetch_all(&mut db).await.unwrap() {
            all += row.get::<&str, _>(0);
        }
    }
    all
}

fn words() -> Vec<TaskStep> {
    let body = || RawObject::new().with("text", SECRET);
    vec![
        TaskStep::Said(SECRET.into()),
        TaskStep::History(body()),
        TaskStep::Artifact(body()),
        TaskStep::Asked(OpenQuestion {
            key: "q".into(),
            question: Question::elicit(SECRET, json!({})).into(),
        }),
    ]
}

fn answer() -> TaskStep {
    TaskStep::Answered {
        key: "q".into(),
        answer: to_raw_value(SECRET).unwrap(),
    }
}

/// Goal: no text of a clinical task reaches the disk, while readers in this process get all of it;
/// after a restart the text is gone, and running tasks have failed. Method: every step that holds
/// text; the store's files, WAL included, before and after.
#[tokio::test]
async fn bodies_stay_in_memory() {
    stores(async |opened| {
        let tasks = of(opened);
        let CreateOutcome::Created(task, lease) = tasks.create(new("done")).await.unwrap() else { panic!("it was there") };
        assert_eq!(task.request.as_ref().map(|r| r.get().contains(SECRET)), Some(true));
        let by = TaskActor::Worker(&lease);
        tasks.apply(&task.id, by, words()).await.unwrap();
        let asked = tasks.get(&task.id).await.unwrap().unwrap();
        assert_eq!((asked.status_message.as_deref(), asked.artifacts[0].text("text").as_deref()), (Some(SECRET), Some(SECRET)));
        let Question::Elicit(elicitation) = &*asked.open_questions[0].question else { panic!("another question") };
        assert_eq!(elicitation.message(), SECRET);
        tasks.apply(&task.id, TaskActor::Owner(&task.owner), vec![answer()]).await.unwrap();
        let done = tasks.apply(&task.id, by, vec![TaskStep::Completed(to_raw_value(SECRET).unwrap())]).await.unwrap();
        for task in [done, tasks.get(&task.id).await.unwrap().unwrap()] {
            assert!(matches!(&task.outcome, Some(TaskOutcome::Reply(reply)) if reply.get().contains(SECRET)));
        }
        let words: usize = tasks.events(&task.id, 0, 99).await.unwrap().iter().map(|event| event.step.bytes()).sum();
        assert!(words > 6 * SECRET.len());
        // One that fails with a text, one that runs, and one that hasn't started.
        let CreateOutcome::Created(_, lease) = tasks.create(new("failed")).await.unwrap() else { panic!("it was there") };
        let failure = Failure::internal(SECRET).with_data(json!(SECRET));
        tasks.apply(&lease.task, TaskActor::Worker(&lease), vec![TaskStep::Failed(failure)]).await.unwrap();
        assert!(matches!(tasks.create(new("runs")).await.unwrap(), CreateOutcome::Created(..)));
        tasks.create_all(vec![new("fresh")]).await.unwrap();
        assert!(!kept(opened).await.contains(SECRET));

        opened.restart().await;
        let tasks = of(opened);
        assert!(!kept(opened).await.contains(SECRET));
        let get = async |id: &str| tasks.get(&TaskId::new(id).unwrap()).await.unwrap().unwrap();
        let done = get("done").await;
        assert!(matches!(done.outcome, Some(TaskOutcome::NotKept)) && done.request.is_none());
        assert_eq!((done.state, done.last_event), (TaskState::Completed, 7));
        let steps: Vec<_> =
            follow_task(tasks.clone(), done.id.clone(), 0).map(|event| event.unwrap().step.name()).collect().await;
        assert_eq!(steps, ["start", "said", "history", "artifact", "asked", "answered", "completed"]);
        let claim = ClaimRequest { scope: "agent".into(), worker: tasks.worker_id().into(), tasks_max: 9, except_owners: Vec::new(), lease: TASK_LEASE };
        assert!(tasks.claim(claim).await.unwrap().is_empty());
        for id in ["runs", "fresh"] {
            let lost = get(id).await;
            assert_eq!(lost.state, TaskState::Failed, "{id}");
            assert!(lost.status_message.as_ref().unwrap().contains("memory"), "{:?}", lost.status_message);
        }
    })
    .await;
}

/// Goal: an idempotency key works although the request isn't stored. Method: the same request
/// again, and another one.
#[tokio::test]
async fn keys_work_without_bodies() {
    stores(async |opened| {
        let tasks = of(opened);
        let keyed = |id: &str| NewTask {
            key: Some("k".into()),
            ..new(id)
        };
        assert!(matches!(
            tasks.create(keyed("a")).await.unwrap(),
            CreateOutcome::Created(..)
        ));
        match tasks.create(keyed("b")).await.unwrap() {
            CreateOutcome::Existing(task) => {
                assert_eq!((task.id.as_str(), task.request.is_some()), ("a", true))
            }
            CreateOutcome::Created(task, _) => panic!("{} is new", task.id),
        }
        let other = NewTask {
            request: Some(RawValue::from_string("1".into()).unwrap()),
            ..keyed("c")
        };
        assert_eq!(tasks.create(other).await.unwrap_err(), TaskError::KeyReused);
    })
    .await;
}
