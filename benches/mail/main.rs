//! Agent mail on SQLite (synchronous FULL), in one process: how many direct messages a second are durable, how long a broadcast
//! to 1,000 takes, how long from accepted to delivered at 1,000 messages a second, and whether memory stays flat.
//!
//! `cargo bench --bench mail -- [--seconds N] [--check] [--million [MESSAGES]]`

#[path = "../kit.rs"]
#[expect(dead_code, reason = "shared with benches of servers")]
mod kit;
mod room;
mod stamps;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use callboard::message::mail::MarkRead;
use clap::Parser;
use room::{Noted, Room};
use tokio::time::{MissedTickBehavior, interval, timeout};

// As in callboard's own program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Numbers of concurrent senders, one row each.
const SENDERS: [usize; 3] = [1, 16, 64];
/// Default of `--seconds`: duration of each row and of the open loop.
const SECONDS_DEFAULT: u64 = 10;
/// Recipients of a broadcast, and how many are sent.
const RECIPIENTS: usize = 1_000;
const BROADCASTS: usize = 40;
/// Messages a second of the open loop.
const RATE: u64 = 1_000;
/// Longest 99th percentile from accepted to delivered.
const DELIVERED_P99_MAX: Duration = Duration::from_millis(5);
const BEFORE: u64 = 100_000;
/// Most that memory may grow after that, in bytes.
const GROWS_MAX: u64 = 32 * 1024 * 1024;
/// A message's text, in bytes.
const TEXT_BYTES: usize = 256;
/// Timeout for the arrival of accepted messages.
const ARRIVES: Duration = Duration::from_secs(60);
/// Maximum duration of `--million`.
const MILLION_TAKES_MAX: Duration = Duration::from_secs(20 * 60);

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = SECONDS_DEFAULT)]
    seconds: u64,
    /// Fail where a mark is missed.
    #[arg(long)]
    check: bool,
    /// Whether memory stays flat, over so many messages.
    #[arg(long, value_name = "MESSAGES", num_args = 0..=1, default_missing_value = "1000000")]
    million: Option<u64>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    let done = all(&arguments).await;
    kit::ended(
        done.map(|is_held| !is_held && arguments.check)
            .map_err(|why| why.to_string()),
    )
}

/// Measures and prints. False where a mark is missed.
async fn all(arguments: &Arguments) -> Outcome<bool> {
    if let Some(messages) = arguments.million {
        return flat(messages).await;
    }
    let span = Duration::from_secs(arguments.seconds);
    println!(
        "| senders | direct messages/s, durable | p50, p99 until accepted, ms |\n|---|---|---|"
    );
    for senders in SENDERS {
        let (took, wall) = direct(senders, span).await?;
        let a_second = took.len() as f64 / wall.as_secs_f64();
        println!("| {senders} | {a_second:.0} | {} |", percentiles(took));
    }
    let (accepted, arrived) = broadcasts().await?;
    println!(
        "\n| {BROADCASTS} broadcasts to {RECIPIENTS} agents of the process | p50, p99, ms |\n|---|---|"
    );
    println!("| until it is accepted | {} |", percentiles(accepted));
    println!("| until all have it | {} |", percentiles(arrived));
    let delivered = open_loop(span).await?;
    let p99 = percentile(&delivered, 99);
    println!(
        "\n| {RATE} direct messages/s, for {} s | p50, p99, ms |\n|---|---|",
        arguments.seconds
    );
    println!(
        "| from accepted to delivered | {} |",
        percentiles(delivered)
    );
    let is_held = if p99 <= DELIVERED_P99_MAX {
        "it holds"
    } else {
        "it is missed"
    };
    println!(
        "\nAt most {} ms are wanted for the last p99: {is_held}.",
        DELIVERED_P99_MAX.as_millis()
    );
    Ok(p99 <= DELIVERED_P99_MAX)
}

fn percentile(took: &[Duration], of_hundred: usize) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted
        .get((sorted.len() * of_hundred / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

fn percentiles(took: Vec<Duration>) -> String {
    let ms = |of_hundred| percentile(&took, of_hundred).as_secs_f64() * 1e3;
    format!("{:.2}, {:.2}", ms(50), ms(99))
}

fn text() -> String {
    "m".repeat(TEXT_BYTES)
}

/// Each sends to an agent of its own, one after the other; how long each took to be accepted.
async fn direct(senders: usize, span: Duration) -> Outcome<(Vec<Duration>, Duration)> {
    let room = Room::open(senders, false).await?;
    let (noted, began) = (Noted::default(), Instant::now());
    let mut running = Vec::new();
    for nth in 0..senders {
        let (mailbox, noted) = (room.mailbox(&format!("s{nth}")).await?, noted.clone());
        running.push(tokio::spawn(async move {
            let to = format!("r{nth}");
            while began.elapsed() < span {
                let asked = Instant::now();
                is_accepted(mailbox.send(&to, &text()).await?.success)?;
                noted.add(asked.elapsed());
            }
            Outcome::Ok(())
        }));
    }
    for sender in running {
        sender.await??;
    }
    let wall = began.elapsed();
    room.close().await;
    Ok((noted.take(), wall))
}

fn is_accepted(success: bool) -> Outcome {
    if success {
        Ok(())
    } else {
        Err("a message wasn't accepted".into())
    }
}

/// Measures for each broadcast the time to acceptance, and to arrival at all recipients.
async fn broadcasts() -> Outcome<(Vec<Duration>, Vec<Duration>)> {
    let mut room = Room::open(RECIPIENTS, false).await?;
    let chief = room.mailbox("chief").await?;
    let (mut accepted, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..BROADCASTS {
        let asked = Instant::now();
        let sent = chief.broadcast(&text()).await?;
        accepted.push(asked.elapsed());
        if sent.recipient_count != Some(RECIPIENTS as u64) {
            return Err(format!("for {:?} agents", sent.recipient_count).into());
        }
        let mut last = asked;
        for _ in 0..RECIPIENTS {
            let got = timeout(ARRIVES, room.got.recv()).await?;
            let (_, _, at) = got
                .filter(|(id, _, _)| Some(id) == sent.message_id.as_ref())
                .ok_or("another message")?;
            last = last.max(at);
        }
        arrived.push(last - asked);
    }
    room.close().await;
    Ok((accepted, arrived))
}

/// Messages at fixed moments, whatever becomes of those before; how long each took from accepted to delivered.
async fn open_loop(span: Duration) -> Outcome<Vec<Duration>> {
    let senders = SENDERS[1];
    let mut room = Room::open(senders, false).await?;
    let mut mailboxes = Vec::new();
    for nth in 0..senders {
        mailboxes.push(room.mailbox(&format!("s{nth}")).await?);
    }
    let count = span.as_secs() * RATE;
    let mut due = interval(Duration::from_secs(1) / u32::try_from(RATE)?);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sending = Vec::new();
    for nth in 0..usize::try_from(count)? {
        due.tick().await;
        let (mailbox, to) = (
            mailboxes[nth % senders].clone(),
            format!("r{}", nth % senders),
        );
        sending.push(tokio::spawn(async move {
            is_accepted(mailbox.send(&to, &text()).await?.success)
        }));
    }
    for sent in sending {
        sent.await??;
    }
    let mut first: HashMap<String, Instant> = HashMap::new();
    while (first.len() as u64) < count {
        let (id, _, at) = timeout(ARRIVES, room.got.recv())
            .await?
            .ok_or("nobody takes anything any more")?;
        first.entry(id).or_insert(at);
    }
    let took = first
        .into_iter()
        .filter_map(|(id, at)| Some(at.saturating_duration_since(room.stamps.take(&id)?)));
    let took: Vec<_> = took.collect();
    room.close().await;
    match took.len() as u64 == count {
        true => Ok(took),
        false => Err("a message was delivered that nobody had accepted".into()),
    }
}

/// Whether memory stays flat over so many messages, each read, and all that has ended taken away. False where it doesn't.
async fn flat(messages: u64) -> Outcome<bool> {
    let pairs = SENDERS[2];
    let mut room = Room::open(pairs, true).await?;
    let mut pairs_of = Vec::new();
    for nth in 0..pairs {
        pairs_of.push((
            room.mailbox(&format!("s{nth}")).await?,
            room.mailbox(&format!("r{nth}")).await?,
        ));
    }
    let cpu_before = kit::cpu_time(std::process::id())?;
    let (began, mut before, mut read) = (Instant::now(), None, 0_u64);
    // Each pair has one message under way: it is sent, delivered, read, and the next follows.
    let send = |nth: usize| {
        let (from, _) = pairs_of[nth].clone();
        tokio::spawn(
            async move { is_accepted(from.send(&format!("r{nth}"), &text()).await?.success) },
        );
    };
    (0..pairs).for_each(send);
    while read < messages {
        if began.elapsed() > MILLION_TAKES_MAX {
            eprintln!("only {read} messages in {MILLION_TAKES_MAX:?}");
            break;
        }
        let (id, to, _) = timeout(ARRIVES, room.got.recv())
            .await?
            .ok_or("nobody takes anything any more")?;
        room.stamps.take(&id);
        let nth: usize = to.trim_start_matches('r').parse()?;
        let (from, reader) = pairs_of[nth].clone();
        tokio::spawn(async move {
            reader
                .ask(MarkRead {
                    message_id: id,
                    state: None,
                })
                .await?;
            is_accepted(from.send(&format!("r{nth}"), &text()).await?.success)
        });
        read += 1;
        if read == BEFORE.min(messages / 2) {
            before = Some(kit::resident(std::process::id())?);
        }
    }
    let (took, after) = (began.elapsed(), kit::resident(std::process::id())?);
    let cpu = kit::cpu_time(std::process::id())?.saturating_sub(cpu_before);
    room.close().await;
    let before = before.ok_or("it never came so far")?;
    let mib = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
    let first = BEFORE.min(messages / 2);
    println!(
        "| messages, read and cleaned away | a second | CPU a message, µs | RSS after {first}, at the end, MiB |"
    );
    println!("|---|---|---|---|");
    let (a_second, each) = (
        read as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / read as f64,
    );
    println!(
        "| {read} | {a_second:.0} | {each:.0} | {:.0}, {:.0} |",
        mib(before),
        mib(after)
    );
    Ok(read == messages && after.saturating_sub(before) <= GROWS_MAX)
}
