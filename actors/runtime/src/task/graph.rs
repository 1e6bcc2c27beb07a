//! Dependency graph of tasks, checked before new ones are stored. A task waits for the tasks it
//! needs and for its children.

use std::collections::{HashMap, HashSet};

use callboard_message::TaskState;

use super::{NewTask, TASK_DEPTH_MAX, TaskError, TaskId, TaskResult};
use crate::journal::JournalError;

/// Part of the stored task graph that is needed to check new tasks.
#[derive(Debug, Default)]
pub struct TaskGraph {
    /// States of the stored tasks to which new tasks refer, as a need or a parent.
    pub states: HashMap<TaskId, TaskState>,
    /// Needs of stored tasks: the tasks that each one waits for. Only those that may lead to a new
    /// task.
    pub waits_for: HashMap<TaskId, Vec<TaskId>>,
    /// Nesting depth of each stored parent of a new task; 0 for a root.
    pub depths: HashMap<TaskId, usize>,
}

impl TaskGraph {
    /// Checks that every new task can start and end.
    ///
    /// # Errors
    /// [`TaskError::UnknownNeed`] for a reference to an unknown task, [`TaskError::HasEnded`] for a
    /// parent that has ended, [`TaskError::Cycle`], or [`JournalError::Invalid`] for a nesting
    /// deeper than [`TASK_DEPTH_MAX`].
    pub fn check(&self, new: &[NewTask]) -> TaskResult<()> {
        let by_id: HashMap<_, _> = new.iter().map(|task| (&task.id, task)).collect();
        for task in new {
            for named in task.needs.iter().chain(&task.parent) {
                if !by_id.contains_key(named) && !self.states.contains_key(named) {
                    return Err(TaskError::UnknownNeed(named.clone()));
                }
            }
            if let Some(state) = task
                .parent
                .as_ref()
                .and_then(|parent| self.states.get(parent))
                && state.is_terminal()
            {
                return Err(TaskError::HasEnded(*state));
            }
        }
        self.check_cycles(new)?;
        // Cycles of parents have been excluded, so the walk up ends.
        for task in new {
            let (mut depth, mut at) = (0, task.parent.as_ref());
            while let Some(parent) = at {
                depth += 1;
                at = by_id.get(parent).and_then(|parent| parent.parent.as_ref());
                if at.is_none() {
                    depth += self.depths.get(parent).copied().unwrap_or_default();
                }
            }
            if depth > TASK_DEPTH_MAX {
                return Err(JournalError::Invalid("tasks can be nested at most 8 deep").into());
            }
        }
        Ok(())
    }

    /// Checks that the dependencies have no cycle (Kahn's algorithm).
    fn check_cycles(&self, new: &[NewTask]) -> TaskResult<()> {
        let mut waits: HashMap<&TaskId, HashSet<&TaskId>> = HashMap::new();
        for (task, others) in &self.waits_for {
            waits.entry(task).or_default().extend(others);
        }
        for task in new {
            waits.entry(&task.id).or_default().extend(&task.needs);
            if let Some(parent) = &task.parent {
                waits.entry(parent).or_default().insert(&task.id);
            }
        }
        let mut waited_for: HashMap<&TaskId, Vec<&TaskId>> = HashMap::new();
        let mut left: HashMap<&TaskId, usize> = HashMap::new();
        for (task, others) in &waits {
            left.insert(task, others.len());
            for other in others {
                left.entry(other).or_default();
                waited_for.entry(other).or_default().push(task);
            }
        }
        let mut free: Vec<_> = left
            .iter()
            .filter(|(_, waits)| **waits == 0)
            .map(|(task, _)| *task)
            .collect();
        let mut taken = 0;
        while let Some(task) = free.pop() {
            taken += 1;
            for waiting in waited_for.get(task).into_iter().flatten() {
                if let Some(others) = left.get_mut(waiting) {
                    *others -= 1;
                    if *others == 0 {
                        free.push(waiting);
                    }
                }
            }
        }
        if taken == left.len() {
            Ok(())
        } else {
            Err(TaskError::Cycle)
        }
    }
}

/// Sorts steps so that each comes after the steps it needs. Apart from that, steps keep their
/// order. `needs(a, b)` returns true if `a` needs `b`.
///
/// # Errors
/// The first step that is part of a cycle or depends on one.
pub fn topological_order<T>(mut left: Vec<T>, needs: impl Fn(&T, &T) -> bool) -> Result<Vec<T>, T> {
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let free = left
            .iter()
            .position(|step| !left.iter().any(|other| needs(step, other)));
        match free {
            Some(at) => sorted.push(left.remove(at)),
            None => return Err(left.swap_remove(0)),
        }
    }
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use callboard_message::Principal;

    use super::*;

    fn ids(names: &str) -> Vec<TaskId> {
        names
            .chars()
            .map(|name| TaskId::new(name).unwrap())
            .collect()
    }

    /// Parses a task, its parent (or `-`) and its needs, each one letter: `ap` is a child of p,
    /// `a-xy` needs x and y.
    fn task(told: &str) -> NewTask {
        let (id, rest) = told.split_at(1);
        let (parent, needs) = rest.split_at(1.min(rest.len()));
        NewTask {
            id: ids(id).remove(0),
            parent: (!parent.is_empty() && parent != "-").then(|| ids(parent).remove(0)),
            needs: ids(needs),
            ..NewTask::new(Principal::agent("ann"), "clinic", "ask", SystemTime::now())
        }
    }

    fn checked(told: &[&str], known: &TaskGraph) -> TaskResult<()> {
        known.check(&told.iter().map(|told| task(told)).collect::<Vec<_>>())
    }

    /// Goal: tasks that could never end are rejected, others aren't. Method: cycles of needs, of
    /// parents and of both, also through stored tasks and children; a diamond.
    #[test]
    fn circles() {
        let states = ids("pxce")
            .into_iter()
            .map(|id| (id, TaskState::Working))
            .collect();
        // e waits for its child c, which waits for p; x waits for p.
        let waits = [("e", "c"), ("c", "p"), ("x", "p"), ("p", "")];
        let waits = waits
            .map(|(task, others)| (ids(task).remove(0), ids(others)))
            .into_iter()
            .collect();
        let known = TaskGraph {
            states,
            waits_for: waits,
            depths: HashMap::new(),
        };
        for circle in [
            &["a-a"][..],
            &["a-b", "b-a"],
            &["ab", "ba"],
            &["app"],
            &["apx"],
            &["ape"],
            &["apb", "b-p"],
        ] {
            assert_eq!(checked(circle, &known), Err(TaskError::Cycle), "{circle:?}");
        }
        for fine in [
            &["a-x"][..],
            &["ap"],
            &["a-p", "b-pa"],
            &["a", "b-a", "c-a", "d-bc"],
            &["q", "aq", "bqa", "dqab"],
        ] {
            assert_eq!(checked(fine, &known), Ok(()), "{fine:?}");
        }
    }

    /// Goal: references to unknown or ended tasks and too deep nesting are rejected, at one past
    /// the limit. Method: one of each.
    #[test]
    fn bounds() {
        let mut known = TaskGraph::default();
        assert_eq!(
            checked(&["a-x"], &known),
            Err(TaskError::UnknownNeed(ids("x").remove(0)))
        );
        assert_eq!(
            checked(&["ax"], &known),
            Err(TaskError::UnknownNeed(ids("x").remove(0)))
        );
        known.states.insert(ids("x").remove(0), TaskState::Failed);
        assert_eq!(checked(&["a-x"], &known), Ok(()));
        assert_eq!(
            checked(&["ax"], &known),
            Err(TaskError::HasEnded(TaskState::Failed))
        );
        known.states.insert(ids("x").remove(0), TaskState::Working);
        known.depths.insert(ids("x").remove(0), TASK_DEPTH_MAX - 2);
        assert_eq!(checked(&["ax", "ba"], &known), Ok(()));
        assert!(matches!(
            checked(&["ax", "ba", "cb"], &known),
            Err(TaskError::Journal(JournalError::Invalid(_)))
        ));
    }
}
