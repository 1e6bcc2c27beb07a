//! Callboard in front of the servers, as a person starts it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::kit::{Peers, Target, soon};

const CALLBOARD: &str = env!("CARGO_BIN_EXE_callboard");

/// The section of an agent that echoes, without a program of its own.
pub const ECHO: &str = "[[agent]]\nkind = \"model\"\nid = \"echo\"\nprovider = \"echo\"\n";

/// Path of the program.
pub fn callboard() -> &'static str {
    CALLBOARD
}

/// A topology file.
pub struct Topology {
    file: PathBuf,
    _folder: TempDir,
}

impl Topology {
    /// The sections, behind an address of this machine's, or a pipe.
    pub fn new(sections: &str) -> Self {
        Self::with_access("anonymous = \"operator\"\n", sections)
    }

    /// The sections, behind an address that is opened as these lines of its listener say.
    pub fn with_access(access: &str, sections: &str) -> Self {
        let head = "[node]\nname = \"matrix\"\n";
        let listener =
            "[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:0\"\n";
        Self::of_text(&format!("{head}{listener}{access}{sections}"))
    }

    /// A file with this text.
    pub fn of_text(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bridge.toml");
        std::fs::write(&file, text).unwrap();
        Self {
            file,
            _folder: folder,
        }
    }

    /// `callboard stdio`, in front of all of them.
    pub fn stdio_of_all(&self) -> Vec<String> {
        let file = self.file.display().to_string();
        vec![CALLBOARD.to_owned(), "stdio".to_owned(), file]
    }

    /// `callboard stdio`, in front of one of them.
    pub fn stdio(&self, id: &str) -> Target {
        let mut command = self.stdio_of_all();
        command.extend(["--agent".to_owned(), id.to_owned()]);
        Target::Command(command)
    }
}

/// `callboard serve`: it runs as long as this is held.
pub struct Gateway {
    /// Agents with the addresses of each.
    urls: Vec<(String, String)>,
    child: Child,
    topology: Topology,
}

impl Gateway {
    pub async fn start(peers: &Peers, topology: Topology) -> Self {
        let mut command: Command = peers.command(Path::new(CALLBOARD));
        command
            .args(["serve", "--lifeline"])
            .arg(&topology.file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut urls = Vec::new();
        loop {
            let line = soon("what callboard says", output.next_line())
                .await
                .unwrap()
                .expect("callboard doesn't serve");
            match *line.split(' ').collect::<Vec<_>>() {
                ["ready"] => break,
                ["listening", id, url] => urls.push((id.to_owned(), url.to_owned())),
                _ => panic!("{line}"),
            }
        }
        Self {
            urls,
            child,
            topology,
        }
    }

    pub fn target(&self, id: &str) -> Target {
        Target::Url(self.mcp(id))
    }

    /// Address of an agent for MCP.
    pub fn mcp(&self, id: &str) -> String {
        self.address(id, "/mcp")
    }

    /// Address of an agent for A2A, below which its card is.
    pub fn a2a(&self, id: &str) -> String {
        self.all_a2a(id).swap_remove(0)
    }

    /// Addresses of an agent for A2A, of all listeners in their order.
    pub fn all_a2a(&self, id: &str) -> Vec<String> {
        let own = |(agent, url): &&(String, String)| agent == id && url.ends_with("/a2a");
        let all = self.urls.iter().filter(own);
        all.map(|(_, url)| url.replace("/a2a", "")).collect()
    }

    fn address(&self, id: &str, end: &str) -> String {
        let mut all = self.urls.iter();
        let found = all.find(|(agent, url)| agent == id && url.ends_with(end));
        found
            .unwrap_or_else(|| panic!("no {id} at {end}: {:?}", self.urls))
            .1
            .clone()
    }

    /// Host and port of the first listener.
    pub fn authority(&self) -> String {
        let (_, url) = &self.urls[0];
        url.split('/').nth(2).unwrap().to_owned()
    }

    /// Returns the audit's entries of an event.
    pub async fn audit(&self, event: &str) -> String {
        let mut show = Command::new(CALLBOARD);
        show.args(["audit", "show", "--event", event, "--topology"]);
        show.arg(&self.topology.file).kill_on_drop(true);
        let shown = soon("the audit", show.output()).await.unwrap();
        String::from_utf8(shown.stdout).unwrap()
    }

    /// Ends it, as whoever started it would. Returns its topology, to start it again.
    pub async fn end(mut self) -> Topology {
        drop(self.child.stdin.take());
        let status = soon("callboard's end", self.child.wait()).await.unwrap();
        assert!(status.success(), "callboard ended with {status}");
        self.topology
    }
}
