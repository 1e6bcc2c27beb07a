//! Tasks that run here belong to the process, not to whoever serves them: servers come and go.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use futures::future::join_all;

use super::{LiveOptions, LiveTasks};
use crate::sync::Mutex;
use crate::task::Tasks;

/// The tasks of one store that run in this process, by their scope. Clones are the same.
#[derive(Clone, Default)]
pub struct LiveScopes(Arc<Mutex<HashMap<String, Weak<LiveTasks>>>>);

impl LiveScopes {
    /// Those of a scope: the same ones for all who serve it, at once or in turn, as long as one of them does or a task runs.
    /// After they were stopped, others.
    pub fn of(&self, tasks: &Arc<dyn Tasks>, scope: String, options: LiveOptions) -> Arc<LiveTasks> {
        let mut all = self.0.lock();
        all.retain(|_, live| live.strong_count() > 0);
        // In a store of another worker's name they are another's.
        let known = all.get(&scope).and_then(Weak::upgrade);
        if let Some(live) = known.filter(|live| !live.is_stopped() && Arc::ptr_eq(&live.tasks, tasks)) {
            return live;
        }
        let live = LiveTasks::new(tasks.clone(), scope.clone(), options);
        all.insert(scope, Arc::downgrade(&live));
        live
    }

    /// Ends the work on all; a store that lasts hands them to whoever comes next. Ends when they are let go of.
    pub async fn stop(&self) {
        let all: Vec<_> = {
            let mut all = self.0.lock();
            all.drain().filter_map(|(_, live)| live.upgrade()).collect()
        };
        all.iter().for_each(|live| live.stop());
        join_all(all.iter().map(|live| live.stopped())).await;
    }
}

impl LiveTasks {
    /// What all who serve them have in common besides. It is of one type, whoever asks.
    pub fn beside<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let beside = self.beside.get_or_init(|| Arc::new(T::default())).clone();
        beside.downcast().unwrap_or_default()
    }

    /// Has work done where it outlives whoever wants it, as far as tasks do: the threads of a server end with it.
    pub fn spawn_here(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.keeper.get() {
            Some(keeper) => drop(keeper.spawn(work)),
            None => drop(tokio::spawn(work)),
        }
    }
}

impl fmt::Debug for LiveScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveScopes").finish_non_exhaustive()
    }
}
