//! HTTP clients: one a runtime.

use std::sync::{Arc, Mutex};

use tokio::runtime::{Handle, Id};

use super::http1::{Client, Connector};
use super::lock;
use crate::outbound::options::{ClientError, ClientOptions};

/// Runtimes that one agent's requests come from, and that are remembered: an arbiter or a listener's worker is one.
const RUNTIMES_MAX: usize = 64;

/// The HTTP clients of one agent.
///
/// A connection is woken by the runtime that made it. So each runtime has a client, with connections of its own: a
/// request then wakes no other thread.
#[derive(Clone)]
pub(crate) struct Clients(Arc<Inner>);

struct Inner {
    connector: Connector,
    made: Mutex<Vec<(Id, Client)>>,
}

impl Clients {
    pub(crate) fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        let connector = Connector::new(options.connect_timeout).map_err(ClientError::Client)?;
        Ok(Self(Arc::new(Inner { connector, made: Mutex::default() })))
    }

    /// The client of this runtime.
    pub(super) fn here(&self) -> Client {
        let fresh = || Client::new(self.0.connector.clone());
        let Ok(runtime) = Handle::try_current() else { return fresh() };
        let id = runtime.id();
        let mut made = lock(&self.0.made);
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
    use super::*;

    /// Goal: each runtime has a client of its own, and those remembered are bounded. Method: one runtime more than the
    /// bound, each of which asks twice.
    #[test]
    fn one_a_runtime() {
        let clients = Clients::new(&ClientOptions::default()).unwrap();
        let remembered = |clients: &Clients| lock(&clients.0.made).len();
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
