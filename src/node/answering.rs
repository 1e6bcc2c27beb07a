//! Who answers what servers elsewhere ask, as the topology of the moment wants it.

use std::sync::Arc;

use callboard_agents::answering::{AnswerError, Answerers};
use callboard_runtime::{Answering, CallMeta, Caller, System};
use parking_lot::RwLock;

use crate::config::Topology;

/// The answerers of the moment. Clones are the same.
#[derive(Clone)]
pub(super) struct Current {
    system: System,
    answerers: Arc<RwLock<Arc<Answerers>>>,
}

/// Others, until they take their place; `None` where nothing changes, so that what was counted goes on.
pub(super) struct Planned(Option<Arc<Answerers>>);

impl Current {
    pub(super) fn of(system: &System, topology: &Topology) -> Result<Self, AnswerError> {
        let answerers = Arc::new(Answerers::new(system.clone(), topology.answer_options())?);
        Ok(Self { system: system.clone(), answerers: Arc::new(RwLock::new(answerers)) })
    }

    pub(super) fn plan(&self, topology: &Topology) -> Result<Planned, AnswerError> {
        let options = topology.answer_options();
        if *self.now().options() == options {
            return Ok(Planned(None));
        }
        Ok(Planned(Some(Arc::new(Answerers::new(self.system.clone(), options)?))))
    }

    /// Calls that have begun go on with those before.
    pub(super) fn apply(&self, planned: Planned) {
        if let Some(answerers) = planned.0 {
            *self.answerers.write() = answerers;
        }
    }

    fn now(&self) -> Arc<Answerers> {
        self.answerers.read().clone()
    }
}

impl Answering for Current {
    fn caller(&self, source: &str, call: &CallMeta) -> Option<Arc<dyn Caller>> {
        self.now().caller(source, call)
    }
}
