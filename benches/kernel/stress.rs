//! Overload: number of messages held and rejected, and the waiting time of the rest.
//!
//! `cargo bench --bench stress`. Times are wall clock time: for people, not for a gate.

#[macro_use]
#[expect(dead_code, reason = "the works are for the other benches")]
mod contest;

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contest::{Contestant, SERVICE, SLOW_CAPACITY, Waits};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Factor by which the load exceeds the capacity.
const OVERLOAD: u32 = 10;
/// Time for which the slow consumer is flooded.
const FLOOD: Duration = Duration::from_secs(3);
/// Number of senders to one agent.
const SENDERS: usize = 1_000;
/// Number of sequential asks of each sender.
const ASKS: usize = 200;

fn main() {
    println!(
        "\nA burst of {} messages into a mailbox of {SLOW_CAPACITY}, its agent busy",
        OVERLOAD as usize * SLOW_CAPACITY
    );
    println!("| | held | refused | bytes held |\n|---|---|---|---|");
    contestants!(burst).into_iter().for_each(|run| run());

    println!(
        "\nA consumer that needs {SERVICE:?} (the timer makes it up to twice that) gets {OVERLOAD} messages a {SERVICE:?} for {FLOOD:?}"
    );
    println!(
        "| | offered | refused | handled | wait p50 | p99 | max | still held | bytes held |\n|---|---|---|---|---|---|---|---|---|"
    );
    contestants!(flood).into_iter().for_each(|run| run());

    println!("\n{SENDERS} senders ask one agent, {ASKS} times each, one after the other");
    println!("| | asks/s | p50 | p99 | p99.9 | max |\n|---|---|---|---|---|---|");
    contestants!(crowd).into_iter().for_each(|run| run());
}

fn live_bytes(region: &Region<'_, System>) -> isize {
    let change = region.change();
    change.bytes_allocated as isize - change.bytes_deallocated as isize
}

/// Offers messages without letting the agent run in between, so the number held is the true bound.
fn burst<C: Contestant>() {
    C::block_on(async {
        let contestant = C::start().await;
        let slow = contestant.slow(Arc::default()).await;
        tokio::time::sleep(SERVICE).await;
        let region = Region::new(ALLOCATOR);
        let offered = OVERLOAD as usize * SLOW_CAPACITY;
        let held = (0..offered)
            .filter(|_| C::offer(&slow, Instant::now()))
            .count();
        println!(
            "| {} | {held} | {} | {} |",
            C::NAME,
            offered - held,
            live_bytes(&region)
        );
        drop(slow);
        contestant.finish().await;
    });
}

fn flood<C: Contestant>() {
    C::block_on(async {
        let contestant = C::start().await;
        let waits = Arc::new(Waits::default());
        let slow = contestant.slow(waits.clone()).await;
        let region = Region::new(ALLOCATOR);
        let (mut offered, mut refused) = (0usize, 0usize);
        let mut ticks = tokio::time::interval(SERVICE);
        let start = Instant::now();
        while start.elapsed() < FLOOD {
            ticks.tick().await;
            for _ in 0..OVERLOAD {
                offered += 1;
                refused += usize::from(!C::offer(&slow, Instant::now()));
            }
        }
        let bytes = live_bytes(&region);
        let mut waited = waits.taken();
        waited.sort();
        let handled = waited.len();
        println!(
            "| {} | {offered} | {refused} | {handled} | {:.0?} | {:.0?} | {:.0?} | {} | {bytes} |",
            C::NAME,
            percentile(&waited, 0.5),
            percentile(&waited, 0.99),
            percentile(&waited, 1.0),
            offered - refused - handled,
        );
        drop(slow);
        contestant.finish().await;
    });
}

fn crowd<C: Contestant>() {
    C::block_on(async {
        let contestant = C::start().await;
        let adder = contestant.adder().await;
        let start = Instant::now();
        let mut senders: FuturesUnordered<_> = (0..SENDERS)
            .map(async |_| {
                let mut latencies = Vec::with_capacity(ASKS);
                for _ in 0..ASKS {
                    let sent = Instant::now();
                    C::ask(&adder, 1).await;
                    latencies.push(sent.elapsed());
                }
                latencies
            })
            .collect();
        let mut latencies = Vec::with_capacity(SENDERS * ASKS);
        while let Some(more) = senders.next().await {
            latencies.extend(more);
        }
        let rate = latencies.len() as f64 / start.elapsed().as_secs_f64();
        latencies.sort();
        println!(
            "| {} | {rate:.0} | {:.0?} | {:.0?} | {:.0?} | {:.0?} |",
            C::NAME,
            percentile(&latencies, 0.5),
            percentile(&latencies, 0.99),
            percentile(&latencies, 0.999),
            percentile(&latencies, 1.0),
        );
        assert_eq!(C::ask(&adder, 0).await, (SENDERS * ASKS) as u64);
        drop(senders);
        contestant.finish().await;
    });
}

/// Returns the value below which `share` of the sorted values lie; zero for an empty slice.
fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let index = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(index.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}
