//! The matrix: real client, callboard, real server, in every pair.

// The clients.
mod clients;
// A language model that answers a server.
mod model;
// The servers.
mod upstreams;

use std::path::Path;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};

use crate::gateway::Gateway;
use crate::kit::{Peers, Target, peers};
use crate::round::{self, Kind, Plan, steps};
use clients::Row;
use upstreams::{Upstream, Upstreams, topology};

/// Every row starts processes: more at once only wait for each other.
const ROWS_AT_ONCE: usize = 3;
/// Timeout for a server's reaction to a cancelled call.
const GIVING_UP_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Goal: whatever its SDK, its era and its transport, a client can use a server of any other through `callboard serve`,
/// and nothing is lost: questions in mid-call (also several at once, one about the answer to another, those of prompts and
/// resources), progress, log lines, resources, prompts, failures; and a call that the client gives up ends at the server.
/// Method: every client goes through the round of every server, three clients at a time at the same servers.
/// Rows: M-1, M-32, M-47, X-3.
#[actix_web::test]
async fn every_client_before_every_server() {
    let Some(peers) = peers() else { return };
    let upstreams = Upstreams::start(&peers).boxed_local().await;
    let gateway = Gateway::start(&peers, topology(upstreams.all())).await;
    let all: Vec<_> = upstreams
        .all()
        .iter()
        .map(|upstream| (upstream, gateway.target(upstream.id)))
        .collect();
    nothing_is_lost(&peers, &all).boxed_local().await;
    gateway.end().await;
}

/// Goal: nor through `callboard stdio`. Method: the client starts it, in front of a server of each era and kind of
/// connection.
/// Rows: M-2.
#[actix_web::test]
async fn every_client_over_a_pipe() {
    const BEHIND: [&str; 4] = [
        "everything-stdio",
        "python-http-modern",
        "rmcp-legacy",
        "typescript-stdio-modern",
    ];
    let Some(peers) = peers() else { return };
    let upstreams = Upstreams::start(&peers).boxed_local().await;
    let topology = topology(upstreams.all());
    let some = upstreams
        .all()
        .iter()
        .filter(|upstream| BEHIND.contains(&upstream.id));
    let some: Vec<_> = some
        .map(|upstream| (upstream, topology.stdio(upstream.id)))
        .collect();
    assert_eq!(some.len(), BEHIND.len());
    nothing_is_lost(&peers, &some).boxed_local().await;
}

async fn nothing_is_lost(peers: &Peers, targets: &[(&Upstream, Target)]) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = Row::ALL.map(|row| row_of(peers, row, targets, folder).boxed_local());
    let lost: Vec<_> = stream::iter(rows)
        .buffer_unordered(ROWS_AT_ONCE)
        .concat()
        .await;
    assert!(
        lost.is_empty(),
        "{} differences\n{}",
        lost.len(),
        lost.join("\n")
    );
}

/// Returns the losses of one client.
async fn row_of(
    peers: &Peers,
    row: Row,
    targets: &[(&Upstream, Target)],
    folder: &Path,
) -> Vec<String> {
    let (mut client, mut lost) = (row.start(peers), Vec::new());
    for (upstream, target) in targets {
        let file = folder.join(format!("{row:?}-{}", upstream.id));
        let plan = plan(row, upstream, &file);
        let mut round = client.round(target, steps(&plan)).boxed_local().await;
        if row.loses_progress(target) {
            round.forgive_progress(&plan);
        }
        if row.is_stateless() && upstream.strays {
            round.forgive_lines();
        }
        let mut differences = round.differences(&plan);
        // Whose line it is, such a server doesn't say: while several calls are under way, nobody gets it.
        differences.retain(|line| !(upstream.shares_lines && line.starts_with(round::LOGGED)));
        if plan.iter().any(|(step, _)| step.kind == Kind::GiveUp) && !appears(&file).await {
            differences.push("wait: the server doesn't hear that it was given up".to_owned());
        }
        lost.extend(
            differences
                .into_iter()
                .map(|line| format!("{row:?} before {}: {line}", upstream.id)),
        );
    }
    lost
}

/// Returns the plan for a client and a server.
fn plan(row: Row, upstream: &Upstream, file: &Path) -> Plan {
    let waits = upstream.waits && row.gives_up();
    // First, so that the rest shows that the connection is whole.
    let mut plan = if waits {
        round::giving_up(file)
    } else {
        Plan::new()
    };
    plan.extend(upstream.plan.clone());
    plan
}

async fn appears(file: &Path) -> bool {
    let looking = async {
        while !file.exists() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(GIVING_UP_MAX, looking).await.is_ok()
}
