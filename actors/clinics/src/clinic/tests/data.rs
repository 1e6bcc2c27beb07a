use std::collections::{BTreeMap, HashSet};
use std::fs;

use callboard_message::text::{fold, folded_words};
use serde_json::{Value, json};

use super::super::config::ClinicConfig;
use super::super::messages::{CheckMedications, GetPatient, PatientRecord, QueryPatients};
use super::super::seed::ClinicSeed;
use super::{Bench, anyone, example, treating};

/// Specialty, agent, id prefix, minimum number of patients.
const CLINICS: [(&str, &str, &str, usize); 3] = [
    ("cardiology", "clinic_a", "CARD-", 30),
    ("dermatology", "clinic_b", "DERM-", 30),
    ("neurology", "clinic_c", "NEUR-", 12),
];

fn records(specialty: &str) -> Vec<PatientRecord> {
    ClinicSeed::read(&example(specialty, "json"))
        .unwrap()
        .patients
}

fn topology(name: &str) -> toml::Table {
    fs::read_to_string(example(name, "toml"))
        .unwrap()
        .parse()
        .unwrap()
}

fn registry(name: &str) -> Vec<Value> {
    let clinics = topology(name)["clinic"].clone();
    serde_json::from_value(serde_json::to_value(clinics).unwrap()).unwrap()
}

fn is_cpf(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let check = |n: usize| {
        digits[..n]
            .iter()
            .zip((2..=n as u32 + 1).rev())
            .map(|(d, w)| d * w)
            .sum::<u32>()
            * 10
            % 11
            % 10
    };
    digits.len() == 11 && check(9) == digits[9] && check(10) == digits[10]
}

/// Returns whether a text is an NHS number from 999, which are reserved for tests.
fn is_nhs_test_number(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .take(9)
        .zip((2..=10).rev())
        .map(|(d, w)| d * w)
        .sum();
    digits.len() == 10 && digits[..3] == [9, 9, 9] && (11 - sum % 11) % 11 == digits[9]
}

fn is_ssn(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let fits = |part: &str, len: usize| {
        part.len() == len
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.bytes().any(|b| b != b'0')
    };
    let &[area, group, serial] = &parts[..] else {
        return false;
    };
    fits(area, 3) && fits(group, 2) && fits(serial, 4) && area < "900" && area != "666"
}

/// Goal: the examples have the documented records. Method: read the seeds.
#[test]
fn examples_hold_what_is_promised() {
    for (specialty, _, prefix, fewest) in CLINICS {
        let records = records(specialty);
        assert!(records.len() >= fewest, "{specialty}");
        assert!(
            records.iter().all(|r| r.patient_id.starts_with(prefix)),
            "{specialty}"
        );
        let persons: HashSet<_> = records
            .iter()
            .map(|r| (&r.name, &r.government_id))
            .collect();
        assert_eq!(persons.len(), records.len(), "{specialty}");
    }
    let cardiology = records("cardiology");
    assert_eq!(
        (
            cardiology[0].patient_id.as_str(),
            cardiology[0].condition.as_str()
        ),
        ("CARD-001", "Hypertension")
    );
    let amiodarone = json!({"name": "Amiodarone", "dose": 200, "unit": "mg", "frequency": "once daily", "route": "oral"});
    let mut taken = cardiology
        .iter()
        .flat_map(|r| &r.medications)
        .map(|m| serde_json::to_value(m).unwrap());
    assert!(taken.any(|m| m == amiodarone));
}

/// Goal: government ids are valid in form and reserved for tests. Method: check digits, formats,
/// reserved ranges.
#[test]
fn government_ids_have_the_right_form() {
    for (specialty, ..) in CLINICS {
        for record in records(specialty) {
            let fits = match record.government_id_scheme.as_str() {
                "CPF" => is_cpf(&record.government_id),
                "NHS" => is_nhs_test_number(&record.government_id),
                "SSN" => is_ssn(&record.government_id),
                _ => false,
            };
            assert!(fits, "{}", record.patient_id);
        }
    }
}

/// Goal: no name is a medical word, so that finding one in a text proves a leak. Method: compare
/// all words.
#[test]
fn names_are_no_words_of_medicine() {
    let all: Vec<PatientRecord> = CLINICS
        .iter()
        .flat_map(|(specialty, ..)| records(specialty))
        .collect();
    let mut medical = HashSet::new();
    for record in &all {
        medical.extend(folded_words(&record.condition));
        medical.extend(folded_words(&record.notes));
        medical.extend(
            record
                .medications
                .iter()
                .flat_map(|m| folded_words(&m.name)),
        );
    }
    for record in &all {
        assert!(
            folded_words(&record.name)
                .iter()
                .all(|word| !medical.contains(word)),
            "{}",
            record.patient_id
        );
    }
}

/// Goal: the documented psoriasis query works in both languages, without names. Method: query the
/// example clinic.
/// Rows: C-31.
#[tokio::test]
async fn psoriasis_query_finds_the_psoriasis_patients() {
    let bench = Bench::new();
    let silo = bench.example("dermatology").await;
    let expected: Vec<String> = records("dermatology")
        .into_iter()
        .filter(|r| r.condition == "Psoriasis")
        .map(|r| r.patient_id)
        .collect();
    assert!(expected.len() >= 3);
    for query in ["psoriasis", "Psoríase", "patients with psoriasis"] {
        let found = silo
            .query(QueryPatients {
                query: query.into(),
            })
            .await
            .unwrap();
        assert_eq!(found.specialty, "dermatology");
        let ids: Vec<&str> = found
            .matches
            .iter()
            .map(|m| m.patient_id.as_str())
            .collect();
        assert_eq!(ids, expected, "{query}");
        assert!(
            found.matches.iter().all(|m| m.condition == "Psoriasis"),
            "{query}"
        );
    }
}

/// Goal: lists, searches and redacted records have no identifying value. Method: request everything
/// without permission and search the JSON for every identifying value.
/// Rows: C-3.
#[tokio::test]
async fn no_identity_leaves_without_permission() {
    for (specialty, ..) in CLINICS {
        let bench = Bench::new();
        let silo = bench.example(specialty).await;
        let records = records(specialty);
        let mut told = serde_json::to_string(&silo.list_patients().await.unwrap()).unwrap();
        for record in &records {
            let id = || record.patient_id.clone();
            let file = silo
                .get_patient(GetPatient { patient_id: id() }, &anyone())
                .await
                .unwrap();
            assert!(
                file.patient.notes.is_some(),
                "{}: example notes name nobody",
                record.patient_id
            );
            told += &serde_json::to_string(&file).unwrap();
            let medications = silo
                .check_medications(CheckMedications { patient_id: id() }, &anyone())
                .await
                .unwrap();
            told += &serde_json::to_string(&medications).unwrap();
            let found = silo
                .query(QueryPatients {
                    query: record.condition.clone(),
                })
                .await
                .unwrap();
            assert!(
                found
                    .matches
                    .iter()
                    .any(|m| m.patient_id == record.patient_id)
            );
            told += &serde_json::to_string(&found.matches).unwrap();
        }
        let told_words: HashSet<String> = folded_words(&told).into_iter().collect();
        for record in &records {
            for value in [
                &record.name,
                &record.government_id,
                &record.address,
                &record.phone,
                &record.birth_date,
            ] {
                assert!(!told.contains(value.as_str()), "{}", record.patient_id);
            }
            assert!(
                folded_words(&record.name)
                    .iter()
                    .all(|word| !told_words.contains(word)),
                "{}",
                record.patient_id
            );
            let whole = silo
                .get_patient(
                    GetPatient {
                        patient_id: record.patient_id.clone(),
                    },
                    &treating(),
                )
                .await;
            assert_eq!(whole.unwrap().patient.name.as_ref(), Some(&record.name));
        }
    }
}

/// Goal: registry and clinics have the same conditions. Method: every condition of the registry
/// finds a patient in its clinic, and every patient's condition is in the registry.
#[tokio::test]
async fn registry_fits_the_clinics() {
    for entry in registry("host-with-neurology") {
        let text = |key: &str| entry[key].as_str().unwrap().to_owned();
        let conditions: Vec<String> = serde_json::from_value(entry["conditions"].clone()).unwrap();
        let bench = Bench::new();
        let silo = bench.example(&text("specialty")).await;
        for condition in &conditions {
            let found = silo
                .query(QueryPatients {
                    query: condition.clone(),
                })
                .await
                .unwrap();
            assert!(
                !found.matches.is_empty(),
                "{condition} in {}",
                text("specialty")
            );
        }
        let known: HashSet<String> = conditions.iter().map(|c| fold(c)).collect();
        for record in records(&text("specialty")) {
            assert!(record.patient_id.starts_with(&text("id_prefix")));
            assert!(
                known.contains(&fold(&record.condition)),
                "{}",
                record.condition
            );
        }
    }
}

/// Goal: a third clinic needs only a registry entry and a topology file. Method: compare the two
/// hosts.
#[test]
fn neurology_is_one_more_entry() {
    let (two, three) = (registry("host"), registry("host-with-neurology"));
    assert_eq!((two.len(), three.len()), (2, 3));
    assert_eq!(two[..], three[..2]);
}

/// Goal: each topology declares a clinic that opens, on the port in the registry, with the default
/// classes. Method: read the files as the host does.
/// Rows: C-8.
#[test]
fn topologies_declare_the_clinics() {
    let registry: BTreeMap<String, Value> = registry("host-with-neurology")
        .into_iter()
        .map(|e| (e["id"].as_str().unwrap().to_owned(), e))
        .collect();
    for (specialty, id, ..) in CLINICS {
        let topology = serde_json::to_value(topology(specialty)).unwrap();
        let mut agent = topology["agent"][0].clone();
        assert_eq!(
            agent.as_object_mut().unwrap().remove("kind"),
            Some(json!("clinic"))
        );
        let config: ClinicConfig = serde_json::from_value(agent).unwrap();
        assert_eq!(
            (config.id.as_str(), config.specialty.as_str()),
            (id, specialty)
        );
        assert_eq!(
            example(specialty, "toml").with_file_name(&config.seed),
            example(specialty, "json")
        );
        for (field, class) in &config.classes {
            assert_eq!(*class, field.class_default(), "{field}");
        }
        let listener = &topology["listener"][0];
        assert_eq!(
            (listener["agent"].as_str(), &listener["compat"]),
            (Some(id), &json!(["bare"]))
        );
        let url = format!("http://{}/mcp", listener["bind"].as_str().unwrap());
        assert_eq!(registry[id]["url"], json!(url));
        assert_eq!(registry[id]["specialty"], json!(specialty));
    }
}
