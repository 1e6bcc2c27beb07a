use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::kit::{Child, Opened, in_database, in_file, of_parent};
use ledger::Ledger;

/// State that the parent process expects in the store.
mod ledger;
/// Load that the child process generates.
mod load;

/// Environment variable that names the child's store.
const STORE: &str = "CALLBOARD_STORE_CHILD";
/// Environment variable with the seed for the moments of the kills; printed on failure.
const SEED: &str = "CALLBOARD_SEED";
const ACKS_BEFORE_KILL: usize = 20;
const KILL_WITHIN: Duration = Duration::from_millis(300);
const ROUNDS: u32 = 50;
/// Time limit for all rounds, also on a busy machine.
const ROUNDS_TIME_MAX: Duration = Duration::from_secs(180);
const POSTGRES_ROUNDS: u32 = 10;
/// Number of rounds between two complete checks of the store.
const WHOLE_LOOK_EVERY: u32 = 10;
const SOAK_ROUNDS: u32 = 2_000;
const SOAK_TIME_MAX: Duration = Duration::from_secs(20 * 60);

/// Child process that is killed.
#[tokio::test]
#[ignore = "a child of the crash tests"]
async fn child() {
    // A run of all ignored tests runs this one too.
    if std::env::var(STORE).is_ok() {
        load::run(of_parent(STORE)).await;
    }
}

/// Goal: SIGKILL loses no acknowledged write, and nothing happens twice although clients retry with
/// their keys. Method: kill a process under load 50 times at random moments; check its store after
/// each.
#[tokio::test]
async fn kill_9_loses_nothing() {
    let began = Instant::now();
    rounds(in_file(|options| options).await, ROUNDS, ROUNDS_TIME_MAX).await;
    assert!(
        began.elapsed() < ROUNDS_TIME_MAX,
        "{ROUNDS} rounds took {:?}",
        began.elapsed()
    );
}

/// Goal: the same on a database server that keeps running and notices the dead client later.
/// Method: the same, 10 times.
#[tokio::test]
async fn kill_9_loses_nothing_on_postgres() {
    if let Some(opened) = in_database(|options| options).await {
        rounds(opened, POSTGRES_ROUNDS, ROUNDS_TIME_MAX).await;
    }
}

/// Goal: the same over a long time. Method: 2,000 rounds or 20 minutes.
#[tokio::test]
#[ignore = "long"]
async fn soak_crash() {
    rounds(in_file(|options| options).await, SOAK_ROUNDS, SOAK_TIME_MAX).await;
}

/// Kills and checks in rounds. At the end lets a process finish: then everything that was ever
/// tried exists exactly once.
async fn rounds(mut opened: Opened, rounds: u32, time_max: Duration) {
    let seed = std::env::var(SEED)
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| rand::rng().random());
    println!("{SEED}={seed}");
    let (mut chance, mut ledger, began) = (
        StdRng::seed_from_u64(seed),
        Ledger::default(),
        Instant::now(),
    );
    for round in 1..=rounds {
        opened.sql.close().await;
        let mut child = start(&opened, &ledger, &format!("go {round}"));
        let mut heard = 0;
        let mut killer = None;
        loop {
            let line = child.line();
            if line.is_empty() {
                break;
            }
            heard += usize::from(ledger.hear(&line));
            if heard >= ACKS_BEFORE_KILL && killer.is_none() {
                killer = Some(kill_in(
                    child.id(),
                    chance.random_range(Duration::ZERO..KILL_WITHIN),
                ));
            }
        }
        assert!(
            heard >= ACKS_BEFORE_KILL,
            "round {round}: the child ended by itself after {heard} acknowledgements"
        );
        killer.map(thread::JoinHandle::join).unwrap().unwrap();
        child.kill();
        // Opening is a check too: the lock must be free and the file intact.
        opened.restart().await;
        ledger.look(&opened).await;
        if round % WHOLE_LOOK_EVERY == 0 || round == rounds {
            ledger.look_at_all(&opened).await;
            println!(
                "{round} rounds in {:?}: {}",
                began.elapsed(),
                ledger.tally()
            );
        }
        if began.elapsed() > time_max {
            break;
        }
    }
    opened.sql.close().await;
    let mut child = start(&opened, &ledger, "finish");
    loop {
        let line = child.line();
        assert!(
            !line.is_empty(),
            "the last child ended before it had done everything"
        );
        if line == load::DONE {
            break;
        }
        ledger.hear(&line);
    }
    child.kill();
    opened.restart().await;
    ledger.look(&opened).await;
    ledger.look_at_all(&opened).await;
    ledger.is_settled(&opened).await;
    println!(
        "{} over {rounds} rounds in {:?}",
        ledger.tally(),
        began.elapsed()
    );
    opened.end().await;
}

/// Starts a child that first retries unacknowledged work.
fn start(opened: &Opened, ledger: &Ledger, order: &str) -> Child {
    let mut child = Child::start("crash::child", &[(STORE, opened.child_store())]);
    for tried in ledger.pending() {
        child.say(&tried);
    }
    child.say(order);
    child
}

/// Kills a process from another thread; the parent reads its output meanwhile.
#[expect(
    clippy::disallowed_methods,
    reason = "the kill comes at a time that nothing tells: no agent is on this thread"
)]
fn kill_in(id: u32, wait: Duration) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(wait);
        assert!(
            Command::new("kill")
                .args(["-9", &id.to_string()])
                .status()
                .unwrap()
                .success()
        );
    })
}
