//! Agents of large frameworks: `cargo xtask peers --heavy` installs those, and runs these tests.

use crate::a2a::behind::Behind;
use crate::kit::{Peers, Served, heavy_peers, script, with};

async fn behind(peers: &Peers, environment: &str, server: &str) -> Behind {
    let python = peers.python(environment);
    let arguments = |port: u16| [script(server), port.to_string()];
    let served = Served::start(|port| with(peers.command(&python), arguments(port))).await;
    Behind::start(peers, served).await
}

/// Goal: an agent of Google's ADK behind callboard is answered. Method: a model that repeats what it was told.
#[actix_web::test]
async fn adk_answers() {
    let Some(peers) = heavy_peers() else { return };
    let agent = behind(&peers, "python-adk", "adk_server.py").await;
    assert_eq!(agent.say("one", "").await.text, "one");
    agent.end().await;
}

/// Goal: so is one of BeeAI's agentstack. Method: an agent that repeats what it was told.
#[actix_web::test]
async fn agentstack_answers() {
    let Some(peers) = heavy_peers() else { return };
    let agent = behind(&peers, "python-agentstack", "agentstack_server.py").await;
    assert_eq!(agent.say("one", "").await.text, "one");
    agent.end().await;
}

/// Goal: a conversation with callboard is one session of Google's ADK. Method: three turns in one context, and one in another.
#[actix_web::test]
async fn adk_remembers() {
    let Some(peers) = heavy_peers() else { return };
    let agent = behind(&peers, "python-adk", "adk_server.py").await;
    agent.assert_remembers().await;
    agent.end().await;
}

/// Goal: so it is with agentstack. Method: the same.
#[actix_web::test]
async fn agentstack_remembers() {
    let Some(peers) = heavy_peers() else { return };
    let agent = behind(&peers, "python-agentstack", "agentstack_server.py").await;
    agent.assert_remembers().await;
    agent.end().await;
}
