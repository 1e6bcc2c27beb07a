use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// Servers by name, of which some may come and go while a listener serves. Clones are the same servers.
#[derive(Clone)]
pub struct Named<S>(Arc<RwLock<HashMap<String, S>>>);

impl<S> Default for Named<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S: Clone> Named<S> {
    /// Serves these from now on, and no others. A request that was begun ends as it began; another name is 404.
    pub fn set(&self, servers: HashMap<String, S>) {
        let before = std::mem::replace(&mut *self.0.write(), servers);
        drop(before);
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<S> {
        self.0.read().get(name).cloned()
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<(String, S)> {
        let servers = self.0.read();
        let mut all: Vec<_> = servers.iter().map(|(name, server)| (name.clone(), server.clone())).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}
