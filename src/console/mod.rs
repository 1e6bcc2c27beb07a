//! Console of a node: an HTTP server with pages for people, the same as JSON for programs, metrics and health.
//!
//! [`routes`] is the table of all paths with the right that each needs. Whoever sends a request is known by its key or
//! token, or by a session that a key or token began ([`access`], [`session`]). Pages are rendered in [`pages`]; they
//! follow the node by one event stream ([`feed`]), which tells that something has changed, and never what.

mod access;
mod actions;
mod cache;
mod feed;
mod form;
#[cfg(test)]
mod form_tests;
mod json;
mod mail;
mod pages;
mod play;
mod request;
mod routes;
mod screens;
mod session;
mod tasks;
mod views;

use std::net::TcpListener;
use std::sync::Arc;

use actix_web::web::Data;
use callboard_person::InboxRequest;
use callboard_rpc::serve::{self as listener_serve, BoundServer, ListenOptions, ServeError};
use callboard_runtime::{ContentFilter, System};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

pub(crate) use access::ConsoleAccess;

use crate::monitor::NodeMonitor;
use cache::CachedList;
use feed::Feeds;
use play::PlayRuns;
use tasks::NewestTasks;

/// Listener of the node, as the console shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServedListener {
    /// URL without a path.
    pub(crate) url: String,
    /// Protocol: `mcp`, `a2a` or `mail`.
    pub(crate) protocol: String,
    /// Whether each request needs a credential.
    pub(crate) needs_credential: bool,
    /// Agents that it serves, each with its URL; the first is the one that stands for all.
    pub(crate) agents: Vec<(String, String)>,
}

/// Declarations of the topology that the console shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServedTopology {
    /// Name of the node.
    pub(crate) node: String,
    /// Ids and kinds of the agents that aren't upstreams.
    pub(crate) agents: Vec<(String, String)>,
    /// Ids of the upstreams.
    pub(crate) upstreams: Vec<String>,
    /// Ids of the upstreams whose tools are pinned.
    pub(crate) pinned: Vec<String>,
    /// Ids of the mailrooms.
    pub(crate) mailrooms: Vec<String>,
    /// Ids of the agents and upstreams that clients may call.
    pub(crate) callable: Vec<String>,
    /// Open listeners.
    pub(crate) listeners: Vec<ServedListener>,
}

/// Console of a node. Clones share their state.
#[derive(Clone)]
pub(crate) struct Console {
    state: Data<ConsoleState>,
}

/// State of a console, which its worker threads share.
struct ConsoleState {
    monitor: NodeMonitor,
    access: ConsoleAccess,
    topology: RwLock<Arc<ServedTopology>>,
    /// Agents whose texts may be shown to viewers with the right for it.
    shown_agents: ContentFilter,
    feeds: Feeds,
    runs: PlayRuns,
    tasks: NewestTasks,
    /// Questions in the inboxes of all people.
    inbox: CachedList<InboxRequest>,
    /// Cancelled when the node begins to stop.
    stop: CancellationToken,
}

impl Console {
    /// Creates the console of the node that `monitor` watches. Texts of the agents for which `shown_agents` returns false
    /// are shown to nobody. It ends its event streams with `stop`, and then refuses
    /// all but metrics and health.
    pub(crate) fn new(
        monitor: NodeMonitor,
        access: ConsoleAccess,
        topology: ServedTopology,
        shown_agents: ContentFilter,
        stop: CancellationToken,
    ) -> Self {
        Self {
            state: Data::new(ConsoleState {
                monitor,
                access,
                topology: RwLock::new(Arc::new(topology)),
                shown_agents,
                feeds: Feeds::default(),
                runs: PlayRuns::default(),
                tasks: NewestTasks::default(),
                inbox: CachedList::default(),
                stop,
            }),
        }
    }

    /// Replaces what is shown of the topology.
    pub(crate) fn set_topology(&self, topology: ServedTopology) {
        let before = std::mem::replace(&mut *self.state.topology.write(), Arc::new(topology));
        drop(before);
    }

    /// Cancels the calls that were begun at the console.
    pub(crate) fn cancel_runs(&self) {
        self.state.runs.cancel_all();
    }

    /// Creates the HTTP server of the console for a bound listener, with all timeouts of `listen`.
    ///
    /// # Errors
    /// [`ServeError::UnauthenticatedListener`] if the address isn't loopback and no credential is asked for;
    /// [`ServeError::Io`] if the listener can't be used.
    pub(crate) fn serve(
        &self,
        listener: TcpListener,
        listen: &ListenOptions,
    ) -> Result<BoundServer, ServeError> {
        let access = &self.state.access.access;
        listener_serve::check_address(&listener, |address| access.may_listen_on(address))?;
        let state = self.state.clone();
        listener_serve::serve(listener, listen, move |config| {
            routes::configure(config, &state);
        })
    }
}

impl ConsoleState {
    fn system(&self) -> &System {
        self.monitor.system()
    }

    /// Returns the declarations of the topology that is in force.
    fn topology(&self) -> Arc<ServedTopology> {
        self.topology.read().clone()
    }
}
