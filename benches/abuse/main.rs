//! Calls of one principal while another misbehaves in one of ten ways: the first one's latency, beside its latency before that. The
//! node is callboard's own binary, with an upstream over standard streams and a store on SQLite, anew for each row. The misbehaving
//! principal is a process of low priority, so that its own work takes no processor from the node.
//!
//! `cargo bench --bench abuse -- [--seconds N] [--only ABUSE] [--callboard PROGRAM] [--check]`

mod abuses;
#[path = "../kit.rs"]
#[expect(dead_code, reason = "shared with benches of other servers")]
mod kit;
#[path = "../misuse.rs"]
#[expect(dead_code, reason = "shared with the soak")]
mod misuse;
#[path = "../node.rs"]
#[expect(dead_code, reason = "shared with the soak")]
mod node;
mod victim;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use abuses::{ABUSES, Abuse, OffenderProcess};
use clap::Parser;
use node::Site;
use victim::{Latencies, Victim};

/// Longest 99th percentile beside an abuse, as a multiple of the quiet one.
const TIMES_MAX: f64 = 3.0;
/// Measurements of each abuse.
const ROUNDS: usize = 3;
/// Load before the quiet latency is measured.
const WARM_UP: Duration = Duration::from_secs(2);
/// Sections of the topology beside upstream, mailroom and listeners. The limit of requests is what docs/security.md recommends.
const SETTINGS: &str =
    "[policy]\nguard = true\nper_client_per_second = 500\n\n[store]\nsize_max_mib = 256\n";

#[derive(Parser)]
struct Arguments {
    /// Duration of each of a round's two measurements.
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Abuses with this in their title only.
    #[arg(long)]
    only: Option<String>,
    #[arg(long, default_value = env!("CARGO_BIN_EXE_callboard"))]
    callboard: PathBuf,
    /// Fail where the mark is missed.
    #[arg(long)]
    check: bool,
    #[arg(long, hide = true)]
    serve: Option<String>,
    /// Title of an abuse, the addresses and the key.
    #[arg(long, hide = true, num_args = 5)]
    misbehave: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    kit::ended(if arguments.serve.is_some() {
        node::serve_upstream()
    } else {
        run(&arguments)
    })
}

#[tokio::main(flavor = "current_thread")]
async fn run(arguments: &Arguments) -> Result<bool, String> {
    if !arguments.misbehave.is_empty() {
        return abuses::misbehave(&arguments.misbehave).await;
    }
    let span = Duration::from_secs(arguments.seconds);
    println!(
        "| p99 of the well-behaved principal, ms: quiet, beside it, times (≤ {TIMES_MAX}) | `tools/call` | `SendMessage` | failed \
         | of the other: served, refused |\n|---|---|---|---|---|"
    );
    let mut missed = false;
    for abuse in ABUSES.iter().filter(|abuse| {
        let only = arguments.only.as_ref();
        only.is_none_or(|only| abuse.title.contains(only))
    }) {
        missed |= row(abuse, &arguments.callboard, span).await?;
    }
    if missed {
        println!("\nshort of the mark");
    }
    Ok(missed && arguments.check)
}

/// One measurement of an abuse.
struct Round {
    /// Latencies of `tools/call` and `SendMessage`, quiet and beside the abuse, and their ratios.
    columns: [String; 2],
    /// The larger of the two ratios.
    worst: f64,
    failed: usize,
    served: u64,
    refused: u64,
}

/// Measures an abuse [`ROUNDS`] times, each against a fresh node, and prints the round in the middle by its larger ratio: a pause of the
/// machine spoils one round. A failed call of any round counts. True where the mark is missed.
async fn row(abuse: &Abuse, program: &std::path::Path, span: Duration) -> Result<bool, String> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(measure(abuse, program, span).await?);
    }
    let failed: usize = rounds.iter().map(|round| round.failed).sum();
    rounds.sort_by(|one, other| one.worst.total_cmp(&other.worst));
    let Round {
        columns: [mcp, a2a],
        worst,
        served,
        refused,
        ..
    } = rounds.swap_remove(ROUNDS / 2);
    println!(
        "| {} | {mcp} | {a2a} | {failed} | {served}, {refused} |",
        abuse.title
    );
    Ok(failed > 0 || worst > TIMES_MAX)
}

async fn measure(
    abuse: &Abuse,
    program: &std::path::Path,
    span: Duration,
) -> Result<Round, String> {
    let site = Site::new(program, SETTINGS, "")?;
    let (key, other) = (site.key("victim")?, site.key(misuse::NAME)?);
    let _node = site.start()?;
    let victim = Victim::new(site.at, &key);
    victim.calls(WARM_UP).await;
    let quiet = victim.calls(span).await;
    if let Some(failure) = quiet.failures.first() {
        return Err(format!("a call failed without any abuse: {failure}"));
    }
    let offending = OffenderProcess::start(abuse, site.at, &other).await?;
    let beside = victim.calls(span).await;
    let (served, refused) = offending.counts();
    if let Some(failure) = beside.failures.first() {
        eprintln!("{}: {failure}", abuse.title);
    }
    let times = |of: fn(&Latencies) -> Duration| {
        let (quiet, beside) = (of(&quiet).as_secs_f64(), of(&beside).as_secs_f64());
        let times = beside / quiet;
        let text = format!("{:.1}, {:.1}, {times:.1}", quiet * 1e3, beside * 1e3);
        (text, times)
    };
    let (mcp, mcp_times) = times(|latencies| latencies.mcp_p99());
    let (a2a, a2a_times) = times(|latencies| latencies.a2a_p99());
    Ok(Round {
        columns: [mcp, a2a],
        worst: mcp_times.max(a2a_times),
        failed: beside.failures.len(),
        served,
        refused,
    })
}
