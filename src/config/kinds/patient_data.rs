//! Lookup of patients' identifiers (`[[agent]] kind = "patient_data"`).

use callboard_clinics::access::HmcpAccess;
use callboard_clinics::hmcp::{PatientDataAgent, PatientDataConfig};
use callboard_message::DataClass;
use futures::future::BoxFuture;

use super::{
    AgentDeclaration, RunningAgent, StartContext, StartError, check_tenant, decode_declaration,
};
use crate::config::DeclaredNames;
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;

pub(super) fn read(
    tree: &mut ConfigTree,
    problems: &mut ProblemCollector<'_>,
) -> Option<Box<dyn AgentDeclaration>> {
    decode_declaration::<PatientDataConfig>(tree, "a patient-data agent", problems)
}

impl AgentDeclaration for PatientDataConfig {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "patient_data"
    }

    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn hmcp_access(&self) -> Option<HmcpAccess> {
        Some(HmcpAccess::Read)
    }

    fn check(
        &self,
        tree: &ConfigTree,
        _names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        check_tenant(&self.id, self.tenant.as_deref(), tree, problems);
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move { cx.spawn_opened(&self.id, PatientDataAgent::new(self)) })
    }
}
