//! `callboard serve` and `callboard stdio`.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_mcp::inbound::{InboundOptions, ServerDescription, StdioOptions, serve_stdio};
use callboard_runtime::AgentRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, SimplexStream, WriteHalf, simplex};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{
    CommandResult, EXIT_ANSWERED, ServeArguments, StdioArguments, output, wait_for_interrupt,
};
use crate::config::{
    CheckReport, ConfigError, ConfigProblem, Severity, StoreDeclaration, Topology,
};
use crate::examples;
use crate::node::{
    AgentAddress, LISTENING_PREFIX, Node, NodeError, READY_LINE, TopologyWatcher,
    server_description,
};

/// Last line printed by a reload, after a line for each listener.
const RELOADED_LINE: &str = "reloaded";
/// Runs `callboard serve` until interrupted.
pub(super) async fn run(arguments: ServeArguments) -> CommandResult {
    let start = load_topology(&arguments.topology, arguments.state.as_deref())?;
    if start.topology.listeners.is_empty() {
        return Err(NodeError::NothingToServe {
            path: arguments.topology.into(),
        }
        .into());
    }
    start.print_warnings();
    let lifeline = arguments.lifeline.then(watch_stdin_close);
    serve_until_stopped(&start, arguments.free_ports, arguments.console, lifeline).await?;
    Ok(EXIT_ANSWERED)
}

/// Topology with the folder for its agents' data.
pub(super) struct LoadedTopology {
    pub(super) topology: Topology,
    pub(super) state: PathBuf,
    /// Path of the file; `None` for examples and the default topology.
    file: Option<PathBuf>,
    /// Warnings of the file.
    warnings: Vec<ConfigProblem>,
    /// Scratch folder, deleted at the end.
    _scratch: Option<tempfile::TempDir>,
}

impl LoadedTopology {
    /// Returns a topology that has no file to watch, with `state` as the folder for its data.
    pub(super) fn without_file(topology: Topology, state: &Path) -> Self {
        Self {
            topology,
            state: state.to_owned(),
            file: None,
            warnings: Vec::new(),
            _scratch: None,
        }
    }

    /// Prints the file's warnings, one a line, without values from it: they may be keys.
    pub(super) fn print_warnings(&self) {
        let file = self.file.as_deref().unwrap_or(Path::new("")).display();
        for warning in &self.warnings {
            output::print_error(format_args!("warning: {file}: {warning}"));
        }
    }
}

/// Reads a topology file, or the example NAME for `example:NAME`. Without `state`, the agents' data
/// is in the file's folder, or for an example in a temporary folder, deleted with the result.
pub(super) fn load_topology(file: &str, state: Option<&Path>) -> Result<LoadedTopology, NodeError> {
    if let Some(name) = file.strip_prefix("example:") {
        let scratch = tempfile::Builder::new()
            .prefix("callboard-")
            .tempdir()
            .map_err(NodeError::Scratch)?;
        let file = examples::write_example(name, scratch.path())?;
        let mut topology = Topology::read(&file)?;
        // An example leaves nothing behind.
        topology.add_section_if_absent(StoreDeclaration::in_memory());
        let start = LoadedTopology::without_file(topology, state.unwrap_or(scratch.path()));
        return Ok(LoadedTopology {
            _scratch: Some(scratch),
            ..start
        });
    }
    let file = Path::new(file);
    let state = state.or(file.parent()).unwrap_or(Path::new(""));
    let (topology, warnings) = Topology::read_with_warnings(file)?;
    Ok(LoadedTopology {
        file: Some(file.to_owned()),
        warnings,
        ..LoadedTopology::without_file(topology, state)
    })
}

async fn serve_until_stopped(
    LoadedTopology {
        topology,
        state,
        file,
        ..
    }: &LoadedTopology,
    free_ports: bool,
    console: Option<SocketAddr>,
    lifeline: Option<oneshot::Receiver<()>>,
) -> Result<(), NodeError> {
    // Listens before anybody can know that it runs.
    let stop = wait_for_interrupt();
    let watch = file.as_deref().map(TopologyWatcher::new).transpose()?;
    let mut node = Node::start_with_console(topology, state, free_ports, console).await?;
    let announced = output::ignore_broken_pipe(print_addresses(&node, READY_LINE));
    if announced.is_ok() {
        tokio::select! {
            () = stop => {}
            () = wait_for_close(lifeline) => {}
            () = reload_on_change(watch, &mut node) => {}
        }
    }
    node.shutdown().await;
    Ok(announced?)
}

/// Reloads the topology whenever the file changes. An error is logged, and the previous topology
/// stays in force. Never returns; without a file it does nothing.
async fn reload_on_change(watch: Option<TopologyWatcher>, node: &mut Node) {
    let Some(mut watch) = watch else {
        return std::future::pending().await;
    };
    loop {
        watch.wait_for_change().await;
        match reload_node(watch.path(), node).await {
            // A closed standard output doesn't stop the node.
            Ok(()) => drop(print_addresses(node, RELOADED_LINE)),
            Err(error) => {
                tracing::error!(%error, "failed to reload the topology: the previous one stays in force");
            }
        }
    }
}

async fn reload_node(file: &Path, node: &mut Node) -> Result<(), NodeError> {
    let CheckReport {
        topology, problems, ..
    } = Topology::check(file)?;
    // The error of the reload names errors.
    let warnings = problems
        .iter()
        .filter(|problem| problem.level == Severity::Warning);
    for problem in warnings {
        tracing::warn!(%problem, "topology warning");
    }
    let topology = topology.ok_or_else(|| ConfigError::invalid(file, problems))?;
    let done = node.reload(&topology).await?;
    tracing::info!(?done, "the topology was reloaded");
    Ok(())
}

fn print_addresses(node: &Node, last: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for AgentAddress { agent, url } in node.listeners() {
        writeln!(out, "{LISTENING_PREFIX} {agent} {url}")?;
    }
    if let Some(url) = node.console_url() {
        writeln!(out, "{LISTENING_PREFIX} console {url}")?;
    }
    writeln!(out, "{last}")?;
    out.flush()
}

async fn wait_for_close(lifeline: Option<oneshot::Receiver<()>>) {
    match lifeline {
        Some(lifeline) => drop(lifeline.await),
        None => std::future::pending().await,
    }
}

/// Waits for the end of standard input. Reads in a thread of its own, because a blocked read can't
/// be cancelled.
fn watch_stdin_close() -> oneshot::Receiver<()> {
    let (cut, is_cut) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
        drop(cut);
    });
    is_cut
}

/// Size of the buffer between a standard stream and the server, in bytes.
const PIPE_BUFFER_BYTES: usize = 64 * 1024;
/// Limit for writing the last answers at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `callboard stdio` until the client closes its side or a signal arrives.
pub(super) async fn run_stdio(arguments: StdioArguments) -> CommandResult {
    serve_stdio_node(
        &load_topology(&arguments.topology, arguments.state.as_deref())?,
        &arguments.agent,
    )
    .await?;
    Ok(EXIT_ANSWERED)
}

async fn serve_stdio_node(
    LoadedTopology {
        topology, state, ..
    }: &LoadedTopology,
    wanted: &[String],
) -> Result<(), NodeError> {
    let stop = wait_for_interrupt();
    let declared = topology.servable_ids();
    if declared.is_empty() {
        return Err(ConfigError::NoAgents.into());
    }
    let is_known = |id: &str| {
        declared.contains(&id) || topology.servers.iter().any(|server| &*server.id == id)
    };
    if let Some(unknown) = wanted.iter().find(|id| !is_known(id)) {
        let servers = topology.servers.iter().map(|server| &*server.id);
        let known = declared.iter().copied().chain(servers);
        return Err(ConfigError::unknown_agent(unknown, known).into());
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
    let served = match node.aggregate(&ids) {
        Ok(agent) => {
            let info = server_description(name, topology.mcp_description(&ids));
            over_standard_streams(agent, info, stop)
                .await
                .map_err(NodeError::Io)
        }
        Err(error) => Err(error),
    };
    node.shutdown().await;
    served
}

async fn over_standard_streams(
    agent: AgentRef,
    info: ServerDescription,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
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
    match tokio::time::timeout(FLUSH_TIMEOUT, written).await {
        Ok(Ok(outcome)) => served.and(output::ignore_broken_pipe(outcome)),
        // Standard output is blocked: the process can be ended by a signal.
        Ok(Err(_)) | Err(_) => served,
    }
}

/// Returns standard input as an async stream. A thread of its own reads it, because a blocked read
/// can't be cancelled.
fn standard_input() -> tokio::io::ReadHalf<SimplexStream> {
    let (reader, mut writer) = simplex(PIPE_BUFFER_BYTES);
    let runtime = Handle::current();
    std::thread::spawn(move || {
        let (mut input, mut chunk) = (io::stdin().lock(), vec![0; PIPE_BUFFER_BYTES]);
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

/// Returns standard output as an async stream, and the outcome of writing it. A thread of its own
/// writes.
fn standard_output() -> (WriteHalf<SimplexStream>, oneshot::Receiver<io::Result<()>>) {
    let (mut reader, writer) = simplex(PIPE_BUFFER_BYTES);
    let (done, written) = oneshot::channel();
    let runtime = Handle::current();
    std::thread::spawn(move || {
        let (mut output, mut chunk) = (io::stdout().lock(), vec![0; PIPE_BUFFER_BYTES]);
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
