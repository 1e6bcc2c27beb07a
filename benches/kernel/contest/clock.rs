//! What a measured part cost.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

/// Cost of the measured part of a work.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Messages, asks, hops or agents, as the work counts them.
    pub operations: u64,
    /// CPU time of the whole process, all threads.
    pub cpu: Duration,
    /// Wall clock.
    pub wall: Duration,
}

impl Sample {
    /// CPU nanoseconds an operation.
    pub fn cpu_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.operations as f64
    }
}

/// Both clocks, running.
pub struct Clock {
    cpu: ProcessTime,
    wall: Instant,
}

impl Clock {
    /// Starts both clocks.
    pub fn start() -> Self {
        Self {
            cpu: ProcessTime::now(),
            wall: Instant::now(),
        }
    }

    /// Reads both clocks.
    pub fn stop(&self, operations: u64) -> Sample {
        Sample {
            operations,
            cpu: self.cpu.elapsed(),
            wall: self.wall.elapsed(),
        }
    }
}
