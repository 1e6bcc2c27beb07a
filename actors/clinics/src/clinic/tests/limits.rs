use std::fs;

use callboard_message::FailureKind;
use serde_json::{Value, json};

use super::super::config::ClinicError;
use super::super::messages::{
    CheckMedications, GetPatient, MATCHES_MAX, PATIENT_ID_BYTES_MAX, PATIENTS_LISTED_MAX,
    QUERY_BYTES_MAX, QueryPatients,
};
use super::super::seed::{
    ClinicSeed, FIELD_BYTES_MAX, MEDICATIONS_PER_PATIENT_MAX, SEED_BYTES_MAX, SEED_PATIENTS_MAX,
    SYNONYM_GROUP_PHRASES_MAX, SYNONYM_PHRASES_MAX,
};
use super::super::store::QUERY_WORDS_MAX;
use super::{Bench, anyone, one_patient, patient, seed, treating};

fn read(bench: &Bench, seed: &Value) -> Result<(), ClinicError> {
    ClinicSeed::read(&bench.config(seed).seed).map(drop)
}

/// Goal: a patient id has a greatest length. Method: at the limit and one over, for both tools.
#[tokio::test]
async fn patient_id_length() {
    let bench = Bench::new();
    let silo = bench.open(&one_patient()).await;
    for (len, kind) in [
        (0, FailureKind::InvalidInput),
        (PATIENT_ID_BYTES_MAX, FailureKind::NotFound),
        (PATIENT_ID_BYTES_MAX + 1, FailureKind::InvalidInput),
    ] {
        let id = || "x".repeat(len);
        let got = silo
            .get_patient(GetPatient { patient_id: id() }, &treating())
            .await;
        assert_eq!(got.unwrap_err().kind, kind, "{len}");
        let checked = silo
            .check_medications(CheckMedications { patient_id: id() }, &anyone())
            .await;
        assert_eq!(checked.unwrap_err().kind, kind, "{len}");
    }
}

/// Goal: a query has a greatest length and number of words. Method: at each limit and one over.
#[tokio::test]
async fn query_length_and_words() {
    let bench = Bench::new();
    let silo = bench.open(&one_patient()).await;
    let words = |n: usize| vec!["w"; n].join(" ");
    for (query, fits) in [
        ("x".repeat(QUERY_BYTES_MAX), true),
        ("x".repeat(QUERY_BYTES_MAX + 1), false),
        (words(QUERY_WORDS_MAX), true),
        (words(QUERY_WORDS_MAX + 1), false),
    ] {
        match silo.query(QueryPatients { query }).await {
            Ok(_) => assert!(fits),
            Err(failure) => assert!(
                !fits && failure.kind == FailureKind::InvalidInput,
                "{failure}"
            ),
        }
    }
}

/// Goal: lists have a greatest number of rows and say when there are more. Method: at each limit and one over.
#[tokio::test]
async fn rows() {
    let records = |n: usize, matching: usize| {
        let condition = |i| {
            if i < matching {
                "Angina"
            } else {
                "Hypertension"
            }
        };
        seed(
            &(0..n)
                .map(|i| patient(&format!("CARD-{i:05}"), condition(i), "x"))
                .collect::<Vec<_>>(),
        )
    };
    for (listed, matching, over) in [
        (PATIENTS_LISTED_MAX, MATCHES_MAX, false),
        (PATIENTS_LISTED_MAX + 1, MATCHES_MAX + 1, true),
    ] {
        let bench = Bench::new();
        let silo = bench.open(&records(listed, matching)).await;
        let list = silo.list_patients().await.unwrap();
        assert_eq!(
            (list.patients.len(), list.truncated),
            (PATIENTS_LISTED_MAX, over)
        );
        let found = silo
            .query(QueryPatients {
                query: "angina".into(),
            })
            .await
            .unwrap();
        assert_eq!((found.matches.len(), found.truncated), (MATCHES_MAX, over));
    }
}

/// Goal: a seed has a greatest size and number of patients. Method: at each limit and one over.
#[test]
fn seed_size() {
    let bench = Bench::new();
    for (len, fits) in [(SEED_BYTES_MAX, true), (SEED_BYTES_MAX + 1, false)] {
        let path = bench.config(&one_patient()).seed;
        let text = one_patient().to_string();
        fs::write(&path, text.clone() + &" ".repeat(len - text.len())).unwrap();
        match ClinicSeed::read(&path) {
            Ok(_) => assert!(fits),
            Err(error) => assert!(
                !fits && matches!(error, ClinicError::SeedTooLarge { unit: "bytes", .. }),
                "{error}"
            ),
        }
    }
    let many = |n: usize| {
        seed(
            &(0..n)
                .map(|i| patient(&format!("C-{i}"), "Angina", "x"))
                .collect::<Vec<_>>(),
        )
    };
    read(&bench, &many(SEED_PATIENTS_MAX)).unwrap();
    let error = read(&bench, &many(SEED_PATIENTS_MAX + 1)).unwrap_err();
    assert!(
        matches!(
            error,
            ClinicError::SeedTooLarge {
                unit: "patients",
                ..
            }
        ),
        "{error}"
    );
}

/// Goal: fields and lists inside a record have limits. Method: at each limit and one over.
#[test]
fn record_sizes() {
    let bench = Bench::new();
    let with = |key: &str, value: Value| {
        let mut record = patient("CARD-001", "Angina", "x");
        record[key] = value;
        seed(&[record])
    };
    let id = |n: usize| with("patient_id", json!("x".repeat(n)));
    let notes = |n: usize| with("notes", json!("x".repeat(n)));
    let medication =
        |name: &str| json!({"name": name, "dose": 1, "unit": "mg", "frequency": "f", "route": "r"});
    let medications = |n: usize| with("medications", json!(vec![medication("A"); n]));
    let named = |n: usize| with("medications", json!([medication(&"x".repeat(n))]));
    for (at, over) in [
        (id(PATIENT_ID_BYTES_MAX), id(PATIENT_ID_BYTES_MAX + 1)),
        (notes(FIELD_BYTES_MAX), notes(FIELD_BYTES_MAX + 1)),
        (named(FIELD_BYTES_MAX), named(FIELD_BYTES_MAX + 1)),
        (
            medications(MEDICATIONS_PER_PATIENT_MAX),
            medications(MEDICATIONS_PER_PATIENT_MAX + 1),
        ),
    ] {
        read(&bench, &at).unwrap();
        let error = read(&bench, &over).unwrap_err();
        assert!(
            matches!(
                error,
                ClinicError::SeedRefused {
                    what: "patient",
                    index: 0,
                    ..
                }
            ),
            "{error}"
        );
    }
}

/// Goal: synonyms have limits, in a group and in all. Method: at each limit and one over.
#[test]
fn synonym_sizes() {
    let bench = Bench::new();
    let groups = |sizes: &[usize]| {
        let groups: Vec<_> = sizes
            .iter()
            .map(|n| json!({"words": vec!["a"; n - 1], "includes": ["b"]}))
            .collect();
        json!({"patients": [], "synonyms": groups})
    };
    read(&bench, &groups(&[SYNONYM_GROUP_PHRASES_MAX])).unwrap();
    let error = read(&bench, &groups(&[SYNONYM_GROUP_PHRASES_MAX + 1])).unwrap_err();
    assert!(
        matches!(
            error,
            ClinicError::SeedRefused {
                what: "synonym",
                ..
            }
        ),
        "{error}"
    );

    let mut sizes = vec![50; SYNONYM_PHRASES_MAX / 50];
    read(&bench, &groups(&sizes)).unwrap();
    sizes[0] += 1;
    let error = read(&bench, &groups(&sizes)).unwrap_err();
    assert!(
        matches!(
            error,
            ClinicError::SeedTooLarge {
                unit: "synonym phrases",
                ..
            }
        ),
        "{error}"
    );

    let phrase = |n: usize| json!({"patients": [], "synonyms": [{"words": ["x".repeat(n)]}]});
    read(&bench, &phrase(FIELD_BYTES_MAX)).unwrap();
    assert!(read(&bench, &phrase(FIELD_BYTES_MAX + 1)).is_err());
    assert!(read(&bench, &phrase(0)).is_err());
}
