//! Tasks in memory: what is theirs alone. What they share with the stores stands once, in the store's tests, and runs on both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::Principal;
use callboard_runtime::testkit::paused;
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

async fn begun(tasks: &Arc<dyn Tasks>, new: NewTask) -> (Arc<Task>, Lease) {
    match tasks.begin(new).await.unwrap() {
        Begun::New(task, lease) => (task, lease),
        Begun::Again(task) => panic!("{} was there", task.id),
    }
}

/// Goal: there are as many as there is room for; one whose time is over makes room once it has ended. Method: room for one.
#[test]
fn room() {
    paused(async |_| {
        let few: Arc<dyn Tasks> = Arc::new(MemoryTasks::with_capacity(1));
        let (_, lease) = begun(
            &few,
            NewTask {
                expires: SystemTime::UNIX_EPOCH,
                ..new("a")
            },
        )
        .await;
        let full = TaskError::Journal(JournalError::Full { records_max: 1 });
        assert_eq!(few.begin(new("b")).await.unwrap_err(), full);
        few.step(&lease.task, By::Worker(&lease), done())
            .await
            .unwrap();
        begun(&few, new("b")).await;
    });
}

/// Goal: what others do delays nobody who follows a task, nor hides its events. Method: a hundred others, one every millisecond
/// of paused time, before the one that is followed ends.
#[test]
fn others_delay_no_follower() {
    paused(async |_| {
        let tasks: Arc<dyn Tasks> = Arc::new(MemoryTasks::default());
        let (task, lease) = begun(&tasks, new("b")).await;
        let events = follow(tasks.clone(), task.id.clone(), 1);
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
            .step(&task.id, By::Worker(&lease), done())
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
