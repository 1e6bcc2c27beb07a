//! Files of the examples, compiled in so that `demo` needs none on disk.

use std::fs;
use std::path::{Path, PathBuf};

use crate::node::NodeError;

macro_rules! example {
    ($name:literal) => {
        Example {
            name: $name,
            topology: include_str!(concat!("../examples/clinics/", $name, ".toml")),
            seed: Some(include_str!(concat!(
                "../examples/clinics/",
                $name,
                ".json"
            ))),
        }
    };
    ($folder:literal, $name:literal) => {
        Example {
            name: $name,
            topology: include_str!(concat!("../examples/", $folder, "/", $name, ".toml")),
            seed: None,
        }
    };
}

struct Example {
    name: &'static str,
    topology: &'static str,
    seed: Option<&'static str>,
}

const EXAMPLES: [Example; 8] = [
    example!("cardiology"),
    example!("dermatology"),
    example!("neurology"),
    example!("hmcp", "hmcp-emr"),
    example!("hmcp", "hmcp-patients"),
    example!("three_agents", "agent1"),
    example!("three_agents", "agent2"),
    example!("three_agents", "agent3"),
];

/// Topology file of the host for the first two clinics.
pub(crate) const HOST_TOPOLOGY: &str = include_str!("../examples/clinics/host.toml");

/// Topology file of the host for all three clinics.
pub(crate) const HOST_OF_THREE: &str = include_str!("../examples/clinics/host-with-neurology.toml");

/// Writes the files of an example into `folder`. Returns the path of its topology file.
pub(crate) fn write_example(name: &str, folder: &Path) -> Result<PathBuf, NodeError> {
    let unknown = || NodeError::UnknownExample {
        name: name.to_owned(),
        known: EXAMPLES.map(|e| e.name).join(", "),
    };
    let example = EXAMPLES
        .iter()
        .find(|e| e.name == name)
        .ok_or_else(unknown)?;
    let topology = folder.join(name).with_extension("toml");
    fs::write(&topology, example.topology)?;
    if let Some(seed) = example.seed {
        fs::write(topology.with_extension("json"), seed)?;
    }
    Ok(topology)
}
