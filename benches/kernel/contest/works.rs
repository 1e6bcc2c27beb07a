//! The workloads. Each spawns its agents, warms them up, starts the clock, and checks the sum at
//! the end, so that no contestant can skip a message and no optimiser can drop one.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};

use super::clock::{Clock, Sample};
use super::{Contestant, MAILBOX_CAPACITY, current_thread};

/// Number of concurrent asks in [`Work::AskMany`].
const IN_FLIGHT: u64 = 64;
/// Number of agents in [`Work::Ring`].
const RING: usize = 1_000;
/// Number of agents in [`Work::FanOut`].
const FAN: usize = 100;
/// Number of operations before the clock starts, where agents are reused.
const WARM_UP: u64 = 2_048;

/// Workload, with its unit of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// One producer tells one agent, on one thread. Operation: a tell.
    Tell,
    /// Four producers tell one agent: two beside it, two on a second thread. Operation: a tell.
    TellFour,
    /// One producer on a second thread. Operation: a tell.
    TellAcross,
    /// One ask after the other. Operation: an ask.
    Ask,
    /// 64 asks at once, all awaited, again. Operation: an ask.
    AskMany,
    /// Two agents tell each other. Operation: a tell.
    PingPong,
    /// One token goes round 1,000 agents. Operation: a hop.
    Ring,
    /// 100 agents are asked at once and all answers awaited. Operation: an ask.
    FanOut,
    /// Agents are spawned, then each is asked once. Operation: an agent.
    Spawn,
}

impl Work {
    /// All workloads, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Tell,
        Self::TellFour,
        Self::TellAcross,
        Self::Ask,
        Self::AskMany,
        Self::PingPong,
        Self::Ring,
        Self::FanOut,
        Self::Spawn,
    ];

    /// Returns the name for `--only` and for criterion.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tell => "tell",
            Self::TellFour => "tell_4",
            Self::TellAcross => "tell_across",
            Self::Ask => "ask",
            Self::AskMany => "ask_64",
            Self::PingPong => "ping_pong",
            Self::Ring => "ring_1000",
            Self::FanOut => "fan_out_100",
            Self::Spawn => "spawn",
        }
    }
}

/// Runs `work` on a fresh runtime. `operations` is rounded up as the workload requires.
pub fn run<C: Contestant>(work: Work, operations: u64) -> Sample {
    C::block_on(async {
        let contestant = C::start().await;
        let sample = match work {
            Work::Tell => tell(&contestant, operations).await,
            Work::TellFour => tell_from(&contestant, operations, 2, 2).await,
            Work::TellAcross => tell_from(&contestant, operations, 0, 1).await,
            Work::Ask => ask(&contestant, operations).await,
            Work::AskMany => ask_many(&contestant, operations).await,
            Work::PingPong => ring(&contestant, operations, 2).await,
            Work::Ring => ring(&contestant, operations, RING).await,
            Work::FanOut => fan_out(&contestant, operations).await,
            Work::Spawn => spawn(&contestant, operations).await,
        };
        contestant.finish().await;
        sample
    })
}

/// Sends `count` tells of one. With an unbounded contestant, asks after each `window` tells, so
/// that no more than that are queued.
async fn produce<C: Contestant>(adder: &C::Adder, count: u64, window: u64) {
    for n in 1..=count {
        C::tell(adder, 1).await;
        if !C::BOUNDED && n % window == 0 {
            C::ask(adder, 0).await;
        }
    }
}

async fn tell<C: Contestant>(contestant: &C, operations: u64) -> Sample {
    let adder = contestant.adder().await;
    produce::<C>(&adder, WARM_UP, MAILBOX_CAPACITY as u64).await;
    assert_eq!(C::ask(&adder, 0).await, WARM_UP);
    let clock = Clock::start();
    produce::<C>(&adder, operations, MAILBOX_CAPACITY as u64).await;
    let sum = C::ask(&adder, 0).await;
    let sample = clock.stop(operations);
    assert_eq!(sum, WARM_UP + operations);
    sample
}

/// Runs `here` producers on the agent's thread and `there` on a second one.
async fn tell_from<C: Contestant>(
    contestant: &C,
    operations: u64,
    here: u64,
    there: u64,
) -> Sample {
    let share = operations.div_ceil(here + there);
    let window = MAILBOX_CAPACITY as u64 / (here + there);
    let adder = contestant.adder().await;
    produce::<C>(&adder, WARM_UP, window).await;
    assert_eq!(C::ask(&adder, 0).await, WARM_UP);

    let (ready, is_ready) = oneshot::channel();
    let (go, may_go) = oneshot::channel::<()>();
    let (done, is_done) = oneshot::channel();
    let remote = adder.clone();
    let thread = std::thread::spawn(move || {
        current_thread().block_on(async move {
            ready.send(()).expect("the first thread waits");
            may_go.await.expect("the first thread says go");
            producers::<C>(&remote, there, share, window).await;
            done.send(()).expect("the first thread waits");
        });
    });
    is_ready.await.expect("the second thread starts");

    let clock = Clock::start();
    go.send(()).expect("the second thread waits");
    producers::<C>(&adder, here, share, window).await;
    is_done.await.expect("the second thread ends");
    let sum = C::ask(&adder, 0).await;
    let sample = clock.stop(share * (here + there));
    assert_eq!(sum, WARM_UP + share * (here + there));
    thread.join().expect("the second thread ends");
    sample
}

async fn producers<C: Contestant>(adder: &C::Adder, producers: u64, share: u64, window: u64) {
    let mut running: FuturesUnordered<_> = (0..producers)
        .map(|_| produce::<C>(adder, share, window))
        .collect();
    while running.next().await.is_some() {}
}

async fn ask<C: Contestant>(contestant: &C, operations: u64) -> Sample {
    let adder = contestant.adder().await;
    for _ in 0..WARM_UP {
        C::ask(&adder, 1).await;
    }
    let clock = Clock::start();
    let mut sum = 0;
    for _ in 0..operations {
        sum = C::ask(&adder, 1).await;
    }
    let sample = clock.stop(operations);
    assert_eq!(sum, WARM_UP + operations);
    sample
}

async fn ask_many<C: Contestant>(contestant: &C, operations: u64) -> Sample {
    let adder = contestant.adder().await;
    let rounds = operations.div_ceil(IN_FLIGHT);
    let warm_up = WARM_UP / IN_FLIGHT;
    for _ in 0..warm_up {
        join_all((0..IN_FLIGHT).map(|_| C::ask(&adder, 1))).await;
    }
    let clock = Clock::start();
    for _ in 0..rounds {
        join_all((0..IN_FLIGHT).map(|_| C::ask(&adder, 1))).await;
    }
    let sample = clock.stop(rounds * IN_FLIGHT);
    assert_eq!(C::ask(&adder, 0).await, (warm_up + rounds) * IN_FLIGHT);
    sample
}

async fn ring<C: Contestant>(contestant: &C, operations: u64, size: usize) -> Sample {
    let done = Arc::new(Notify::new());
    let relay = contestant.ring(size, done.clone()).await;
    C::pass(&relay, WARM_UP.max(size as u64));
    done.notified().await;
    let clock = Clock::start();
    C::pass(&relay, operations);
    done.notified().await;
    clock.stop(operations)
}

async fn fan_out<C: Contestant>(contestant: &C, operations: u64) -> Sample {
    let mut adders = Vec::with_capacity(FAN);
    for _ in 0..FAN {
        adders.push(contestant.adder().await);
    }
    let gather = async || {
        join_all(adders.iter().map(|adder| C::ask(adder, 1)))
            .await
            .iter()
            .sum::<u64>()
    };
    for _ in 0..WARM_UP / FAN as u64 {
        gather().await;
    }
    let rounds = operations.div_ceil(FAN as u64);
    let clock = Clock::start();
    let mut sum = 0;
    for _ in 0..rounds {
        sum = gather().await;
    }
    let sample = clock.stop(rounds * FAN as u64);
    assert_eq!(sum, (WARM_UP / FAN as u64 + rounds) * FAN as u64);
    sample
}

async fn spawn<C: Contestant>(contestant: &C, operations: u64) -> Sample {
    let mut adders = Vec::with_capacity(operations as usize);
    let clock = Clock::start();
    for _ in 0..operations {
        adders.push(contestant.adder().await);
    }
    let mut sum = 0;
    for adder in &adders {
        sum += C::ask(adder, 1).await;
    }
    let sample = clock.stop(operations);
    assert_eq!(sum, operations);
    sample
}
