use crate::kit::{peers, script};
use crate::round::Round;
use crate::server;

async fn round(era: &str) {
    let Some(peers) = peers() else { return };
    let ours = server::start();
    let round = peers.round(&peers.node(), &[&script("client.mjs"), &ours.url, era]).await;
    assert_eq!(round, Round::whole("error: on purpose"));
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
