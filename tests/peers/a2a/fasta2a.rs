//! fasta2a, of A2A 0.3 and of 1.0: a server that answers no message at once, and keeps each conversation.

use crate::a2a::behind::Behind;
use crate::kit::{Peers, Served, peers, script, with};

/// Environments with 0.6 and with 2.1.
const ENVIRONMENTS: [&str; 2] = ["python-old", "python"];

async fn behind(peers: &Peers, environment: &str) -> Behind {
    let python = peers.python(environment);
    let arguments = |port: u16| [script("fasta2a_server.py"), port.to_string()];
    let served = Served::start(|port| with(peers.command(&python), arguments(port))).await;
    Behind::start(peers, served).await
}

/// Goal: a message through callboard to an agent of fasta2a is answered. Method: both versions; send, then poll until the
/// answer is there.
#[actix_web::test]
async fn fasta2a_answers() {
    let Some(peers) = peers() else { return };
    for environment in ENVIRONMENTS {
        let agent = behind(&peers, environment).await;
        assert_eq!(agent.say("one", "").await.text, "one", "{environment}");
        agent.end().await;
    }
}

/// Goal: a conversation with callboard is one with the agent. Method: three turns in one context, and one in another; both
/// versions.
#[actix_web::test]
async fn fasta2a_remembers() {
    let Some(peers) = peers() else { return };
    for environment in ENVIRONMENTS {
        let agent = behind(&peers, environment).await;
        agent.assert_remembers().await;
        agent.end().await;
    }
}
