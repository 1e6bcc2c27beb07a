//! Sections of a topology that consist of one table. Each is a module with declaration and checks,
//! and a line in [`SECTIONS`].

mod clinics;
mod console;
mod policy;
mod routing;
mod store;
mod telemetry;

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::problem::ProblemCollector;
use super::schema_parts::DeclarationSchema;
use super::tree::ConfigTree;
use super::{DeclaredNames, ParsedDeclaration, decode_table};

pub use clinics::ClinicsDeclaration;
pub use console::ConsoleDeclaration;
pub use policy::PolicyDeclaration;
pub(crate) use policy::known_class;
pub use routing::RoutingDeclaration;
pub use store::{AuditScope, RetentionDeclaration, StoreDeclaration};
pub use telemetry::TelemetryDeclaration;

/// Decoder of a section. Parameters: its table, its name in messages, and the collector of
/// problems.
type SectionReader = fn(
    ConfigTree,
    &str,
    &mut ProblemCollector<'_>,
) -> Option<ParsedDeclaration<Box<dyn SectionDeclaration>>>;

/// Sections: name, decoder, and generator of the schema.
pub(super) const SECTIONS: &[(&str, SectionReader, DeclarationSchema)] = &[
    (
        "store",
        read_section::<StoreDeclaration>,
        StoreDeclaration::json_schema,
    ),
    (
        "policy",
        read_section::<PolicyDeclaration>,
        PolicyDeclaration::json_schema,
    ),
    (
        "routing",
        read_section::<RoutingDeclaration>,
        RoutingDeclaration::json_schema,
    ),
    (
        "clinics",
        read_section::<ClinicsDeclaration>,
        ClinicsDeclaration::json_schema,
    ),
    (
        "console",
        read_section::<ConsoleDeclaration>,
        ConsoleDeclaration::json_schema,
    ),
    (
        "telemetry",
        read_section::<TelemetryDeclaration>,
        TelemetryDeclaration::json_schema,
    ),
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

    /// Resolves paths that are relative to the topology file against its `folder`.
    fn resolve_paths(&mut self, _folder: &Path) {}

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
