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

use super::agent::ClinicBackend;
use super::config::ClinicConfig;

/// Temporary folder for a clinic, removed on drop.
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

    /// Writes `seed` to a file and returns a configuration with it.
    fn config(&self, seed: &Value) -> ClinicConfig {
        std::fs::write(self.path("seed.json"), seed.to_string()).unwrap();
        config(&self.path("state/clinic.sqlite"), &self.path("seed.json"))
    }

    async fn open(&self, seed: &Value) -> ClinicBackend {
        ClinicBackend::open(self.config(seed)).await.unwrap()
    }

    /// Opens an example clinic.
    async fn example(&self, specialty: &str) -> ClinicBackend {
        ClinicBackend::open(self.example_config(specialty))
            .await
            .unwrap()
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

/// Returns a patient in the form of a seed.
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
    Principal::local_operator().with_purpose("treatment")
}
