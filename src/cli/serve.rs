//! `callboard serve`.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tokio::sync::oneshot;

use super::{EXIT_ANSWERED, Outcome, ServeArguments, interrupted, show};
use crate::config::{ConfigError, Problem, StoreDeclaration, Topology};
use crate::examples;
use crate::node::{Listening, Node, NodeError, Watch};

/// The last line before a node serves: whoever started it may go on.
pub(crate) const READY: &str = "ready";
/// The last line of a reload, after a line for each listener.
const RELOADED: &str = "reloaded";
/// The first word of the line that each listener prints: `listening AGENT URL`.
pub(crate) const LISTENING: &str = "listening";

/// Serves until interrupted.
pub(super) async fn run(arguments: &ServeArguments) -> Outcome {
    let start = read(&arguments.topology, arguments.state.as_deref())?;
    if start.topology.listeners.is_empty() {
        return Err(NodeError::NothingToServe { path: PathBuf::from(&arguments.topology) }.into());
    }
    start.warn();
    let lifeline = arguments.lifeline.then(lifeline);
    serve(&start, arguments.free_ports, lifeline).await?;
    Ok(EXIT_ANSWERED)
}

/// A topology, and where its agents keep their data.
pub(super) struct Start {
    pub(super) topology: Topology,
    pub(super) state: PathBuf,
    /// The file, where it is one of the user's.
    file: Option<PathBuf>,
    /// What is wrong with it all the same.
    warnings: Vec<Problem>,
    /// Removed at the end.
    _scratch: Option<tempfile::TempDir>,
}

impl Start {
    /// Says what is wrong with the file and doesn't keep it from being used: a line each, nothing of its text (a key may be there).
    pub(super) fn warn(&self) {
        let file = self.file.as_deref().unwrap_or(Path::new("")).display();
        for warning in &self.warnings {
            show::complain(format_args!("warning: {file}: {warning}"));
        }
    }
}

/// Reads a topology file, or an example that comes with callboard.
pub(super) fn read(file: &str, state: Option<&Path>) -> Result<Start, NodeError> {
    if let Some(name) = file.strip_prefix("example:") {
        let scratch = tempfile::Builder::new().prefix("callboard-").tempdir().map_err(NodeError::Scratch)?;
        let file = examples::write(name, scratch.path())?;
        let state = state.unwrap_or(scratch.path()).to_owned();
        let mut topology = Topology::read(&file)?;
        // An example leaves nothing behind.
        topology.store.get_or_insert_with(StoreDeclaration::in_memory);
        return Ok(Start { topology, state, file: None, warnings: Vec::new(), _scratch: Some(scratch) });
    }
    let file = Path::new(file);
    let state = state.or(file.parent()).unwrap_or(Path::new("")).to_owned();
    let (topology, warnings) = Topology::read_with_warnings(file)?;
    Ok(Start { topology, state, file: Some(file.to_owned()), warnings, _scratch: None })
}

async fn serve(
    Start { topology, state, file, .. }: &Start,
    free_ports: bool,
    lifeline: Option<oneshot::Receiver<()>>,
) -> Result<(), NodeError> {
    // Listens before anybody can know that it runs.
    let stop = interrupted();
    let watch = file.as_deref().map(Watch::of).transpose()?;
    let mut node = Node::start(topology, state, free_ports).await?;
    let announced = show::unless_closed(announce(&node, READY));
    if announced.is_ok() {
        tokio::select! {
            () = stop => {}
            () = cut(lifeline) => {}
            () = follow(watch, &mut node) => {}
        }
    }
    node.shutdown().await;
    Ok(announced?)
}

/// Goes on with each new version of the file that can be used. Doesn't end.
async fn follow(watch: Option<Watch>, node: &mut Node) {
    let Some(mut watch) = watch else { return std::future::pending().await };
    loop {
        watch.changed().await;
        match reload(watch.path(), node).await {
            // Where nobody reads what is listened on, it is listened on all the same.
            Ok(()) => drop(announce(node, RELOADED)),
            Err(error) => {
                tracing::error!(%error, "the topology isn't reloaded, the old one goes on");
            }
        }
    }
}

async fn reload(file: &Path, node: &mut Node) -> Result<(), NodeError> {
    let checked = Topology::check(file)?;
    for problem in &checked.problems {
        tracing::warn!(%problem, "in the topology");
    }
    let topology = checked.topology.ok_or_else(|| ConfigError::mistakes(file, checked.problems))?;
    let done = node.reload(&topology).await?;
    tracing::info!(?done, "the topology was reloaded");
    Ok(())
}

fn announce(node: &Node, last: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for Listening { agent, url } in node.listeners() {
        writeln!(out, "{LISTENING} {agent} {url}")?;
    }
    writeln!(out, "{last}")?;
    out.flush()
}

async fn cut(lifeline: Option<oneshot::Receiver<()>>) {
    match lifeline {
        Some(lifeline) => drop(lifeline.await),
        None => std::future::pending().await,
    }
}

/// Ends when standard input does. A thread of its own, for a blocked read can't be given up.
fn lifeline() -> oneshot::Receiver<()> {
    let (cut, is_cut) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
        drop(cut);
    });
    is_cut
}
