//! Tests of the in-memory task store only. Those common to all stores are in the store's tests and
//! run on both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::Principal;
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::*;
use futures::StreamExt;
use serde_json::value::RawValue;

const HOUR: Duration = Duration::from_secs(3_600);

fn new(id: &str) -> NewTask {
    let expires = SystemTime::now() + HOUR;
    NewTask {
        id: TaskId::new(id).unwrap(),
        ..NewTask::new(Principal::agent("ann"), "clinic", "ask", expires)
    }
}

fn done() -> Vec<TaskStep> {
    vec![TaskStep::Completed(
        RawValue::from_string("1".into()).unwrap(),
    )]
}

async fn begun(tasks: &Arc<dyn TaskStore>, new: NewTask) -> (Arc<Task>, Lease) {
    match tasks.create(new).await.unwrap() {
        CreateOutcome::Created(task, lease) => (task, lease),
        CreateOutcome::Existing(task) => panic!("{} was there", task.id),
    }
}

/// Goal: the store holds no more tasks than its limit, and an expired task that has ended makes
/// room. Method: room for one.
#[test]
fn room() {
    run_with_paused_time(async |_| {
        let few: Arc<dyn TaskStore> = Arc::new(MemoryTaskStore::with_capacity(1));
        let (_, lease) = begun(
            &few,
            NewTask {
                expires: SystemTime::UNIX_EPOCH,
                ..new("a")
            },
        )
        .await;
        let full = TaskError::Journal(JournalError::Full { records_max: 1 });
        assert_eq!(few.create(new("b")).await.unwrap_err(), full);
        few.apply(&lease.task, TaskActor::Worker(&lease), done())
            .await
            .unwrap();
        begun(&few, new("b")).await;
    });
}

/// Goal: one owner can't fill the store that all agents of a node share. Method: a quarter of the
/// store's tasks in two scopes, one more alone and as one of a batch, and one of another owner.
#[test]
fn one_owner_has_a_quarter() {
    run_with_paused_time(async |_| {
        const SHARE: usize = 2_500;
        let tasks: Arc<dyn TaskStore> = Arc::new(MemoryTaskStore::default());
        let nth = |n: usize, owner: &str| NewTask {
            scope: format!("agent{}", n % 2),
            owner: TaskOwner::from_text(owner),
            ..new(&format!("{owner}{n}"))
        };
        for n in 0..SHARE {
            begun(&tasks, nth(n, "ann")).await;
        }
        let full = TaskError::TooMany { tasks_max: SHARE };
        assert_eq!(tasks.create(nth(SHARE, "ann")).await.unwrap_err(), full);
        let batch = vec![nth(0, "bob"), nth(SHARE, "ann")];
        assert_eq!(tasks.create_all(batch).await.unwrap_err(), full);
        begun(&tasks, nth(0, "bob")).await;
    });
}

/// Goal: changes to other tasks neither delay a follower nor hide its events. Method: a hundred
/// other changes, one every millisecond of paused time, before the followed task ends.
#[test]
fn others_delay_no_follower() {
    run_with_paused_time(async |_| {
        let tasks: Arc<dyn TaskStore> = Arc::new(MemoryTaskStore::default());
        let (task, lease) = begun(&tasks, new("b")).await;
        let events = follow_task(tasks.clone(), task.id.clone(), 1);
        let later = tokio::spawn(async move {
            (
                events.collect::<Vec<_>>().await.len(),
                tokio::time::Instant::now(),
            )
        });
        for n in 0..100 {
            begun(&tasks, new(&format!("c{n}"))).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ended = tokio::time::Instant::now();
        tasks
            .apply(&task.id, TaskActor::Worker(&lease), done())
            .await
            .unwrap();
        let (seen, at) = later.await.unwrap();
        assert!(
            seen == 1 && at - ended < Duration::from_millis(50),
            "{seen} after {:?}",
            at - ended
        );
    });
}
