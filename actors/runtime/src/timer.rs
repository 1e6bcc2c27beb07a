use std::time::Duration;

use callboard_message::Message;
use tokio_util::sync::CancellationToken;

use crate::agent_ref::AgentRef;

/// The shortest period of a timer.
const TIMER_PERIOD_MIN: Duration = Duration::from_millis(1);

/// A timer of an agent's. It goes on when this is dropped; it ends with the agent, or by [`Timer::cancel`].
pub struct Timer {
    stop: CancellationToken,
}

impl Timer {
    pub(crate) fn after<M: Message>(to: AgentRef, delay: Duration, message: M) -> Self {
        Self::run(to.clone(), async move {
            tokio::time::sleep(delay).await;
            // An agent without room or gone gets no tick.
            let _ = to.try_tell(message);
        })
    }

    pub(crate) fn every<M: Message>(
        to: AgentRef,
        period: Duration,
        mut make: impl FnMut() -> M + Send + 'static,
    ) -> Self {
        Self::run(to.clone(), async move {
            let mut ticks = tokio::time::interval(period.max(TIMER_PERIOD_MIN));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let _ = to.try_tell(make());
            }
        })
    }

    fn run(of: AgentRef, ticking: impl Future<Output = ()> + Send + 'static) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        // On the agent's arbiter: the current thread may be an asker's, and end before the timer.
        let runtime = of.0.runtime();
        let ticking = async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                _ = of.ended() => {}
                () = ticking => {}
            }
        };
        match runtime {
            Some(runtime) => drop(runtime.spawn(ticking)),
            None => drop(tokio::spawn(ticking)),
        }
        Self { stop }
    }

    /// Ends it.
    pub fn cancel(self) {
        self.stop.cancel();
    }
}
