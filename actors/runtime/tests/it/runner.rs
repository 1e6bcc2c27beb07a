use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::*;
use callboard_runtime::testkit::{Act, Scripted};
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

fn scripted(system: &System, name: &str, script: impl IntoIterator<Item = Act>) -> AgentRef {
    let agent = system.spawn(Scripted::new(script));
    system.directory().register(name, &agent).unwrap();
    agent
}

/// The task once it has ended.
async fn ended(system: &System, id: &str) -> Arc<Task> {
    let (tasks, id) = (system.store().tasks.clone(), TaskId::new(id).unwrap());
    let events: Vec<_> = follow(tasks.clone(), id.clone(), 0).collect().await;
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

/// Goal: tasks are asked of their agents, in the order of their needs, and end as their agents say. Method: a chain, an agent
/// that fails and one that isn't there.
#[test]
fn tasks_are_worked_off() {
    running(async |system| {
        let agent = scripted(
            system,
            "clinic",
            [Act::Late(SECOND, json!(1)), Act::Reply(json!(2))],
        );
        scripted(
            system,
            "sick",
            [Act::Fail(Failure::new(FailureKind::Rejected, "never"))],
        );
        let runner = TaskRunner::start(system, RunnerOptions::default());
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
        system.store().tasks.begin_all(graph).await.unwrap();
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

/// Asks its caller, tells how far it is, and begins parts of a task where it is told of which.
struct Asker;

impl Agent for Asker {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(8);
    }
}

impl ConcurrentHandler<Named> for Asker {
    fn handle(
        &mut self,
        named: Named,
        cx: Cx,
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
                    .begin_all(vec![part("x"), part("y")])
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

/// Goal: what an agent asks waits in its task, and whose that is answers. Method: look at the task, answer, see the reply.
#[test]
fn questions_wait_for_the_owner() {
    running(async |system| {
        let asker = system.spawn(Asker);
        system.directory().register("asker", &asker).unwrap();
        let runner = TaskRunner::start(system, RunnerOptions::default());
        let tasks = system.store().tasks.clone();
        let task = NewTask {
            request: Some(to_raw_value(&json!({})).unwrap()),
            ..new("a", "asker")
        };
        let (id, owner) = (task.id.clone(), task.owner.clone());
        tasks.begin_all(vec![task]).await.unwrap();
        let mut events = follow(tasks.clone(), id.clone(), 0);
        let key = loop {
            if let TaskStep::Asked(open) = events.next().await.unwrap().unwrap().step {
                break open.key;
            }
        };
        let waits = tasks.get(&id).await.unwrap().unwrap();
        assert_eq!(
            (waits.state, waits.said.as_deref()),
            (TaskState::InputRequired, Some("thinking"))
        );
        let answer =
            to_raw_value(&json!({"action": "accept", "content": {"city": "Rio"}})).unwrap();
        tasks
            .step(
                &id,
                By::Owner(&owner),
                vec![TaskStep::Answered { key, answer }],
            )
            .await
            .unwrap();
        assert_eq!(reply(&*ended(system, "a").await), json!({"city": "Rio"}));
        runner.stop().await;
    });
}

/// Goal: a task completes after the parts that its agent began. Method: parts that take a minute.
#[test]
fn parts_end_first() {
    running(async |system| {
        let asker = system.spawn(Asker);
        system.directory().register("asker", &asker).unwrap();
        let minute = 60 * SECOND;
        scripted(
            system,
            "late",
            [Act::Late(minute, json!(1)), Act::Late(minute, json!(2))],
        );
        let runner = TaskRunner::start(system, RunnerOptions::default());
        let request = Some(to_raw_value(&json!({"parts_of": "p"})).unwrap());
        let began = tokio::time::Instant::now();
        system
            .store()
            .tasks
            .begin_all(vec![NewTask {
                request,
                ..new("p", "asker")
            }])
            .await
            .unwrap();
        let parent = ended(system, "p").await;
        assert_eq!((reply(&parent), parent.children_open), (json!("begun"), 0));
        assert!(began.elapsed() >= minute);
        for part in ["x", "y"] {
            assert_eq!(ended(system, part).await.state, TaskState::Completed);
        }
        runner.stop().await;
    });
}

/// Goal: a task that somebody wants ended ends, and its call with it. Method: an agent that never replies.
#[test]
fn cancelled() {
    running(async |system| {
        scripted(system, "late", [Act::Hang]);
        let runner = TaskRunner::start(system, RunnerOptions::default());
        let tasks = system.store().tasks.clone();
        tasks.begin_all(vec![new("a", "late")]).await.unwrap();
        let id = TaskId::new("a").unwrap();
        let mut events = follow(tasks.clone(), id.clone(), 0);
        events.next().await.unwrap().unwrap();
        assert!(
            tasks
                .want_cancel(&id, By::Operator)
                .await
                .unwrap()
                .cancel_wanted
        );
        assert_eq!(ended(system, "a").await.state, TaskState::Canceled);
        runner.stop().await;
    });
}

/// Goal: what a runner leaves the next one takes: again where that does no harm, as failed where it may. Method: one of each,
/// stopped in the midst of it.
#[test]
fn interrupted() {
    running(async |system| {
        scripted(
            system,
            "late",
            [Act::Hang, Act::Hang, Act::Reply(json!("again"))],
        );
        let runner = TaskRunner::start(system, RunnerOptions::default());
        let tasks = system.store().tasks.clone();
        let resumes = NewTask {
            on_restart: OnRestart::Resume,
            ..new("a", "late")
        };
        tasks
            .begin_all(vec![resumes, new("b", "late")])
            .await
            .unwrap();
        for id in ["a", "b"] {
            let mut events = follow(tasks.clone(), TaskId::new(id).unwrap(), 0);
            events.next().await.unwrap().unwrap();
        }
        tokio::time::sleep(SECOND).await;
        runner.stop().await;
        let runner = TaskRunner::start(system, RunnerOptions::default());
        assert_eq!(reply(&*ended(system, "a").await), json!("again"));
        assert_eq!(ended(system, "b").await.state, TaskState::Failed);
        runner.stop().await;
    });
}

/// Goal: a runner works on so many at once and no more. Method: three tasks for two places.
#[test]
fn so_many_at_once() {
    running(async |system| {
        let late = || Act::Late(10 * SECOND, json!(1));
        scripted(system, "late", [late(), late(), late()]);
        let runner = TaskRunner::start(
            system,
            RunnerOptions {
                tasks_max: 2,
                ..RunnerOptions::default()
            },
        );
        let began = tokio::time::Instant::now();
        let three = ["a", "b", "c"];
        system
            .store()
            .tasks
            .begin_all(three.iter().map(|id| new(id, "late")).collect())
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
