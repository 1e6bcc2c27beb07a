//! The example clinics, carried in the binary so that `demo` needs no files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::node::NodeError;

macro_rules! example {
    ($name:literal) => {
        Example {
            name: $name,
            topology: include_str!(concat!("../examples/clinics/", $name, ".toml")),
            seed: include_str!(concat!("../examples/clinics/", $name, ".json")),
        }
    };
}

struct Example {
    name: &'static str,
    topology: &'static str,
    seed: &'static str,
}

const EXAMPLES: [Example; 3] = [example!("cardiology"), example!("dermatology"), example!("neurology")];

/// The host's file for the first two.
pub(crate) const HOST: &str = include_str!("../examples/clinics/host.toml");

/// Writes an example's files into `folder` and says where its topology is.
pub(crate) fn write(name: &str, folder: &Path) -> Result<PathBuf, NodeError> {
    let unknown = || NodeError::NoSuchExample { name: name.to_owned(), known: EXAMPLES.map(|e| e.name).join(", ") };
    let example = EXAMPLES.iter().find(|e| e.name == name).ok_or_else(unknown)?;
    let topology = folder.join(name).with_extension("toml");
    fs::write(&topology, example.topology)?;
    fs::write(topology.with_extension("json"), example.seed)?;
    Ok(topology)
}
