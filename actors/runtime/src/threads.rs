//! The threads of a system that has its own: an actix system with one arbiter a host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::host::Host;

/// How long the last turns of an arbiter may take.
const LAST_TURNS: Duration = Duration::from_secs(1);

pub(crate) struct Threads {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Threads {
    pub(crate) fn start(hosts: Vec<Arc<Host>>) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new().name("callboard".into()).spawn(move || {
            actix_rt::System::new().block_on(serve(hosts, stopped));
            // Nobody may be waiting any more.
            let _ = end.send(());
        })?;
        Ok(Self { stop, ended })
    }

    /// Ends the threads and waits for them.
    pub(crate) async fn ended(self) {
        drop(self.stop);
        let _ = self.ended.await;
    }
}

/// Runs the first host on this thread and the others on arbiters of their own, until `stopped`.
async fn serve(hosts: Vec<Arc<Host>>, stopped: oneshot::Receiver<()>) {
    let all = hosts.clone();
    let mut hosts = hosts.into_iter();
    if let Some(first) = hosts.next() {
        first.start();
    }
    let arbiters: Vec<_> = hosts
        .map(|host| {
            let arbiter = actix_rt::Arbiter::new();
            arbiter.spawn_fn(move || host.start());
            arbiter
        })
        .collect();
    // Either way it is time: a dropped sender is a dropped system.
    let _ = stopped.await;
    // The last turns are taken: agents that were told to end do.
    for host in &all {
        host.stop();
        let _ = tokio::time::timeout(LAST_TURNS, host.ended()).await;
    }
    for arbiter in arbiters {
        arbiter.stop();
        let _ = arbiter.join();
    }
}
