//! The end of agents, and of what they have elsewhere.

use std::time::Duration;

use callboard_a2a::outbound::RemoteA2a;
use callboard_agents::mailroom::Mailroom;
use callboard_agents::peer_registry::KnownAgents;
use callboard_mcp::bridge::Bridge;
use callboard_runtime::AgentRef;

use super::cast::Running;

/// How long servers elsewhere may take to end, children of this process above all.
const GOODBYE: Duration = Duration::from_secs(5);

/// What an agent has elsewhere, which ends after it.
#[derive(Clone)]
pub(super) enum Farewell {
    Bridge(Bridge),
    A2a(RemoteA2a),
    /// With the deliveries of its mail.
    Mailroom(Mailroom),
    /// Agents that are there for it alone, and those elsewhere that it opened.
    Helpers(Vec<AgentRef>, KnownAgents),
}

/// Stops agents once they have done what they began, and waits for the end of what they had elsewhere.
pub(super) async fn farewell(old: Vec<Running>) {
    old.iter().for_each(|running| running.agent.stop());
    let ended = old.into_iter().map(|running| async move {
        running.agent.ended().await;
        goodbye(running.into_farewell()).await;
    });
    futures::future::join_all(ended).await;
}

/// Waits for the end of what agents that have ended had elsewhere.
pub(super) async fn goodbyes(ended: Vec<Running>) {
    futures::future::join_all(ended.into_iter().map(|running| goodbye(running.into_farewell()))).await;
}

async fn goodbye(elsewhere: Option<Farewell>) {
    let said = async {
        match elsewhere {
            None => {}
            Some(Farewell::Bridge(bridge)) => bridge.said_goodbye().await,
            Some(Farewell::A2a(remote)) => remote.said_goodbye().await,
            Some(Farewell::Mailroom(mailroom)) => mailroom.end().await,
            Some(Farewell::Helpers(helpers, known)) => {
                helpers.iter().for_each(AgentRef::stop);
                futures::future::join_all(helpers.iter().map(AgentRef::ended)).await;
                known.close().await;
            }
        }
    };
    if tokio::time::timeout(GOODBYE, said).await.is_err() {
        tracing::warn!("what an agent has elsewhere doesn't end in time");
    }
}
