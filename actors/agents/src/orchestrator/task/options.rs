use std::sync::Arc;
use std::time::Duration;

use callboard_message::DataClass;
use callboard_runtime::AgentRef;
use tokio_util::sync::CancellationToken;

use crate::decide::Deciders;
use crate::decide::intake::IntakeOptions;
use crate::known::KnownAgents;
use crate::memory::Memory;
use crate::tools::Toolbox;

/// An answer less sure than this has to be confirmed.
pub const CONFIDENCE_MIN_DEFAULT: f32 = 0.4;
/// An action riskier than this has to be confirmed.
pub const RISK_MAX_DEFAULT: f32 = 0.5;
/// How long a run's tasks are kept.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

/// What a [`super::TaskOrchestrator`] works with.
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// Its id in the topology.
    pub id: String,
    /// Its name, as cards and people see it.
    pub name: String,
    /// What it is, as cards and people see it.
    pub description: String,
    /// Who decides.
    pub deciders: Arc<Deciders>,
    /// How requests are taken in.
    pub intake: IntakeOptions,
    /// An answer less sure than this has to be confirmed, 0 to 1.
    pub confidence_min: f32,
    /// An action riskier than this has to be confirmed, 0 to 1.
    pub max_risk: f32,
    /// A request dearer than this has to be confirmed, in millionths of a US dollar.
    pub cost_micro_usd_max: Option<u64>,
    /// Its tools.
    pub tools: Toolbox,
    /// The agents that it delegates to.
    pub known: KnownAgents,
    /// What it delegated.
    pub memory: Memory,
    /// Screens what comes in, answers `Screen`.
    pub guard: Option<AgentRef>,
    /// Said to the model that answers.
    pub system_prompt: String,
    /// What requests may hold.
    pub class: DataClass,
    /// How long a run's tasks are kept.
    pub task_ttl: Duration,
    /// Fires when the node ends: what is cancelled then goes on after the next start.
    pub ending: CancellationToken,
}
