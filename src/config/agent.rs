//! The agents that a node starts itself.

use std::path::Path;

use callboard_agents::clinic::ClinicConfig;
use serde::de::DeserializeOwned;

use super::decode::decode;
use super::file::Entry;
use super::problem::{Problems, did_you_mean};
use super::tree::{Tree, Value};

/// An agent to start (`[[agent]]`).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AgentDeclaration {
    /// A clinic: a data silo with four tools. Its database is relative to the state directory, its seed to the file.
    Clinic(ClinicConfig),
}

const KINDS: [&str; 1] = ["clinic"];

impl AgentDeclaration {
    /// Its name in the directory.
    pub fn id(&self) -> &str {
        match self {
            Self::Clinic(clinic) => &clinic.id,
        }
    }

    /// Whether it is there to answer what others ask, so that no listener needs to lead to it.
    pub(super) fn answers_others(&self) -> bool {
        match self {
            Self::Clinic(_) => false,
        }
    }

    /// Paths as this process sees them.
    pub(super) fn resolve(&mut self, folder: &Path) {
        match self {
            Self::Clinic(clinic) => clinic.seed = folder.join(&clinic.seed),
        }
    }
}

/// Reads one, by its `kind`. (serde's own way to tell them apart would lose the places.)
pub(super) fn read(mut tree: Tree, problems: &mut Problems<'_>) -> Option<Entry<AgentDeclaration>> {
    const WHAT: &str = "[[agent]]";
    let fingerprint = tree.fingerprint();
    if !matches!(tree.value, Value::Table(_)) {
        problems.error(Some(tree.span), format!("{WHAT} must be a table"));
        return None;
    }
    let Some((_, kind)) = tree.take("kind") else {
        problems.error_with(Some(tree.span), format!("{WHAT} lacks `kind`"), Some(kinds()));
        return None;
    };
    let value = match kind.text() {
        Some("clinic") => value::<ClinicConfig>(&mut tree, "a clinic", problems).map(AgentDeclaration::Clinic),
        Some(other) => {
            let help = did_you_mean(other, KINDS).or_else(|| Some(kinds()));
            problems.error_with(Some(kind.span.clone()), format!("there is no kind of agent `{other}`"), help);
            None
        }
        None => {
            problems.error(Some(kind.span), "`kind` must be a text");
            None
        }
    };
    Some(Entry { value: value?, tree, fingerprint })
}

fn value<T: DeserializeOwned>(tree: &mut Tree, what: &str, problems: &mut Problems<'_>) -> Option<T> {
    decode(tree, what, problems)
}

fn kinds() -> String {
    format!("there are `{}`", KINDS.join("`, `"))
}
