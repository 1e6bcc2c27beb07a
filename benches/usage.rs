//! What a process uses, read from outside.

use std::fs;
use std::time::Duration;

/// What `/proc` counts CPU time in: 1/100 s on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// The CPU time that it has used so far, of all its threads.
pub fn cpu_time(process: u32) -> Result<Duration, String> {
    let stat = read(process, "stat")?;
    // The program's name, in brackets, may have spaces in it.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let ticks = |at: usize| fields.as_ref()?.get(at)?.parse::<u32>().ok();
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok(TICK * (user + system)),
        _ => Err(format!("no CPU time in {stat:?}")),
    }
}

/// What it has in memory, in bytes.
pub fn resident(process: u32) -> Result<u64, String> {
    let status = read(process, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| "no VmRSS".to_owned())
}

fn read(process: u32, file: &str) -> Result<String, String> {
    let path = format!("/proc/{process}/{file}");
    fs::read_to_string(&path).map_err(|e| format!("{path} can't be read: {e}"))
}
