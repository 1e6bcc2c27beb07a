use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Principal, TaskState};
use callboard_runtime::*;
use callboard_store::{SqlStore, StoreError};
use serde_json::value::RawValue;

use crate::kit::{Opened, in_database, stores};

const HOUR: Duration = Duration::from_secs(3_600);

fn new(id: &str, on_restart: OnRestart) -> NewTask {
    let expires = SystemTime::now() + HOUR;
    let new = NewTask::new(Principal::agent("ann"), "clinic", "ask", expires);
    NewTask {
        id: TaskId::new(id).unwrap(),
        on_restart,
        ..new
    }
}

fn done() -> Vec<TaskStep> {
    vec![TaskStep::Completed(
        RawValue::from_string("1".into()).unwrap(),
    )]
}

fn of(store: &SqlStore) -> Arc<dyn TaskStore> {
    store.tasks(Arc::new(MemoryAuditStore::default()))
}

async fn begun(tasks: &Arc<dyn TaskStore>, new: NewTask) -> Lease {
    match tasks.create(new).await.unwrap() {
        CreateOutcome::Created(_, lease) => lease,
        CreateOutcome::Existing(task) => panic!("{} was there", task.id),
    }
}

async fn claim(tasks: &Arc<dyn TaskStore>) -> Vec<ClaimedTask> {
    let by = tasks.worker_id().to_owned();
    tasks
        .claim(ClaimRequest {
            scope: "agent".into(),
            worker: by,
            tasks_max: 9,
            except_owners: Vec::new(),
            lease: TASK_LEASE,
        })
        .await
        .unwrap()
}

/// Goal: tasks of an ended process are resumed or failed by their policy, and its late writes are
/// rejected. Method: one task of each policy and one that hadn't started, then the next process.
#[tokio::test]
async fn a_new_process_takes_over() {
    stores(async |opened| {
        let before = of(&opened.sql);
        let old = begun(&before, new("resumes", OnRestart::Resume)).await;
        let question = OpenQuestion {
            key: "q".into(),
            question: Arc::new(callboard_message::Question::roots()),
        };
        before
            .apply(
                &old.task,
                TaskActor::Worker(&old),
                vec![TaskStep::Asked(question)],
            )
            .await
            .unwrap();
        let fails = begun(&before, new("fails", OnRestart::Fail)).await;
        before
            .create_all(vec![new("fresh", OnRestart::Fail)])
            .await
            .unwrap();
        assert_eq!(before.worker_id(), "node#1");

        opened.restart().await;
        let tasks = of(&opened.sql);
        assert_eq!(tasks.worker_id(), "node#2");
        let claimed = claim(&tasks).await;
        let ids: Vec<_> = claimed
            .iter()
            .map(|(task, _)| (task.id.as_str(), task.state))
            .collect();
        assert_eq!(
            ids,
            [
                ("resumes", TaskState::Working),
                ("fresh", TaskState::Submitted)
            ]
        );
        assert!(
            claimed[0].0.open_questions.is_empty(),
            "the question is given up"
        );
        let failed = tasks.get(&fails.task).await.unwrap().unwrap();
        assert_eq!(failed.state, TaskState::Failed);
        assert!(
            failed.status_message.as_ref().unwrap().contains("unknown"),
            "{:?}",
            failed.status_message
        );

        assert_eq!(
            tasks
                .apply(&old.task, TaskActor::Worker(&old), done())
                .await
                .unwrap_err(),
            TaskError::LostLease
        );
        tasks.release(&old, ReleaseReason::Waiting).await.unwrap();
        assert_eq!(tasks.renew(&old.worker, TASK_LEASE).await.unwrap(), 0);
        assert_eq!(tasks.renew(tasks.worker_id(), TASK_LEASE).await.unwrap(), 2);
        let lease = &claimed[0].1;
        assert!(lease.epoch > old.epoch);
        tasks
            .apply(&lease.task, TaskActor::Worker(lease), done())
            .await
            .unwrap();
        let events = tasks.events(&lease.task, 0, 99).await.unwrap();
        assert_eq!(
            events
                .iter()
                .map(|event| event.step.name())
                .collect::<Vec<_>>(),
            ["start", "asked", "given_up", "start", "completed"]
        );
        assert!(claim(&tasks).await.is_empty(), "they are taken");
    })
    .await;
}

/// Goal: a task that may be what ends its node isn't run again at each start. Method: processes
/// that end without releasing it: as many as are allowed, and one more.
#[tokio::test]
async fn killed_processes_are_counted() {
    stores(async |opened| {
        let lease = begun(&of(&opened.sql), new("kills", OnRestart::Resume)).await;
        for lost in 1..=TASK_RERUNS_MAX_DEFAULT {
            opened.restart().await;
            let (task, _) = claim(&of(&opened.sql)).await.remove(0);
            assert_eq!(task.lost_workers, lost);
        }
        opened.restart().await;
        let tasks = of(&opened.sql);
        assert!(claim(&tasks).await.is_empty());
        let task = tasks.get(&lease.task).await.unwrap().unwrap();
        assert_eq!(task.state, TaskState::Failed);
    })
    .await;
}

/// Goal: a lease that isn't renewed expires, and its worker can do nothing more. Method: leases of
/// zero length.
#[tokio::test]
async fn a_lease_runs_out() {
    stores(async |opened| {
        let tasks = of(&opened.sql);
        tasks
            .create_all(vec![new("a", OnRestart::Resume)])
            .await
            .unwrap();
        let take = |lease| ClaimRequest {
            scope: "agent".into(),
            worker: tasks.worker_id().to_owned(),
            tasks_max: 1,
            except_owners: Vec::new(),
            lease,
        };
        let first = tasks.claim(take(Duration::ZERO)).await.unwrap().remove(0).1;
        let second = tasks.claim(take(TASK_LEASE)).await.unwrap().remove(0).1;
        assert_eq!(second.epoch, first.epoch + 1);
        let refused = tasks
            .apply(
                &first.task,
                TaskActor::Worker(&first),
                vec![TaskStep::Start],
            )
            .await
            .unwrap_err();
        assert_eq!(refused, TaskError::LostLease);
        tasks
            .apply(
                &second.task,
                TaskActor::Worker(&second),
                vec![TaskStep::Start],
            )
            .await
            .unwrap();
    })
    .await;
}

/// Goal: the database itself rejects rows that the state machine doesn't allow. Method: raw
/// statements.
#[tokio::test]
async fn the_database_refuses_what_is_illegal() {
    stores(async |opened| {
        let tasks = of(&opened.sql);
        let lease = begun(&tasks, new("a", OnRestart::Fail)).await;
        let part = NewTask { parent: Some(lease.task.clone()), ..new("b", OnRestart::Fail) };
        tasks.create_all(vec![part]).await.unwrap();
        let raw = async |sql: &str| refused(opened, sql).await;
        assert!(raw("UPDATE task SET state = 'completed' WHERE id = 'a'").await, "its part runs");
        assert_eq!(
            tasks.apply(&lease.task, TaskActor::Worker(&lease), done()).await.unwrap_err(),
            TaskError::ChildrenRunning(1)
        );
        tasks.request_cancel(&TaskId::new("b").unwrap(), TaskActor::Operator).await.unwrap();
        tasks.apply(&lease.task, TaskActor::Worker(&lease), done()).await.unwrap();
        for illegal in [
            "UPDATE task SET state = 'working' WHERE id = 'a'",
            "UPDATE task SET state = 'failed' WHERE id = 'a'",
            "UPDATE task SET state = 'done' WHERE id = 'a'",
            "UPDATE task_event SET body = '{}' WHERE task = 'a'",
            "INSERT INTO task_event (task, number, at_ms, state, is_end, body) VALUES ('a', 99, 0, 'failed', 1, '{}')",
        ] {
            assert!(raw(illegal).await, "{illegal}");
        }
        let task = tasks.get(&lease.task).await.unwrap().unwrap();
        assert_eq!((task.state, task.last_event), (TaskState::Completed, 3));
    })
    .await;
}

async fn refused(opened: &Opened, sql: &str) -> bool {
    use futures::FutureExt;
    std::panic::AssertUnwindSafe(opened.raw(sql))
        .catch_unwind()
        .await
        .is_err()
}

/// Goal: a read-only store beside a running node can cancel: running tasks get a request, others
/// end. Method: open one.
#[tokio::test]
async fn a_visitor_cancels() {
    stores(async |opened| {
        let tasks = of(&opened.sql);
        let lease = begun(&tasks, new("runs", OnRestart::Fail)).await;
        tasks
            .create_all(vec![new("waits", OnRestart::Fail)])
            .await
            .unwrap();
        let visitor = SqlStore::open_read_only(&opened.options()).await.unwrap();
        let seen = visitor.tasks(Arc::new(MemoryAuditStore::default()));
        assert_eq!(
            seen.list(TaskFilter::default(), 0, 9)
                .await
                .unwrap()
                .0
                .len(),
            2
        );
        let ended = seen
            .request_cancel(&TaskId::new("waits").unwrap(), TaskActor::Operator)
            .await
            .unwrap();
        assert_eq!(ended.state, TaskState::Canceled);
        assert!(
            seen.request_cancel(&lease.task, TaskActor::Operator)
                .await
                .unwrap()
                .cancel_requested
        );
        visitor.close().await;
        assert_eq!(
            tasks.cancel_requests(tasks.worker_id()).await.unwrap(),
            std::slice::from_ref(&lease.task)
        );
        let told = tasks
            .apply(
                &lease.task,
                TaskActor::Worker(&lease),
                vec![TaskStep::cancelled()],
            )
            .await
            .unwrap();
        assert_eq!(
            (told.state, told.cancel_requested),
            (TaskState::Canceled, false)
        );
    })
    .await;
}

/// Goal: two nodes on one database never run the same task, create one key once, and can't share a
/// writer name. Method: two writers that claim and create concurrently; a third with a name in use.
#[tokio::test]
async fn two_nodes() {
    let Some(opened) = in_database(|options| options).await else {
        return;
    };
    let taken = SqlStore::open(&opened.options()).await;
    assert!(
        matches!(taken, Err(StoreError::InUse { .. })),
        "a name is one process"
    );
    let other = SqlStore::open(&opened.options().writer("other"))
        .await
        .unwrap();
    let (ours, theirs) = (of(&opened.sql), of(&other));
    for round in 0..5 {
        let many = (0..20)
            .map(|n| new(&format!("{round} {n}"), OnRestart::Resume))
            .collect();
        ours.create_all(many).await.unwrap();
        let (a, b, c, d) = tokio::join!(claim(&ours), claim(&theirs), claim(&ours), claim(&theirs));
        let mut ids: Vec<_> = [a, b, c, d]
            .concat()
            .iter()
            .map(|(task, _)| task.id.clone())
            .collect();
        loop {
            let more = claim(&ours).await;
            if more.is_empty() {
                break;
            }
            ids.extend(more.iter().map(|(task, _)| task.id.clone()));
        }
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(
            (ids.len(), all),
            (20, 20),
            "a task was handed out twice, or not at all"
        );
        let keyed = |id: &str| NewTask {
            key: Some(format!("k{round}")),
            ..new(id, OnRestart::Fail)
        };
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (a, b) = tokio::join!(ours.create(keyed(&a)), theirs.create(keyed(&b)));
        let id = |begun: CreateOutcome| match begun {
            CreateOutcome::Created(task, _) | CreateOutcome::Existing(task) => task.id.clone(),
        };
        assert_eq!(id(a.unwrap()), id(b.unwrap()));
    }
    other.close().await;
    opened.end().await;
}
