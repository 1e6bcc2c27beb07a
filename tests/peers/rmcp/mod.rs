// Sampling, roots and logging are deprecated since 2026-07-28, and still spoken.
#![expect(deprecated, reason = "what is deprecated is what is tried here")]

pub mod asker;
pub mod caller;
pub mod visitor;

use callboard::System;
use callboard::mcp::outbound::{Era, ServerEndpoint};
use rmcp::ClientLifecycleMode;
use rmcp::model::ProtocolVersion;

use crate::client::{self, connect};
use crate::round::{self, Plan, steps};
use crate::server;

/// How both servers here say that a tool failed.
pub const FAILED: &str = "error: on purpose";

/// Plan of this server, without `wait`.
pub fn plan() -> Plan {
    [
        vec![round::tools(&asker::TOOLS)],
        round::plain(FAILED),
        round::asking(),
    ]
    .concat()
}

pub fn without_session() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

/// Goal: where a round isn't whole it is our doing. Method: rmcp's client with rmcp's server, in both eras.
#[actix_web::test]
async fn rmcp_with_itself() {
    let theirs = asker::start().await;
    for lifecycle in [ClientLifecycleMode::Initialize, without_session()] {
        caller::round(&theirs, lifecycle, steps(&plan()))
            .await
            .assert_whole(&plan());
    }
}

/// Goal: rmcp's client loses nothing in a session. Method: every tool, and its questions answered live.
#[actix_web::test]
async fn rmcp_client_with_a_session() {
    let (ours, plan) = (server::start(), server::plan());
    caller::round(&ours.url, ClientLifecycleMode::Initialize, steps(&plan))
        .await
        .assert_whole(&plan);
}

/// Goal: nor without one. Method: the same tools, their questions answered by calling again.
#[actix_web::test]
async fn rmcp_client_without_session() {
    let (ours, plan) = (server::start(), server::plan());
    caller::round(&ours.url, without_session(), steps(&plan))
        .await
        .assert_whole(&plan);
}

async fn our_client(era: Era) {
    let theirs = asker::start().await;
    let system = System::start(1).unwrap();
    let server = connect(
        &system,
        ServerEndpoint::from_url(&theirs).unwrap(),
        Some(era),
    );
    client::round(&server, steps(&plan()))
        .await
        .assert_whole(&plan());
}

/// Goal: our client loses nothing of rmcp's server in a session. Method: every tool over streamable HTTP.
#[actix_web::test]
async fn rmcp_server_with_a_session() {
    our_client(Era::Legacy).await;
}

/// Goal: nor without one. Method: the same; its questions come as `input_required`.
#[actix_web::test]
async fn rmcp_server_without_session() {
    our_client(Era::Modern).await;
}
