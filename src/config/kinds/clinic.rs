//! A clinic (`[[agent]]` of the kind `clinic`): a data silo with four tools.

use std::path::Path;

use callboard_clinics::clinic::{Clinic, ClinicConfig};
use callboard_message::DataClass;
use futures::future::BoxFuture;

use super::{AgentKind, Running, StartContext, StartError, declared};
use crate::config::problem::Problems;
use crate::config::tree::Tree;

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<ClinicConfig>(tree, "a clinic", problems)
}

/// Its database is relative to the state directory, its seed to the topology file.
impl AgentKind for ClinicConfig {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn resolve(&mut self, folder: &Path) {
        self.seed = folder.join(&self.seed);
    }

    fn check_machine(&self, tree: &Tree, problems: &mut Problems<'_>) {
        // A database that is there needs no seed.
        if !self.seed.is_file()
            && let Some(span) = tree.place("seed")
        {
            problems.warning(
                Some(span),
                format!("there is no file {}", self.seed.display()),
            );
        }
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let config = Self {
                database: cx.state.join(&self.database),
                ..self.clone()
            };
            cx.spawn_opened(&self.id, Clinic::open(config).await)
        })
    }
}
