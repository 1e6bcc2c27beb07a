//! Signed cards, as a library for JOSE verifies them that knows nothing of A2A.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::gateway::{Gateway, Topology};
use crate::kit::{peers, script, soon, with};

/// Private keys of P-256 and of Ed25519, of this test only.
const KEYS: [&str; 2] = [
    "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgyLqHEs7xVhKT8p+M
Sbz/DO7i3ucPIxxEtT7FBqpaPZWhRANCAAQES1uBnuSxFyfnKBAWmQaDciW1TY5B
83BYQYm//lEK+AZdqhnfs40EUPV/GG2Jd+V/zf7UDUn4jUIdE9KkKnfV
-----END PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----",
];

/// Goal: a card verifies as it was sent, whichever version of A2A the client names. Method: jwcrypto with the listener's key
/// set; a key of each kind; an altered card. The card without a version has signatures over its form of 1.0 after its own.
#[actix_web::test]
async fn jwcrypto_verifies_cards() {
    let Some(peers) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut sections = String::from(
        "[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\nmodel = \"echo\"\n\
         description = \"Says the same, käthe\"\n",
    );
    for (at, key) in KEYS.iter().enumerate() {
        let file = folder.path().join(format!("{at}.pem"));
        std::fs::write(&file, key).unwrap();
        write!(
            sections,
            "[[listener]]\nprotocol = \"a2a\"\nbind = \"127.0.0.1:0\"\nanonymous = \"operator\"\nsigning_key = {}\n",
            json!(file)
        )
        .unwrap();
    }
    let gateway = Gateway::start(&peers, Topology::new(&sections)).await;
    for (at, base) in gateway.all_a2a("echo").iter().enumerate() {
        let root = base.strip_suffix("/agents/echo").unwrap_or(base);
        let arguments = [
            script("verify_card.py"),
            format!("{base}/.well-known/agent-card.json"),
            format!("{root}/.well-known/jwks.json"),
        ];
        let mut command = with(peers.command(&peers.python("python")), arguments);
        let output = soon("a verifier", command.output()).await.unwrap();
        let found: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let all = |cards: &str, verify: bool| {
            let signatures = found[cards].as_array().unwrap();
            let wrong = signatures.iter().filter(|one| **one != json!(verify));
            assert_eq!(wrong.count(), 0, "key {at}, {cards}: {found}");
            signatures.len()
        };
        assert!(all("versioned", true) > 0, "{found}");
        assert_eq!(found["unversioned"][0], true, "key {at}: {found}");
        all("altered", false);
    }
    gateway.end().await;
}
