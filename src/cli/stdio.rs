//! `callboard stdio`.

use std::io::{self, Read, Write};
use std::time::Duration;

use callboard_mcp::inbound::{InboundOptions, Info, StdioOptions, serve_stdio};
use callboard_runtime::AgentRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, SimplexStream, WriteHalf, simplex};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::serve::{Start, read};
use super::{EXIT_ANSWERED, Outcome, StdioArguments, interrupted, show};
use crate::config::ConfigError;
use crate::node::{Node, NodeError};

/// What may be on its way between a standard stream and its reader here, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// How long the last answers may take to be written at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves until the client closes its side, or somebody interrupts.
pub(super) async fn run(arguments: &StdioArguments) -> Outcome {
    serve(&read(&arguments.topology, arguments.state.as_deref())?, &arguments.agent).await?;
    Ok(EXIT_ANSWERED)
}

async fn serve(Start { topology, state, .. }: &Start, wanted: &[String]) -> Result<(), NodeError> {
    let stop = interrupted();
    let mut declared = topology.ids();
    if declared.is_empty() {
        return Err(ConfigError::NoAgents.into());
    }
    let servers = || topology.servers.iter().map(|server| &*server.id);
    if let Some(unknown) =
        wanted.iter().find(|id| !declared.iter().copied().chain(servers()).any(|known| known == **id))
    {
        return Err(ConfigError::UnknownAgent { agent: unknown.clone() }.into());
    }
    if !wanted.is_empty() {
        declared = wanted.iter().map(String::as_str).collect();
    }
    let ids = declared;
    let name = if let [alone] = *ids { alone } else { &*topology.name };
    let node = Node::start_agents(topology, state).await?;
    let served = match node.as_one(&ids) {
        Ok(agent) => over_standard_streams(agent, name, stop).await.map_err(NodeError::Io),
        Err(error) => Err(error),
    };
    node.shutdown().await;
    served
}

async fn over_standard_streams(agent: AgentRef, name: &str, stop: impl Future<Output = ()>) -> io::Result<()> {
    let info = Info { name: name.to_owned(), ..Info::default() };
    let inbound = InboundOptions { info, ..InboundOptions::default() };
    let (mut output, written) = standard_output();
    let options = StdioOptions { inbound, ..StdioOptions::default() };
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
