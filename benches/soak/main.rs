//! Mixed load with faults on a whole node: calls over MCP, tasks over A2A, mail, and beside them clients that don't read, don't
//! finish and don't answer. In the first half the node is killed (SIGKILL) again and again; in the second its memory and open files
//! are watched. Nothing that was acknowledged may be lost or doubled.
//!
//! `cargo bench --bench soak -- [--minutes N] [--callboard PROGRAM]`

#[path = "../kit.rs"]
#[expect(dead_code, reason = "shared with benches of other servers")]
mod kit;
mod ledger;
mod load;
mod meter;
#[path = "../misuse.rs"]
#[expect(dead_code, reason = "shared with the bench of abuses")]
mod misuse;
#[path = "../node.rs"]
mod node;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clap::Parser;
use kit::Running;
use ledger::{Ledger, Totals};
use load::{Clients, Load};
use meter::{Meter, OpenFiles, released_files, settled_files};
use node::Site;
use rand::RngExt;
use tokio::time::sleep;

/// Greatest slope of resident memory, in MiB a minute.
const SLOPE_MAX: f64 = 0.1;
/// Shortest span over which the slope is judged: in a shorter one the allocator's noise is greater.
const SLOPE_SPAN_MIN: Duration = Duration::from_secs(20 * 60);
/// Greatest growth in the number of open files, without clients: connections of the store's pool open as they are needed.
const FILES_GROWTH_MAX: usize = 4;
/// Longest time from the last kill until memory is watched.
const WARM_UP_MAX: Duration = Duration::from_secs(10 * 60);
/// Load without faults, after which open files are counted for the first time.
const QUIET_LOAD: Duration = Duration::from_secs(60);
/// Mean time between two kills.
const KILLS_APART: Duration = Duration::from_secs(40);
/// Interval between two looks at acknowledged tasks: fewer than an owner's stored tasks are accepted in it.
const VERIFY_INTERVAL: Duration = Duration::from_secs(20);
/// Time after the load for the last letters to arrive and the last tasks to end. The lease of a task is 30 s.
const END_MAX: Duration = Duration::from_secs(180);
const END_LOOK: Duration = Duration::from_secs(1);
/// Sections of the topology. What is idle is closed soon, so that the number of open files settles.
const SETTINGS: &str = "[policy]\nguard = true\n\n[store]\nsize_max_mib = 4096\n";
const UPSTREAM: &str = "call_timeout_s = 10\nidle_timeout_s = 10\n";

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "120", value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    #[arg(long, default_value = env!("CARGO_BIN_EXE_callboard"))]
    callboard: PathBuf,
    #[arg(long, hide = true)]
    serve: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    kit::ended(if arguments.serve.is_some() {
        node::serve_upstream()
    } else {
        run(&arguments)
    })
}

#[tokio::main]
async fn run(arguments: &Arguments) -> Result<bool, String> {
    let total = Duration::from_secs(arguments.minutes * 60);
    let warm_up = WARM_UP_MAX.min(total / 6);
    let site = Arc::new(Site::new(&arguments.callboard, SETTINGS, UPSTREAM)?);
    let soak = Soak {
        clients: Arc::new(Clients::new(&site)?),
        ledger: Arc::default(),
        site,
    };
    let (node, kills) = soak.kills(total / 2).await?;
    let watched = soak.watch(&node, warm_up, total / 2 - warm_up).await?;
    soak.end().await?;
    let totals = soak.ledger.close(&soak.site.recorded());
    let faults = soak.clients.faults.load(Relaxed);
    Ok(report(arguments.minutes, kills, faults, &totals, &watched))
}

/// Memory and open files of the second half.
struct Watched {
    meter: Meter,
    span: Duration,
    files_before: OpenFiles,
    files_after: OpenFiles,
}

struct Soak {
    site: Arc<Site>,
    clients: Arc<Clients>,
    ledger: Arc<Ledger>,
}

impl Soak {
    /// Starts the node, beside running clients.
    async fn start(&self) -> Result<Running, String> {
        let site = self.site.clone();
        tokio::task::spawn_blocking(move || site.start())
            .await
            .map_err(|e| e.to_string())?
    }

    /// Loads the node and kills it at random times. Returns the last one started, and the number of kills.
    async fn kills(&self, span: Duration) -> Result<(Running, u32), String> {
        let mut node = self.start().await?;
        let load = Load::start(&self.clients, &self.ledger, true);
        let (began, mut kills) = (Instant::now(), 0);
        let apart = KILLS_APART.min(span / 3);
        while began.elapsed() < span {
            sleep(apart.mul_f64(rand::rng().random_range(0.5..1.5))).await;
            drop(node);
            node = self.start().await?;
            kills += 1;
            self.ledger.verify_tasks(&self.clients.caller).await;
        }
        load.stop().await?;
        // What clients left in this process isn't in the next one.
        drop(node);
        Ok((self.start().await?, kills + 1))
    }

    /// Loads the node without kills and watches its process.
    async fn watch(
        &self,
        node: &Running,
        warm_up: Duration,
        span: Duration,
    ) -> Result<Watched, String> {
        let process = node.0.id();
        self.load(QUIET_LOAD.min(warm_up), false, || Ok(())).await?;
        let files_before = settled_files(process).await?;
        self.load(warm_up, true, || Ok(())).await?;
        let mut meter = Meter::new();
        self.load(span, true, || meter.sample(process)).await?;
        let most = files_before.count() + FILES_GROWTH_MAX;
        let files_after = released_files(process, most).await?;
        Ok(Watched {
            meter,
            span,
            files_before,
            files_after,
        })
    }

    async fn load(
        &self,
        span: Duration,
        with_faults: bool,
        mut sample: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let load = Load::start(&self.clients, &self.ledger, with_faults);
        let began = Instant::now();
        while began.elapsed() < span {
            sleep(VERIFY_INTERVAL.min(span / 10)).await;
            self.ledger.verify_tasks(&self.clients.caller).await;
            sample()?;
        }
        load.stop().await
    }

    /// Waits until all accepted letters have arrived and all accepted tasks have ended, within a bound.
    async fn end(&self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < END_MAX {
            self.clients.read_letters(&self.ledger).await;
            let open = self.ledger.verify_tasks(&self.clients.caller).await;
            if open == 0 && self.ledger.has_all_letters() {
                break;
            }
            sleep(END_LOOK).await;
        }
        Ok(())
    }
}

/// Prints the table. True if a mark is missed.
fn report(minutes: u64, kills: u32, faults: u64, totals: &Totals, watched: &Watched) -> bool {
    let Totals {
        calls,
        calls_failed,
        calls_mixed,
        letters,
        tasks,
        lost,
        twice,
    } = *totals;
    let slope = watched.meter.slope();
    let (first, last) = watched.meter.ends();
    let files = [&watched.files_before, &watched.files_after].map(OpenFiles::count);
    let growth = files[1].saturating_sub(files[0]);
    let span = watched.span.as_secs() / 60;
    let is_judged = watched.span >= SLOPE_SPAN_MIN;
    let slope_wanted = if is_judged {
        format!("≤ {SLOPE_MAX}")
    } else {
        let least = SLOPE_SPAN_MIN.as_secs() / 60;
        format!("judged from {least} minutes on")
    };
    println!(
        "| {minutes} minutes, {kills} kills, {faults} faults of clients | | wanted |\n|---|---|---|"
    );
    println!(
        "| calls over MCP: all, failed (the node was away, or busy) | {calls}, {calls_failed} | |"
    );
    println!("| calls with another's answer | {calls_mixed} | 0 |");
    println!("| acknowledged letters, tasks | {letters}, {tasks} | |");
    println!("| lost | {lost} | 0 |");
    println!("| twice | {twice} | 0 |");
    println!("| resident memory, MiB a minute over {span} minutes | {slope:.2} | {slope_wanted} |");
    println!("| resident memory at their beginning and end, MiB | {first:.1}, {last:.1} | |");
    println!(
        "| open files before and after, without clients | {}, {} | + {FILES_GROWTH_MAX} |",
        files[0], files[1]
    );
    if growth > FILES_GROWTH_MAX {
        eprintln!("before: {:?}", watched.files_before);
        eprintln!("after: {:?}", watched.files_after);
    }
    let missed = lost > 0
        || twice > 0
        || calls_mixed > 0
        || growth > FILES_GROWTH_MAX
        || (is_judged && slope > SLOPE_MAX)
        || letters == 0
        || tasks == 0;
    if missed {
        println!("\nshort of the mark");
    }
    missed
}
