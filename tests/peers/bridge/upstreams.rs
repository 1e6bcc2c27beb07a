//! The servers of the matrix.

use callboard::mcp::outbound::Era;
use serde_json::json;

use crate::gateway::Topology;
use crate::kit::{Peers, Served, script, with};
use crate::round::{self, Plan};
use crate::{python, rmcp};

/// A server, as callboard is told of it.
pub struct Upstream {
    pub id: &'static str,
    pub reach: Reach,
    /// The only era to speak, where the server has both.
    pub era: Option<Era>,
    /// Plan of the server, without `wait`.
    pub plan: Plan,
    /// Whether it has the tool `wait`.
    pub waits: bool,
    /// Whether all its calls go over one channel, on which a line of its log names no call: in the newer era, over a pipe.
    pub shares_lines: bool,
    /// Whether lines of its log come by its session's stream, beside the one of the call: the last may come after the answer.
    pub strays: bool,
}

pub enum Reach {
    Child(Vec<String>),
    /// Streamable HTTP or WebSocket, by its scheme.
    Url(String),
    Sse(String),
}

/// All of them; the processes among them end with this.
pub struct Upstreams {
    all: Vec<Upstream>,
    _served: Vec<Served>,
}

impl Upstreams {
    pub async fn start(peers: &Peers) -> Self {
        let mut upstreams = Self {
            all: Vec::new(),
            _served: Vec::new(),
        };
        upstreams.everything(peers).await;
        upstreams.python(peers).await;
        upstreams.python_old(peers).await;
        upstreams.typescript(peers).await;
        let rmcp = rmcp::asker::start().await;
        for (id, era) in [("rmcp-legacy", Era::Legacy), ("rmcp-modern", Era::Modern)] {
            upstreams.add(id, Reach::Url(rmcp.clone()), Some(era), rmcp::plan());
        }
        upstreams
    }

    pub fn all(&self) -> &[Upstream] {
        &self.all
    }

    fn add(&mut self, id: &'static str, reach: Reach, era: Option<Era>, plan: Plan) {
        let waits = !id.starts_with("everything");
        let shares_lines = id.ends_with("stdio-modern");
        // rmcp 3.9: all notifications but those of progress.
        let strays = id == "rmcp-legacy";
        self.all.push(Upstream {
            id,
            reach,
            era,
            plan,
            waits,
            shares_lines,
            strays,
        });
    }

    /// The reference server, of the older era only.
    async fn everything(&mut self, peers: &Peers) {
        let node = peers.node();
        let file = peers
            .package("@modelcontextprotocol/server-everything/dist/index.js")
            .display()
            .to_string();
        let child = vec![node.display().to_string(), file.clone(), "stdio".to_owned()];
        self.add(
            "everything-stdio",
            Reach::Child(child),
            None,
            round::everything(),
        );
        for (id, transport, path) in [
            ("everything-http", "streamableHttp", "/mcp"),
            ("everything-sse", "sse", "/sse"),
        ] {
            let served = Served::start(|port| {
                let mut command = with(peers.command(&node), [&*file, transport]);
                command.env("PORT", port.to_string());
                command
            });
            let served = served.await;
            let url = served.url("http", path);
            let reach = if transport == "sse" {
                Reach::Sse(url)
            } else {
                Reach::Url(url)
            };
            self.add(id, reach, None, round::everything());
            self._served.push(served);
        }
    }

    /// The Python SDK 2, of both eras.
    async fn python(&mut self, peers: &Peers) {
        let (python, script) = (peers.python("python"), script("server.py"));
        let plan = || python::plan(python::FAILED);
        let child = || {
            Reach::Child(vec![
                python.display().to_string(),
                script.clone(),
                "stdio".to_owned(),
            ])
        };
        self.add("python-stdio-legacy", child(), Some(Era::Legacy), plan());
        self.add("python-stdio-modern", child(), None, plan());
        let arguments = |port: u16| {
            [
                script.clone(),
                "streamable-http".to_owned(),
                port.to_string(),
            ]
        };
        let served = Served::start(|port| with(peers.command(&python), arguments(port))).await;
        let url = served.url("http", "/mcp");
        self.add(
            "python-http-legacy",
            Reach::Url(url.clone()),
            Some(Era::Legacy),
            plan(),
        );
        self.add("python-http-modern", Reach::Url(url), None, plan());
        self._served.push(served);
    }

    /// The Python SDK 1: the last with a WebSocket.
    async fn python_old(&mut self, peers: &Peers) {
        let (python, script) = (peers.python("python-old"), script("server_old.py"));
        let plan = || python::plan(python::FAILED_OLD);
        let child = vec![
            python.display().to_string(),
            script.clone(),
            "stdio".to_owned(),
        ];
        self.add("python-old-stdio", Reach::Child(child), None, plan());
        let transports = [
            ("python-old-http", "streamable-http", "http", "/mcp"),
            ("python-old-sse", "sse", "http", "/sse"),
            ("python-old-websocket", "websocket", "ws", "/ws"),
        ];
        for (id, transport, scheme, path) in transports {
            let arguments = |port: u16| [script.clone(), transport.to_owned(), port.to_string()];
            let served = Served::start(|port| with(peers.command(&python), arguments(port))).await;
            let url = served.url(scheme, path);
            let reach = if transport == "sse" {
                Reach::Sse(url)
            } else {
                Reach::Url(url)
            };
            self.add(id, reach, None, plan());
            self._served.push(served);
        }
    }

    /// The TypeScript SDK 2, of both eras over a pipe. Over HTTP it keeps no session of the older one, so it can't ask there.
    async fn typescript(&mut self, peers: &Peers) {
        let (node, script) = (peers.node(), script("server.mjs"));
        let child = || {
            Reach::Child(vec![
                node.display().to_string(),
                script.clone(),
                "stdio".to_owned(),
            ])
        };
        self.add(
            "typescript-stdio-legacy",
            child(),
            Some(Era::Legacy),
            rmcp::plan(),
        );
        self.add("typescript-stdio-modern", child(), None, rmcp::plan());
        let arguments = |port: u16| [script.clone(), "http".to_owned(), port.to_string()];
        let served = Served::start(|port| with(peers.command(&node), arguments(port))).await;
        self.add(
            "typescript-http-modern",
            Reach::Url(served.url("http", "/")),
            None,
            rmcp::plan(),
        );
        self._served.push(served);
    }
}

/// Callboard's file with these servers, which may ask whatever they like, of whoever called.
pub fn topology<'a>(upstreams: impl IntoIterator<Item = &'a Upstream>) -> Topology {
    let declared: String = upstreams.into_iter().map(declaration).collect();
    Topology::new(&declared)
}

fn declaration(upstream: &Upstream) -> String {
    // A string of JSON is one of TOML.
    let reach = match &upstream.reach {
        Reach::Child(command) => format!(
            "command = {}\nenv_passthrough = [\"CALLBOARD_PEERS\"]",
            json!(command)
        ),
        Reach::Url(url) => format!("url = {}", json!(url)),
        Reach::Sse(url) => format!("url = {}\ntransport = \"sse\"", json!(url)),
    };
    let era = match upstream.era {
        None => "auto",
        Some(Era::Legacy) => "legacy",
        Some(Era::Modern) => "modern",
    };
    let may = "supports_sampling = true\nsupports_elicitation = true\nsupports_roots = true";
    format!(
        "[[upstream]]\nid = \"{}\"\n{reach}\nera = \"{era}\"\n{may}\n",
        upstream.id
    )
}
