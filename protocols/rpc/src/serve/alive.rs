use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// Whether the other end of a socket shows that it is there: it is asked at once and after each period, and is gone once
/// three in a row brought no word by the end of their period.
pub struct Alive {
    ticks: Interval,
    /// How often it was asked since it said something.
    silent: u32,
}

impl Alive {
    const SILENT_MAX: u32 = 3;

    /// Begins now.
    pub fn new(period: Duration) -> Self {
        let mut ticks = interval(period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, silent: 0 }
    }

    /// It said something.
    pub fn seen(&mut self) {
        self.silent = 0;
    }

    /// Waits for the end of a period: it is then to be asked, unless it is gone.
    pub async fn tick(&mut self) {
        self.ticks.tick().await;
        self.silent += 1;
    }

    /// Whether it is gone.
    pub fn is_over(&self) -> bool {
        self.silent > Self::SILENT_MAX
    }
}
