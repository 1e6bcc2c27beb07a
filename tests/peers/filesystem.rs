//! The reference server for files, which keeps to the folders that its client lends.

use std::path::Path;

use rmcp::ClientLifecycleMode;
use serde_json::json;

use crate::gateway::{Gateway, Topology};
use crate::kit::{Peers, peers, soon};
use crate::rmcp::visitor::Visitor;
use crate::rmcp::without_session;

/// Folders with a file each: the one that the server is started with, and two to lend.
const FOLDERS: [&str; 3] = ["own", "lent", "other"];
const READ: &str = "read_text_file";

async fn gateway(peers: &Peers, folder: &Path) -> Gateway {
    let script = peers.package("@modelcontextprotocol/server-filesystem/dist/index.js");
    let command = json!([peers.node(), script, folder.join(FOLDERS[0])]);
    let upstream =
        format!("[[upstream]]\nid = \"files\"\ncommand = {command}\nsupports_roots = true\n");
    Gateway::start(peers, Topology::new(&upstream)).await
}

/// Returns whether the file of a folder can be read.
async fn reads(client: &Visitor, folder: &Path, name: &str) -> bool {
    let file = folder.join(name).join("file");
    match client.call(READ, json!({ "path": file })).await {
        Ok(text) => {
            assert_eq!(text, name);
            true
        }
        Err(why) => {
            assert!(why.contains("Access denied"), "{why}");
            false
        }
    }
}

/// Goal: server-filesystem behind callboard works under the roots of the client that calls, and under no other's. Method: it's
/// started with a folder of its own; two clients lend one folder each; then one client lends another folder; both eras.
#[actix_web::test]
async fn filesystem_keeps_to_the_roots_of_the_caller() {
    let Some(peers) = peers() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    for name in FOLDERS {
        std::fs::create_dir(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join("file"), name).unwrap();
    }
    let [own, lent, other] = FOLDERS;
    let root = |name: &str| format!("file://{}", folder.join(name).display());
    let gateway = gateway(&peers, &folder).await;
    let url = gateway.mcp("files");

    for (lifecycle, has_session) in [
        (ClientLifecycleMode::Initialize, true),
        (without_session(), false),
    ] {
        let client = Visitor::connect(&url, lifecycle.clone(), &root(lent)).await;
        let neighbour = Visitor::connect(&url, lifecycle, &root(other)).await;
        // The server reads the roots beside its first calls, however long that takes it.
        for client in [&client, &neighbour] {
            let in_force = async { while reads(client, &folder, own).await {} };
            soon("the roots", in_force).await;
        }
        assert!(reads(&client, &folder, lent).await);
        assert!(!reads(&neighbour, &folder, lent).await);
        assert!(reads(&neighbour, &folder, other).await);
        assert!(!reads(&client, &folder, other).await);

        client.lend(&root(other), has_session).await;
        let changed = async { while !reads(&client, &folder, other).await {} };
        soon("the new roots", changed).await;
        assert!(!reads(&client, &folder, lent).await);
        assert!(reads(&neighbour, &folder, other).await);
        client.end().await;
        neighbour.end().await;
    }
    gateway.end().await;
}
