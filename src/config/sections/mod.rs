//! Sections of a topology that consist of one table. Each is a module with declaration and checks,
//! and a line in [`SECTIONS`].

mod clinics;
mod policy;
mod routing;
mod store;

use std::any::Any;
use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::problem::ProblemCollector;
use super::tree::ConfigTree;
use super::{DeclaredNames, ParsedDeclaration, decode_table};

pub use clinics::ClinicsDeclaration;
pub use policy::PolicyDeclaration;
pub(crate) use policy::known_class;
pub use routing::RoutingDeclaration;
pub use store::{AuditScope, RetentionDeclaration, StoreDeclaration};

/// Decoder of a section. Parameters: its table, its name in messages, and the collector of
/// problems.
type SectionReader = fn(
    ConfigTree,
    &str,
    &mut ProblemCollector<'_>,
) -> Option<ParsedDeclaration<Box<dyn SectionDeclaration>>>;

pub(super) const SECTIONS: &[(&str, SectionReader)] = &[
    ("store", read_section::<StoreDeclaration>),
    ("policy", read_section::<PolicyDeclaration>),
    ("routing", read_section::<RoutingDeclaration>),
    ("clinics", read_section::<ClinicsDeclaration>),
];

/// Declaration of a section.
pub(crate) trait SectionDeclaration: Any + Debug + Send + Sync {
    /// Reports inconsistencies within the section or with other declarations.
    fn check(
        &self,
        _tree: &ConfigTree,
        _names: &DeclaredNames<'_>,
        _problems: &mut ProblemCollector<'_>,
    ) {
    }

    /// Reports variables, files and programs that the section names and this machine lacks.
    fn check_machine(&self, _tree: &ConfigTree, _problems: &mut ProblemCollector<'_>) {}
}

impl dyn SectionDeclaration {
    /// Returns the declaration if its type is `S`.
    pub(super) fn downcast<S: SectionDeclaration>(&self) -> Option<&S> {
        (self as &dyn Any).downcast_ref()
    }
}

fn read_section<S: SectionDeclaration + DeserializeOwned>(
    tree: ConfigTree,
    name: &str,
    problems: &mut ProblemCollector<'_>,
) -> Option<ParsedDeclaration<Box<dyn SectionDeclaration>>> {
    let ParsedDeclaration {
        value,
        tree,
        fingerprint,
    } = decode_table::<S>(Some(tree), &format!("[{name}]"), problems)?;
    Some(ParsedDeclaration {
        value: Box::new(value),
        tree,
        fingerprint,
    })
}
