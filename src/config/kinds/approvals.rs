//! Approvals of uses of tools (`[[agent]] kind = "approvals"`).

use callboard_gateway::approvals::Approvals;
use callboard_message::DataClass;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AgentDeclaration, RunningAgent, StartContext, StartError, decode_declaration, spawn_cloned,
};
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;

/// Agent through which principals approve what rules with `effect = "approve"` hold back.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsDeclaration {
    /// Unique name in the directory.
    pub id: String,
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<ApprovalsDeclaration>(tree, "an agent for approvals", problems)
}

impl AgentDeclaration for ApprovalsDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "approvals"
    }

    /// Returns the class `Clinical`: approvers read the arguments of any tool.
    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            Ok(RunningAgent::new(spawn_cloned(
                cx.system, &self.id, Approvals,
            )))
        })
    }
}
