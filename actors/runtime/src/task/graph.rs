//! Tasks about to be kept, with those that are there: who waits for whom. A task waits for what it needs, and for its parts.

use std::collections::{HashMap, HashSet};

use callboard_message::TaskState;

use super::{NewTask, TASK_DEPTH_MAX, TaskError, TaskId, TaskResult};
use crate::journal::JournalError;

/// What is there already of a graph that new tasks become a part of.
#[derive(Debug, Default)]
pub struct TaskGraph {
    /// Those that new ones name.
    pub states: HashMap<TaskId, TaskState>,
    /// Who waits for whom, as far as it may lead back to a new one.
    pub waits: HashMap<TaskId, Vec<TaskId>>,
    /// How deep a parent is itself: 0 where it is nobody's part.
    pub depths: HashMap<TaskId, usize>,
}

impl TaskGraph {
    /// Refuses tasks that could never run, or never end.
    ///
    /// # Errors
    /// [`TaskError::UnknownNeed`], [`TaskError::HasEnded`], [`TaskError::Cycle`], or [`JournalError::Invalid`].
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
        self.check_circles(new)?;
        // In a circle of parents the walk up would have no end.
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
                return Err(JournalError::Invalid("parts of parts go too deep").into());
            }
        }
        Ok(())
    }

    /// Takes off those that wait for nobody, until none is left (Kahn).
    fn check_circles(&self, new: &[NewTask]) -> TaskResult<()> {
        let mut waits: HashMap<&TaskId, HashSet<&TaskId>> = HashMap::new();
        for (task, others) in &self.waits {
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

/// Steps in an order in which each stands after those that it needs; otherwise they stay in theirs.
///
/// # Errors
/// The first that would have to wait for itself. What isn't among them is waited for by nobody.
pub fn in_dependency_order<T>(
    mut left: Vec<T>,
    needs: impl Fn(&T, &T) -> bool,
) -> Result<Vec<T>, T> {
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

    /// A task, its parent (or `-`) and its needs, each a letter: `ap` is part of p, `a-xy` needs x and y.
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

    /// Goal: tasks that could never end are refused, others aren't. Method: circles of needs, parents, both, also over tasks
    /// that are there and over a part of one; a diamond.
    #[test]
    fn circles() {
        let states = ids("pxce")
            .into_iter()
            .map(|id| (id, TaskState::Working))
            .collect();
        // e waits for its part c, that for p; x waits for p.
        let waits = [("e", "c"), ("c", "p"), ("x", "p"), ("p", "")];
        let waits = waits
            .map(|(task, others)| (ids(task).remove(0), ids(others)))
            .into_iter()
            .collect();
        let known = TaskGraph {
            states,
            waits,
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

    /// Goal: what isn't there, has ended or is too deep is refused, at one more. Method: one of each.
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
