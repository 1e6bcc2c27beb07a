//! Tests of the verifier with the example clinics' records: recorded data passes, altered data
//! doesn't.

use std::path::Path;

use callboard_clinics::verifier::{Identities, Rule, Verdict, Verify};
use serde_json::{Value, json};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn patients() -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/clinics");
    let mut all = Vec::new();
    for file in ["cardiology.json", "dermatology.json", "neurology.json"] {
        let mut seed: Value = serde_json::from_str(&std::fs::read_to_string(folder.join(file))?)?;
        match seed["patients"].take() {
            Value::Array(mut patients) => all.append(&mut patients),
            _ => return Err("no patients in the seed".into()),
        }
    }
    Ok(all)
}

const PERSONAL: [&str; 6] = [
    "name",
    "government_id",
    "government_id_scheme",
    "phone",
    "address",
    "birth_date",
];

/// Returns the record as a clinic returns it to a caller without access to identities.
fn redacted(patient: &Value) -> Value {
    let mut patient = patient.clone();
    if let Some(fields) = patient.as_object_mut() {
        fields.retain(|key, _| !PERSONAL.contains(&key.as_str()));
    }
    json!({ "patient": patient })
}

fn verdict(record: &Value, results: Value, text: String, identities: Identities) -> Verdict {
    Verify {
        records: vec![record.clone()],
        results,
        text,
        identities,
    }
    .verdict()
}

fn about(text: &Value) -> String {
    text.as_str()
        .map_or_else(|| text.to_string(), str::to_owned)
}

fn prescription(medication: &Value) -> String {
    let field = |key: &str| about(&medication[key]);
    format!(
        "{} {} {} {}, {}",
        field("name"),
        field("dose"),
        field("unit"),
        field("frequency"),
        field("route")
    )
}

/// Goal: recorded data isn't taken for fabricated, personal or advice. Method: every record,
/// redacted, as results and as text.
#[test]
fn what_is_recorded_passes() -> Outcome {
    for patient in patients()? {
        let record = redacted(&patient);
        let id = about(&patient["patient_id"]);
        let lines = patient["medications"]
            .as_array()
            .into_iter()
            .flatten()
            .map(prescription);
        let text = format!(
            "{id}: {}\n{}\n{}",
            about(&patient["condition"]),
            lines.collect::<Vec<_>>().join("\n"),
            about(&patient["notes"])
        );
        let verdict = verdict(
            &record,
            json!([{"step_id": 1, "result": record}]),
            text,
            Identities::Withheld,
        );
        assert!(verdict.safe, "{id}: {}", verdict.note);
    }
    Ok(())
}

/// Goal: no altered prescription passes. Method: every prescription with ten times the dose, half of it, another unit,
/// another schedule and another medicine.
/// Rows: C-23, C-35.
#[test]
fn what_is_altered_is_blocked() -> Outcome {
    for patient in patients()? {
        let record = redacted(&patient);
        let id = about(&patient["patient_id"]);
        for medication in patient["medications"].as_array().into_iter().flatten() {
            let dose = medication["dose"].as_f64().ok_or("a dose is a number")?;
            let mut altered = vec![
                json!({ "dose": dose * 10.0 }),
                json!({ "dose": dose / 2.0 }),
                json!({ "frequency": "five times daily" }),
                json!({ "name": "Vancomycin" }),
                json!({ "name": "Zorblatin" }),
            ];
            altered.extend(match medication["unit"].as_str() {
                Some("mg") => vec![json!({ "unit": "g" }), json!({ "unit": "mcg" })],
                _ => Vec::new(),
            });
            for change in altered {
                let mut medication = medication.clone();
                for (key, value) in change.as_object().into_iter().flatten() {
                    medication[key] = value.clone();
                }
                let text = format!("{id}: {}", prescription(&medication));
                let spoken = verdict(&record, Value::Null, text.clone(), Identities::Withheld);
                assert_eq!(spoken.rule, Some(Rule::R1), "{text}");
                let shown = verdict(
                    &record,
                    json!({ "patient_id": id, "medications": [medication] }),
                    String::new(),
                    Identities::Withheld,
                );
                assert_eq!(shown.rule, Some(Rule::R1), "{text}");
            }
        }
    }
    Ok(())
}

/// Goal: every personal value is cut out without permission and shown with it. Method: each
/// personal field of each record, in the text, with and without permission.
#[test]
fn identities_need_permission() -> Outcome {
    for patient in patients()? {
        let record = json!({ "patient": patient });
        let id = about(&patient["patient_id"]);
        for field in ["name", "government_id", "phone", "address", "birth_date"] {
            let text = format!("{id}: {}", about(&patient[field]));
            let asked = Verify {
                records: vec![record.clone()],
                results: Value::Null,
                text: text.clone(),
                identities: Identities::Withheld,
            };
            let shown = asked.check();
            assert!(shown.verdict.safe, "{id} {field}");
            assert_eq!(shown.verdict.redactions, 1, "{id} {field}: {}", shown.text);
            assert!(
                !shown.text.contains(&about(&patient[field])),
                "{id} {field}"
            );
            let allowed = verdict(&record, json!([record]), text, Identities::AsRecorded);
            assert!(allowed.safe, "{id} {field}: {}", allowed.note);
        }
    }
    Ok(())
}
