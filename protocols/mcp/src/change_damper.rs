//! Damping of change notifications: a source that reports a change again and again is told on at a
//! bounded rate.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::CapabilityChange;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Maximum number of different changes that one source may have in damping: the lists, and the
/// resources that were updated within the interval. Updates of further resources are dropped,
/// changes of lists aren't.
pub(crate) const DAMPED_CHANGES_MAX: usize = 1_024;

/// Passes a change on. The returned future, if any, completes once it has been passed on.
type Deliver = dyn Fn(&CapabilityChange) -> Option<BoxFuture<'static, ()>> + Send + Sync;

/// Damper of the changes of one source. The first report of a change is passed on at once. Reports
/// within the interval after it are combined into one, which is passed on at the end of the
/// interval.
pub(crate) struct ChangeDamper(Arc<DamperState>);

struct DamperState {
    interval: Duration,
    /// Runtime of the timers; the current one if `None`.
    runtime: Option<Handle>,
    deliver: Box<Deliver>,
    /// Changes whose interval hasn't ended. True if the change was reported again within it.
    damped: Mutex<HashMap<CapabilityChange, bool>>,
    /// Cancelled when the damper is dropped.
    closed: CancellationToken,
}

impl Drop for DamperState {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl ChangeDamper {
    /// Creates a damper that passes each change on by `deliver`, at most once per `interval`.
    pub fn new(
        interval: Duration,
        runtime: Option<Handle>,
        deliver: impl Fn(&CapabilityChange) -> Option<BoxFuture<'static, ()>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(DamperState {
            interval,
            runtime,
            deliver: Box::new(deliver),
            damped: Mutex::default(),
            closed: CancellationToken::new(),
        }))
    }

    /// Reports a change.
    pub fn report(&self, change: &CapabilityChange) {
        let state = &self.0;
        {
            let mut damped = state.damped.lock();
            if let Some(is_pending) = damped.get_mut(change) {
                *is_pending = true;
                return;
            }
            let is_resource = matches!(change, CapabilityChange::Resource(_));
            if is_resource && damped.len() >= DAMPED_CHANGES_MAX {
                drop(damped);
                callboard_message::log::warn!(
                    DAMPED_CHANGES_MAX,
                    "dropped an update: too many resources are updated at once"
                );
                return;
            }
            damped.insert(change.clone(), false);
        }
        let timer = DampingTimer {
            state: Arc::downgrade(state),
            change: Some(change.clone()),
        };
        let delivering = (state.deliver)(change);
        let runtime = state.runtime.clone().or_else(|| Handle::try_current().ok());
        // Without a runtime the timer is dropped, and the change isn't damped.
        if let Some(runtime) = runtime {
            let closed = state.closed.clone();
            runtime.spawn(async move { closed.run_until_cancelled(timer.run(delivering)).await });
        }
    }
}

/// Timer of one change. Dropping it ends the damping of the change, for whatever reason.
struct DampingTimer {
    state: Weak<DamperState>,
    /// The change; `None` once its damping has ended.
    change: Option<CapabilityChange>,
}

impl DampingTimer {
    async fn run(mut self, mut delivering: Option<BoxFuture<'static, ()>>) {
        let Some(interval) = self.state.upgrade().map(|state| state.interval) else {
            return;
        };
        loop {
            if let Some(delivering) = delivering.take() {
                delivering.await;
            }
            sleep(interval).await;
            let (Some(state), Some(change)) = (self.state.upgrade(), self.change.as_ref()) else {
                return;
            };
            let was_reported_again = {
                let mut damped = state.damped.lock();
                let was_pending = damped.insert(change.clone(), false) == Some(true);
                if !was_pending {
                    damped.remove(change);
                }
                was_pending
            };
            if !was_reported_again {
                self.change = None;
                return;
            }
            delivering = (state.deliver)(change);
        }
    }
}

impl Drop for DampingTimer {
    fn drop(&mut self) {
        if let (Some(state), Some(change)) = (self.state.upgrade(), self.change.take()) {
            state.damped.lock().remove(&change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn damper() -> (ChangeDamper, Arc<Mutex<Vec<CapabilityChange>>>) {
        let told: Arc<Mutex<Vec<CapabilityChange>>> = Arc::default();
        let sink = told.clone();
        let damper = ChangeDamper::new(INTERVAL, None, move |change| {
            sink.lock().push(change.clone());
            None
        });
        (damper, told)
    }

    fn resource(number: usize) -> CapabilityChange {
        CapabilityChange::Resource(format!("x:{number}"))
    }

    /// Goal: a flood is told at its beginning and once per interval, and its last report isn't
    /// lost; afterwards a report is told at once again. Method: paused time; a flood within one
    /// interval, its end, another kind, and a report after it.
    #[tokio::test(start_paused = true)]
    async fn floods_are_combined() {
        let (damper, told) = damper();
        for _ in 0..10_000 {
            damper.report(&CapabilityChange::Tools);
        }
        assert_eq!(*told.lock(), [CapabilityChange::Tools]);
        damper.report(&CapabilityChange::Prompts);
        assert_eq!(told.lock().len(), 2, "kinds are damped apart");
        sleep(INTERVAL * 10).await;
        assert_eq!(told.lock().len(), 3, "the rest of the flood is one report");
        damper.report(&CapabilityChange::Tools);
        assert_eq!(told.lock().len(), 4);
    }

    /// Goal: updates of resources take bounded memory, and hide no change of a list. Method: one
    /// resource more than the limit, a list, and the resource again after the interval.
    #[tokio::test(start_paused = true)]
    async fn resources_are_bounded() {
        let (damper, told) = damper();
        for number in 0..=DAMPED_CHANGES_MAX {
            damper.report(&resource(number));
        }
        assert_eq!(told.lock().len(), DAMPED_CHANGES_MAX);
        damper.report(&CapabilityChange::Tools);
        assert_eq!(told.lock().last(), Some(&CapabilityChange::Tools));
        sleep(INTERVAL * 2).await;
        damper.report(&resource(DAMPED_CHANGES_MAX));
        assert_eq!(told.lock().len(), DAMPED_CHANGES_MAX + 2);
    }

    /// Goal: damping ends with its timer, whatever ends that. Method: a runtime that ends while a
    /// change is damped; no runtime at all.
    #[test]
    fn lost_timers_damp_nothing() {
        let (damper, told) = damper();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async { damper.report(&CapabilityChange::Tools) });
        drop(runtime);
        for _ in 0..2 {
            damper.report(&CapabilityChange::Tools);
        }
        assert_eq!(told.lock().len(), 3);
    }
}
