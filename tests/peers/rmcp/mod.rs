// Sampling, roots and logging are deprecated since 2026-07-28, and still spoken.
#![expect(deprecated, reason = "what is deprecated is what is tried here")]

mod asker;
mod caller;

use callboard::System;
use callboard::mcp::outbound::{Endpoint, Era};
use rmcp::ClientLifecycleMode;
use rmcp::model::ProtocolVersion;

use crate::client::{self, connect};
use crate::round::Round;
use crate::server;

/// How both servers here say that a tool failed.
const FAILED: &str = "error: on purpose";

fn without_session() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// Goal: where a round isn't whole it is our doing. Method: rmcp's client with rmcp's server, in both eras.
#[actix_web::test]
async fn rmcp_with_itself() {
    let theirs = asker::start().await;
    for lifecycle in [ClientLifecycleMode::Initialize, without_session()] {
        assert_eq!(caller::round(&theirs, lifecycle).await, Round::whole(FAILED));
    }
}

/// Goal: rmcp's client loses nothing in a session. Method: every tool, and its questions answered live.
#[actix_web::test]
async fn rmcp_client_with_a_session() {
    let ours = server::start();
    assert_eq!(caller::round(&ours.url, ClientLifecycleMode::Initialize).await, Round::whole(FAILED));
}

/// Goal: nor without one. Method: the same tools, their questions answered by calling again.
#[actix_web::test]
async fn rmcp_client_without_session() {
    let ours = server::start();
    assert_eq!(caller::round(&ours.url, without_session()).await, Round::whole(FAILED));
}

async fn our_client(era: Era) {
    let theirs = asker::start().await;
    let system = System::start(1).unwrap();
    let server = connect(&system, Endpoint::url(&theirs).unwrap(), Some(era));
    assert_eq!(client::round(&server).await, Round::whole(FAILED));
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
