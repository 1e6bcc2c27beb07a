//! Contract of the task store, for tasks in memory and in every store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Principal, Question, TaskState};
use callboard_runtime::*;
use futures::StreamExt;
use serde_json::value::RawValue;

use callboard_store::{CLAIM_TASKS_MAX, GRAPH_TASKS_MAX, PAGE_BYTES_MAX};

use crate::kit::{Opened, stores};

const HOUR: Duration = Duration::from_secs(3_600);
const OURS: Duration = Duration::from_secs(30);

/// Runs a test on tasks in memory, and on those of each store.
async fn tasks(body: impl AsyncFn(Arc<dyn TaskStore>)) {
    body(Arc::new(MemoryTaskStore::default())).await;
    stores(async |opened| {
        body(of(opened)).await;
    })
    .await;
}

pub fn of(opened: &Opened) -> Arc<dyn TaskStore> {
    opened.sql.tasks(Arc::new(MemoryAuditStore::default()))
}

pub fn new(id: &str) -> NewTask {
    let expires = SystemTime::now() + HOUR;
    NewTask {
        id: TaskId::new(id).unwrap(),
        ..NewTask::new(Principal::agent("ann"), "clinic", "ask", expires)
    }
}

fn ids(names: &[&str]) -> Vec<TaskId> {
    names
        .iter()
        .map(|name| TaskId::new(*name).unwrap())
        .collect()
}

pub fn done() -> Vec<TaskStep> {
    vec![TaskStep::Completed(
        RawValue::from_string("1".into()).unwrap(),
    )]
}

pub async fn begun(tasks: &Arc<dyn TaskStore>, new: NewTask) -> (Arc<Task>, Lease) {
    match tasks.create(new).await.unwrap() {
        CreateOutcome::Created(task, lease) => (task, lease),
        CreateOutcome::Existing(task) => panic!("{} was there", task.id),
    }
}

fn claim(by: &str, tasks_max: usize) -> ClaimRequest {
    ClaimRequest {
        scope: "agent".into(),
        worker: by.into(),
        tasks_max,
        except_owners: Vec::new(),
        lease: OURS,
    }
}

/// Goal: a claim leaves out the tasks of the owners that it names, and takes the others in their
/// order. Method: tasks of three owners in turn; owners are left out until none are left.
#[tokio::test]
async fn claims_leave_owners_out() {
    tasks(async |tasks| {
        let owner = |name: &str| TaskOwner::from_text(format!("api_key:{name} \"x\""));
        let all = [
            ("a1", "a"),
            ("c1", "c"),
            ("b1", "b"),
            ("a2", "a"),
            ("c2", "c"),
            ("a3", "a"),
        ];
        for (id, name) in all {
            let new = NewTask {
                owner: owner(name),
                ..new(id)
            };
            tasks.create_all(vec![new]).await.unwrap();
        }
        let taken = async |except: &[&str], tasks_max| -> Vec<String> {
            let claim = ClaimRequest {
                except_owners: except.iter().map(|name| owner(name)).collect(),
                ..claim(tasks.worker_id(), tasks_max)
            };
            let claimed = tasks.claim(claim).await.unwrap();
            claimed
                .iter()
                .map(|(task, _)| task.id.to_string())
                .collect()
        };
        assert_eq!(taken(&["a", "b", "c"], 9).await, [""; 0]);
        assert_eq!(taken(&["a", "c"], 9).await, ["b1"]);
        assert_eq!(taken(&["b"], 2).await, ["a1", "c1"]);
        assert_eq!(taken(&["b"], 9).await, ["a2", "c2", "a3"]);
    })
    .await;
}

/// Goal: a key or an id names one task; another request with it is rejected. Method: the same
/// twice, then each changed.
#[tokio::test]
async fn keys_are_used_once() {
    tasks(async |tasks| {
        let keyed = |id: &str| NewTask {
            key: Some("k".into()),
            ..new(id)
        };
        let (first, _) = begun(&tasks, keyed("a")).await;
        assert_eq!(
            (first.state, first.number, first.last_event),
            (TaskState::Working, 1, 1)
        );
        for again in [keyed("b"), new("a")] {
            match tasks.create(again).await.unwrap() {
                CreateOutcome::Existing(task) => assert_eq!(task.number, 1),
                CreateOutcome::Created(task, _) => panic!("{} is new", task.id),
            }
        }
        let refused = tasks
            .create(NewTask {
                message: "other".into(),
                ..keyed("c")
            })
            .await
            .unwrap_err();
        assert_eq!(refused, TaskError::KeyReused);
        let refused = tasks
            .create(NewTask {
                owner: TaskOwner::from_text("other"),
                ..new("a")
            })
            .await
            .unwrap_err();
        assert_eq!(refused, TaskError::KeyReused);
        let others = NewTask {
            owner: TaskOwner::from_text("other"),
            ..keyed("d")
        };
        assert_eq!(begun(&tasks, others).await.0.number, 2);
    })
    .await;
}

/// Goal: each limit rejects one more, and nothing is stored then. Method: limits of two.
#[tokio::test]
async fn limits() {
    tasks(async |tasks| {
        let limited = |id: &str, owner: &str| NewTask {
            owner: TaskOwner::from_text(owner),
            scope_tasks_max: Some(3),
            owner_tasks_max: Some(2),
            ..new(id)
        };
        begun(&tasks, limited("a", "x")).await;
        begun(&tasks, limited("b", "x")).await;
        assert_eq!(
            tasks.create(limited("c", "x")).await.unwrap_err(),
            TaskError::TooMany { tasks_max: 2 }
        );
        let two = vec![limited("d", "y"), limited("e", "y")];
        assert_eq!(
            tasks.create_all(two).await.unwrap_err(),
            TaskError::TooMany { tasks_max: 3 }
        );
        begun(&tasks, limited("d", "y")).await;
        tasks.delete(&ids(&["a"])[0]).await.unwrap();
        begun(&tasks, limited("c", "x")).await;
        let large =
            RawValue::from_string(format!("\"{}\"", "x".repeat(TASK_BYTES_MAX_DEFAULT))).unwrap();
        let refused = tasks
            .create(NewTask {
                request: Some(large),
                ..new("l")
            })
            .await
            .unwrap_err();
        assert!(matches!(refused, TaskError::TooLarge { .. }));
    })
    .await;
}

/// Goal: two workers never both continue a task. Method: one is late, another claims; the late one
/// tries everything.
#[tokio::test]
async fn a_lost_lease_can_do_nothing() {
    tasks(async |tasks| {
        let (task, _) = begun(
            &tasks,
            NewTask {
                on_restart: OnRestart::Resume,
                ..new("a")
            },
        )
        .await;
        assert!(tasks.claim(claim("w2", 9)).await.unwrap().is_empty());
        let mut late = None;
        for worker in ["w2", "w3"] {
            let old = Lease {
                task: task.id.clone(),
                worker: tasks.worker_id().to_owned(),
                epoch: 1,
            };
            let old = late.replace(old.clone()).unwrap_or(old);
            tasks
                .release(&old, ReleaseReason::Interrupted)
                .await
                .unwrap();
            let (claimed, lease) = tasks.claim(claim(worker, 9)).await.unwrap().remove(0);
            assert_eq!(
                (claimed.state, lease.epoch > old.epoch),
                (TaskState::Working, true)
            );
            let refused = tasks
                .apply(&task.id, TaskActor::Worker(&old), done())
                .await
                .unwrap_err();
            assert_eq!(refused, TaskError::LostLease);
            tasks.release(&old, ReleaseReason::Waiting).await.unwrap();
            assert_eq!(tasks.renew(&old.worker, OURS).await.unwrap(), 0);
            assert_eq!(tasks.renew(worker, OURS).await.unwrap(), 1);
            late = Some(lease);
        }
        let lease = late.unwrap();
        tasks
            .apply(&task.id, TaskActor::Worker(&lease), done())
            .await
            .unwrap();
        let refused = tasks
            .apply(&task.id, TaskActor::Worker(&lease), done())
            .await
            .unwrap_err();
        assert_eq!(refused, TaskError::HasEnded(TaskState::Completed));
    })
    .await;
}

/// Goal: an interrupted task that may not be repeated fails; one that hadn't started is leased
/// again. Method: one each.
#[tokio::test]
async fn interrupted_tasks() {
    tasks(async |tasks| {
        let (_, lease) = begun(&tasks, new("a")).await;
        tasks
            .release(&lease, ReleaseReason::Interrupted)
            .await
            .unwrap();
        tasks.create_all(vec![new("b")]).await.unwrap();
        let (waiting, lease) = tasks.claim(claim("w", 9)).await.unwrap().remove(0);
        assert_eq!(
            (waiting.id.as_str(), waiting.state),
            ("b", TaskState::Submitted)
        );
        tasks
            .release(&lease, ReleaseReason::Interrupted)
            .await
            .unwrap();
        let claimed = tasks.claim(claim("w", 9)).await.unwrap();
        assert_eq!((claimed.len(), claimed[0].0.id.as_str()), (1, "b"));
        let failed = tasks.get(&ids(&["a"])[0]).await.unwrap().unwrap();
        assert_eq!(failed.state, TaskState::Failed);
        assert!(failed.status_message.as_ref().unwrap().contains("unknown"));
    })
    .await;
}

/// Goal: a task that may be repeated isn't run again without end if its workers are lost, and one
/// that is released in order isn't counted. Method: as many expired leases as are allowed, with a
/// release after each, and one more.
#[tokio::test]
async fn reruns_are_bounded() {
    tasks(async |tasks| {
        let new = NewTask {
            on_restart: OnRestart::Resume,
            ..new("a")
        };
        let id = new.id.clone();
        tasks.create_all(vec![new]).await.unwrap();
        let claimed = async || {
            let claim = ClaimRequest {
                lease: Duration::ZERO,
                ..claim("w", 9)
            };
            tasks.claim(claim).await.unwrap()
        };
        for lost in 0..=TASK_RERUNS_MAX_DEFAULT {
            let (task, lease) = claimed().await.remove(0);
            assert_eq!(task.lost_workers, lost);
            tasks
                .apply(&id, TaskActor::Worker(&lease), vec![TaskStep::Start])
                .await
                .unwrap();
            tasks
                .release(&lease, ReleaseReason::Interrupted)
                .await
                .unwrap();
            let (task, _) = claimed().await.remove(0);
            assert_eq!(task.lost_workers, lost, "released in order");
        }
        assert!(claimed().await.is_empty());
        let task = tasks.get(&id).await.unwrap().unwrap();
        assert_eq!(task.state, TaskState::Failed);
        let why = task.status_message.as_deref().unwrap();
        let lost = format!("lost {} times", TASK_RERUNS_MAX_DEFAULT + 1);
        assert!(why.contains(&lost), "{why}");
    })
    .await;
}

/// Goal: an owner may answer and cancel its task, and do nothing else. Method: an owner, a
/// stranger, an operator.
#[tokio::test]
async fn others_may_answer_and_cancel() {
    tasks(async |tasks| {
        let (task, lease) = begun(&tasks, new("a")).await;
        let question = OpenQuestion {
            key: "q".into(),
            question: Arc::new(Question::roots()),
        };
        tasks
            .apply(
                &task.id,
                TaskActor::Worker(&lease),
                vec![TaskStep::Asked(question)],
            )
            .await
            .unwrap();
        let stranger = TaskOwner::from_text("stranger");
        let answer = || {
            vec![TaskStep::Answered {
                key: "q".into(),
                answer: RawValue::from_string("1".into()).unwrap(),
            }]
        };
        let refused = tasks
            .apply(&task.id, TaskActor::Owner(&stranger), answer())
            .await
            .unwrap_err();
        assert_eq!(refused, TaskError::NotFound);
        assert_eq!(
            tasks
                .request_cancel(&task.id, TaskActor::Owner(&stranger))
                .await
                .unwrap_err(),
            TaskError::NotFound
        );
        let refused = tasks
            .apply(&task.id, TaskActor::Owner(&task.owner), done())
            .await
            .unwrap_err();
        assert_eq!(
            refused,
            TaskError::Illegal {
                from: TaskState::InputRequired,
                step: "completed"
            }
        );
        let answered = tasks
            .apply(&task.id, TaskActor::Owner(&task.owner), answer())
            .await
            .unwrap();
        assert_eq!(answered.state, TaskState::Working);
        assert!(
            tasks
                .apply(&task.id, TaskActor::Operator, answer())
                .await
                .is_err()
        );
        // Its worker gets the request; the task ends when it releases the lease, for any reason.
        assert!(
            tasks
                .request_cancel(&task.id, TaskActor::Operator)
                .await
                .unwrap()
                .cancel_requested
        );
        assert_eq!(
            tasks.cancel_requests(&lease.worker).await.unwrap(),
            ids(&["a"])
        );
        tasks.release(&lease, ReleaseReason::Waiting).await.unwrap();
        assert_eq!(
            tasks.get(&task.id).await.unwrap().unwrap().state,
            TaskState::Canceled
        );
        assert!(
            tasks
                .cancel_requests(&lease.worker)
                .await
                .unwrap()
                .is_empty()
        );
    })
    .await;
}

/// Goal: tasks wait for those they need, and a parent for its children; a failure ends dependents.
/// Method: a parent with a chain of three and one beside, completed in order.
#[tokio::test]
async fn graphs() {
    tasks(async |tasks| {
        let [a, b, c, parent] = ["a", "b", "c", "p"].map(|name| TaskId::new(name).unwrap());
        let part = |id: &TaskId, needs: &[&TaskId]| NewTask {
            parent: Some(parent.clone()),
            needs: needs.iter().copied().cloned().collect(),
            ..new(id.as_str())
        };
        let graph = vec![part(&b, &[&a]), part(&c, &[&b]), part(&a, &[]), new("p")];
        assert!(matches!(tasks.create_all(graph[..3].to_vec()).await, Err(TaskError::UnknownNeed(id)) if id == parent));
        let kept = tasks.create_all(graph).await.unwrap();
        assert_eq!(kept.iter().map(|task| task.pending_needs).collect::<Vec<_>>(), [1, 1, 0, 0]);
        assert_eq!(kept[3].open_children, 3);
        for id in [&a, &b] {
            let claimed = tasks.claim(claim("w", 9)).await.unwrap();
            assert_eq!(claimed.iter().map(|(task, _)| &task.id).collect::<Vec<_>>(), [id]);
            let by = TaskActor::Worker(&claimed[0].1);
            tasks.apply(id, by, vec![TaskStep::Start]).await.unwrap();
            let end =
                if *id == a { done() } else { vec![TaskStep::Failed(callboard_message::Failure::internal("no"))] };
            tasks.apply(id, by, end).await.unwrap();
        }
        let ended = tasks.get(&c).await.unwrap().unwrap();
        assert_eq!(
            (ended.state, ended.status_message.as_deref()),
            (TaskState::Canceled, Some("a step that it needs ended as failed"))
        );
        let (claimed, lease) = tasks.claim(claim("w", 9)).await.unwrap().remove(0);
        assert_eq!((&claimed.id, claimed.open_children, claimed.last_event), (&parent, 0, 3));
        tasks.apply(&parent, TaskActor::Worker(&lease), [vec![TaskStep::Start], done()].concat()).await.unwrap();
        // A new task that needs a failed one is cancelled at once; one that needs completed tasks
        // is ready.
        let late =
            tasks.create_all(vec![NewTask { needs: vec![b], ..new("d") }, NewTask { needs: vec![a], ..new("e") }]);
        let states: Vec<_> = late.await.unwrap().iter().map(|task| (task.state, task.pending_needs)).collect();
        assert_eq!(states[1], (TaskState::Submitted, 0));
        assert_eq!(states[0].0, TaskState::Canceled);
    })
    .await;
}

/// Goal: dependency cycles are rejected. Method: cycles of needs, of parents, of both, through
/// existing tasks.
#[tokio::test]
async fn circles_are_refused() {
    tasks(async |tasks| {
        let of = |id: &str, parent: Option<&str>, needs: &[&str]| NewTask {
            parent: parent.map(|parent| TaskId::new(parent).unwrap()),
            needs: ids(needs),
            ..new(id)
        };
        tasks
            .create_all(vec![
                of("p", None, &[]),
                of("x", None, &["p"]),
                of("c", Some("p"), &[]),
            ])
            .await
            .unwrap();
        // Another task waits for its child, which waits for the parent.
        tasks
            .create_all(vec![of("e", None, &[]), of("ec", Some("e"), &["p"])])
            .await
            .unwrap();
        for circle in [
            vec![of("a", Some("p"), &["e"])],
            vec![of("a", None, &["a"])],
            vec![of("a", None, &["b"]), of("b", None, &["a"])],
            vec![of("a", Some("b"), &[]), of("b", Some("a"), &[])],
            vec![of("a", Some("p"), &["p"])],
            // The parent waits for its child, which waits for a task that waits for the parent.
            vec![of("a", Some("p"), &["x"])],
            vec![of("a", Some("p"), &["b"]), of("b", None, &["p"])],
            // A grandchild.
            vec![of("a", Some("c"), &["p"])],
        ] {
            assert_eq!(
                tasks.create_all(circle).await.unwrap_err(),
                TaskError::Cycle
            );
        }
        // A task that has ended waits for nothing.
        tasks
            .request_cancel(&ids(&["x"])[0], TaskActor::Operator)
            .await
            .unwrap();
        let late = tasks
            .create_all(vec![of("late", Some("p"), &["x"])])
            .await
            .unwrap();
        assert_eq!(late[0].state, TaskState::Canceled);
        let mut deep = vec![of("d0", None, &[])];
        deep.extend(
            (1..=TASK_DEPTH_MAX).map(|n| of(&format!("d{n}"), Some(&format!("d{}", n - 1)), &[])),
        );
        let last = format!("d{TASK_DEPTH_MAX}");
        tasks.create_all(deep).await.unwrap();
        let refused = tasks
            .create_all(vec![of("deeper", Some(&last), &[])])
            .await
            .unwrap_err();
        assert!(matches!(
            refused,
            TaskError::Journal(JournalError::Invalid(_))
        ));
        let many = (0..=TASK_BATCH_MAX)
            .map(|n| new(&format!("m{n}")))
            .collect();
        assert!(tasks.create_all(many).await.is_err());
    })
    .await;
}

/// Goal: cancelling a task ends its children; running ones get a request. Method: a parent with a
/// running child and another.
#[tokio::test]
async fn cancelling_a_family() {
    tasks(async |tasks| {
        let [parent, idle, busy] = ["p", "i", "b"].map(|name| TaskId::new(name).unwrap());
        let part = |id: &str| NewTask {
            parent: Some(parent.clone()),
            ..new(id)
        };
        tasks
            .create_all(vec![new("p"), part("b"), part("i")])
            .await
            .unwrap();
        let (_, lease) = tasks.claim(claim("w", 1)).await.unwrap().remove(0);
        tasks
            .apply(&busy, TaskActor::Worker(&lease), vec![TaskStep::Start])
            .await
            .unwrap();
        let cancelled = tasks
            .request_cancel(&parent, TaskActor::Operator)
            .await
            .unwrap();
        assert_eq!(
            (cancelled.state, cancelled.open_children),
            (TaskState::Canceled, 1)
        );
        assert_eq!(
            tasks.get(&idle).await.unwrap().unwrap().state,
            TaskState::Canceled
        );
        assert_eq!(
            tasks.cancel_requests("w").await.unwrap(),
            std::slice::from_ref(&busy)
        );
        let ended = tasks
            .apply(
                &busy,
                TaskActor::Worker(&lease),
                vec![TaskStep::cancelled()],
            )
            .await
            .unwrap();
        assert_eq!(
            (ended.state, ended.cancel_requested),
            (TaskState::Canceled, false)
        );
        let refused = tasks
            .request_cancel(&parent, TaskActor::Operator)
            .await
            .unwrap_err();
        assert_eq!(refused, TaskError::HasEnded(TaskState::Canceled));
    })
    .await;
}

/// Goal: tasks are listed in order, filtered, page by page. Method: five tasks of two agents.
#[tokio::test]
async fn lists() {
    tasks(async |tasks| {
        for n in 0..5 {
            let agent = if n % 2 == 0 { "even" } else { "odd" }.to_owned();
            begun(
                &tasks,
                NewTask {
                    agent,
                    ..new(&format!("t{n}"))
                },
            )
            .await;
        }
        let even = || TaskFilter {
            agent: Some("even".into()),
            ..TaskFilter::default()
        };
        let (page, more) = tasks.list(even(), 0, 2).await.unwrap();
        assert_eq!(
            (
                page.iter().map(|task| task.number).collect::<Vec<_>>(),
                more
            ),
            (vec![1, 3], true)
        );
        let (page, more) = tasks.list(even(), 3, 2).await.unwrap();
        assert_eq!(
            (
                page.iter().map(|task| task.number).collect::<Vec<_>>(),
                more
            ),
            (vec![5], false)
        );
        let ended = TaskFilter {
            states: vec![TaskState::Completed],
            ..TaskFilter::default()
        };
        assert!(tasks.list(ended, 0, 9).await.unwrap().0.is_empty());
    })
    .await;
}

/// Goal: a watcher sees every event once from its start, and then the end. Method: two watch a task
/// that takes steps meanwhile; one begins late.
#[tokio::test]
async fn followers_miss_nothing() {
    tasks(async |tasks| {
        let (task, lease) = begun(&tasks, new("a")).await;
        let follower = |after| {
            let events = follow_task(tasks.clone(), task.id.clone(), after);
            tokio::spawn(
                events
                    .map(|event| event.unwrap().number)
                    .collect::<Vec<_>>(),
            )
        };
        let (all, later) = (follower(0), follower(150));
        for n in 0..300 {
            let said = vec![
                TaskStep::Said(n.to_string()),
                TaskStep::Said("and on".into()),
            ];
            tasks
                .apply(&task.id, TaskActor::Worker(&lease), said)
                .await
                .unwrap();
            if n % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        tasks
            .apply(&task.id, TaskActor::Worker(&lease), done())
            .await
            .unwrap();
        assert_eq!(all.await.unwrap(), (1..=602).collect::<Vec<_>>());
        assert_eq!(later.await.unwrap(), (151..=602).collect::<Vec<_>>());
        assert_eq!(follower(600).await.unwrap(), [601, 602]);
        assert!(follower(602).await.unwrap().is_empty());
        tasks.delete(&task.id).await.unwrap();
        assert!(follower(0).await.unwrap().is_empty());
    })
    .await;
}

/// Goal: one read or claim is limited, at one more. Method: a claim of more than the maximum;
/// bodies that together exceed a page.
#[tokio::test]
async fn pages() {
    stores(async |opened| {
        let tasks = of(opened);
        for part in 0..2 {
            let many = (0..TASK_BATCH_MAX)
                .map(|n| new(&format!("{part} {n}")))
                .collect();
            tasks.create_all(many).await.unwrap();
        }
        let more = CLAIM_TASKS_MAX + 1;
        assert_eq!(
            tasks.claim(claim("w", more)).await.unwrap().len(),
            CLAIM_TASKS_MAX
        );
        assert_eq!(
            tasks.claim(claim("w", more)).await.unwrap().len(),
            2 * TASK_BATCH_MAX - CLAIM_TASKS_MAX
        );

        let large = |size| RawValue::from_string(format!("\"{}\"", "x".repeat(size))).unwrap();
        let size = TASK_BYTES_MAX_DEFAULT - 1_000;
        let page = usize::try_from(PAGE_BYTES_MAX).unwrap() / size;
        let mut last = None;
        for n in 0..=page {
            let new = NewTask {
                request: Some(large(size)),
                agent: "large".into(),
                ..new(&format!("l{n}"))
            };
            last = Some(begun(&tasks, new).await.1);
        }
        let filter = TaskFilter {
            agent: Some("large".into()),
            ..TaskFilter::default()
        };
        let (first, is_more) = tasks.list(filter.clone(), 0, 99).await.unwrap();
        assert_eq!((first.len(), is_more), (page, true));
        let (rest, is_more) = tasks
            .list(filter, first[page - 1].number, 99)
            .await
            .unwrap();
        assert_eq!((rest.len(), is_more), (1, false));

        let lease = last.unwrap();
        for _ in 0..=page {
            let turn = callboard_message::RawObject::new().with("text", "x".repeat(size));
            tasks
                .apply(
                    &lease.task,
                    TaskActor::Worker(&lease),
                    vec![TaskStep::History(turn)],
                )
                .await
                .unwrap();
        }
        // The first event is a small one.
        let events = tasks.events(&lease.task, 0, 99).await.unwrap();
        assert_eq!(events.len(), 1 + page);
        assert_eq!(
            tasks
                .events(&lease.task, 1 + page as u64, 99)
                .await
                .unwrap()
                .len(),
            1
        );
    })
    .await;
}

/// Goal: a graph too large to check is rejected, at one task more. Method: a chain, whose end a new
/// child needs.
#[tokio::test]
async fn a_graph_has_a_size() {
    stores(async |opened| {
        let tasks = of(opened);
        let name = |n: usize| TaskId::new(format!("t{n}")).unwrap();
        let chain = |n: usize| NewTask {
            id: name(n),
            needs: if n == 0 { vec![] } else { vec![name(n - 1)] },
            ..new("chain")
        };
        let all: Vec<_> = (0..=GRAPH_TASKS_MAX).map(chain).collect();
        for some in all.chunks(TASK_BATCH_MAX) {
            tasks.create_all(some.to_vec()).await.unwrap();
        }
        tasks.create_all(vec![new("whole")]).await.unwrap();
        let part = |id: &str, last: usize| {
            vec![NewTask {
                parent: Some(TaskId::new("whole").unwrap()),
                needs: vec![name(last)],
                ..new(id)
            }]
        };
        let refused = tasks
            .create_all(part("a", GRAPH_TASKS_MAX))
            .await
            .unwrap_err();
        assert!(
            matches!(refused, TaskError::Journal(JournalError::Invalid(_))),
            "{refused:?}"
        );
        tasks
            .create_all(part("b", GRAPH_TASKS_MAX - 1))
            .await
            .unwrap();
    })
    .await;
}
