//! Sections of a topology that are one table each. Each is one module with its declaration and its checks, and one line in
//! [`SECTIONS`].

mod policy;
mod routing;
mod store;

use std::any::Any;
use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::problem::Problems;
use super::tree::Tree;
use super::{Entry, Names, one};

pub use policy::PolicyDeclaration;
pub use routing::RoutingDeclaration;
pub use store::{Audited, RetentionDeclaration, StoreDeclaration};

/// Reader of a section: its table and its name in messages.
type Read = fn(Tree, &str, &mut Problems<'_>) -> Option<Entry<Box<dyn Section>>>;

pub(super) const SECTIONS: [(&str, Read); 3] = [
    ("store", read::<StoreDeclaration>),
    ("policy", read::<PolicyDeclaration>),
    ("routing", read::<RoutingDeclaration>),
];

/// Declaration of a section.
pub(crate) trait Section: Any + Debug + Send + Sync {
    /// Reports what doesn't fit together, in itself or with other declarations.
    fn check(&self, _tree: &Tree, _names: &Names<'_>, _problems: &mut Problems<'_>) {}

    /// Reports variables, files and programs that it names and this machine lacks.
    fn check_machine(&self, _tree: &Tree, _problems: &mut Problems<'_>) {}
}

impl dyn Section {
    /// The declaration, where it is one of type `S`.
    pub(super) fn downcast<S: Section>(&self) -> Option<&S> {
        (self as &dyn Any).downcast_ref()
    }
}

fn read<S: Section + DeserializeOwned>(
    tree: Tree,
    name: &str,
    problems: &mut Problems<'_>,
) -> Option<Entry<Box<dyn Section>>> {
    let Entry {
        value,
        tree,
        fingerprint,
    } = one::<S>(Some(tree), &format!("[{name}]"), problems)?;
    Some(Entry {
        value: Box::new(value),
        tree,
        fingerprint,
    })
}
