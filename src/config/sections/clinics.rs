//! Settings of the host that asks the clinics of the registry (`[clinics]`).

use callboard_clinics::verifier::IdentityClass;
use schemars::JsonSchema;
use serde::Deserialize;

use super::SectionDeclaration;
use crate::config::problem::ProblemCollector;
use crate::config::tree::ConfigTree;
use crate::config::{DeclaredNames, ModelDeclaration};

/// Host of the clinics in the registry (`[clinics]`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClinicsDeclaration {
    /// Id of the model that plans questions. Default: fixed rules plan them, without a model.
    pub planner: Option<String>,
    /// Classes of personal data that answers may show although no record holds them, such as
    /// `doctor_name`. Default: `doctor_surname` and `eponym`.
    pub identities_shown: Option<Vec<IdentityClass>>,
}

impl SectionDeclaration for ClinicsDeclaration {
    fn check(
        &self,
        tree: &ConfigTree,
        names: &DeclaredNames<'_>,
        problems: &mut ProblemCollector<'_>,
    ) {
        if let Some(planner) = &self.planner {
            let models = names
                .agents_of_kind::<ModelDeclaration>()
                .map(|model| &*model.id);
            names.check_model(planner, models, tree.span_of("planner"), problems);
        }
    }
}
