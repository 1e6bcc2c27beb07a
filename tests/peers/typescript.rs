use crate::kit::{Target, peers, script};
use crate::round::steps;
use crate::server;

async fn round(era: &str) {
    let Some(peers) = peers() else { return };
    let (ours, plan) = (server::start(), server::plan());
    let target = Target::Url(ours.url.clone());
    let mut client = peers.client(&peers.node(), &[&script("client.mjs"), era]);
    client
        .round(&target, steps(&plan))
        .await
        .assert_whole(&plan);
}

/// Goal: the TypeScript client loses nothing in a session. Method: every tool, and its questions answered live.
#[actix_web::test]
async fn typescript_client_with_a_session() {
    round("legacy").await;
}

/// Goal: nor without one. Method: the same tools, their questions answered by calling again.
#[actix_web::test]
async fn typescript_client_without_session() {
    round("2026-07-28").await;
}
