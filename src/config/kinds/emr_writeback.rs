//! Writer of clinical data to a medical record system (`[[agent]] kind = "emr_writeback"`).

use callboard_clinics::access::HmcpAccess;
use callboard_clinics::hmcp::{EmrConfig, EmrWritebackAgent};
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
    decode_declaration::<EmrConfig>(tree, "an EMR write-back agent", problems)
}

/// Its file path is relative to the state directory.
impl AgentDeclaration for EmrConfig {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "emr_writeback"
    }

    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn hmcp_access(&self) -> Option<HmcpAccess> {
        Some(HmcpAccess::Write)
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
        Box::pin(async move {
            let file = self.file.as_ref().map(|file| cx.state.join(file));
            cx.spawn_opened(
                &self.id,
                EmrWritebackAgent::new(&Self {
                    file,
                    ..self.clone()
                }),
            )
        })
    }
}
