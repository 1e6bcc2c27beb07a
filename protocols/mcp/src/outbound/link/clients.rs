//! HTTP clients: one a runtime.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Client, redirect};
use tokio::runtime::{Handle, Id};

use super::lock;
use crate::outbound::options::{ClientError, ClientOptions};

/// Runtimes that one agent's requests come from, and that are remembered: an arbiter or a listener's worker is one.
const RUNTIMES_MAX: usize = 64;
/// Connections of one runtime to one server that are kept while nothing goes over them.
const IDLE_CONNECTIONS_MAX: usize = 64;

/// The HTTP clients of one agent.
///
/// A connection's own task lives on the runtime that made the connection. So each runtime has a client, with connections
/// of its own: a request then wakes no other thread.
#[derive(Clone)]
pub(crate) struct Clients(Arc<Inner>);

struct Inner {
    connect_timeout: Duration,
    /// For whoever comes first, and for those who have no runtime.
    first: Client,
    made: Mutex<Vec<(Id, Client)>>,
}

impl Clients {
    pub(crate) fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        let connect_timeout = options.connect_timeout;
        let first = build(connect_timeout).map_err(ClientError::Client)?;
        Ok(Self(Arc::new(Inner { connect_timeout, first, made: Mutex::default() })))
    }

    /// The client of this runtime.
    pub(super) fn here(&self) -> Client {
        let Ok(runtime) = Handle::try_current() else { return self.0.first.clone() };
        let id = runtime.id();
        let mut made = lock(&self.0.made);
        if let Some((_, client)) = made.iter().find(|(of, _)| *of == id) {
            return client.clone();
        }
        let client = match made.is_empty() {
            true => self.0.first.clone(),
            // What could be built once can be built again; if not, a connection of another runtime's serves too.
            false => build(self.0.connect_timeout).unwrap_or_else(|_| self.0.first.clone()),
        };
        if made.len() == RUNTIMES_MAX {
            made.remove(0);
        }
        made.push((id, client.clone()));
        client
    }
}

/// It follows no redirects and no proxy variables: both would take data, and credentials, where nobody configured them
/// to go.
fn build(connect_timeout: Duration) -> reqwest::Result<Client> {
    Client::builder()
        .connect_timeout(connect_timeout)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .tcp_nodelay(true)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .build()
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
