//! `callboard check --connect`: what the upstreams of a topology say.

use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::{ClientOptions, McpClient, Revision};
use callboard_message::surface::ListTools;
use callboard_message::{Failure, Message, Principal, RawObject};
use callboard_runtime::{AgentRef, CallMeta, System};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::config::{Topology, UpstreamDeclaration};
use crate::node::NodeError;

/// How long one server may take to say what it has.
const WITHIN: Duration = Duration::from_secs(30);
/// How long one may take to end.
const END: Duration = Duration::from_secs(5);
/// Most pages of a list that are read.
const PAGES_MAX: usize = 100;

/// What one upstream says.
pub(super) struct Found {
    id: String,
    /// The revision, and how many tools it has, or why neither is known.
    seen: Result<(String, usize), String>,
}

impl Found {
    pub(super) fn is_there(&self) -> bool {
        self.seen.is_ok()
    }

    pub(super) fn as_json(&self) -> Value {
        match &self.seen {
            Ok((revision, tools)) => {
                json!({ "id": self.id, "era": era(revision), "revision": revision, "tools": tools })
            }
            Err(why) => json!({ "id": self.id, "why": why }),
        }
    }

    pub(super) fn in_words(&self, width: usize) -> String {
        match &self.seen {
            Ok((revision, tools)) => {
                let s = if *tools == 1 { "" } else { "s" };
                format!("  {:width$}  {} era, {revision}, {tools} tool{s}", self.id, era(revision))
            }
            Err(why) => format!("  {:width$}  away: {why}", self.id),
        }
    }
}

fn era(revision: &str) -> &'static str {
    if revision > Revision::LATEST_LEGACY.as_str() { "modern" } else { "legacy" }
}

/// Connects to each, all at once, and takes leave of them again. Call it within a tokio runtime.
pub(super) async fn connect(topology: &Topology) -> Result<Vec<Found>, NodeError> {
    let system = System::start(1)?;
    let found = futures::future::join_all(topology.upstreams.iter().map(|upstream| ask(&system, upstream))).await;
    system.shutdown(Duration::ZERO).await;
    Ok(found)
}

async fn ask(system: &System, upstream: &UpstreamDeclaration) -> Found {
    let found = |seen| Found { id: upstream.id.clone(), seen };
    let made = upstream.endpoint().and_then(|endpoint| Ok((endpoint, upstream.client_options()?)));
    let client = made.map_err(|error| error.why).and_then(|(endpoint, options)| {
        McpClient::new(endpoint, ClientOptions { listen: false, ..options }).map_err(|error| error.to_string())
    });
    let client = match client {
        Ok(client) => client,
        Err(why) => return found(Err(why)),
    };
    let spawned = client.clone();
    let agent = system.prepare_with(move || spawned.clone()).label(upstream.id.as_str()).spawn();
    let seen = match timeout(WITHIN, tools(&agent)).await {
        Ok(Ok(tools)) => {
            let revision = agent.observe().await["revision"].as_str().unwrap_or_default().to_owned();
            Ok((revision, tools))
        }
        Ok(Err(failure)) => Err(failure.message),
        Err(_) => Err(format!("no answer in {WITHIN:?}")),
    };
    agent.stop();
    let ended = async {
        agent.ended().await;
        client.said_goodbye().await;
    };
    if timeout(END, ended).await.is_err() {
        tracing::warn!(id = upstream.id, "a server doesn't end in time");
    }
    found(seen)
}

/// How many it has.
async fn tools(agent: &AgentRef) -> Result<usize, Failure> {
    let (mut count, mut params) = (0, RawObject::new());
    for _ in 0..PAGES_MAX {
        let call = CallMeta::new(Arc::new(Principal::local_operator())).until(Instant::now() + WITHIN);
        let answer = agent.ask_named(ListTools::NAME, params.to_raw(), Some(Arc::new(call))).await?;
        let mut page = RawObject::parse(&answer).map_err(|_| Failure::internal("it answered no object"))?;
        count += page.read::<Vec<Box<RawValue>>>("tools").unwrap_or_default().len();
        let Some(cursor) = page.remove("nextCursor").filter(|cursor| cursor.get() != "null") else { break };
        params = RawObject::new();
        params.set_raw("cursor", cursor);
    }
    Ok(count)
}
