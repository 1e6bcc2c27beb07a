//! `callboard serve` and `callboard stdio`.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_mcp::inbound::{InboundOptions, Info, StdioOptions, serve_stdio};
use callboard_runtime::AgentRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, SimplexStream, WriteHalf, simplex};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{EXIT_ANSWERED, Outcome, ServeArguments, StdioArguments, interrupted, show};
use crate::config::{ConfigError, Problem, StoreDeclaration, Topology};
use crate::examples;
use crate::node::{LISTENING, Listening, Node, NodeError, READY, Watch};

/// The last line of a reload, after a line for each listener.
const RELOADED: &str = "reloaded";
/// Serves until interrupted.
pub(super) async fn run(arguments: ServeArguments) -> Outcome {
    let start = read(&arguments.topology, arguments.state.as_deref())?;
    if start.topology.listeners.is_empty() {
        return Err(NodeError::NothingToServe {
            path: arguments.topology.into(),
        }
        .into());
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
    /// One that no file of the user's declares.
    pub(super) fn of(topology: Topology, state: &Path) -> Self {
        Self {
            topology,
            state: state.to_owned(),
            file: None,
            warnings: Vec::new(),
            _scratch: None,
        }
    }

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
        let scratch = tempfile::Builder::new()
            .prefix("callboard-")
            .tempdir()
            .map_err(NodeError::Scratch)?;
        let file = examples::write(name, scratch.path())?;
        let mut topology = Topology::read(&file)?;
        // An example leaves nothing behind.
        topology.declare(StoreDeclaration::in_memory());
        let start = Start::of(topology, state.unwrap_or(scratch.path()));
        return Ok(Start {
            _scratch: Some(scratch),
            ..start
        });
    }
    let file = Path::new(file);
    let state = state.or(file.parent()).unwrap_or(Path::new(""));
    let (topology, warnings) = Topology::read_with_warnings(file)?;
    Ok(Start {
        file: Some(file.to_owned()),
        warnings,
        ..Start::of(topology, state)
    })
}

async fn serve(
    Start {
        topology,
        state,
        file,
        ..
    }: &Start,
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
    let Some(mut watch) = watch else {
        return std::future::pending().await;
    };
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
    let topology = checked
        .topology
        .ok_or_else(|| ConfigError::mistakes(file, checked.problems))?;
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

/// What may be on its way between a standard stream and its reader here, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// How long the last answers may take to be written at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves until the client closes its side, or somebody interrupts.
pub(super) async fn stdio(arguments: StdioArguments) -> Outcome {
    serve_one(
        &read(&arguments.topology, arguments.state.as_deref())?,
        &arguments.agent,
    )
    .await?;
    Ok(EXIT_ANSWERED)
}

async fn serve_one(
    Start {
        topology, state, ..
    }: &Start,
    wanted: &[String],
) -> Result<(), NodeError> {
    let stop = interrupted();
    let declared = topology.ids();
    if declared.is_empty() {
        return Err(ConfigError::NoAgents.into());
    }
    let is_known = |id: &str| {
        declared.contains(&id) || topology.servers.iter().any(|server| &*server.id == id)
    };
    if let Some(unknown) = wanted.iter().find(|id| !is_known(id)) {
        return Err(ConfigError::UnknownAgent {
            agent: unknown.clone(),
        }
        .into());
    }
    let ids = if wanted.is_empty() {
        declared
    } else {
        wanted.iter().map(String::as_str).collect()
    };
    let name = if let [alone] = *ids {
        alone
    } else {
        &*topology.name
    };
    let node = Node::start_agents(topology, state).await?;
    let served = match node.as_one(&ids) {
        Ok(agent) => over_standard_streams(agent, name, stop)
            .await
            .map_err(NodeError::Io),
        Err(error) => Err(error),
    };
    node.shutdown().await;
    served
}

async fn over_standard_streams(
    agent: AgentRef,
    name: &str,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let info = Info {
        name: name.to_owned(),
        ..Info::default()
    };
    let inbound = InboundOptions {
        info,
        ..InboundOptions::default()
    };
    let (mut output, written) = standard_output();
    let options = StdioOptions {
        inbound,
        ..StdioOptions::default()
    };
    let served = tokio::select! {
        served = serve_stdio(agent, options, standard_input(), &mut output) => served,
        () = stop => Ok(()),
    };
    // The thread that writes ends once it has written all: this says that no more comes.
    let _ = output.shutdown().await;
    match tokio::time::timeout(LAST_WORDS, written).await {
        Ok(Ok(outcome)) => served.and(show::unless_closed(outcome)),
        // Nobody reads: whoever started this has other means to end it.
        Ok(Err(_)) | Err(_) => served,
    }
}

/// Standard input, read by a thread of its own: a blocked read can't be given up, and must hold up no end.
fn standard_input() -> tokio::io::ReadHalf<SimplexStream> {
    let (reader, mut writer) = simplex(PIPE_BYTES);
    let runtime = Handle::current();
    std::thread::spawn(move || {
        let (mut input, mut chunk) = (io::stdin().lock(), vec![0; PIPE_BYTES]);
        // An error ends the stream like its end does.
        while let Ok(bytes @ 1..) = input.read(&mut chunk) {
            let read = chunk.get(..bytes).unwrap_or_default();
            if runtime.block_on(writer.write_all(read)).is_err() {
                return;
            }
        }
        let _ = runtime.block_on(writer.shutdown());
    });
    reader
}

/// Standard output, written by a thread of its own, and how that ended.
fn standard_output() -> (WriteHalf<SimplexStream>, oneshot::Receiver<io::Result<()>>) {
    let (mut reader, writer) = simplex(PIPE_BYTES);
    let (done, written) = oneshot::channel();
    let runtime = Handle::current();
    std::thread::spawn(move || {
        let (mut output, mut chunk) = (io::stdout().lock(), vec![0; PIPE_BYTES]);
        let outcome = loop {
            let ready = match runtime.block_on(reader.read(&mut chunk)) {
                Ok(0) => break Ok(()),
                Ok(bytes) => chunk.get(..bytes).unwrap_or_default(),
                Err(error) => break Err(error),
            };
            if let Err(error) = output.write_all(ready).and_then(|()| output.flush()) {
                break Err(error);
            }
        };
        let _ = done.send(outcome);
    });
    (writer, written)
}
