//! The agent that a file wants connected from the start.

use std::time::Duration;

use callboard_agents::known::KnownAgents;

use super::Node;
use crate::config::{AgentDeclaration, Topology};

/// The pause before another try, while nobody answers there: the first, and the longest after doubling.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

impl Node {
    /// Connects the orchestrator to the agent that the file names, as soon as that is there.
    pub(super) fn meet(&self, topology: &Topology) {
        let Some(target) = topology.mode.as_ref().and_then(|mode| mode.target_url.clone()) else { return };
        let known = topology.agents.iter().find_map(|declared| match declared {
            AgentDeclaration::Orchestrator(declared) => Some(self.cast.orchestrated(&declared.id)?.known.clone()),
            _ => None,
        });
        let Some(known) = known else { return };
        let ending = self.ending.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = ending.cancelled() => {}
                () = connect(&known, &target) => {}
            }
        });
    }
}

async fn connect(known: &KnownAgents, target: &str) {
    let mut pause = PAUSE.0;
    loop {
        match known.connect(target).await {
            Ok(found) => {
                tracing::info!(id = found.id, "connected to the agent that the file names");
                return;
            }
            Err(error) => tracing::debug!(%error, "the agent that the file names isn't there yet"),
        }
        tokio::time::sleep(pause).await;
        pause = PAUSE.1.min(pause * 2);
    }
}
