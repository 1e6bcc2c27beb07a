use std::sync::Arc;

use callboard_message::Change;
use callboard_runtime::AgentRef;
use parking_lot::RwLock;

use super::changes::Changes;
use super::modern::ModernState;
use super::options::InboundOptions;
use super::surface::Surface;
use super::tasks::{self, TaskState};

/// One agent as an MCP server: what all transports and both eras of it share.
pub(crate) struct Endpoint {
    /// The agent, as MCP sees it. Another may take its place.
    surface: RwLock<Arc<Surface>>,
    /// How it is served.
    pub(crate) options: Arc<InboundOptions>,
    /// Who is told what changes.
    pub(crate) changes: Changes,
    /// Parked calls and subscriptions.
    pub(crate) modern: ModernState,
    /// Tasks of both eras.
    pub(crate) tasks: TaskState,
}

impl Endpoint {
    pub(crate) fn new(agent: AgentRef, options: InboundOptions) -> Arc<Self> {
        let options = Arc::new(options);
        let endpoint = Arc::new(Self {
            changes: Changes::of(agent.clone()),
            surface: RwLock::new(Arc::new(Surface::new(agent, options.clone()))),
            modern: ModernState::new(&options),
            tasks: TaskState::new(&options),
            options,
        });
        tasks::serve(&endpoint);
        endpoint
    }

    /// Who is served now. What a request began with it goes on with.
    pub(crate) fn surface(&self) -> Arc<Surface> {
        self.surface.read().clone()
    }

    /// Serves `agent` from now on, and tells whoever listens that its lists are others.
    pub(crate) fn replace(&self, agent: AgentRef) {
        let surface = Arc::new(Surface::new(agent.clone(), self.options.clone()));
        *self.surface.write() = surface;
        self.changes.replace(agent);
        [Change::Tools, Change::Prompts, Change::Resources].iter().for_each(|change| self.changes.tell(change));
    }

    /// Ends when the agent has ended and no other took its place.
    pub(crate) async fn agent_ended(&self) {
        loop {
            let surface = self.surface();
            surface.agent().ended().await;
            if Arc::ptr_eq(&surface, &self.surface()) {
                return;
            }
        }
    }
}
