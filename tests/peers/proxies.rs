//! The settings of docs/proxies.md, with the proxies that they are for.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Client;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::certificates::Authority;
use crate::gateway::{ECHO, Gateway, Topology, callboard};
use crate::kit::{Peers, Served, initialize, peers, soon, trusting, with};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/proxies.md");
const NAME: &str = "agents.example";
/// Address of the client, which isn't the proxy's.
const CLIENT: &str = "127.0.0.9";
/// Address that the client claims in a header.
const CLAIMED: &str = "198.51.100.77";

/// Returns the blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let begin = format!("```{language}\n");
    let blocks = page.split(&begin).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// Replaces a text that must be there.
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old} in {text}");
    text.replace(old, new)
}

/// Opens a WebSocket at the URL, and waits for the answer to `initialize` in it.
async fn initialize_over_websocket(client: &Client, url: &str, key: &str) {
    let request = client.get(url).bearer_auth(key);
    let request = request
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "mcp");
    let opened = soon("a WebSocket", request.send()).await.unwrap();
    assert_eq!(opened.status(), 101);
    let mut socket = soon("an upgrade", opened.upgrade()).await.unwrap();
    // One frame: text, a length of two bytes, and a mask of zeros (RFC 6455, section 5.2).
    let text = initialize().to_string();
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    let frame = [&[0x81_u8, 0xFE][..], &length, &[0; 4], text.as_bytes()].concat();
    socket.write_all(&frame).await.unwrap();
    let mut received = Vec::new();
    let answered = async {
        while !String::from_utf8_lossy(&received).contains("protocolVersion") {
            let count = socket.read_buf(&mut received).await.unwrap();
            assert_ne!(count, 0, "the WebSocket ended without an answer");
        }
    };
    soon("an answer over the WebSocket", answered).await;
}

/// A node behind a proxy, with a certificate for [`NAME`] and a key for the node.
struct ProxiedNode {
    folder: TempDir,
    ca: PathBuf,
    key: String,
}

impl ProxiedNode {
    async fn new(peers: &Peers) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test authority");
        let ca = authority.write(folder.path(), "ca");
        authority.issue(&[NAME], folder.path(), "fullchain");
        let add = ["keys", "--keys", "keys.toml", "add", "client"];
        let mut add = with(peers.command(Path::new(callboard())), add);
        let made = add.current_dir(folder.path()).output().await.unwrap();
        assert!(made.status.success(), "{made:?}");
        let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        Self { folder, ca, key }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Starts a node whose listener has the page's settings, and WebSocket.
    async fn node(&self, peers: &Peers, more: &str) -> Gateway {
        let listener = &blocks("toml")[0];
        let listener = replaced(listener, "127.0.0.1:3001", "127.0.0.1:0");
        let listener = replaced(&listener, "keys.toml", &self.path("keys.toml"));
        let listener = format!("{listener}compat = [\"websocket\"]\n{more}");
        let text = format!("[node]\nname = \"behind\"\n{listener}{ECHO}");
        Gateway::start(peers, Topology::of_text(&text)).await
    }

    /// Checks that clients reach the node through the proxy: by its name, with a key, over TLS, by
    /// WebSocket too, and from their own address, whatever address they claim.
    async fn check(&self, proxy: &Served, node: &Gateway) {
        let at = ([127, 0, 0, 1], proxy.port).into();
        let client = trusting(&std::fs::read(&self.ca).unwrap());
        let own = CLIENT.parse::<IpAddr>().unwrap();
        let client = client.resolve(NAME, at).local_address(own);
        let client = client.build().unwrap();
        let url = format!("https://{NAME}:{}/mcp", proxy.port);
        let post = |key: &str| {
            let request = client.post(&url).bearer_auth(key).json(&initialize());
            request.header("accept", "application/json, text/event-stream")
        };
        let opened = soon("a session", post(&self.key).send()).await.unwrap();
        assert_eq!(opened.status(), 200);
        let session = opened.headers()["mcp-session-id"].clone();
        // A stream begins at once, though no event is in it yet.
        let stream = client.get(&url).bearer_auth(&self.key);
        let stream = stream.header("accept", "text/event-stream");
        let stream = stream
            .header("mcp-session-id", session)
            .timeout(Duration::from_secs(60));
        let stream = soon("a stream", stream.send()).await.unwrap();
        assert_eq!(stream.status(), 200);
        initialize_over_websocket(&client, &url, &self.key).await;
        // The only failure, because the audit has one entry a minute for an address.
        let forged = post("cbk_wrong").header("x-forwarded-for", CLAIMED);
        let refused = soon("a refusal", forged.send()).await.unwrap();
        assert_eq!(refused.status(), 401);
        let audited = async {
            loop {
                let audit = node.audit("auth.failed").await;
                if audit.contains(CLIENT) || audit.contains(CLAIMED) {
                    break audit;
                }
            }
        };
        let audit = soon("the failure in the audit", audited).await;
        assert!(
            audit.contains(CLIENT) && !audit.contains(CLAIMED),
            "{audit}"
        );
    }
}

/// Goal: the settings for nginx work as they stand. Method: nginx with them, in front of a node with those of
/// the page and WebSocket; else only addresses and files are replaced.
#[tokio::test]
async fn behind_nginx() {
    let Some(peers) = peers() else { return };
    let place = ProxiedNode::new(&peers).await;
    let node = place.node(&peers, "").await;
    let [server, map] = &blocks("nginx")[..] else {
        panic!("two blocks")
    };
    let server = replaced(server, "127.0.0.1:3001", &node.authority());
    let server = replaced(
        &server,
        "/etc/ssl/agents.example/fullchain.pem",
        &place.path("fullchain.pem"),
    );
    let server = replaced(
        &server,
        "/etc/ssl/agents.example/privkey.pem",
        &place.path("fullchain-key.pem"),
    );
    let proxy = Served::start(|port| {
        let server = replaced(&server, "listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl"));
        let folder = place.path("");
        let conf = format!(
            "daemon off; pid {folder}nginx.pid; error_log stderr; events {{}}\nhttp {{ access_log off; client_body_temp_path {folder}b; \
             proxy_temp_path {folder}p; fastcgi_temp_path {folder}f; uwsgi_temp_path {folder}u; scgi_temp_path {folder}s;\n{map}{server}}}\n"
        );
        let conf = place.write("nginx.conf", &conf);
        with(peers.command(Path::new("/usr/sbin/nginx")), ["-c".to_owned(), conf])
    })
    .await;
    place.check(&proxy, &node).await;
    drop(proxy);
    node.end().await;
}

/// Goal: the settings for Caddy work as they stand. Method: as for nginx; its certificate is a file.
#[tokio::test]
async fn behind_caddy() {
    let Some(peers) = peers() else { return };
    let place = ProxiedNode::new(&peers).await;
    let node = place.node(&peers, "").await;
    let site = &blocks("caddyfile")[0];
    let site = replaced(site, "127.0.0.1:3001", &node.authority());
    let proxy = Served::start(|port| {
        let tls = format!(
            "{NAME}:{port} {{\n\ttls {} {}\n",
            place.path("fullchain.pem"),
            place.path("fullchain-key.pem")
        );
        let site = replaced(&site, "agents.example {\n", &tls);
        let conf = format!("{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}");
        let conf = place.write("Caddyfile", &conf);
        let mut command = peers.command(Path::new("/usr/bin/caddy"));
        command.env("HOME", place.path(""));
        with(
            command,
            ["run", "--config", &conf, "--adapter", "caddyfile"],
        )
    })
    .await;
    place.check(&proxy, &node).await;
    drop(proxy);
    node.end().await;
}

/// Goal: the settings for HAProxy work as they stand: it passes TLS on, and names the client in a PROXY
/// header. Method: as for nginx.
#[tokio::test]
async fn behind_haproxy() {
    let Some(peers) = peers() else { return };
    let place = ProxiedNode::new(&peers).await;
    let more = &blocks("toml")[1];
    let more = replaced(more, "trusted_proxies = [\"127.0.0.1\"]\n", "");
    let more = replaced(&more, "fullchain.pem", &place.path("fullchain.pem"));
    let more = replaced(&more, "privkey.pem", &place.path("fullchain-key.pem"));
    let node = place.node(&peers, &more).await;
    let conf = &blocks("haproxy")[0];
    let conf = replaced(conf, "127.0.0.1:3001", &node.authority());
    let proxy = Served::start(|port| {
        let conf = replaced(&conf, "bind :443", &format!("bind 127.0.0.1:{port}"));
        let conf = place.write("haproxy.cfg", &conf);
        with(
            peers.command(Path::new("/usr/sbin/haproxy")),
            ["-db", "-f", &conf],
        )
    })
    .await;
    place.check(&proxy, &node).await;
    drop(proxy);
    node.end().await;
}
