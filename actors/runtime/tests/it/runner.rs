use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::*;
use callboard_runtime::testkit::{ScriptStep, ScriptedAgent};
use callboard_runtime::*;
use futures::StreamExt;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::messages::{SECOND, running};

const HOUR: Duration = Duration::from_secs(3_600);

fn new(id: &str, agent: &str) -> NewTask {
    let expires = SystemTime::now() + HOUR;
    NewTask {
        id: TaskId::new(id).unwrap(),
        ..NewTask::new(Principal::agent("ann"), agent, "work", expires)
    }
}

fn scripted(system: &System, name: &str, script: impl IntoIterator<Item = ScriptStep>) -> AgentRef {
    let agent = system.spawn(ScriptedAgent::new(script));
    system.directory().register(name, &agent).unwrap();
    agent
}

/// Returns the task once it has ended.
async fn ended(system: &System, id: &str) -> Arc<Task> {
    let (tasks, id) = (system.store().tasks.clone(), TaskId::new(id).unwrap());
    let events: Vec<_> = follow_task(tasks.clone(), id.clone(), 0).collect().await;
    let ends = events
        .iter()
        .filter(|event| event.as_ref().is_ok_and(|event| event.step.is_end()))
        .count();
    assert_eq!(ends, 1, "{id}");
    tasks.get(&id).await.unwrap().unwrap()
}

fn reply(task: &Task) -> Value {
    match &task.outcome {
        Some(TaskOutcome::Reply(reply)) => serde_json::from_str(reply.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Goal: tasks run at their agents in the order of their needs, and end as their agents reply.
/// Method: a chain, an agent that fails and one that doesn't exist.
#[test]
fn tasks_are_worked_off() {
    running(async |system| {
        let agent = scripted(
            system,
            "clinic",
            [
                ScriptStep::ReplyAfter(SECOND, json!(1)),
                ScriptStep::Reply(json!(2)),
            ],
        );
        scripted(
            system,
            "sick",
            [ScriptStep::Fail(Failure::new(
                FailureKind::Rejected,
                "never",
            ))],
        );
        let runner = TaskRunner::start(system, TaskRunnerOptions::default());
        let needs = |id: &str| vec![TaskId::new(id).unwrap()];
        let request = Some(RawValue::from_string("{\"x\":1}".into()).unwrap());
        let graph = vec![
            NewTask {
                needs: needs("a"),
                ..new("b", "clinic")
            },
            NewTask {
                request,
                ..new("a", "clinic")
            },
            new("c", "sick"),
            NewTask {
                needs: needs("c"),
                ..new("d", "clinic")
            },
            new("e", "nobody"),
        ];
        system.store().tasks.create_all(graph).await.unwrap();
        assert_eq!(reply(&*ended(system, "a").await), json!(1));
        assert_eq!(reply(&*ended(system, "b").await), json!(2));
        assert_eq!(ended(system, "c").await.state, TaskState::Rejected);
        assert_eq!(ended(system, "d").await.state, TaskState::Canceled);
        assert_eq!(ended(system, "e").await.state, TaskState::Failed);
        assert_eq!(
            agent.observe().await,
            json!([["work", {"x": 1}], ["work", null]])
        );
        runner.stop().await;
    });
}

/// Agent that asks its caller, reports progress, and creates child tasks if told to.
struct Asker;

impl Agent for Asker {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(8);
    }
}

impl ConcurrentHandler<RawMessage> for Asker {
    fn handle(
        &mut self,
        named: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        async move {
            let body: Value = serde_json::from_str(named.payload.get()).unwrap();
            if let Some(task) = body["parts_of"].as_str() {
                let part = |id: &str| NewTask {
                    parent: Some(TaskId::new(task).unwrap()),
                    ..new(id, "late")
                };
                let begun = cx
                    .system()
                    .store()
                    .tasks
                    .create_all(vec![part("x"), part("y")])
                    .await;
                begun.map_err(Failure::from)?;
                return Ok(to_raw_value("begun").unwrap());
            }
            cx.progress(Progress {
                message: Some("thinking".into()),
                ..Progress::default()
            });
            let answer = cx
                .elicit(Elicitation::form("Which city?", json!({"type": "object"})))
                .await?;
            Ok(to_raw_value(&answer.content()).unwrap())
        }
    }
}

/// Goal: an agent's question is stored in its task, and the owner answers it. Method: read the
/// task, answer, and check the reply.
#[test]
fn questions_wait_for_the_owner() {
    running(async |system| {
        let asker = system.spawn(Asker);
        system.directory().register("asker", &asker).unwrap();
        let runner = TaskRunner::start(system, TaskRunnerOptions::default());
        let tasks = system.store().tasks.clone();
        let task = NewTask {
            request: Some(to_raw_value(&json!({})).unwrap()),
            ..new("a", "asker")
        };
        let (id, owner) = (task.id.clone(), task.owner.clone());
        tasks.create_all(vec![task]).await.unwrap();
        let mut events = follow_task(tasks.clone(), id.clone(), 0);
        let key = loop {
            if let TaskStep::Asked(open) = events.next().await.unwrap().unwrap().step {
                break open.key;
            }
        };
        let waits = tasks.get(&id).await.unwrap().unwrap();
        assert_eq!(
            (waits.state, waits.status_message.as_deref()),
            (TaskState::InputRequired, Some("thinking"))
        );
        let answer =
            to_raw_value(&json!({"action": "accept", "content": {"city": "Rio"}})).unwrap();
        tasks
            .apply(
                &id,
                TaskActor::Owner(&owner),
                vec![TaskStep::Answered { key, answer }],
            )
            .await
            .unwrap();
        assert_eq!(reply(&*ended(system, "a").await), json!({"city": "Rio"}));
        runner.stop().await;
    });
}

/// Goal: a task completes after the children that its agent created. Method: children that take a
/// minute.
#[test]
fn parts_end_first() {
    running(async |system| {
        let asker = system.spawn(Asker);
        system.directory().register("asker", &asker).unwrap();
        let minute = 60 * SECOND;
        scripted(
            system,
            "late",
            [
                ScriptStep::ReplyAfter(minute, json!(1)),
                ScriptStep::ReplyAfter(minute, json!(2)),
            ],
        );
        let runner = TaskRunner::start(system, TaskRunnerOptions::default());
        let request = Some(to_raw_value(&json!({"parts_of": "p"})).unwrap());
        let began = tokio::time::Instant::now();
        system
            .store()
            .tasks
            .create_all(vec![NewTask {
                request,
                ..new("p", "asker")
            }])
            .await
            .unwrap();
        let parent = ended(system, "p").await;
        assert_eq!((reply(&parent), parent.open_children), (json!("begun"), 0));
        assert!(began.elapsed() >= minute);
        for part in ["x", "y"] {
            assert_eq!(ended(system, part).await.state, TaskState::Completed);
        }
        runner.stop().await;
    });
}

/// Goal: a cancellation request ends the task and its call. Method: an agent that never replies.
#[test]
fn cancelled() {
    running(async |system| {
        scripted(system, "late", [ScriptStep::Hang]);
        let runner = TaskRunner::start(system, TaskRunnerOptions::default());
        let tasks = system.store().tasks.clone();
        tasks.create_all(vec![new("a", "late")]).await.unwrap();
        let id = TaskId::new("a").unwrap();
        let mut events = follow_task(tasks.clone(), id.clone(), 0);
        events.next().await.unwrap().unwrap();
        assert!(
            tasks
                .request_cancel(&id, TaskActor::Operator)
                .await
                .unwrap()
                .cancel_requested
        );
        assert_eq!(ended(system, "a").await.state, TaskState::Canceled);
        runner.stop().await;
    });
}

/// Goal: tasks left by a runner are claimed by the next one: restarted if idempotent, else failed.
/// Method: one of each, stopped midway.
#[test]
fn interrupted() {
    running(async |system| {
        scripted(
            system,
            "late",
            [
                ScriptStep::Hang,
                ScriptStep::Hang,
                ScriptStep::Reply(json!("again")),
            ],
        );
        let runner = TaskRunner::start(system, TaskRunnerOptions::default());
        let tasks = system.store().tasks.clone();
        let resumes = NewTask {
            on_restart: OnRestart::Resume,
            ..new("a", "late")
        };
        tasks
            .create_all(vec![resumes, new("b", "late")])
            .await
            .unwrap();
        for id in ["a", "b"] {
            let mut events = follow_task(tasks.clone(), TaskId::new(id).unwrap(), 0);
            events.next().await.unwrap().unwrap();
        }
        tokio::time::sleep(SECOND).await;
        runner.stop().await;
        let runner = TaskRunner::start(system, TaskRunnerOptions::default());
        assert_eq!(reply(&*ended(system, "a").await), json!("again"));
        assert_eq!(ended(system, "b").await.state, TaskState::Failed);
        runner.stop().await;
    });
}

/// Goal: one owner whose tasks all wait leaves places to others, of which each below its share gets
/// one. Method: more slow tasks of one owner than places, then tasks of two others.
#[test]
fn owners_share_the_places() {
    running(async |system| {
        let late = || ScriptStep::ReplyAfter(1_000 * SECOND, json!(1));
        scripted(system, "late", std::iter::repeat_with(late).take(12));
        let done = |n: u32| ScriptStep::ReplyAfter(SECOND, json!(n));
        scripted(system, "quick", [done(1), done(2)]);
        let runner = TaskRunner::start(
            system,
            TaskRunnerOptions {
                tasks_max: 8,
                ..TaskRunnerOptions::default()
            },
        );
        let tasks = system.store().tasks.clone();
        let slow = (0..10).map(|n| new(&format!("slow-{n}"), "late"));
        tasks.create_all(slow.collect()).await.unwrap();
        tokio::time::sleep(SECOND).await;
        let working = || async {
            let filter = TaskFilter {
                states: vec![TaskState::Working],
                ..TaskFilter::default()
            };
            tasks.list(filter, 0, 99).await.unwrap().0.len()
        };
        assert_eq!(working().await, 6);
        for (name, id) in [("bob", "b"), ("carl", "c")] {
            let expires = SystemTime::now() + HOUR;
            let task = NewTask {
                id: TaskId::new(id).unwrap(),
                ..NewTask::new(Principal::agent(name), "quick", "work", expires)
            };
            tasks.create_all(vec![task]).await.unwrap();
        }
        let others = async {
            ended(system, "b").await;
            ended(system, "c").await;
        };
        tokio::time::timeout(60 * SECOND, others).await.unwrap();
        assert_eq!(working().await, 6, "the rest waits");
        runner.stop().await;
    });
}

/// Goal: a runner respects its limit of concurrent tasks. Method: three tasks for two places.
#[test]
fn so_many_at_once() {
    running(async |system| {
        let late = || ScriptStep::ReplyAfter(10 * SECOND, json!(1));
        scripted(system, "late", [late(), late(), late()]);
        let runner = TaskRunner::start(
            system,
            TaskRunnerOptions {
                tasks_max: 2,
                ..TaskRunnerOptions::default()
            },
        );
        let began = tokio::time::Instant::now();
        let three = ["a", "b", "c"];
        system
            .store()
            .tasks
            .create_all(three.iter().map(|id| new(id, "late")).collect())
            .await
            .unwrap();
        tokio::time::sleep(SECOND).await;
        let working = TaskFilter {
            states: vec![TaskState::Working],
            ..TaskFilter::default()
        };
        assert_eq!(
            system
                .store()
                .tasks
                .list(working, 0, 9)
                .await
                .unwrap()
                .0
                .len(),
            2
        );
        for id in three {
            ended(system, id).await;
        }
        assert!(began.elapsed() >= 20 * SECOND);
        runner.stop().await;
    });
}
