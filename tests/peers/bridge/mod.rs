//! The matrix: real client, callboard, real server, in every pair.

// The clients.
mod clients;
// Callboard.
mod gateway;
// The servers.
mod upstreams;

use std::time::Duration;

use futures::{StreamExt, stream};

use crate::kit::peers;
use crate::round::{self, Plan, steps};
use clients::Row;
use gateway::Gateway;
use upstreams::{Upstream, Upstreams};

/// Every row starts processes: more at once only wait for each other.
const ROWS_AT_ONCE: usize = 3;
/// How long a server may take to do what it does when a call is given up.
const GIVING_UP_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Goal: whatever its SDK, its era and its transport, a client can use a server of any other, and nothing is lost:
/// questions in mid-call (also several at once, one after another, those of prompts and resources), progress, log lines,
/// resources, prompts, failures; and a call that the client gives up ends at the server. Method: every client goes through
/// the round of every server.
#[actix_web::test]
async fn every_client_before_every_server() {
    let Some(peers) = peers() else { return };
    let (upstreams, folder) = (Upstreams::start(&peers).await, tempfile::tempdir().unwrap());
    let gateway = Gateway::start(upstreams.all());
    let rows = Row::ALL.map(|row| {
        let (upstreams, gateway, folder, peers) = (&upstreams, &gateway, &folder, &peers);
        async move {
            let mut client = row.start(peers);
            let mut lost = Vec::new();
            for upstream in upstreams.all() {
                let file = folder.path().join(format!("{row:?}-{}", upstream.id));
                let plan = plan(row, upstream, &file);
                let round = client.round(&gateway.target(upstream.id), steps(&plan)).await;
                let mut differences = round.differences(&plan);
                if plan.iter().any(|(step, _)| step.kind == round::Kind::GiveUp) && !appears(&file).await {
                    differences.push("wait: the server doesn't hear that it was given up".to_owned());
                }
                lost.extend(differences.into_iter().map(|line| format!("{row:?} before {}: {line}", upstream.id)));
            }
            lost
        }
    });
    let lost = stream::iter(rows).buffer_unordered(ROWS_AT_ONCE).concat().await;
    assert!(lost.is_empty(), "{} differences\n{}", lost.len(), lost.join("\n"));
}

/// What can be done with the two.
fn plan(row: Row, upstream: &Upstream, file: &std::path::Path) -> Plan {
    let waits = upstream.waits && row.gives_up();
    // First, so that the rest shows that the connection is whole.
    let mut plan = if waits { round::giving_up(file) } else { Plan::new() };
    plan.extend(upstream.plan.clone());
    plan
}

async fn appears(file: &std::path::Path) -> bool {
    let looking = async {
        while !file.exists() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(GIVING_UP_MAX, looking).await.is_ok()
}
