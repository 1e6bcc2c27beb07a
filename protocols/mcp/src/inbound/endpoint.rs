use std::sync::Arc;

use callboard_runtime::AgentRef;

use super::changes::Changes;
use super::modern::ModernState;
use super::options::InboundOptions;
use super::surface::Surface;
use super::tasks::TaskState;

/// One agent as an MCP server: what all transports and both eras of it share.
pub(crate) struct Endpoint {
    /// The agent, as MCP sees it.
    pub(crate) surface: Surface,
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
        Arc::new(Self {
            changes: Changes::of(agent.clone()),
            surface: Surface::new(agent, options.clone()),
            modern: ModernState::new(&options),
            tasks: TaskState::new(&options),
            options,
        })
    }
}
