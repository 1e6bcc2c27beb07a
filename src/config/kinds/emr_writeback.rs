//! Writer of clinical data into a record system (`[[agent]]` of the kind `emr_writeback`).

use callboard_clinics::hmcp::{EmrConfig, EmrWriteback};
use callboard_message::DataClass;
use futures::future::BoxFuture;

use super::{AgentKind, Running, StartContext, StartError, declared};
use crate::config::problem::Problems;
use crate::config::tree::Tree;

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<EmrConfig>(tree, "an EMR write-back agent", problems)
}

/// Its file is relative to the state directory.
impl AgentKind for EmrConfig {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let file = self.file.as_ref().map(|file| cx.state.join(file));
            cx.spawn_opened(
                &self.id,
                EmrWriteback::new(&Self {
                    file,
                    ..self.clone()
                }),
            )
        })
    }
}
