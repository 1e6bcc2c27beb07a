//! One `tools/call` of 1 KiB from bytes to bytes: decode, ask the agent, encode. Beside it the same by typed
//! serde_json, and by rmcp's types, neither of which has an agent to ask.
//!
//! `cargo bench --bench wire -- [--rounds N] [--check]`

#[path = "kernel/contest/clock.rs"]
#[expect(
    dead_code,
    reason = "shared with benches that look at the wall clock too"
)]
mod clock;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use callboard::message::ToolResult;
use callboard::{Agent, AgentRef, Context, Handlers, Message, SyncHandler, System};
use callboard_rpc::{DecodeLimits, RpcMessage, UnusedMember, decode, encode_response};
use clap::Parser;
use clock::Clock;
use rand::seq::SliceRandom;
use rmcp::model::{
    CallToolResult, ClientJsonRpcMessage, ClientRequest, ContentBlock, JsonRpcMessage,
    ServerJsonRpcMessage, ServerResult,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Calls a round.
const CALLS: u64 = 20_000;
/// Size of a request, in bytes.
const REQUEST_BYTES: usize = 1024;
/// Most of rmcp's CPU time that callboard may take.
const OF_RMCP_MAX: f64 = 0.6;

/// Answers the text it gets.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Echo {
    text: String,
    tags: Vec<String>,
    times: u32,
}

struct Echoing;

impl Agent for Echoing {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>();
    }
}

impl SyncHandler<Echo> for Echoing {
    fn handle(&mut self, Echo { text, .. }: Echo, _: &mut Context) -> ToolResult {
        ToolResult::text(text)
    }
}

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "15", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Fail where the mark is missed.
    #[arg(long)]
    check: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Arguments { rounds, check } =
        Arguments::parse_from(std::env::args().filter(|word| word != "--bench"));
    let system = System::start(1)?;
    let (agent, body) = (system.spawn(Echoing), request());
    agree(&agent, &body).await?;
    let of_rmcp = table(&agent, &body, rounds).await;
    system.shutdown(Duration::from_secs(1)).await;
    let is_missed = of_rmcp > OF_RMCP_MAX;
    if is_missed {
        println!("\nshort of the mark: callboard {of_rmcp:.2} × rmcp, must be ≤ {OF_RMCP_MAX}");
    }
    Ok(if is_missed && check {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// A request of just [`REQUEST_BYTES`].
fn request() -> Vec<u8> {
    let of = |text: &str| {
        let arguments = json!({ "text": text, "tags": ["one", "two", "three"], "times": 3 });
        let params =
            json!({ "name": "echo", "arguments": arguments, "_meta": { "progressToken": 7 } });
        json!({ "jsonrpc": "2.0", "id": 12345, "method": "tools/call", "params": params })
            .to_string()
    };
    let words = "the quick brown fox jumps over the lazy dog \\ ".repeat(REQUEST_BYTES / 40);
    let mut text: String = words.chars().take(REQUEST_BYTES - of("").len()).collect();
    while of(&text).len() > REQUEST_BYTES {
        text.pop();
    }
    of(&text).into_bytes()
}

async fn by_callboard(agent: &AgentRef, body: &[u8], limits: &DecodeLimits) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Params<'a> {
        name: &'a str,
        #[serde(borrow)]
        arguments: &'a RawValue,
    }
    let Ok(RpcMessage::Request(request)) = decode(body, limits) else {
        return None;
    };
    let params: Params<'_> = serde_json::from_str(request.params?.get()).ok()?;
    let reply = agent
        .ask_named(params.name, params.arguments.to_owned(), None)
        .await
        .ok()?;
    Some(encode_response(
        Some(&request.id),
        Ok(&reply),
        UnusedMember::Omit,
    ))
}

fn by_serde(body: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Request {
        id: u64,
        method: String,
        params: Params,
    }
    #[derive(Deserialize)]
    struct Params {
        name: String,
        arguments: Echo,
    }
    #[derive(Serialize)]
    struct Response {
        jsonrpc: &'static str,
        id: u64,
        result: Reply,
    }
    #[derive(Serialize)]
    struct Reply {
        content: Vec<Block>,
    }
    #[derive(Serialize)]
    struct Block {
        r#type: &'static str,
        text: String,
    }
    let request: Request = serde_json::from_slice(body).ok()?;
    let called = request.method == "tools/call" && request.params.name == "echo";
    let text = called.then_some(request.params.arguments.text)?;
    let result = Reply {
        content: vec![Block {
            r#type: "text",
            text,
        }],
    };
    serde_json::to_vec(&Response {
        jsonrpc: "2.0",
        id: request.id,
        result,
    })
    .ok()
}

fn by_rmcp(body: &[u8]) -> Option<Vec<u8>> {
    let message: ClientJsonRpcMessage = serde_json::from_slice(body).ok()?;
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    let ClientRequest::CallToolRequest(call) = request.request else {
        return None;
    };
    // As its tool macro reads arguments.
    let echo: Echo = serde_json::from_value(Value::Object(call.params.arguments?)).ok()?;
    let result = CallToolResult::success(vec![ContentBlock::text(echo.text)]);
    let response = ServerJsonRpcMessage::response(ServerResult::CallToolResult(result), request.id);
    serde_json::to_vec(&response).ok()
}

/// All three read the same out of the request, and answer it.
async fn agree(agent: &AgentRef, body: &[u8]) -> Result<(), String> {
    if body.len() != REQUEST_BYTES {
        return Err(format!("the request has {} bytes", body.len()));
    }
    let answers = [
        by_callboard(agent, body, &DecodeLimits::default()).await,
        by_serde(body),
        by_rmcp(body),
    ];
    let texts = answers.map(|answer| {
        let answer: Value = serde_json::from_slice(&answer?).ok()?;
        (answer["id"] == 12345)
            .then(|| answer["result"]["content"][0]["text"].clone())
            .filter(Value::is_string)
    });
    match &texts {
        [Some(a), Some(b), Some(c)] if a == b && b == c => Ok(()),
        _ => Err(format!(
            "the contestants don't agree: {:?}",
            texts.map(|text| text.is_some())
        )),
    }
}

/// Measures and prints; what callboard costs, as a multiple of rmcp.
async fn table(agent: &AgentRef, body: &[u8], rounds: u32) -> f64 {
    let limits = DecodeLimits::default();
    let mut costs = [const { Vec::new() }; 3];
    let mut order = [0, 1, 2];
    for _ in 0..rounds {
        // Shuffled anew each round, so that a noisy minute hits all alike.
        order.shuffle(&mut rand::rng());
        for contestant in order {
            let clock = Clock::start();
            for _ in 0..CALLS {
                let body = black_box(body);
                black_box(match contestant {
                    0 => by_callboard(agent, body, &limits).await,
                    1 => by_serde(body),
                    _ => by_rmcp(body),
                });
            }
            costs[contestant].push(clock.stop(CALLS).cpu_ns());
        }
    }
    let [ours, serde, rmcp] = costs.map(|mut costs: Vec<f64>| {
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    });
    println!(
        "| CPU ns a `tools/call` of 1 KiB (× rmcp) | rmcp | typed serde_json | callboard, agent asked | must |"
    );
    println!("|---|---|---|---|---|");
    let cells = [rmcp, serde, ours]
        .map(|cost| format!("{cost:.0} ({:.2})", cost / rmcp))
        .join(" | ");
    println!("| decode, answer, encode | {cells} | ≤ {OF_RMCP_MAX} |");
    ours / rmcp
}
