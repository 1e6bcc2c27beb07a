use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Failure, Principal, Question, TaskState};
use callboard_runtime::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::value::RawValue;

use crate::kit::{seed, stores};

const HOUR: Duration = Duration::from_secs(3_600);
/// Number of random operations.
const ACTS: usize = 600;
/// Number of task names: few, so that operations collide.
const NAMES: u32 = 24;

fn id(n: u32) -> TaskId {
    TaskId::new(format!("t{n}")).unwrap()
}

fn raw() -> Box<RawValue> {
    RawValue::from_string("1".into()).unwrap()
}

/// Members of a task that don't depend on the store.
#[derive(Debug, PartialEq)]
struct Seen {
    id: TaskId,
    number: u64,
    state: TaskState,
    said: Option<String>,
    open: Vec<String>,
    outcome: String,
    events: Vec<String>,
    waits: (u32, u32),
    cancel_wanted: bool,
    lease: Option<u64>,
}

async fn seen(tasks: &Arc<dyn TaskStore>) -> Vec<Seen> {
    let (all, more) = tasks.list(TaskFilter::default(), 0, 1000).await.unwrap();
    assert!(!more);
    let mut seen = Vec::new();
    for task in all {
        let events = tasks.events(&task.id, 0, 1000).await.unwrap();
        assert_eq!(events.len() as u64, task.last_event, "{}", task.id);
        seen.push(Seen {
            id: task.id.clone(),
            number: task.number,
            state: task.state,
            said: task.status_message.clone(),
            open: task
                .open_questions
                .iter()
                .map(|open| open.key.clone())
                .collect(),
            outcome: format!("{:?}", task.outcome),
            events: events
                .iter()
                .map(|event| format!("{} {:?} {}", event.number, event.step, event.state))
                .collect(),
            waits: (task.pending_needs, task.open_children),
            cancel_wanted: task.cancel_requested,
            lease: task.lease.as_ref().map(|lease| lease.epoch),
        });
    }
    seen
}

/// Random operation, applicable to several stores.
#[derive(Debug)]
enum Act {
    Begin(Box<NewTask>),
    BeginAll(Vec<NewTask>),
    Claim(usize, Duration),
    Step(TaskId, u64, Vec<TaskStep>),
    Answer(TaskId, String),
    Release(TaskId, u64, ReleaseReason),
    Cancel(TaskId),
    Forget(TaskId),
    ForgetEnded(&'static str, &'static str, usize),
}

/// Returns a task whose name is mostly new, and which mostly refers to existing ones.
fn new(random: &mut StdRng, known: &[Seen]) -> NewTask {
    let some = |random: &mut StdRng| match known.choose(random) {
        Some(seen) if random.random_ratio(7, 8) => seen.id.clone(),
        _ => id(random.random_range(0..NAMES)),
    };
    let expires = SystemTime::now() + HOUR;
    NewTask {
        id: id(random.random_range(0..NAMES)),
        parent: random.random_ratio(1, 3).then(|| some(random)),
        needs: (0..random.random_range(0..3))
            .map(|_| some(random))
            .collect(),
        on_restart: if random.random() {
            OnRestart::Resume
        } else {
            OnRestart::Fail
        },
        ..NewTask::new(Principal::agent("ann"), "clinic", "ask", expires)
    }
}

fn step(random: &mut StdRng) -> TaskStep {
    let key = format!("q{}", random.random_range(0..3));
    match random.random_range(0..12) {
        0..3 => TaskStep::Start,
        3 => TaskStep::Said(format!("at {key}")),
        4 => TaskStep::Asked(OpenQuestion {
            key,
            question: Question::roots().into(),
        }),
        5 => TaskStep::GivenUp { key },
        6 => TaskStep::AuthWanted(key),
        7 => TaskStep::Failed(Failure::internal("no")),
        8 => TaskStep::Rejected(Failure::internal("never")),
        9 => TaskStep::cancelled(),
        _ => TaskStep::Completed(raw()),
    }
}

impl Act {
    fn some(random: &mut StdRng, known: &[Seen]) -> Self {
        let (some, epoch) = match known.choose(random) {
            Some(seen) => (seen.id.clone(), seen.lease.unwrap_or(1)),
            None => (id(0), 1),
        };
        // Sometimes an outdated lease.
        let epoch = if random.random_ratio(1, 8) {
            epoch.saturating_sub(1)
        } else {
            epoch
        };
        match random.random_range(0..40) {
            0..5 => Self::Begin(Box::new(new(random, known))),
            5..10 => Self::BeginAll(
                (0..random.random_range(1..4))
                    .map(|_| new(random, known))
                    .collect(),
            ),
            10..15 => Self::Claim(
                random.random_range(1..4),
                if random.random_ratio(1, 4) {
                    Duration::ZERO
                } else {
                    HOUR
                },
            ),
            15..33 => Self::Step(
                some,
                epoch,
                (0..random.random_range(1..3))
                    .map(|_| step(random))
                    .collect(),
            ),
            33 => Self::Answer(some, format!("q{}", random.random_range(0..3))),
            34 => Self::Release(some, epoch, ReleaseReason::Waiting),
            35 => Self::Release(some, epoch, ReleaseReason::Interrupted),
            36..38 => Self::Cancel(some),
            38 => {
                // Mostly of the only scope and owner with tasks.
                let places = [
                    ("agent", "ann"),
                    ("agent", "ann"),
                    ("agent", "bob"),
                    ("other", "ann"),
                ];
                let (scope, owner) = places[random.random_range(0..places.len())];
                Self::ForgetEnded(scope, owner, random.random_range(0..3))
            }
            _ => Self::Forget(some),
        }
    }

    /// Runs the operation and returns the part of the result that every store must share.
    async fn on(&self, tasks: &Arc<dyn TaskStore>) -> String {
        let lease = |id: &TaskId, epoch| Lease {
            task: id.clone(),
            worker: tasks.worker_id().to_owned(),
            epoch,
        };
        match self {
            Self::Begin(new) => match tasks.create(NewTask::clone(new)).await {
                Ok(CreateOutcome::Created(task, lease)) => {
                    format!("new {} {}", task.id, lease.epoch)
                }
                Ok(CreateOutcome::Existing(task)) => format!("again {}", task.id),
                // If there are several reasons, the order of the checks isn't guaranteed.
                Err(_) => "refused".to_owned(),
            },
            Self::BeginAll(new) => match tasks.create_all(new.clone()).await {
                Ok(tasks) => tasks
                    .iter()
                    .map(|task| format!("{} {}, ", task.id, task.state))
                    .collect(),
                Err(_) => "refused".to_owned(),
            },
            Self::Claim(tasks_max, lease) => {
                let by = tasks.worker_id().to_owned();
                let claim = ClaimRequest {
                    scope: "agent".into(),
                    worker: by,
                    tasks_max: *tasks_max,
                    except_owners: Vec::new(),
                    lease: *lease,
                };
                let claimed = tasks.claim(claim).await.unwrap();
                claimed
                    .iter()
                    .map(|(task, lease)| format!("{} {} {}, ", task.id, task.state, lease.epoch))
                    .collect()
            }
            Self::Step(id, epoch, steps) => {
                let taken = tasks
                    .apply(id, TaskActor::Worker(&lease(id, *epoch)), steps.clone())
                    .await;
                format!("{:?}", taken.map(|task| task.state))
            }
            Self::Answer(id, key) => {
                let answered = TaskStep::Answered {
                    key: key.clone(),
                    answer: raw(),
                };
                format!(
                    "{:?}",
                    tasks
                        .apply(id, TaskActor::Operator, vec![answered])
                        .await
                        .map(|task| task.state)
                )
            }
            Self::Release(id, epoch, why) => {
                format!("{:?}", tasks.release(&lease(id, *epoch), *why).await)
            }
            Self::Cancel(id) => format!(
                "{:?}",
                tasks
                    .request_cancel(id, TaskActor::Operator)
                    .await
                    .map(|task| task.state)
            ),
            Self::Forget(id) => format!("{:?}", tasks.delete(id).await),
            Self::ForgetEnded(scope, owner, tasks_max) => {
                let owner = TaskOwner::from_principal(&Principal::agent(*owner), None);
                format!("{:?}", tasks.delete_ended(scope, &owner, *tasks_max).await)
            }
        }
    }
}

/// Goal: tasks behave the same in every store. Method: the same random operations, valid and
/// invalid, on tasks in memory and in a store; compare everything visible after each. A failure
/// prints the seed for `CALLBOARD_SEED`.
#[tokio::test]
async fn memory_and_store_are_alike() {
    let seed = seed();
    stores(async |opened| {
        let memory: Arc<dyn TaskStore> = Arc::new(MemoryTaskStore::default());
        let store = opened.sql.store().tasks;
        let mut random = StdRng::seed_from_u64(seed);
        let (mut known, mut ended) = (Vec::new(), 0);
        for n in 0..ACTS {
            let act = Act::some(&mut random, &known);
            let (ours, theirs) = (act.on(&memory).await, act.on(&store).await);
            assert_eq!(ours, theirs, "act {n}: {act:?}");
            known = seen(&memory).await;
            assert_eq!(known, seen(&store).await, "act {n}: {act:?}");
            ended = ended.max(known.iter().filter(|seen| seen.state.is_terminal()).count());
        }
        assert!(ended > 5, "little has happened");
    })
    .await;
}
