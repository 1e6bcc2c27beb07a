//! An echo tool over HTTP on this machine's loopback: callboard's server beside rmcp's, each in a process of its own, so
//! that its CPU time is its alone. With sessions (2025-11-25) and without (2026-07-28), one connection and sixteen.
//!
//! `cargo bench --bench http -- [--rounds N] [--check]`

#[path = "../echo.rs"]
#[expect(dead_code, reason = "shared with the bench of the gateway")]
mod echo;
#[path = "../kit.rs"]
#[expect(dead_code, reason = "shared with the bench of the gateway")]
mod kit;

use std::process::ExitCode;
use std::sync::Arc;

use axum::serve::ListenerExt;
use clap::Parser;
use echo::{Client, Era, Process};
use kit::Measured;
use rand::seq::SliceRandom;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, tool, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Calls a round, over all connections.
const CALLS: u64 = 16_000;
/// Before a round is measured.
const WARM_UP_CALLS: u64 = 800;
/// Least throughput, as a multiple of rmcp's.
const THROUGHPUT_MIN: f64 = 2.0;
/// Most CPU time a call, as a multiple of rmcp's.
const CPU_MAX: f64 = 0.45;

/// One row of the table.
struct Row {
    title: &'static str,
    era: Era,
    connections: usize,
}

const ROWS: [Row; 4] = [
    Row {
        title: "sessions, 1 connection",
        era: Era::Legacy,
        connections: 1,
    },
    Row {
        title: "sessions, 16 connections",
        era: Era::Legacy,
        connections: 16,
    },
    Row {
        title: "stateless, 1 connection",
        era: Era::Modern,
        connections: 1,
    },
    Row {
        title: "stateless, 16 connections",
        era: Era::Modern,
        connections: 16,
    },
];

/// The servers, in the table's order.
const CONTESTANTS: [&str; 2] = ["rmcp", "callboard"];

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "7", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Fail where a mark is missed.
    #[arg(long)]
    check: bool,
    #[arg(long, hide = true)]
    serve: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    kit::ended(match arguments.serve.as_deref() {
        None => bench(&arguments),
        Some("rmcp") => serve_rmcp(),
        Some(_) => echo::serve(),
    })
}

fn bench(Arguments { rounds, check, .. }: &Arguments) -> Result<bool, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    println!(
        "| calls/s; p50, p99 µs; server's CPU µs a call | rmcp | callboard | throughput ≥ {THROUGHPUT_MIN} | CPU ≤ {CPU_MAX} |"
    );
    println!("|---|---|---|---|---|");
    let mut missed = false;
    for row in &ROWS {
        let mut measured = [const { Vec::new() }; 2];
        for _ in 0..*rounds {
            // Another order each round, so that a noisy minute hits both alike.
            let mut order = [0, 1];
            order.shuffle(&mut rand::rng());
            for contestant in order {
                let one = runtime.block_on(one_round(row, CONTESTANTS[contestant]))?;
                measured[contestant].push(one);
            }
        }
        let medians = measured.map(|rounds| Measured::median(&rounds));
        let [Some(rmcp), Some(ours)] = medians else {
            return Err("nothing was measured".to_owned());
        };
        let throughput = ours.calls_a_second / rmcp.calls_a_second;
        let cpu = ours.cpu_us_a_call / rmcp.cpu_us_a_call;
        println!(
            "| {} | {} | {} | {throughput:.2} | {cpu:.2} |",
            row.title,
            rmcp.in_words(),
            ours.in_words()
        );
        missed |= throughput < THROUGHPUT_MIN || cpu > CPU_MAX;
    }
    if missed {
        println!("\nshort of the mark");
    }
    Ok(missed && *check)
}

async fn one_round(row: &Row, contestant: &str) -> Result<Measured, String> {
    let served = Process::serving(contestant)?;
    let mut clients = Client::open_all(&served.endpoint, row.era, row.connections).await?;
    Measured::round(&mut clients, WARM_UP_CALLS, CALLS, served.id()).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct EchoArguments {
    text: String,
}

#[derive(Clone)]
struct RmcpEcho;

#[tool_router(server_handler)]
impl RmcpEcho {
    #[tool(description = "Answers the text it gets.")]
    async fn echo(
        &self,
        Parameters(echo): Parameters<EchoArguments>,
    ) -> Result<CallToolResult, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text(echo.text)]))
    }
}

/// As its documentation sets it up; JSON answers where it can give them, and no delay on its sockets.
fn serve_rmcp() -> Result<bool, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let config = StreamableHttpServerConfig::default()
            .with_json_response(true)
            .with_sse_keep_alive(None);
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(|| Ok(RmcpEcho), sessions, config);
        let router = axum::Router::new().nest_service("/mcp", service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|e| e.to_string())?;
        echo::announce(listener.local_addr().map_err(|e| e.to_string())?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router)
            .await
            .map(|()| false)
            .map_err(|e| e.to_string())
    })
}
