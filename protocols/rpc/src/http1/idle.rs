//! Connections that nobody uses.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::Uri;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::connection::Connection;

/// Connections that are kept while nothing goes over them; past that, the one that waits longest is closed.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// How long a connection is kept so at most.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(90);

/// Connections that nobody uses, the one used last at the end.
#[derive(Default)]
pub(super) struct Idle(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    connections: Vec<(Connection, Instant)>,
    /// Somebody closes those that wait too long.
    swept: bool,
}

impl Idle {
    /// One to `origin` that seems to be open.
    pub(super) fn take(&self, origin: &Uri) -> Option<Connection> {
        loop {
            let mut connection = {
                let mut waiting = self.0.lock();
                let at = waiting.connections.iter().rposition(|(connection, _)| connection.origin() == origin)?;
                waiting.connections.remove(at).0
            };
            if connection.is_ready() {
                return Some(connection);
            }
        }
    }

    /// Keeps one that has done its work; closes it where it can't be used again.
    pub(super) fn put(self: &Arc<Self>, mut connection: Connection) {
        if !connection.is_ready() {
            return;
        }
        let mut waiting = self.0.lock();
        if waiting.connections.len() == IDLE_CONNECTIONS_MAX {
            waiting.connections.remove(0);
        }
        waiting.connections.push((connection, Instant::now()));
        if waiting.swept {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            waiting.swept = true;
            runtime.spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Closes those that have waited too long. Gives when to look again; `None` where nobody is left.
    fn close_old(&self) -> Option<Instant> {
        let mut waiting = self.0.lock();
        let now = Instant::now();
        waiting.connections.retain(|(_, since)| now < *since + IDLE_TIME_MAX);
        let oldest = waiting.connections.iter().map(|(_, since)| *since + IDLE_TIME_MAX).min();
        waiting.swept = oldest.is_some();
        oldest
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().connections.len()
    }
}

async fn sweep(idle: Weak<Idle>) {
    let mut wait = IDLE_TIME_MAX;
    loop {
        sleep(wait).await;
        let Some(next) = idle.upgrade().and_then(|idle| idle.close_old()) else { return };
        wait = next.saturating_duration_since(Instant::now());
    }
}
