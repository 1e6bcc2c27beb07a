//! The tables, and the marks that they are held against.

use crate::echo::Era;
use crate::kit::Measured;
use crate::{Contestant, Memory, Row};

/// Least throughput, as a multiple of mcp-proxy's.
const THROUGHPUT_MIN: f64 = 2.0;
/// Most CPU time a call, as a multiple of mcp-proxy's.
const CPU_MAX: f64 = 0.4;
/// Contestants that are compared with callboard without any of their features: name of the feature, and
/// most CPU time a call, as a multiple of that without.
const FEATURES: [(Contestant, &str, f64); 4] = [
    (Contestant::CallboardTokens, "tokens", 1.1),
    (Contestant::CallboardAudit, "audit", 1.15),
    (Contestant::CallboardPolicies, "policies", 1.25),
    (Contestant::CallboardConsole, "console", 1.03),
];
/// Longest 99th percentile, as a multiple of mcp-proxy's.
const P99_MAX: f64 = 0.5;
/// Most memory at the start, in MB.
const START_MB_MAX: f64 = 25.0;
/// Most memory with idle clients, in MB.
const IDLE_MB_MAX: f64 = 60.0;

impl Row {
    /// For people.
    pub fn title(&self) -> String {
        let era = |era| {
            if era == Era::Legacy {
                "legacy"
            } else {
                "modern"
            }
        };
        let connections = if self.connections == 1 {
            "connection"
        } else {
            "connections"
        };
        format!(
            "{} → {}, {} {connections}",
            era(self.client),
            era(self.upstream),
            self.connections
        )
    }
}

/// The head of the first table.
pub fn begin() {
    let features = FEATURES.map(|(_, name, max)| format!("CPU with {name} ≤ {max}"));
    let features = features.join(" | ");
    println!(
        "| calls/s; p50, p99 µs; CPU µs a call | direct | mcp-proxy | callboard | with access tokens | with audit | with policies | with console \
         | throughput ≥ {THROUGHPUT_MIN} | p99 ≤ {P99_MAX} | CPU ≤ {CPU_MAX} | {features} |"
    );
    let columns = 1 + Contestant::ALL.len() + 3 + FEATURES.len();
    println!("|{}", "---|".repeat(columns));
}

/// One row, by contestant. True where a mark is missed.
pub fn row(row: &Row, measured: &[Option<Measured>; Contestant::ALL.len()]) -> bool {
    let cell = |contestant: Contestant| {
        measured[contestant as usize].map_or("–".to_owned(), |measured| measured.in_words())
    };
    let cells = Contestant::ALL.map(cell).join(" | ");
    let (mut marks, mut missed) = ("– | – | –".to_owned(), false);
    if let (Some(theirs), Some(ours)) = (
        measured[Contestant::McpProxy as usize],
        measured[Contestant::Callboard as usize],
    ) {
        let throughput = ours.calls_a_second / theirs.calls_a_second;
        let p99 = ours.p99.as_secs_f64() / theirs.p99.as_secs_f64();
        let cpu = ours.cpu_us_a_call / theirs.cpu_us_a_call;
        marks = format!("{throughput:.2} | {p99:.2} | {cpu:.2}");
        missed = throughput < THROUGHPUT_MIN || p99 > P99_MAX || cpu > CPU_MAX;
    }
    let cpu = |contestant: Contestant| Some(measured[contestant as usize]?.cpu_us_a_call);
    for (contestant, _, cpu_max) in FEATURES {
        let both = cpu(contestant).zip(cpu(Contestant::Callboard));
        let times = both.map(|(with, without)| with / without);
        missed |= times.is_some_and(|times| times > cpu_max);
        marks += " | ";
        marks += &times.map_or("–".to_owned(), |times| format!("{times:.2}"));
    }
    println!("| {} | {cells} | {marks} |", row.title());
    missed
}

/// The head of the second table.
pub fn begin_memory() {
    println!(
        "\n| resident, MB | at start | after 64 connections' load | with 1,000 idle clients |"
    );
    println!("|---|---|---|---|");
}

/// One row. True where a mark is missed.
pub fn memory(
    title: &str,
    contestant: Contestant,
    used: Result<Memory, String>,
) -> Result<bool, String> {
    let name = if contestant == Contestant::Callboard {
        "callboard"
    } else {
        "mcp-proxy"
    };
    let used = match used {
        Err(why) if contestant != Contestant::Callboard => {
            println!("| {name}, {title} | {why} | | |");
            return Ok(false);
        }
        used => used?,
    };
    let [start, loaded, idle] =
        [used.start, used.loaded, used.idle].map(|bytes| bytes as f64 / 1e6);
    println!("| {name}, {title} | {start:.1} | {loaded:.1} | {idle:.1} |");
    Ok(contestant == Contestant::Callboard && (start > START_MB_MAX || idle > IDLE_MB_MAX))
}
