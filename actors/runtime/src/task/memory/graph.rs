use std::collections::HashMap;

use super::kept::Kept;
use crate::journal::JournalError;
use crate::task::{NewTask, TASK_DEPTH_MAX, TaskError, TaskId};

/// Tasks about to be kept, with those that are there: who waits for whom. A task waits for what it needs, and for its parts.
pub(super) struct Graph<'a> {
    kept: &'a Kept,
    new: HashMap<&'a TaskId, &'a NewTask>,
    parts: HashMap<&'a TaskId, Vec<&'a TaskId>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Entered,
    Left,
}

impl<'a> Graph<'a> {
    pub(super) fn new(kept: &'a Kept, new: &[&'a NewTask]) -> Self {
        let mut parts: HashMap<_, Vec<_>> = HashMap::new();
        for task in new {
            if let Some(parent) = &task.parent {
                parts.entry(parent).or_default().push(&task.id);
            }
        }
        // From new tasks the way to those that are there leads over needs only.
        if new.iter().any(|task| !task.needs.is_empty()) {
            for (parent, part) in kept.open_parts() {
                parts.entry(parent).or_default().push(part);
            }
        }
        // Parts that are there lead back to a new one only by a parent that is there.
        if new.iter().any(|task| task.parent.as_ref().is_some_and(|parent| kept.task(parent).is_some())) {
            for task in kept.slots.values().map(|slot| &slot.task).filter(|task| !task.state.is_terminal()) {
                if let Some(parent) = &task.parent {
                    parts.entry(parent).or_default().push(&task.id);
                }
            }
        }
        Self { kept, new: new.iter().map(|task| (&task.id, *task)).collect(), parts }
    }

    /// Refuses tasks that could never run, or never end.
    pub(super) fn check(&self) -> Result<(), TaskError> {
        let mut seen = HashMap::new();
        for task in self.new.values() {
            for id in task.needs.iter().chain(&task.parent) {
                if !self.new.contains_key(id) && self.kept.task(id).is_none() {
                    return Err(TaskError::UnknownNeed(id.clone()));
                }
            }
            if let Some(parent) = task.parent.as_ref().and_then(|parent| self.kept.task(parent))
                && parent.state.is_terminal()
            {
                return Err(TaskError::HasEnded(parent.state));
            }
            self.visit(&task.id, &mut seen)?;
        }
        // In a circle of parents the walk up would have no end.
        self.new.values().try_for_each(|task| self.check_depth(task))
    }

    fn visit(&self, id: &'a TaskId, seen: &mut HashMap<&'a TaskId, Seen>) -> Result<(), TaskError> {
        match seen.get(id) {
            Some(Seen::Left) => return Ok(()),
            Some(Seen::Entered) => return Err(TaskError::Cycle),
            None => seen.insert(id, Seen::Entered),
        };
        let needs = match self.new.get(id) {
            Some(new) => &new.needs[..],
            None => self.kept.task(id).filter(|task| !task.state.is_terminal()).map_or(&[][..], |task| &task.needs),
        };
        for next in needs.iter().chain(self.parts.get(id).into_iter().flatten().copied()) {
            self.visit(next, seen)?;
        }
        seen.insert(id, Seen::Left);
        Ok(())
    }

    fn parent(&self, id: &TaskId) -> Option<&TaskId> {
        match self.new.get(id) {
            Some(new) => new.parent.as_ref(),
            None => self.kept.task(id)?.parent.as_ref(),
        }
    }

    fn check_depth(&self, task: &NewTask) -> Result<(), TaskError> {
        let (mut depth, mut at) = (0, task.parent.as_ref());
        while let Some(parent) = at {
            depth += 1;
            if depth > TASK_DEPTH_MAX {
                return Err(JournalError::Invalid("parts of parts go too deep").into());
            }
            at = self.parent(parent);
        }
        Ok(())
    }
}
