//! A handler that waits until the test lets it go on, and what the test sees of it.

use callboard_runtime::Context;
use tokio::sync::{mpsc, watch};

use crate::kit::soon;

/// Capacity of the channel of events.
const EVENTS_MAX: usize = 256;

#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Began,
    Cancelled,
    Finished,
}

/// The agent's end.
#[derive(Clone)]
pub struct Lingering {
    seen: mpsc::Sender<Seen>,
    go_on: watch::Receiver<bool>,
}

/// The test's end.
pub struct Watch {
    pub seen: mpsc::Receiver<Seen>,
    pub go_on: watch::Sender<bool>,
}

pub fn lingering() -> (Lingering, Watch) {
    let (sender, seen) = mpsc::channel(EVENTS_MAX);
    let (go_on, goes_on) = watch::channel(false);
    (
        Lingering {
            seen: sender,
            go_on: goes_on,
        },
        Watch { seen, go_on },
    )
}

impl Lingering {
    /// Waits until the test lets it go on, or it is cancelled; before that it says so in `begun`'s way.
    pub fn wait(
        &self,
        cx: Context,
        begun: impl FnOnce(&Context) + Send + 'static,
    ) -> impl Future<Output = String> + Send + 'static {
        let Self { seen, mut go_on } = self.clone();
        async move {
            let _ = seen.try_send(Seen::Began);
            begun(&cx);
            tokio::select! {
                _ = go_on.wait_for(|go_on| *go_on) => {
                    let _ = seen.try_send(Seen::Finished);
                    "went on".into()
                }
                () = cx.cancelled() => {
                    let _ = seen.try_send(Seen::Cancelled);
                    String::new()
                }
            }
        }
    }
}

impl Watch {
    pub async fn event(&mut self) -> Seen {
        soon(self.seen.recv()).await.expect("the agent is gone")
    }
}
