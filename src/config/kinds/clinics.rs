//! Federated clinics as one agent (`[[agent]] kind = "clinics"`): it answers questions about the
//! patients of all `[[clinic]]` sections.

use callboard_message::DataClass;
use callboard_runtime::AgentRef;
use futures::future::{BoxFuture, join_all};
use schemars::JsonSchema;
use serde::Deserialize;

use super::clinics_pipeline::{PipelineAgents, PipelineOptions};
use super::{
    AgentDeclaration, RunningAgent, StartContext, StartError, check_tenant, decode_declaration,
};
use crate::config::DeclaredNames;
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;

const KIND: &str = "clinics";

/// An agent that asks the clinics of the file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClinicsAgentDeclaration {
    /// Unique name in the directory.
    id: String,
    /// Purposes for which a principal with the right to it sees patients' identities. Default:
    /// `treatment`.
    purposes_allowed: Option<Vec<String>>,
    /// Tenant whose principals may ask. Default: all.
    tenant: Option<String>,
}

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<ClinicsAgentDeclaration>(tree, "an agent for clinics", problems)
}

impl AgentDeclaration for ClinicsAgentDeclaration {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        KIND
    }

    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn asks_clinics(&self) -> bool {
        true
    }

    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        if !names.has_clinics() {
            let wrong = format!(
                "agent {} has no clinic to ask: add a [[clinic]] section",
                self.id
            );
            problems.error(tree.span_of("id"), wrong);
        }
        check_tenant(&self.id, self.tenant.as_deref(), tree, problems);
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let failed = StartError::declaration_error(KIND, &self.id);
            let spawn = || {
                let options = PipelineOptions {
                    label: self.id.clone(),
                    purposes_allowed: self.purposes_allowed.clone(),
                    tenant: self.tenant.clone(),
                    ..PipelineOptions::for_topology(cx.topology)?
                };
                PipelineAgents::spawn(cx.system, options)
            };
            let agents = spawn().map_err(failed)?;
            let PipelineAgents {
                orchestrator,
                helpers,
            } = agents;
            Ok(RunningAgent::new(orchestrator).with_teardown(async move {
                helpers.iter().for_each(AgentRef::stop);
                join_all(helpers.iter().map(AgentRef::wait_for_exit)).await;
            }))
        })
    }
}
