//! Node with 10,000 agents and 3,400 exchanges a second, which make 5,000 events if all are recorded, without and with a console whose first page is open in a browser:
//! CPU of the node's process, its memory, and updates of the page.
//!
//! `cargo bench --bench console -- [--seconds N] [--rounds N] [--check]`

#[path = "../kit.rs"]
#[expect(dead_code, reason = "shared with benches of other servers")]
mod kit;

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard::config::Topology;
use callboard::message::{RawMessage, RawReply};
use callboard::{
    Agent, AgentRef, CallContext, ConcurrentHandler, Context, Handlers, Node, Principal,
    inbound_policy,
};
use clap::Parser;
use futures::future::join_all;
use kit::{cpu_time, resident};
use serde_json::value::RawValue;
use tokio::time::{MissedTickBehavior, interval, timeout_at};

// As in callboard's own program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of agents.
const AGENTS: usize = 10_000;
/// Calls in each of [`TICKS_PER_SECOND`] batches. A call is an exchange with a beginning and an end, and one within the
/// node with an end: 5,100 events a second, of which the node records those of 2,000 exchanges.
const CALLS_PER_TICK: usize = 34;
/// Batches of calls a second.
const TICKS_PER_SECOND: u32 = 50;
/// Load before the measurement: more than a call of each agent, and as many as the console keeps.
const WARM_UP: Duration = Duration::from_secs(20);
/// Maximum CPU of the console, as a share of one processor.
const CPU_SHARE_MAX: f64 = 0.03;
/// Maximum number of page updates in a second.
const UPDATES_PER_SECOND_MAX: f64 = 4.0;
/// Maximum growth of the node's memory during a measurement.
const MEMORY_GROWTH_MAX: f64 = 0.05;
/// Parts of the first page that a browser loads anew at each change.
const PARTS: [&str; 3] = ["/part/counts", "/part/agents", "/part/calls"];

#[derive(Parser)]
struct Arguments {
    /// Duration of each measurement.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Fail where a mark is missed.
    #[arg(long)]
    check: bool,
    /// Run the node with this topology until standard input closes.
    #[arg(long, hide = true)]
    serve: Option<String>,
}

/// Agent that replies with what it gets.
struct Echo;

impl Agent for Echo {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(200);
    }
}

impl ConcurrentHandler<RawMessage> for Echo {
    fn handle(
        &mut self,
        message: RawMessage,
        _: Context,
    ) -> impl Future<Output = RawReply> + Send + 'static {
        std::future::ready(Ok(message.payload))
    }
}

async fn call(name: String, agent: AgentRef) -> Result<(), String> {
    let message = RawMessage {
        name: "echo".to_owned(),
        payload: RawValue::NULL.to_owned(),
    };
    let call = CallContext::new(Arc::new(Principal::agent("load")));
    let reply = inbound_policy::ask(&agent, &name, "echo", message, call).await;
    reply.map(drop).map_err(|failure| failure.message)
}

/// Runs a node, prints its console's address, and calls its agents.
async fn serve(topology: &str) -> Result<(), String> {
    std::thread::spawn(|| {
        // The end of the parent, however it ends.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let state = tempfile::tempdir().map_err(|error| error.to_string())?;
    let topology = Topology::parse(topology, false, Path::new(""));
    let topology = topology.map_err(|error| error.to_string())?;
    let node = Node::start(&topology, state.path(), true).await;
    let node = node.map_err(|error| error.to_string())?;
    println!("{}", node.console_url().unwrap_or("none"));
    let spawn = |n: usize| {
        let name = format!("agent-{n}");
        let agent = node.system().prepare(Echo).label(name.as_str()).spawn();
        (name, agent)
    };
    let agents: Vec<(String, AgentRef)> = (0..AGENTS).map(spawn).collect();
    let mut ticks = interval(Duration::from_secs(1) / TICKS_PER_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut next = agents.iter().cycle();
    loop {
        ticks.tick().await;
        let batch = next.by_ref().take(CALLS_PER_TICK);
        let calls = batch.map(|(name, agent)| call(name.clone(), agent.clone()));
        for done in join_all(calls).await {
            done?;
        }
    }
}

/// Node in a process of its own, which is killed at the end.
struct NodeProcess(Child);

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // It may have ended itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Result of a measurement.
struct Load {
    /// CPU of the node, as a share of one processor.
    cpu: f64,
    /// Memory at the begin and at the end, in bytes.
    memory: [u64; 2],
    /// Page updates a second.
    updates: f64,
}

async fn measure(with_console: bool, span: Duration) -> Result<Load, String> {
    let console = match with_console {
        true => "[console]\nbind = \"127.0.0.1:0\"\n",
        false => "",
    };
    let topology = format!(
        "[node]\nname = \"load\"\n{console}[[agent]]\nid = \"room\"\nkind = \"mailroom\"\nclass = \"internal\"\n"
    );
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--serve", &topology]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let mut node = NodeProcess(child);
    let mut url = String::new();
    let mut output = node.0.stdout.take().ok_or("no output")?;
    let mut byte = [0];
    while output.read(&mut byte).map_err(|error| error.to_string())? == 1 && byte != *b"\n" {
        url.push(char::from(byte[0]));
    }
    let process = node.0.id();
    follow(&url, WARM_UP).await?;
    let (cpu, memory) = (cpu_time(process)?, resident(process)?);
    let began = Instant::now();
    let updates = follow(&url, span).await?;
    let wall = began.elapsed().as_secs_f64();
    Ok(Load {
        cpu: (cpu_time(process)? - cpu).as_secs_f64() / wall,
        memory: [memory, resident(process)?],
        updates: updates as f64 / wall,
    })
}

/// Follows a console for `span` as a browser does, and returns the number of updates of the page. Waits only if `url` is
/// `none`.
async fn follow(url: &str, span: Duration) -> Result<usize, String> {
    let end = tokio::time::Instant::now() + span;
    if url == "none" {
        tokio::time::sleep_until(end).await;
        return Ok(0);
    }
    let url = url.trim_end_matches('/');
    let client = reqwest::Client::new();
    let feed = client.get(format!("{url}/feed")).send().await;
    let feed = feed.and_then(reqwest::Response::error_for_status);
    let mut feed = feed.map_err(|error| error.to_string())?;
    let mut updates = 0;
    // Each event is written at once.
    while let Ok(event) = timeout_at(end, feed.chunk()).await {
        let event = event.map_err(|error| error.to_string())?;
        let event = event.ok_or("the node closed the feed")?;
        if !event.starts_with(b"event:") && !event.starts_with(b"id:") {
            continue;
        }
        updates += 1;
        for part in PARTS {
            let page = client.get(format!("{url}{part}")).send().await;
            let page = page.and_then(reqwest::Response::error_for_status);
            let page = page.map_err(|error| error.to_string())?;
            page.bytes().await.map_err(|error| error.to_string())?;
        }
    }
    Ok(updates)
}

async fn run(arguments: &Arguments) -> Result<bool, String> {
    let span = Duration::from_secs(arguments.seconds);
    println!("| CPU without, with; of the console | memory, growth | updates/s |\n|---|---|---|");
    let mut missed = false;
    for _ in 0..arguments.rounds {
        let plain = measure(false, span).await?;
        let watched = measure(true, span).await?;
        let cpu = watched.cpu - plain.cpu;
        let [begin, end] = watched.memory.map(|bytes| bytes as f64);
        let growth = end / begin - 1.0;
        println!(
            "| {:.1} %, {:.1} %; {:.1} % | {:.1} MiB, {:+.1} % | {:.2} |",
            plain.cpu * 100.0,
            watched.cpu * 100.0,
            cpu * 100.0,
            end / 1_048_576.0,
            growth * 100.0,
            watched.updates
        );
        missed |= cpu > CPU_SHARE_MAX
            || growth > MEMORY_GROWTH_MAX
            || watched.updates > UPDATES_PER_SECOND_MAX + 0.1;
    }
    Ok(missed && arguments.check)
}

#[actix_web::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    kit::ended(match &arguments.serve {
        Some(topology) => serve(topology).await.map(|()| false),
        None => run(&arguments).await,
    })
}
