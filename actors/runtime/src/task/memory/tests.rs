use std::time::UNIX_EPOCH;

use callboard_message::{Failure, Principal, TaskState};
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::task::{TaskError, TaskOutcome};

/// Operation on the table. Tasks and leases are chosen by index among existing ones.
#[derive(Debug, Clone)]
enum Operation {
    Begin {
        parent: Option<usize>,
        needs: Vec<usize>,
    },
    BeginAll(Vec<(Option<usize>, Vec<usize>)>),
    Claim {
        tasks_max: usize,
    },
    Step {
        lease: usize,
        end: u8,
    },
    Release {
        lease: usize,
        waits: bool,
    },
    Cancel {
        task: usize,
    },
    Forget {
        task: usize,
    },
    Pass {
        seconds: u64,
    },
}

fn operations() -> impl Strategy<Value = Operation> {
    let task = || 0usize..20;
    let new = || {
        (
            prop::option::of(task()),
            prop::collection::vec(task(), 0..3),
        )
    };
    prop_oneof![
        2 => new().prop_map(|(parent, needs)| Operation::Begin { parent, needs }),
        2 => prop::collection::vec(new(), 1..5).prop_map(Operation::BeginAll),
        4 => (1usize..4).prop_map(|tasks_max| Operation::Claim { tasks_max }),
        6 => (task(), 0u8..8).prop_map(|(lease, end)| Operation::Step { lease, end }),
        2 => (task(), any::<bool>()).prop_map(|(lease, waits)| Operation::Release { lease, waits }),
        1 => task().prop_map(|task| Operation::Cancel { task }),
        1 => task().prop_map(|task| Operation::Forget { task }),
        1 => (0u64..60).prop_map(|seconds| Operation::Pass { seconds }),
    ]
}

struct TestState {
    table: TaskTable,
    ids: Vec<TaskId>,
    leases: Vec<Lease>,
}

impl TestState {
    fn new_task(&mut self, parent: Option<usize>, needs: &[usize]) -> NewTask {
        let of = |at: &usize| self.ids.get(at % self.ids.len().max(1)).cloned();
        let mut new = NewTask::new(
            Principal::agent("a"),
            "a",
            "m",
            self.table.now + Duration::from_secs(3_600),
        );
        new.parent = parent.as_ref().and_then(of);
        new.needs = needs.iter().filter_map(of).collect();
        if self.ids.len().is_multiple_of(3) {
            new.on_restart = crate::task::OnRestart::Resume;
        }
        self.ids.push(new.id.clone());
        new
    }

    fn does(&mut self, operation: Operation) {
        let lease = |at: usize, leases: &[Lease]| leases.get(at % leases.len().max(1)).cloned();
        match operation {
            Operation::Begin { parent, needs } => {
                let new = self.new_task(parent, &needs);
                if let Ok(CreateOutcome::Created(_, lease)) = self.table.create(new, "w") {
                    self.leases.push(lease);
                }
            }
            Operation::BeginAll(all) => {
                // The whole batch is rejected if one task is.
                let all = all
                    .iter()
                    .map(|(parent, needs)| self.new_task(*parent, needs))
                    .collect();
                let _ = self.table.create_all(all);
            }
            Operation::Claim { tasks_max } => {
                let claim = ClaimRequest {
                    scope: "agent".into(),
                    worker: "w".into(),
                    tasks_max,
                    except_owners: Vec::new(),
                    lease: Duration::from_secs(30),
                };
                self.leases.extend(
                    self.table
                        .claim(&claim)
                        .0
                        .into_iter()
                        .map(|(_, lease)| lease),
                );
            }
            Operation::Step { lease: at, end } => {
                let Some(lease) = lease(at, &self.leases) else {
                    return;
                };
                let step = match end {
                    0 => TaskStep::Failed(Failure::internal("no")),
                    1 => TaskStep::Rejected(Failure::internal("no")),
                    2..5 => TaskStep::Completed(RawValue::from_string("1".into()).unwrap()),
                    5 => TaskStep::Said("on it".into()),
                    _ => TaskStep::Start,
                };
                let _ = self
                    .table
                    .apply(&lease.task, TaskActor::Worker(&lease), vec![step]);
            }
            Operation::Release { lease: at, waits } => {
                let why = if waits {
                    ReleaseReason::Waiting
                } else {
                    ReleaseReason::Interrupted
                };
                if let Some(lease) = lease(at, &self.leases) {
                    self.table.release(&lease, why);
                }
            }
            Operation::Cancel { .. } | Operation::Forget { .. } if self.ids.is_empty() => {}
            Operation::Cancel { task } => {
                let _ = self
                    .table
                    .request_cancel(&self.ids[task % self.ids.len()], TaskActor::Operator);
            }
            Operation::Forget { task } => self.table.delete(&self.ids[task % self.ids.len()]),
            Operation::Pass { seconds } => self.table.now += Duration::from_secs(seconds),
        }
    }

    fn check(&self) {
        let (all, _) = self.table.list(&TaskFilter::default(), 0, usize::MAX);
        for task in &all {
            let ended = task.state.is_terminal();
            let parts = all
                .iter()
                .filter(|part| part.parent.as_ref() == Some(&task.id));
            assert_eq!(
                task.open_children as usize,
                parts.filter(|part| !part.state.is_terminal()).count()
            );
            let needs = task
                .needs
                .iter()
                .filter_map(|need| self.table.task(need))
                .map(|need| need.state);
            if !ended {
                // A deleted task had ended before, or ended this one.
                assert_eq!(
                    task.pending_needs as usize,
                    needs.filter(|state| *state != TaskState::Completed).count()
                );
            }
            assert!(
                task.lease.is_none() || !ended,
                "an ended task is nobody's work"
            );
            assert_eq!(
                matches!(task.outcome, Some(TaskOutcome::Reply(_))),
                task.state == TaskState::Completed
            );
            let events = self.table.events(&task.id, 0, usize::MAX);
            assert!(
                (1..)
                    .zip(&events)
                    .all(|(number, event)| event.number == number)
            );
            assert_eq!(events.len() as u64, task.last_event);
            let ends = events.iter().filter(|event| event.step.is_end()).count();
            assert_eq!(
                (ends, ended),
                (
                    usize::from(ended),
                    events.last().is_some_and(|event| event.step.is_end())
                )
            );
            let started = events.iter().any(|event| event.state == TaskState::Working);
            assert!(task.state != TaskState::Completed || started);
        }
    }
}

/// Goal: tasks that have ended and expired don't use up their owner's share. Method: an owner's
/// share is filled with ended tasks; one more is refused before they expire and created after that,
/// alone and in a batch.
#[test]
fn expired_tasks_free_their_owners_share() {
    const SHARE: usize = 2;
    const LIFETIME: Duration = Duration::from_secs(60);
    for in_batch in [false, true] {
        let mut table = TaskTable::new(10_000);
        table.owner_tasks_max = Some(SHARE);
        table.now = UNIX_EPOCH + Duration::from_secs(1_000);
        let create = |table: &mut TaskTable| {
            let new = NewTask::new(Principal::agent("a"), "a", "m", table.now + LIFETIME);
            match in_batch {
                true => table.create_all(vec![new]).map(|_| ()),
                false => table.create(new, "w").map(|_| ()),
            }
        };
        for _ in 0..SHARE {
            create(&mut table).unwrap();
        }
        let (stored, _) = table.list(&TaskFilter::default(), 0, usize::MAX);
        for task in stored {
            table.end(&task.id, TaskStep::cancelled());
        }
        let refused = create(&mut table).unwrap_err();
        assert!(
            matches!(refused, TaskError::TooMany { tasks_max: SHARE }),
            "{refused}"
        );
        table.now += LIFETIME;
        create(&mut table).unwrap();
        let (stored, _) = table.list(&TaskFilter::default(), 0, usize::MAX);
        assert_eq!(stored.len(), 1);
    }
}

proptest! {
    /// Goal: after any operations, counts are consistent, every task ends once, and all open tasks
    /// can be completed. Method: random operations with the invariants checked after each; then a
    /// worker claims until nothing is left.
    #[test]
    fn any_deeds_keep_the_rules(operations in prop::collection::vec(operations(), 0..40)) {
        let mut state = TestState { table: TaskTable::new(10_000), ids: Vec::new(), leases: Vec::new() };
        state.table.now = UNIX_EPOCH + Duration::from_secs(1_000);
        for operation in operations {
            state.does(operation);
            state.check();
        }
        state.table.now += Duration::from_secs(60);
        let claim = ClaimRequest { scope: "agent".into(), worker: "w".into(), tasks_max: 9, except_owners: Vec::new(), lease: Duration::from_secs(30) };
        loop {
            let (before, _) = state.table.list(&TaskFilter::default(), 0, usize::MAX);
            let open = before.iter().filter(|task| !task.state.is_terminal()).count();
            for (task, lease) in state.table.claim(&claim).0 {
                let steps = vec![TaskStep::Start, TaskStep::Completed(RawValue::from_string("1".into()).unwrap())];
                state.table.apply(&task.id, TaskActor::Worker(&lease), steps).unwrap();
            }
            state.check();
            let (after, _) = state.table.list(&TaskFilter::default(), 0, usize::MAX);
            let left = after.iter().filter(|task| !task.state.is_terminal()).count();
            if left == 0 {
                break;
            }
            prop_assert!(left < open, "{left} tasks wait for ever: {after:?}");
        }
    }
}
