//! Checks of MCP servers and A2A agents: their programs, and the hosts of their URLs.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use callboard_mcp::outbound::ServerEndpoint;
use futures::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use url::Url;

use super::programs::{ProgramSearch, is_path};
use super::report::DoctorCheck;
use crate::config::{A2aAgentDeclaration, Topology, UpstreamDeclaration};

/// Maximum time to resolve the host of a URL and to connect to it. Then it counts as unreachable. Fixed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of hosts that are connected to at a time. Further ones wait. Fixed.
const CONNECTS_MAX: usize = 16;

/// Server that is checked: a program, or a URL.
enum ServerTarget<'a> {
    Upstream(&'a UpstreamDeclaration),
    Agent(&'a A2aAgentDeclaration),
}

/// Checks each upstream and each remote A2A agent.
pub(super) async fn check_upstreams(topology: &Topology) -> Vec<DoctorCheck> {
    let upstreams = topology.upstreams.iter().map(ServerTarget::Upstream);
    let agents = topology.agents_of_kind::<A2aAgentDeclaration>();
    let agents = agents.map(ServerTarget::Agent);
    let checks = upstreams.chain(agents).map(ServerTarget::check);
    stream::iter(checks).buffered(CONNECTS_MAX).collect().await
}

impl ServerTarget<'_> {
    async fn check(self) -> DoctorCheck {
        let upstream = match self {
            Self::Agent(agent) => {
                return check_url(format!("agent {}", agent.id), agent.url.url().clone()).await;
            }
            Self::Upstream(upstream) => upstream,
        };
        let subject = format!("upstream {}", upstream.id);
        match upstream.endpoint() {
            Ok(ServerEndpoint::Child(command)) => {
                check_program(subject, Path::new(&command.program))
            }
            Ok(
                ServerEndpoint::Http(url)
                | ServerEndpoint::Sse(url)
                | ServerEndpoint::WebSocket(url),
            ) => check_url(subject, url).await,
            Err(error) => DoctorCheck::error(
                subject,
                error.why,
                format!("correct `{}` of the upstream", error.key),
            ),
        }
    }
}

fn check_program(subject: String, program: &Path) -> DoctorCheck {
    match ProgramSearch::of(program) {
        ProgramSearch::Found(file) => {
            DoctorCheck::ok(subject, format!("starts {}", file.display()))
        }
        ProgramSearch::NotExecutable(file) => DoctorCheck::error(
            subject,
            format!("this user can't execute {}", file.display()),
            format!("run `chmod +x {}`", file.display()),
        ),
        ProgramSearch::Missing => {
            let place = if is_path(program) { "" } else { " in PATH" };
            DoctorCheck::error(
                subject,
                format!("there is no program {}{place}", program.display()),
                "install it, or write its path in `command`",
            )
        }
    }
}

/// Checks whether the host of a URL can be connected to. Nothing is sent. The path and query may hold a secret, so only the
/// origin is shown.
async fn check_url(subject: String, url: Url) -> DoctorCheck {
    let origin = origin_of(&url);
    let error = match connect(url).await {
        Ok(()) => return DoctorCheck::ok(subject, format!("{origin} accepts connections")),
        Err(error) => error,
    };
    let (found, remedy) = match error.kind() {
        ErrorKind::NotFound => (
            format!("{origin}: the host name can't be resolved"),
            "correct the host in `url`, or look at the DNS of this machine",
        ),
        ErrorKind::ConnectionRefused => (
            format!("{origin}: connection refused"),
            "start the server, or correct the port in `url`",
        ),
        ErrorKind::TimedOut => (
            format!(
                "{origin}: no connection within {} s",
                CONNECT_TIMEOUT.as_secs()
            ),
            "look at the server, the network and its firewalls",
        ),
        kind => (
            format!("{origin}: {kind}"),
            "look at the network of this machine",
        ),
    };
    DoctorCheck::error(subject, found, remedy)
}

/// Returns scheme, host and port of a URL, the port unless it is the scheme's own.
pub(super) fn origin_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Connects to the host of a URL, and closes the connection. Blocks a thread of its own, because a name that is being resolved
/// can't be cancelled.
///
/// # Errors
/// `NotFound` if the name can't be resolved, `TimedOut` after [`CONNECT_TIMEOUT`], or the error of the connection.
async fn connect(url: Url) -> io::Result<()> {
    let (sender, outcome) = oneshot::channel();
    let connecting = thread::Builder::new().name("connect".to_owned());
    connecting.spawn(move || drop(sender.send(connect_blocking(&url))))?;
    match timeout(CONNECT_TIMEOUT, outcome).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) | Err(_) => Err(ErrorKind::TimedOut.into()),
    }
}

/// Connects to the first address that accepts it. Each address may take an equal share of the time that is left.
fn connect_blocking(url: &Url) -> io::Result<()> {
    let begin = Instant::now();
    let addresses = url.socket_addrs(|| url.port_or_known_default());
    let addresses = addresses.map_err(|_| io::Error::from(ErrorKind::NotFound))?;
    let mut failure = io::Error::from(ErrorKind::NotFound);
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for (address, waiting) in addresses.into_iter().zip((1..=count).rev()) {
        let share = CONNECT_TIMEOUT.saturating_sub(begin.elapsed()) / waiting;
        if share.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, share) {
            Ok(_) => return Ok(()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of a URL only what names the server is shown. Method: URLs with a user, a path and a query that hold secrets.
    #[test]
    fn origins_hold_no_secret() {
        for (url, origin) in [
            ("https://a:b@host.example/c?key=d#e", "https://host.example"),
            ("ws://127.0.0.1:3001/mcp", "ws://127.0.0.1:3001"),
            ("http://[::1]/s3cret", "http://[::1]"),
        ] {
            assert_eq!(origin_of(&url.parse().unwrap()), origin);
        }
    }
}
