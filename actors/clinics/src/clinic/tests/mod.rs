mod access;
mod agent;
mod data;
mod limits;
mod search;
mod shapes;
mod start;

use std::path::{Path, PathBuf};

use callboard_message::Principal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::agent::Silo;
use super::config::ClinicConfig;

/// A folder of its own for a clinic, gone with the value.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A configuration whose seed holds `seed`.
    fn config(&self, seed: &Value) -> ClinicConfig {
        std::fs::write(self.path("seed.json"), seed.to_string()).unwrap();
        config(&self.path("state/clinic.sqlite"), &self.path("seed.json"))
    }

    async fn open(&self, seed: &Value) -> Silo {
        Silo::open(self.config(seed)).await.unwrap()
    }

    /// A clinic of the examples.
    async fn example(&self, specialty: &str) -> Silo {
        Silo::open(self.example_config(specialty)).await.unwrap()
    }

    fn example_config(&self, specialty: &str) -> ClinicConfig {
        let mut config = config(
            &self.path(&format!("{specialty}.sqlite")),
            &example(specialty, "json"),
        );
        config.specialty = specialty.to_owned();
        config
    }
}

fn config(database: &Path, seed: &Path) -> ClinicConfig {
    let config =
        json!({"id": "clinic_a", "specialty": "cardiology", "database": database, "seed": seed});
    serde_json::from_value(config).unwrap()
}

fn example(specialty: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/clinics")
        .join(specialty)
        .with_extension(ending)
}

/// One patient as a seed has it.
fn patient(id: &str, condition: &str, notes: &str) -> Value {
    json!({
        "patient_id": id, "condition": condition, "name": "Marta Vilanova Prado", "birth_date": "1970-02-03",
        "government_id_scheme": "CPF", "government_id": "529.982.247-25", "address": "Rua do Moinho, 7, Recife - PE",
        "phone": "+55 81 95550-0001", "notes": notes,
        "medications": [
            {"name": "Digoxin", "dose": 0.125, "unit": "mg", "frequency": "once daily", "route": "oral"},
            {"name": "Amiodarone", "dose": 200, "unit": "mg", "frequency": "once daily", "route": "oral"},
        ],
    })
}

fn seed(patients: &[Value]) -> Value {
    json!({ "patients": patients })
}

fn one_patient() -> Value {
    seed(&[patient("CARD-001", "Hypertension", "Sleeps well.")])
}

fn anyone() -> Principal {
    Principal::anonymous()
}

fn treating() -> Principal {
    Principal::local_operator().for_purpose("treatment")
}
