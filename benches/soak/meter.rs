//! Memory and open files of the node's process.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::kit::resident;

/// Interval between two looks at the number of open files.
const LOOK: Duration = Duration::from_secs(1);
/// Time for which the numbers of open files must not change to count as settled: longer than the time after which the node closes
/// what is idle.
const UNCHANGED: Duration = Duration::from_secs(45);
/// Longest time for which the node may hold what clients left. A call whose question stays unanswered holds its connection for
/// `ModernOptions::suspended_ttl`, 300 s.
const RELEASE_MAX: Duration = Duration::from_secs(360);

/// Resident memory over time.
pub struct Meter {
    began: Instant,
    /// Minutes since the beginning, and MiB.
    samples: Vec<(f64, f64)>,
}

impl Meter {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            samples: Vec::new(),
        }
    }

    pub fn sample(&mut self, process: u32) -> Result<(), String> {
        let mib = resident(process)? as f64 / (1024.0 * 1024.0);
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        self.samples.push((minutes, mib));
        Ok(())
    }

    /// Returns the slope in MiB a minute, by least squares; 0 of fewer than two samples.
    pub fn slope(&self) -> f64 {
        let count = self.samples.len() as f64;
        let (x, y) = self
            .samples
            .iter()
            .fold((0.0, 0.0), |(x, y), sample| (x + sample.0, y + sample.1));
        let (x, y) = (x / count, y / count);
        let (covariance, variance) = self.samples.iter().fold((0.0, 0.0), |sums, sample| {
            let apart = sample.0 - x;
            (sums.0 + apart * (sample.1 - y), sums.1 + apart * apart)
        });
        if variance > 0.0 {
            covariance / variance
        } else {
            0.0
        }
    }

    /// Returns the first and the last sample, in MiB.
    pub fn ends(&self) -> (f64, f64) {
        let mib = |sample: Option<&(f64, f64)>| sample.map_or(0.0, |(_, mib)| *mib);
        (mib(self.samples.first()), mib(self.samples.last()))
    }
}

/// Numbers of open files of a process, by kind: sockets, pipes, others of the kernel, and files by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenFiles(BTreeMap<String, usize>);

impl OpenFiles {
    pub fn of(process: u32) -> Result<Self, String> {
        let path = format!("/proc/{process}/fd");
        let entries = fs::read_dir(&path).map_err(|e| format!("{path} can't be read: {e}"))?;
        let mut kinds = BTreeMap::new();
        for entry in entries.flatten() {
            // It may be closed by now.
            let Ok(target) = fs::read_link(entry.path()) else {
                continue;
            };
            let name = target.to_string_lossy();
            let kind = name.split_once(":[").map_or(&*name, |(kind, _)| kind);
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        Ok(Self(kinds))
    }

    pub fn count(&self) -> usize {
        self.0.values().sum()
    }
}

/// Open files of a process without clients, once their numbers no longer change.
pub async fn settled_files(process: u32) -> Result<OpenFiles, String> {
    let (mut files, mut since) = (OpenFiles::of(process)?, Instant::now());
    let began = Instant::now();
    while since.elapsed() < UNCHANGED && began.elapsed() < RELEASE_MAX {
        sleep(LOOK).await;
        let now = OpenFiles::of(process)?;
        if now != files {
            (files, since) = (now, Instant::now());
        }
    }
    Ok(files)
}

/// Open files of a process whose clients have left, once there are at most `most`, or after the time in which the node releases
/// what they held.
pub async fn released_files(process: u32, most: usize) -> Result<OpenFiles, String> {
    let began = Instant::now();
    loop {
        let files = OpenFiles::of(process)?;
        if files.count() <= most || began.elapsed() > RELEASE_MAX {
            return Ok(files);
        }
        sleep(LOOK).await;
    }
}
