//! HTTP clients: one a runtime.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

use super::{Client, Connector};

/// Runtimes that one agent's requests come from, and that are remembered: an arbiter or a listener's worker is one.
pub const RUNTIMES_MAX: usize = 64;

/// The HTTP clients of one agent.
///
/// A connection is woken by the runtime that made it. So each runtime has a client, with connections of its own: a
/// request then wakes no other thread.
#[derive(Clone)]
pub struct Clients(Arc<Inner>);

struct Inner {
    connector: Connector,
    made: Mutex<Vec<(Id, Client)>>,
}

impl Clients {
    /// Without connections yet; how they are made says `connector`.
    pub fn new(connector: Connector) -> Self {
        Self(Arc::new(Inner { connector, made: Mutex::default() }))
    }

    /// The client of this runtime.
    pub fn here(&self) -> Client {
        let fresh = || Client::new(self.0.connector.clone());
        let Ok(runtime) = Handle::try_current() else { return fresh() };
        let id = runtime.id();
        let mut made = self.0.made.lock();
        if let Some((_, client)) = made.iter().find(|(of, _)| *of == id) {
            return client.clone();
        }
        if made.len() == RUNTIMES_MAX {
            made.remove(0);
        }
        let client = fresh();
        made.push((id, client.clone()));
        client
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: each runtime has a client of its own, and those remembered are bounded. Method: one runtime more than the
    /// bound, each of which asks twice.
    #[test]
    fn one_a_runtime() {
        let clients = Clients::new(Connector::new(Duration::from_secs(5)).unwrap());
        let remembered = |clients: &Clients| clients.0.made.lock().len();
        clients.here();
        assert_eq!(remembered(&clients), 0, "this thread has no runtime");
        let runtimes: Vec<_> = (0..=RUNTIMES_MAX)
            .map(|_| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
            .collect();
        for (nth, runtime) in runtimes.iter().enumerate() {
            let _here = runtime.enter();
            clients.here();
            clients.here();
            assert_eq!(remembered(&clients), (nth + 1).min(RUNTIMES_MAX));
        }
    }
}
