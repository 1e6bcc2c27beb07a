//! Bytes of an idle agent and allocations of a tell and an ask, counted by the allocator. Exact, so
//! one run is enough.
//!
//! A binary of its own, because counting costs time. `cargo bench --bench mailbox_memory --
//! [--check]`

#[macro_use]
#[expect(
    dead_code,
    reason = "time is for the table, the slow agents for the stress bench"
)]
mod contest;

use std::alloc::System;
use std::process::ExitCode;

use contest::works::{self, Work};
use contest::{Contestant, OURS, OURS_PINNED};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of agents over which the bytes are averaged.
const AGENTS: usize = 10_000;
/// Number of operations whose allocations are counted.
const OPERATIONS: u64 = 100_000;
/// Number of yields to the runtime before memory is read, so that all agents have started and
/// settled.
const TURNS: usize = 1_000;

/// Maximum bytes of an agent that has answered one ask and is idle.
const IDLE_BYTES_MAX: f64 = 1_300.0;
/// Maximum allocations of a tell: one box through an untyped handle; none through a typed one.
const TELL_ALLOCATIONS_MAX: f64 = 1.0;
/// Maximum additional allocations of an ask over a tell.
const ASK_ALLOCATIONS_MORE_MAX: f64 = 1.0;
/// Tolerance for occasional allocations (a timer, a grown queue), in allocations an operation.
const NOW_AND_THEN: f64 = 0.02;

/// Contestant that must not allocate at all.
const OURS_TYPED: &str = "callboard typed";

struct Memory {
    name: &'static str,
    /// Bytes of an agent that was spawned and has received no message.
    dormant: f64,
    /// Bytes of an agent that has answered one ask.
    idle: f64,
    /// Allocations of a tell.
    tell: f64,
    /// Allocations of an ask.
    ask: f64,
}

fn main() -> ExitCode {
    let check = std::env::args().any(|word| word == "--check");
    let rows = contestants!(measure).map(|measure| measure());
    println!(
        "| | bytes, dormant agent | bytes, idle agent (one ask answered) | allocations a tell | an ask |"
    );
    println!("|---|---|---|---|---|");
    for Memory {
        name,
        dormant,
        idle,
        tell,
        ask,
    } in &rows
    {
        println!("| {name} | {dormant:.0} | {idle:.0} | {tell:.2} | {ask:.2} |");
    }
    println!(
        "| must (callboard) | | ≤ {IDLE_BYTES_MAX} | ≤ {TELL_ALLOCATIONS_MAX} | ≤ a tell's + {ASK_ALLOCATIONS_MORE_MAX} |"
    );
    let failures = shortfalls(&rows);
    for failure in &failures {
        println!("\nshort of the mark: {failure}");
    }
    match check && !failures.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn measure<C: Contestant>() -> Memory {
    Memory {
        name: C::NAME,
        dormant: bytes_an_agent::<C>(false),
        idle: bytes_an_agent::<C>(true),
        tell: allocations::<C>(Work::Tell),
        ask: allocations::<C>(Work::Ask),
    }
}

fn shortfalls(rows: &[Memory]) -> Vec<String> {
    let mut failures = Vec::new();
    for name in [OURS, OURS_PINNED, OURS_TYPED] {
        let Some(ours) = rows.iter().find(|row| row.name == name) else {
            failures.push(format!("{name} did not take part"));
            continue;
        };
        let tell_max = if name == OURS_TYPED {
            0.0
        } else {
            TELL_ALLOCATIONS_MAX
        };
        let held = [
            ("bytes of an idle agent", ours.idle, IDLE_BYTES_MAX),
            ("allocations a tell", ours.tell, tell_max + NOW_AND_THEN),
            (
                "allocations an ask",
                ours.ask,
                ours.tell + ASK_ALLOCATIONS_MORE_MAX + NOW_AND_THEN,
            ),
        ];
        let over = held.into_iter().filter(|(_, is, most)| is > most);
        failures.extend(
            over.map(|(what, is, most)| format!("{name}, {what}: {is:.2}, must be ≤ {most:.2}")),
        );
    }
    failures
}

/// Returns the live bytes that an agent adds, without its handle.
fn bytes_an_agent<C: Contestant>(asked: bool) -> f64 {
    C::block_on(async {
        let contestant = C::start().await;
        let mut agents = Vec::with_capacity(AGENTS);
        let region = Region::new(ALLOCATOR);
        for _ in 0..AGENTS {
            agents.push(contestant.adder().await);
        }
        if asked {
            for agent in &agents {
                C::ask(agent, 1).await;
            }
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let change = region.change();
        let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
        drop(agents);
        contestant.finish().await;
        bytes / AGENTS as f64
    })
}

/// Returns the allocations of an operation: those of twice the operations minus those of once, to
/// exclude set-up.
fn allocations<C: Contestant>(work: Work) -> f64 {
    let count = |operations| {
        let region = Region::new(ALLOCATOR);
        works::run::<C>(work, operations);
        let change = region.change();
        (change.allocations + change.reallocations) as f64
    };
    count(OPERATIONS);
    (count(2 * OPERATIONS) - count(OPERATIONS)) / OPERATIONS as f64
}
