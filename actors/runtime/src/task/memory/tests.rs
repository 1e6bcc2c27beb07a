use std::time::UNIX_EPOCH;

use callboard_message::{Failure, Principal, TaskState};
use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::task::TaskOutcome;

/// Something that somebody does. Tasks and leases are chosen among those that there are.
#[derive(Debug, Clone)]
enum Deed {
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

fn deeds() -> impl Strategy<Value = Deed> {
    let task = || 0usize..20;
    let new = || {
        (
            prop::option::of(task()),
            prop::collection::vec(task(), 0..3),
        )
    };
    prop_oneof![
        2 => new().prop_map(|(parent, needs)| Deed::Begin { parent, needs }),
        2 => prop::collection::vec(new(), 1..5).prop_map(Deed::BeginAll),
        4 => (1usize..4).prop_map(|tasks_max| Deed::Claim { tasks_max }),
        6 => (task(), 0u8..8).prop_map(|(lease, end)| Deed::Step { lease, end }),
        2 => (task(), any::<bool>()).prop_map(|(lease, waits)| Deed::Release { lease, waits }),
        1 => task().prop_map(|task| Deed::Cancel { task }),
        1 => task().prop_map(|task| Deed::Forget { task }),
        1 => (0u64..60).prop_map(|seconds| Deed::Pass { seconds }),
    ]
}

struct World {
    kept: Kept,
    ids: Vec<TaskId>,
    leases: Vec<Lease>,
}

impl World {
    fn new_task(&mut self, parent: Option<usize>, needs: &[usize]) -> NewTask {
        let of = |at: &usize| self.ids.get(at % self.ids.len().max(1)).cloned();
        let mut new = NewTask::new(
            Principal::agent("a"),
            "a",
            "m",
            self.kept.now + Duration::from_secs(3_600),
        );
        new.parent = parent.as_ref().and_then(of);
        new.needs = needs.iter().filter_map(of).collect();
        if self.ids.len().is_multiple_of(3) {
            new.on_restart = crate::task::OnRestart::Resume;
        }
        self.ids.push(new.id.clone());
        new
    }

    fn does(&mut self, deed: Deed) {
        let lease = |at: usize, leases: &[Lease]| leases.get(at % leases.len().max(1)).cloned();
        match deed {
            Deed::Begin { parent, needs } => {
                let new = self.new_task(parent, &needs);
                if let Ok(Begun::New(_, lease)) = self.kept.begin(new, "w") {
                    self.leases.push(lease);
                }
            }
            Deed::BeginAll(all) => {
                // Refused as a whole where one is.
                let all = all
                    .iter()
                    .map(|(parent, needs)| self.new_task(*parent, needs))
                    .collect();
                let _ = self.kept.begin_all(all);
            }
            Deed::Claim { tasks_max } => {
                let claim = Claim {
                    scope: "agent".into(),
                    by: "w".into(),
                    tasks_max,
                    lease: Duration::from_secs(30),
                };
                self.leases.extend(
                    self.kept
                        .claim(&claim)
                        .0
                        .into_iter()
                        .map(|(_, lease)| lease),
                );
            }
            Deed::Step { lease: at, end } => {
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
                let _ = self.kept.step(&lease.task, By::Worker(&lease), vec![step]);
            }
            Deed::Release { lease: at, waits } => {
                let why = if waits {
                    Released::Waits
                } else {
                    Released::Interrupted
                };
                if let Some(lease) = lease(at, &self.leases) {
                    self.kept.release(&lease, why);
                }
            }
            Deed::Cancel { .. } | Deed::Forget { .. } if self.ids.is_empty() => {}
            Deed::Cancel { task } => {
                let _ = self
                    .kept
                    .want_cancel(&self.ids[task % self.ids.len()], By::Operator);
            }
            Deed::Forget { task } => self.kept.forget(&self.ids[task % self.ids.len()]),
            Deed::Pass { seconds } => self.kept.now += Duration::from_secs(seconds),
        }
    }

    fn check(&self) {
        let (all, _) = self.kept.list(&TaskFilter::default(), 0, usize::MAX);
        for task in &all {
            let ended = task.state.is_terminal();
            let parts = all
                .iter()
                .filter(|part| part.parent.as_ref() == Some(&task.id));
            assert_eq!(
                task.children_open as usize,
                parts.filter(|part| !part.state.is_terminal()).count()
            );
            let needs = task
                .needs
                .iter()
                .filter_map(|need| self.kept.task(need))
                .map(|need| need.state);
            if !ended {
                // One that was forgotten had ended before, or ended this one.
                assert_eq!(
                    task.waiting as usize,
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
            let events = self.kept.events(&task.id, 0, usize::MAX);
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

proptest! {
    /// Goal: whatever is done with tasks, counts fit, ends come once, and what is left can be worked off. Method: any deeds; the
    /// rules are checked after each, then a worker takes all that is there until nothing is.
    #[test]
    fn any_deeds_keep_the_rules(deeds in prop::collection::vec(deeds(), 0..40)) {
        let mut world = World { kept: Kept::new(10_000), ids: Vec::new(), leases: Vec::new() };
        world.kept.now = UNIX_EPOCH + Duration::from_secs(1_000);
        for deed in deeds {
            world.does(deed);
            world.check();
        }
        world.kept.now += Duration::from_secs(60);
        let claim = Claim { scope: "agent".into(), by: "w".into(), tasks_max: 9, lease: Duration::from_secs(30) };
        loop {
            let (before, _) = world.kept.list(&TaskFilter::default(), 0, usize::MAX);
            let open = before.iter().filter(|task| !task.state.is_terminal()).count();
            for (task, lease) in world.kept.claim(&claim).0 {
                let steps = vec![TaskStep::Start, TaskStep::Completed(RawValue::from_string("1".into()).unwrap())];
                world.kept.step(&task.id, By::Worker(&lease), steps).unwrap();
            }
            world.check();
            let (after, _) = world.kept.list(&TaskFilter::default(), 0, usize::MAX);
            let left = after.iter().filter(|task| !task.state.is_terminal()).count();
            if left == 0 {
                break;
            }
            prop_assert!(left < open, "{left} tasks wait for ever: {after:?}");
        }
    }
}
