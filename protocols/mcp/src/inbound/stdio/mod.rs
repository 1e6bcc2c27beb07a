//! Messages a line each over a pair of byte streams: standard input and output, a socket, a pipe in a test. Both eras
//! on one pipe, told apart by each request's `_meta`.

pub(super) mod pipe;
pub(super) mod requests;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::Principal;
use callboard_rpc::{DecodeError, JsonError, Line, LineDecoder, Refusal, RpcError};
use callboard_runtime::AgentRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::endpoint::Endpoint;
use super::options::InboundOptions;
use pipe::{Pipe, write_lines};
use requests::Requests;

/// Most requests of one pipe that run at once, by default.
pub const STDIO_REQUESTS_MAX_DEFAULT: usize = 256;
/// Most bytes that wait for a peer that doesn't read, by default. One message may be larger, then it waits alone.
pub const STDIO_QUEUE_BYTES_MAX_DEFAULT: usize = 16 * 1024 * 1024;
/// How long running calls may take to tidy up once the pipe's end is reached, by default.
pub const STDIO_DRAIN_DEFAULT: Duration = Duration::from_secs(5);

/// How an agent is served over a pipe.
#[derive(Debug, Clone)]
pub struct StdioOptions {
    /// What is served, and how.
    pub inbound: InboundOptions,
    /// Who is at the other end: by default whoever started this process.
    pub principal: Principal,
    /// Most requests that run at once; further ones are told that it is too much.
    pub requests_max: usize,
    /// Most bytes that wait for a peer that doesn't read. Then notifications are left out, answers wait, and nothing more
    /// is read.
    pub queue_bytes_max: usize,
    /// How long running calls may take to tidy up once the pipe's end is reached.
    pub drain: Duration,
}

impl Default for StdioOptions {
    fn default() -> Self {
        Self {
            inbound: InboundOptions::default(),
            principal: Principal::local_operator(),
            requests_max: STDIO_REQUESTS_MAX_DEFAULT,
            queue_bytes_max: STDIO_QUEUE_BYTES_MAX_DEFAULT,
            drain: STDIO_DRAIN_DEFAULT,
        }
    }
}

/// Serves `agent` to the peer behind `reader` and `writer`, until it closes its side or can't be written to; then what
/// still runs is cancelled. Dropped, it cancels too.
///
/// A line that is no message is answered as such, and the next one is read. One over the limit of
/// [`callboard_rpc::Limits::body_bytes_max`] is dropped, and the peer is told.
///
/// # Errors
/// Those of `reader`, and of `writer` but for a peer that has gone away.
pub async fn serve_stdio(
    agent: AgentRef,
    options: StdioOptions,
    mut reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let StdioOptions { inbound, principal, requests_max, queue_bytes_max, drain } = options;
    let limits = inbound.limits;
    let endpoint = Endpoint::new(agent, inbound);
    // Nobody comes back for the tasks of a pipe, nor for what is parked.
    let ends = Ends(endpoint.clone());
    let (pipe, queue) = Pipe::new(queue_bytes_max);
    let mut requests = Requests::new(endpoint, Arc::new(principal), pipe.clone(), requests_max);
    let mut lines = LineDecoder::new(limits.body_bytes_max);
    let mut writing = pin!(write_lines(queue, writer));
    let ended = loop {
        tokio::select! {
            line = lines.read(&mut reader), if requests.have_room() => match line {
                Ok(Some(Line::Whole(line))) => requests.begin(line),
                Ok(Some(Line::TooLong)) => requests.refuse(&too_long(limits.body_bytes_max)),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
            () = requests.work() => {}
            written = &mut writing => return gone_is_fine(written),
        }
    };
    requests.cancel_all();
    drop(ends);
    let finish = async {
        requests.finish().await;
        pipe.end();
    };
    let (_, written) = match timeout(drain, async { tokio::join!(finish, &mut writing) }).await {
        Ok(ended) => ended,
        Err(_) => {
            callboard_message::log::warn!("what ran over standard input and output didn't end in time");
            ((), Ok(()))
        }
    };
    ended.and(gone_is_fine(written))
}

/// Ends what an endpoint keeps when it goes out of scope.
struct Ends(Arc<Endpoint>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.modern.close();
        self.0.tasks.leave();
    }
}

fn too_long(max: usize) -> RpcError {
    RpcError::from(&Refusal { id: None, error: DecodeError::Json(JsonError::BytesOver { max }) })
}

/// A peer that has closed its end wants no more; it needn't be told.
fn gone_is_fine(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
