//! The well-behaved principal: calls at a steady rate, over a few connections. Latency counts from the time at which a call was
//! due, so that a slow answer isn't hidden by the calls that it delays.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::kit::Http;
use crate::node::{A2A_HEADERS, Addresses, a2a_message, a2a_request, tool_call};

/// Number of connections, for each protocol.
const CONNECTIONS: u64 = 4;
/// Interval of a connection's calls.
const MCP_INTERVAL: Duration = Duration::from_millis(40);
const A2A_INTERVAL: Duration = Duration::from_millis(80);
/// Time after which a call counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Protocol of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Mcp,
    A2a,
}

/// Principal with a key.
pub struct Victim {
    at: Addresses,
    credential: String,
}

/// Latencies of all calls of a span, failed ones included, and the reasons of those.
#[derive(Default)]
pub struct Latencies {
    mcp: Vec<Duration>,
    a2a: Vec<Duration>,
    pub failures: Vec<String>,
}

impl Latencies {
    pub fn mcp_p99(&self) -> Duration {
        p99(&self.mcp)
    }

    pub fn a2a_p99(&self) -> Duration {
        p99(&self.a2a)
    }
}

fn p99(took: &[Duration]) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted
        .get(sorted.len() * 99 / 100)
        .copied()
        .unwrap_or_default()
}

impl Victim {
    pub fn new(at: Addresses, key: &str) -> Self {
        Self {
            at,
            credential: format!("authorization: Bearer {key}\r\n"),
        }
    }

    /// Makes calls for a time.
    pub async fn calls(&self, span: Duration) -> Latencies {
        let connections = (0..2 * CONNECTIONS).map(|number| async move {
            let protocol = if number < CONNECTIONS {
                Protocol::Mcp
            } else {
                Protocol::A2a
            };
            (protocol, self.connection(protocol, number, span).await)
        });
        let mut all = Latencies::default();
        for (protocol, (took, failures)) in join_all(connections).await {
            match protocol {
                Protocol::Mcp => all.mcp.extend(took),
                Protocol::A2a => all.a2a.extend(took),
            }
            all.failures.extend(failures);
        }
        all
    }

    /// Makes the calls of one connection, which is opened again after a failure.
    async fn connection(
        &self,
        protocol: Protocol,
        number: u64,
        span: Duration,
    ) -> (Vec<Duration>, Vec<String>) {
        let (address, every) = match protocol {
            Protocol::Mcp => (self.at.mcp, MCP_INTERVAL),
            Protocol::A2a => (self.at.a2a, A2A_INTERVAL),
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (mut took, mut failures, mut open) = (Vec::new(), Vec::new(), None);
        let began = Instant::now();
        for id in 0..(span.as_millis() / every.as_millis()) as u64 {
            let due = ticks.tick().await;
            if began.elapsed() > span + PATIENCE {
                // The rest would wait for as long again.
                took.push(due.elapsed());
                failures.push("not made: the calls before it took too long".to_owned());
                continue;
            }
            let call = self.call(protocol, address, &mut open, id, number);
            let done = timeout(PATIENCE, call).await;
            took.push(due.elapsed());
            if let Err(why) = done.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
                failures.push(why);
                open = None;
            }
        }
        (took, failures)
    }

    async fn call(
        &self,
        protocol: Protocol,
        address: SocketAddr,
        open: &mut Option<Http>,
        id: u64,
        number: u64,
    ) -> Result<(), String> {
        let text = format!(
            "call {id} of connection {number} at {:x}",
            rand::random::<u64>()
        );
        let http = match open {
            Some(http) => http,
            none => none.insert(Http::open(address).await?),
        };
        let credential = &self.credential;
        match protocol {
            Protocol::Mcp => {
                let (headers, body) = tool_call("echo", &text, id, false);
                http.post("/mcp", &format!("{credential}{headers}"), &body);
            }
            Protocol::A2a => {
                let message = a2a_message(&text, "echo", &text, true);
                let body = a2a_request("SendMessage", id, &message);
                http.post("/a2a", &format!("{credential}{A2A_HEADERS}"), &body);
            }
        }
        let (_, answer) = http.exchange().await?;
        let is_done = protocol == Protocol::Mcp || answer.contains("TASK_STATE_COMPLETED");
        match answer.contains(&text) && is_done {
            true => Ok(()),
            false => Err(format!("no answer to a call: {answer}")),
        }
    }
}
