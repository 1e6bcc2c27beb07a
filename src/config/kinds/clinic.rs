//! Clinics (`[[agent]] kind = "clinic"`): isolated patient databases with four tools.

use std::path::Path;

use callboard_clinics::clinic::{Clinic, ClinicConfig};
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
    decode_declaration::<ClinicConfig>(tree, "a clinic", problems)
}

/// Its database path is relative to the state directory, its seed path to the topology file.
impl AgentDeclaration for ClinicConfig {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        "clinic"
    }

    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn resolve_paths(&mut self, folder: &Path) {
        self.seed = folder.join(&self.seed);
    }

    fn check(
        &self,
        tree: &ConfigTree,
        _names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        check_tenant(&self.id, self.tenant.as_deref(), tree, problems);
    }

    fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        // An existing database needs no seed.
        if !self.seed.is_file()
            && let Some(span) = tree.span_of("seed")
        {
            problems.warning(
                Some(span),
                format!("there is no seed file {}", self.seed.display()),
            );
        }
    }

    fn start<'a>(
        &'a self,
        cx: &'a StartContext<'a>,
    ) -> BoxFuture<'a, Result<RunningAgent, StartError>> {
        Box::pin(async move {
            let config = Self {
                database: cx.state.join(&self.database),
                ..self.clone()
            };
            cx.spawn_opened(&self.id, Clinic::open(config).await)
        })
    }
}
