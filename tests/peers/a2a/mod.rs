//! The SDKs of A2A, as clients of our server and as servers of our client.
//!
//! The text of a message selects the behavior of an agent:
//!
//! - `echo WORDS`: an artifact of the words.
//! - `count`: it says that it is counting; an artifact in three pieces, `1`, ` 2` and ` 3`.
//! - `ask`: it asks (INPUT_REQUIRED) `What is your name?`, and answers `Ada` by an artifact `Hello, Ada!`.
//! - anything else, `wait` for example: it says that it is waiting, and does until it is cancelled.
//!
//! A round is a send (`echo`), a stream (`count`), a follow-up after a question (`ask`), a cancel (`wait`) and a push (`echo` with a
//! webhook).

// Our server.
mod agent;
// Callboard in between, in front of an agent.
mod behind;
// Signed cards.
mod card;
// fasta2a, as servers.
mod fasta2a;
// A command line, as a client.
mod handler;
// Agents that are too large for every run.
mod heavy;
// Our client's round.
mod ours;

use std::path::PathBuf;

use callboard::a2a::outbound::{ProtocolBinding, ProtocolVersion};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::kit::{Peers, SOON, Served, peers, script, with};
use crate::round::{ASKS_NAME, ECHOED, NAME};

/// The credentials that a webhook wants to be shown.
const CREDENTIALS: &str = "cr3d";

/// Returns the expected results of another SDK's client at our server.
fn wanted() -> Value {
    json!({
        "send": ECHOED,
        "stream": { "states": ["working", "completed"], "text": "1 2 3" },
        "ask": ASKS_NAME,
        "answer": format!("Hello, {NAME}!"),
        "cancel": "canceled",
        "push": format!("Bearer {CREDENTIALS}"),
    })
}

impl Peers {
    /// The program of the Rust SDK: built beside the peers.
    fn rust_a2a(&self) -> PathBuf {
        self.folder()
            .with_file_name("a2a-rust")
            .join("debug")
            .join("a2a-peer")
    }
}

/// A program's round with our server.
async fn client_round(of: impl FnOnce(&Peers, &str) -> Command) {
    let Some(peers) = peers() else { return };
    let ours = agent::start();
    let output = tokio::time::timeout(SOON, of(&peers, &ours.url).output()).await;
    let output = output.expect("a client's round takes too long").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // The SDK may have something to say of its own before.
    let line = said
        .lines()
        .rev()
        .find(|line| line.starts_with('{'))
        .unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(
        serde_json::from_str::<Value>(line).unwrap(),
        wanted(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Goal: the Python SDK's client loses nothing, in 1.0 over JSON-RPC. Method: a round.
#[actix_web::test]
async fn python_client() {
    client_round(|peers, url| {
        with(
            peers.command(&peers.python("python-a2a")),
            [script("a2a_client.py"), url.to_owned()],
        )
    })
    .await;
}

/// Goal: nor over HTTP+JSON. Method: the same.
#[actix_web::test]
async fn python_client_over_rest() {
    client_round(|peers, url| {
        let arguments = [
            script("a2a_client.py"),
            url.to_owned(),
            "HTTP+JSON".to_owned(),
        ];
        with(peers.command(&peers.python("python-a2a")), arguments)
    })
    .await;
}

/// Goal: nor in 0.3. Method: the last SDK of that version.
#[actix_web::test]
async fn python_client_of_0_3() {
    client_round(|peers, url| {
        let arguments = [script("a2a_old.py"), "client".to_owned(), url.to_owned()];
        with(peers.command(&peers.python("python-a2a-old")), arguments)
    })
    .await;
}

/// Goal: the TypeScript SDK's client loses nothing. Method: a round.
#[actix_web::test]
async fn typescript_client() {
    client_round(|peers, url| {
        with(
            peers.command(&peers.node()),
            [script("a2a.mjs"), "client".to_owned(), url.to_owned()],
        )
    })
    .await;
}

/// Goal: the Rust SDK's client loses nothing. Method: a round.
#[actix_web::test]
async fn rust_client() {
    client_round(|peers, url| with(peers.command(&peers.rust_a2a()), ["client", url])).await;
}

/// Our client's rounds with a program.
async fn server_rounds(
    of: impl FnOnce(&Peers, u16) -> Command,
    spoken: &[(ProtocolVersion, ProtocolBinding)],
) {
    let Some(peers) = peers() else { return };
    let server = Served::start(|port| of(&peers, port)).await;
    for (version, binding) in spoken {
        let round = ours::round(&server.url("http", ""), *version, *binding).await;
        // An SDK of 0.3 shows nobody's credentials.
        let push = if *version == ProtocolVersion::V03 {
            String::new()
        } else {
            format!("Bearer {CREDENTIALS}")
        };
        let stream = json!({ "said": ["counting"], "text": "1 2 3" });
        let mut wanted = wanted();
        (wanted["stream"], wanted["push"]) = (stream, push.into());
        assert_eq!(round, wanted, "{version:?} over {binding:?}");
    }
}

const V10: [(ProtocolVersion, ProtocolBinding); 2] = [
    (ProtocolVersion::V10, ProtocolBinding::JsonRpc),
    (ProtocolVersion::V10, ProtocolBinding::HttpJson),
];

/// Goal: our client loses nothing of the Python SDK's server. Method: a round over each binding.
#[actix_web::test]
async fn python_server() {
    let server = |peers: &Peers, port: u16| {
        with(
            peers.command(&peers.python("python-a2a")),
            [script("a2a_server.py"), port.to_string()],
        )
    };
    server_rounds(server, &V10).await;
}

/// Goal: nor of one in 0.3. Method: the last SDK of that version.
#[actix_web::test]
async fn python_server_of_0_3() {
    let server = |peers: &Peers, port: u16| {
        let arguments = [script("a2a_old.py"), "server".to_owned(), port.to_string()];
        with(peers.command(&peers.python("python-a2a-old")), arguments)
    };
    server_rounds(server, &[(ProtocolVersion::V03, ProtocolBinding::JsonRpc)]).await;
}

/// Goal: nor of the TypeScript SDK's server. Method: a round over each binding.
#[actix_web::test]
async fn typescript_server() {
    let server = |peers: &Peers, port: u16| {
        with(
            peers.command(&peers.node()),
            [script("a2a.mjs"), "server".to_owned(), port.to_string()],
        )
    };
    server_rounds(server, &V10).await;
}

/// Goal: nor of the Rust SDK's server. Method: a round over each binding.
#[actix_web::test]
async fn rust_server() {
    let server = |peers: &Peers, port: u16| {
        with(
            peers.command(&peers.rust_a2a()),
            ["serve".to_owned(), port.to_string()],
        )
    };
    server_rounds(server, &V10).await;
}
