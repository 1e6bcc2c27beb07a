use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use callboard_message::{Failure, Principal, RawMessage, TaskState};
use callboard_runtime::testkit::run_with_real_time;
use callboard_runtime::*;
use callboard_store::{AuditFilter, SqlStore};
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::kit::{Child, Opened, of_parent, stores};

const HOUR: Duration = Duration::from_secs(3_600);
/// Number of tasks in the graph.
const PARTS: usize = 30;
/// Number of kills of the process: as many as a task may be run again.
const KILLS: u32 = TASK_RERUNS_MAX_DEFAULT;
/// Number of concurrent runners in the process.
const RUNNERS: usize = 4;
const STORE: &str = "CALLBOARD_STORE_CHILD";
const WHOLE: &str = "whole";

fn id(id: &str) -> TaskId {
    TaskId::new(id).unwrap()
}

fn new(name: &str, fails: bool) -> NewTask {
    let expires = SystemTime::now() + HOUR;
    NewTask {
        id: id(name),
        on_restart: OnRestart::Resume,
        request: Some(to_raw_value(&json!({ "task": name, "fails": fails })).unwrap()),
        ..NewTask::new(Principal::agent("ann"), "worker", "work", expires)
    }
}

/// Returns a graph of tasks that need some of those before them; `fails` is the index of a task
/// that fails.
fn graph(random: &mut StdRng, fails: Option<usize>) -> Vec<NewTask> {
    let part = |n: usize| format!("part {n}");
    let mut graph = vec![new(WHOLE, false)];
    for n in 0..PARTS {
        let needs = (0..n)
            .filter(|_| random.random_ratio(1, 8))
            .map(|need| id(&part(need)))
            .collect();
        graph.push(NewTask {
            parent: Some(id(WHOLE)),
            needs,
            ..new(&part(n), fails == Some(n))
        });
    }
    graph
}

/// Handler that may run twice without harm: it writes a record under the task's id. It announces
/// the moments before and after, so that it can be killed at both.
struct Worker;

impl Agent for Worker {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(64);
    }
}

impl ConcurrentHandler<RawMessage> for Worker {
    fn handle(
        &mut self,
        named: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        async move {
            let asked: serde_json::Value = serde_json::from_str(named.payload.get()).unwrap();
            let task = asked["task"].as_str().unwrap().to_owned();
            println!("does {task}");
            let effect = JournalRecord {
                stream: "effects".into(),
                key: Some(task.clone()),
                body: json!(task),
            };
            cx.system()
                .store()
                .journal
                .append(effect)
                .await
                .map_err(Failure::from)?;
            println!("did {task}");
            if asked["fails"] == json!(true) {
                return Err(Failure::internal("as it was told"));
            }
            Ok(to_raw_value(&task).unwrap())
        }
    }
}

/// Child process with runners, until the graph has ended.
#[test]
#[ignore = "a child of the graph's tests"]
fn child() {
    run_with_real_time(async |system| {
        let store = SqlStore::open(&of_parent(STORE)).await.unwrap();
        system.set_store(store.store()).unwrap();
        let worker = system.spawn(Worker);
        system.directory().register("worker", &worker).unwrap();
        let options = || TaskRunnerOptions {
            tasks_max: 2,
            ..TaskRunnerOptions::default()
        };
        let runners: Vec<_> = (0..RUNNERS)
            .map(|_| TaskRunner::start(system, options()))
            .collect();
        println!("open");
        follow_task(system.store().tasks.clone(), id(WHOLE), 0)
            .for_each(async |event| drop(event.unwrap()))
            .await;
        println!("end");
        for runner in runners {
            runner.stop().await;
        }
        system.shutdown(Duration::from_secs(5)).await;
        store.close().await;
    });
}

/// Kills the process at random points, then lets it finish.
fn killed(opened: &Opened, random: &mut StdRng) {
    for _ in 0..KILLS {
        let mut child = Child::start("graph::child", &[(STORE, opened.child_store())]);
        for _ in 0..random.random_range(0..6) {
            if child.line() == "end" {
                break;
            }
        }
        child.kill();
    }
    let mut child = Child::start("graph::child", &[(STORE, opened.child_store())]);
    loop {
        match child.line().as_str() {
            "end" => return,
            "" => panic!("the child ended without its work"),
            _ => {}
        }
    }
}

/// Returns the expected end of each task: those that need a failed one are cancelled, and so on.
fn expected(graph: &[NewTask], fails: Option<usize>) -> BTreeMap<TaskId, TaskState> {
    let mut states = BTreeMap::from([(id(WHOLE), TaskState::Completed)]);
    for (n, part) in graph[1..].iter().enumerate() {
        let dead = part
            .needs
            .iter()
            .any(|need| states[need] != TaskState::Completed);
        let state = match fails {
            _ if dead => TaskState::Canceled,
            Some(fails) if fails == n => TaskState::Failed,
            _ => TaskState::Completed,
        };
        states.insert(part.id.clone(), state);
    }
    states
}

async fn ends_once(fails: Option<usize>) {
    let seed = std::env::var("CALLBOARD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().random());
    println!("CALLBOARD_SEED={seed}");
    stores(async |opened| {
        let mut random = StdRng::seed_from_u64(seed);
        let graph = graph(&mut random, fails);
        opened
            .sql
            .store()
            .tasks
            .create_all(graph.clone())
            .await
            .unwrap();
        opened.sql.close().await;
        killed(opened, &mut random);
        opened.restart().await;

        let store = opened.sql.store();
        let effects = store.journal.read("effects", 0, 1000).await.unwrap();
        let done: BTreeMap<_, _> = effects
            .iter()
            .map(|(n, e)| (id(e.body.as_str().unwrap()), *n))
            .collect();
        assert_eq!(done.len(), effects.len(), "an effect is there twice");
        let expected = expected(&graph, fails);
        let acted: BTreeSet<_> = expected
            .iter()
            .filter(|(_, s)| **s != TaskState::Canceled)
            .map(|(id, _)| id)
            .collect();
        assert_eq!(done.keys().collect::<BTreeSet<_>>(), acted);
        assert_eq!(
            done[&id(WHOLE)],
            effects.len() as u64,
            "the whole came before a part"
        );
        for new in &graph {
            let task = store.tasks.get(&new.id).await.unwrap().unwrap();
            assert_eq!(task.state, expected[&new.id], "{}", new.id);
            let events: Vec<_> = follow_task(store.tasks.clone(), new.id.clone(), 0)
                .map(Result::unwrap)
                .collect()
                .await;
            let numbers: Vec<_> = events.iter().map(|event| event.number).collect();
            assert_eq!(
                numbers,
                (1..=task.last_event).collect::<Vec<_>>(),
                "{}",
                new.id
            );
            assert_eq!(
                events.iter().filter(|event| event.step.is_end()).count(),
                1,
                "{}",
                new.id
            );
            if task.state == TaskState::Completed {
                assert!(
                    new.needs.iter().all(|need| done[need] < done[&new.id]),
                    "{} came before its needs",
                    new.id
                );
            }
        }
        let ends = AuditFilter {
            event: Some("task".into()),
            entries_max: Some(1000),
            ..AuditFilter::default()
        };
        assert_eq!(
            opened.sql.audit_lines(&ends).await.unwrap().len(),
            graph.len(),
            "an end isn't in the audit once"
        );
    })
    .await;
}

/// Goal: a task graph is completed across kills: each task ends exactly once, after those it needs,
/// with one effect, and the parent last. Method: a random graph of 30, a process with 4 runners
/// that is killed 15 times.
#[tokio::test]
async fn each_part_ends_once() {
    ends_once(None).await;
}

/// Goal: after a failure, the tasks that need the failed one are cancelled, and no others. Method:
/// an early task fails.
#[tokio::test]
async fn a_part_that_fails() {
    ends_once(Some(2)).await;
}
