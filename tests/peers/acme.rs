//! A certificate of pebble, the test server of Let's Encrypt's authors.

/// With what `cargo xtask peers --heavy` installs.
mod heavy {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use serde_json::json;

    use crate::certificates::{Authority, LOCAL};
    use crate::gateway::{ECHO, Gateway, Topology};
    use crate::kit::{Served, free_port, heavy_peers, soon, trusting, with};

    /// Goal: a listener gets its certificate from an ACME authority, which checks the name at the listener,
    /// and keeps it for its owner alone. Method: pebble; a client that trusts pebble's root only, before and
    /// after a restart without pebble.
    #[tokio::test]
    async fn certificate_of_pebble() {
        let Some(peers) = heavy_peers() else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = Authority::new("test authority");
        let ca = authority.write(folder.path(), "ca");
        let api = authority.issue(&LOCAL, folder.path(), "api");
        let (management, listener) = (free_port(), free_port());
        let pebble = Served::start(|port| {
            let config = json!({ "pebble": {
                "listenAddress": format!("127.0.0.1:{port}"), "managementListenAddress": format!("127.0.0.1:{management}"),
                "certificate": api.certificate, "privateKey": api.key, "httpPort": free_port(), "tlsPort": listener,
                "ocspResponderURL": "", "externalAccountBindingRequired": false,
            } });
            std::fs::write(path("pebble.json"), config.to_string()).unwrap();
            let mut command = peers.command(Path::new("/usr/bin/pebble"));
            command.env("PEBBLE_VA_NOSLEEP", "1");
            with(command, [Path::new("-config"), &path("pebble.json")])
        })
        .await;
        let text = format!(
            "[node]\nname = \"public\"\n[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:{listener}\"\n\
             anonymous = \"operator\"\n[listener.tls.acme]\ndomains = [\"localhost\"]\ncontact = [\"mailto:ops@example.com\"]\n\
             directory = \"{}\"\nca = \"{}\"\nfolder = \"{}\"\n{ECHO}",
            pebble.url("https", "/dir"),
            ca.display(),
            path("acme").display()
        );
        let node = Gateway::start(&peers, Topology::of_text(&text)).await;
        let roots = trusting(&std::fs::read(&ca).unwrap()).build().unwrap();
        let root = roots.get(format!("https://127.0.0.1:{management}/roots/0"));
        let root = soon("the root", root.send()).await.unwrap();
        let client = trusting(&root.bytes().await.unwrap()).build().unwrap();
        let url = format!("https://localhost:{listener}/mcp");
        let reached = async { while client.get(&url).send().await.is_err() {} };
        soon("the certificate", reached).await;
        let mode = std::fs::metadata(path("acme"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        node.end().await;
        drop(pebble);

        let again = Gateway::start(&peers, Topology::of_text(&text)).await;
        let reached = async { while client.get(&url).send().await.is_err() {} };
        soon("the kept certificate", reached).await;
        again.end().await;
    }
}
