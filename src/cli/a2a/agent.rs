//! The agent of the command line.

use std::time::Duration;

use callboard_a2a::outbound::{Auth, Peer, RemoteOptions};
use callboard_message::{Abilities, Answer, Failure, Progress, Question};
use callboard_rpc::Egress;
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use secrecy::SecretString;
use tokio::time::timeout;
use url::{Host, Url};

use super::{AgentArguments, Stopped, interrupted};
use crate::cli::mcp::terminal::Terminal;

pub(super) fn peer(arguments: &AgentArguments) -> Result<Peer, Stopped> {
    let usage = |why: &str| Stopped::Usage(why.to_owned());
    let url: Url = arguments.url.parse().map_err(|_| usage("the agent's URL can't be read"))?;
    let mut options =
        RemoteOptions { call_timeout: Duration::from_secs(arguments.timeout), ..RemoteOptions::default() };
    if is_here(&url) {
        options.egress = Egress::public().with_loopback();
    }
    if let Some(version) = arguments.version {
        options.versions = vec![version.into()];
    }
    if let Some(binding) = arguments.binding {
        options.bindings = vec![binding.into()];
    }
    for header in &arguments.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| usage("a header is written NAME: VALUE"))?;
        options = options.header(name.trim(), &SecretString::from(value.trim()))?;
    }
    if let Some(name) = &arguments.bearer_env {
        let token = std::env::var(name).map_err(|_| Stopped::Usage(format!("there is no variable {name}")))?;
        options.auth = Auth::Bearer(SecretString::from(token));
    }
    Ok(Peer::new(url, options)?)
}

/// What a card on this machine names may be on it too.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Does `work` in the command's time, unless somebody interrupts; what has to be said after that is said.
pub(super) async fn within<T>(
    arguments: &AgentArguments,
    peer: &Peer,
    work: impl Future<Output = Result<T, Stopped>>,
) -> Result<T, Stopped> {
    let limit = Duration::from_secs(arguments.timeout);
    let outcome = tokio::select! {
        outcome = timeout(limit, work) => outcome.unwrap_or(Err(Stopped::TimedOut(limit))),
        () = interrupted() => Err(Stopped::Interrupted),
    };
    peer.said_goodbye().await;
    outcome
}

/// Whoever sits at the terminal, if anybody does.
pub(super) struct Person {
    terminal: Terminal,
    /// Progress is shown as it comes.
    pub(super) watches: bool,
}

impl Person {
    pub(super) fn new(asks: bool, watches: bool) -> Self {
        Self { terminal: Terminal::without_folders(asks), watches }
    }
}

impl Caller for Person {
    fn progress(&self, progress: Progress) {
        if self.watches {
            self.terminal.progress(progress);
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        self.terminal.ask(question)
    }

    fn abilities(&self) -> Abilities {
        self.terminal.abilities()
    }
}
