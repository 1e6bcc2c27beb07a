use callboard_message::{Failure, FailureKind, Message};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::agent::ClinicBackend;
use super::super::messages::{CheckMedications, GetPatient, ListPatients, QueryPatients};
use super::{Bench, anyone, one_patient, treating};

/// Returns the JSON of a reply.
fn wire<M: Message>(reply: M::Reply) -> Value {
    let raw = (M::codec().unwrap().encode_reply)(reply).unwrap();
    serde_json::from_str(raw.get()).unwrap()
}

fn decode<M: Message>(arguments: &str) -> Result<M, String> {
    let raw = RawValue::from_string(arguments.to_owned()).unwrap();
    (M::codec().unwrap().decode)(&raw).map_err(|e| e.to_string())
}

async fn opened(bench: &Bench) -> ClinicBackend {
    bench.open(&one_patient()).await
}

fn get() -> GetPatient {
    GetPatient {
        patient_id: "CARD-001".into(),
    }
}

fn medications() -> Value {
    json!([
        {"name": "Digoxin", "dose": 0.125, "unit": "mg", "frequency": "once daily", "route": "oral"},
        {"name": "Amiodarone", "dose": 200, "unit": "mg", "frequency": "once daily", "route": "oral"},
    ])
}

/// Goal: the replies have the documented shapes, and doses are returned as written. Method: one
/// small clinic's answers.
/// Rows: C-28, C-30, C-31.
#[tokio::test]
async fn lists() {
    let bench = Bench::new();
    let silo = opened(&bench).await;
    let row = json!({"patient_id": "CARD-001", "condition": "Hypertension"});
    assert_eq!(
        wire::<ListPatients>(silo.list_patients().await),
        json!({"patients": [&row]})
    );
    for (words, matches) in [("Digoxin", json!([row])), ("nothing", json!([]))] {
        let found = silo
            .query(QueryPatients {
                query: words.into(),
            })
            .await;
        let expected = json!({"specialty": "cardiology", "query": words, "matches": matches});
        assert_eq!(wire::<QueryPatients>(found), expected);
    }
    let message = CheckMedications {
        patient_id: "CARD-001".into(),
    };
    let expected = json!({"patient_id": "CARD-001", "medications": medications()});
    assert_eq!(
        wire::<CheckMedications>(silo.check_medications(message, &anyone()).await),
        expected
    );
}

/// Goal: a record names the withheld fields and keeps the rest. Method: the whole record without
/// and with permission.
/// Rows: C-29.
#[tokio::test]
async fn files() {
    let bench = Bench::new();
    let silo = opened(&bench).await;
    let mut expected = json!({
        "patient_id": "CARD-001",
        "condition": "Hypertension",
        "medications": medications(),
        "notes": "Sleeps well.",
        "redacted": ["name", "birth_date", "government_id_scheme", "government_id", "address", "phone"],
    });
    assert_eq!(
        wire::<GetPatient>(silo.get_patient(get(), &anyone()).await),
        json!({"patient": &expected})
    );
    expected.as_object_mut().unwrap().remove("redacted");
    for (field, value) in [
        ("name", "Marta Vilanova Prado"),
        ("birth_date", "1970-02-03"),
        ("government_id_scheme", "CPF"),
        ("government_id", "529.982.247-25"),
        ("address", "Rua do Moinho, 7, Recife - PE"),
        ("phone", "+55 81 95550-0001"),
    ] {
        expected[field] = value.into();
    }
    assert_eq!(
        wire::<GetPatient>(silo.get_patient(get(), &treating()).await),
        json!({"patient": expected})
    );
}

/// Goal: an unknown patient is `NotFound`, without an echo of the request. Method: both tools.
#[tokio::test]
async fn unknown_patients_are_not_found() {
    let bench = Bench::new();
    let silo = opened(&bench).await;
    let unknown = || "CARD-999".to_owned();
    let got = silo
        .get_patient(
            GetPatient {
                patient_id: unknown(),
            },
            &treating(),
        )
        .await
        .map(drop);
    let checked = silo
        .check_medications(
            CheckMedications {
                patient_id: unknown(),
            },
            &treating(),
        )
        .await
        .map(drop);
    for failure in [got.unwrap_err(), checked.unwrap_err()] {
        assert_eq!(failure.kind, FailureKind::NotFound);
        assert!(!failure.message.contains("CARD-999"));
    }
}

/// Goal: an id is found in any case and answered as the file has it. Method: ask in lower case.
#[tokio::test]
async fn ids_match_in_any_case() {
    let bench = Bench::new();
    let silo = opened(&bench).await;
    let message = CheckMedications {
        patient_id: "card-001".into(),
    };
    let medications = silo.check_medications(message, &anyone()).await.unwrap();
    assert_eq!(
        (
            medications.patient_id.as_str(),
            medications.medications.len()
        ),
        ("CARD-001", 2)
    );
}

/// Goal: arguments that don't fit never reach a handler. Method: extra keys, wrong types, missing and doubled keys.
#[test]
fn arguments_are_strict() {
    assert!(decode::<ListPatients>("{}").is_ok());
    assert!(decode::<GetPatient>(r#"{"patient_id":"CARD-001"}"#).is_ok());
    assert!(decode::<ListPatients>(r#"{"all":true}"#).is_err());
    for bad in [
        "{}",
        r#"{"patient_id":1}"#,
        r#"{"patient_id":null}"#,
        r#"{"patient_id":["CARD-001"]}"#,
        r#"{"patient_id":"CARD-001","fields":["name"]}"#,
        r#"{"patient_id":"CARD-001","patient_id":"CARD-002"}"#,
        r#"{"patientId":"CARD-001"}"#,
    ] {
        assert!(decode::<GetPatient>(bad).is_err(), "{bad}");
        assert!(decode::<CheckMedications>(bad).is_err(), "{bad}");
    }
    for bad in [
        "{}",
        r#"{"query":1}"#,
        r#"{"query":"x","limit":10000}"#,
        r#"{"q":"x"}"#,
    ] {
        assert!(decode::<QueryPatients>(bad).is_err(), "{bad}");
    }
}

/// Goal: names and schemas of the tools are as documented. Method: read the specs.
/// Rows: C-28, C-29, C-30.
#[test]
fn specs() {
    let specs = [
        ListPatients::codec().unwrap().spec(),
        GetPatient::codec().unwrap().spec(),
        CheckMedications::codec().unwrap().spec(),
        QueryPatients::codec().unwrap().spec(),
    ];
    let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(
        names,
        ["list_patients", "get_patient", "check_medications", "query"]
    );
    for spec in &specs {
        assert_eq!(spec.input_schema["type"], "object", "{}", spec.name);
        assert_eq!(
            spec.input_schema["additionalProperties"],
            json!(false),
            "{}",
            spec.name
        );
        assert!(!spec.description.is_empty(), "{}", spec.name);
    }
    assert_eq!(specs[1].input_schema["required"], json!(["patient_id"]));
    assert_eq!(
        specs[1].input_schema["properties"]["patient_id"]["maxLength"],
        json!(64)
    );
    assert_eq!(
        specs[3].input_schema["properties"]["query"]["maxLength"],
        json!(512)
    );
}

/// Goal: a remote clinic's reply reads back as the typed one. Method: write and read, answer and failure.
#[tokio::test]
async fn replies_round_trip() {
    let bench = Bench::new();
    let silo = opened(&bench).await;
    let wire = GetPatient::codec().unwrap();
    let reply = silo.get_patient(get(), &anyone()).await;
    let raw = (wire.encode_reply)(reply.clone()).unwrap();
    assert_eq!((wire.decode_reply)(Ok(raw)).unwrap(), reply);
    let failure = Failure::not_found("gone");
    assert_eq!(
        (wire.decode_reply)(Err(failure.clone())).unwrap(),
        Err(failure)
    );
}
