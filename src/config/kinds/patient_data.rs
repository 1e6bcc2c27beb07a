//! Keeper of patients' identifiers (`[[agent]]` of the kind `patient_data`).

use callboard_clinics::hmcp::{PatientData, PatientDataConfig};
use callboard_message::DataClass;
use futures::future::BoxFuture;

use super::{AgentKind, Running, StartContext, StartError, declared};
use crate::config::problem::Problems;
use crate::config::tree::Tree;

pub(super) fn read(tree: &mut Tree, problems: &mut Problems<'_>) -> Option<Box<dyn AgentKind>> {
    declared::<PatientDataConfig>(tree, "a patient-data agent", problems)
}

impl AgentKind for PatientDataConfig {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> DataClass {
        DataClass::Clinical
    }

    fn start<'a>(&'a self, cx: &'a StartContext<'a>) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move { cx.spawn_opened(&self.id, PatientData::new(self)) })
    }
}
