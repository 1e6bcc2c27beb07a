//! Measurement of CPU and wall clock time.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;

/// Cost of the measured part of a workload.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Number of messages, asks, hops or agents, as the workload counts them.
    pub operations: u64,
    /// CPU time of the whole process, all threads.
    pub cpu: Duration,
    /// Wall clock time.
    pub wall: Duration,
}

impl Sample {
    /// Returns the CPU time of an operation, in nanoseconds.
    pub fn cpu_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.operations as f64
    }
}

/// Running CPU and wall clocks.
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
