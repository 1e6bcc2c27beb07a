use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::access::PURPOSE_DEFAULT;
use super::record::{DataClass, Field};

/// What the topology says about a clinic. Paths are as the process sees them: whoever reads the topology resolves them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClinicConfig {
    /// The agent's id, for example `clinic_a`. It is written into the database and must stay the same.
    pub id: String,
    /// For example `cardiology`; answered with every query.
    pub specialty: String,
    /// The clinic's own SQLite file. Created, with its folder, at first start.
    pub database: PathBuf,
    /// Records (`.json` or `.toml`) that fill the database at first start; not read again.
    pub seed: PathBuf,
    /// The purposes for which a patient's identity may be answered. `["treatment"]` when left out.
    #[serde(default = "purposes_default")]
    pub purposes_allowed: Vec<String>,
    /// The class of each field. A field that is left out has [`Field::class_default`].
    #[serde(default)]
    pub classes: BTreeMap<Field, DataClass>,
}

fn purposes_default() -> Vec<String> {
    vec![PURPOSE_DEFAULT.to_owned()]
}
