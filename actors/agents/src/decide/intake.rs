//! From a request to where it goes: NP1 → NP2.A → NP2.B → DP2 → DP3, without doing any of it.

use std::sync::Arc;

use callboard_message::RawObject;
use callboard_runtime::Cx;
use serde::{Deserialize, Serialize};

use super::{Deciders, DecisionRecord, RunId, StepDefinition, Turn, World};

/// How requests are taken in.
#[derive(Debug, Clone, PartialEq)]
pub struct IntakeOptions {
    /// Whether unclear requests are asked about (NP1).
    pub clarification: bool,
    /// Whether requests are split (NP2).
    pub decomposition: bool,
    /// NP1 is asked while the conversation has fewer turns than this.
    pub clarify_turns: u32,
    /// NP1 is asked where the request is vaguer than this, 0 to 1.
    pub vague_above: f32,
    /// A route less sure than this goes back to NP1 once, 0 to 1.
    pub confidence_min_route: f32,
}

impl Default for IntakeOptions {
    fn default() -> Self {
        Self {
            clarification: true,
            decomposition: true,
            clarify_turns: 3,
            vague_above: 0.8,
            confidence_min_route: 0.35,
        }
    }
}

/// What is asked for, and what was said before.
#[derive(Clone, PartialEq)]
pub struct Request {
    /// Of which run.
    pub run: RunId,
    /// What is asked for.
    pub text: String,
    /// What was said before, the newest turn last.
    pub history: Vec<Turn>,
}

/// At which point a request comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// NP1: it is new.
    Clarity,
    /// NP2: it has been clarified.
    Split,
}

/// Where a request goes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RoutingDecision {
    /// One of our tools does it.
    Local {
        /// Its name.
        tool_name: String,
        /// Its parameters.
        params: RawObject,
    },
    /// Another agent does it.
    Remote {
        /// Its id.
        agent_id: String,
    },
    /// Nobody does it.
    Reject {
        /// Why.
        reason: String,
    },
    /// Something is missing.
    NeedsClarification {
        /// What whoever asked is asked.
        question: String,
    },
    /// It needs several steps.
    Decompose {
        /// Which, each with where it goes.
        subtasks: Vec<PlannedStep>,
    },
}

/// A step, and where it goes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStep {
    /// The step.
    pub step: StepDefinition,
    /// Local, remote or rejected.
    pub action: RoutingDecision,
}

/// A request taken in.
#[derive(Clone, PartialEq)]
pub struct Intake {
    /// Where it goes.
    pub decision: RoutingDecision,
    /// What was decided on the way, in order.
    pub records: Vec<DecisionRecord>,
}

/// Decides where `request` goes.
pub async fn route(
    _deciders: &Deciders,
    _cx: &Cx,
    _request: &Request,
    _world: &Arc<World>,
    _options: &IntakeOptions,
    _from: From,
) -> Intake {
    Intake { decision: RoutingDecision::Reject { reason: "not built yet".to_owned() }, records: Vec::new() }
}
