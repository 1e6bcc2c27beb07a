use callboard_message::FailureKind;
use callboard_message::text::{fold, folded_words};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::super::agent::ClinicBackend;
use super::super::messages::QueryPatients;
use super::super::store::{Synonyms, fts_expression};
use super::{Bench, patient, seed};

async fn ids(silo: &ClinicBackend, query: &str) -> Vec<String> {
    let matches = silo
        .query(QueryPatients {
            query: query.to_owned(),
        })
        .await
        .unwrap()
        .matches;
    matches.into_iter().map(|row| row.patient_id).collect()
}

/// Goal: case, accents and compatibility forms don't matter. Method: rows of text and folded text.
#[test]
fn folding() {
    for (text, folded) in [
        ("Psoríase", "psoriase"),
        ("PRESSÃO ALTA", "pressao alta"),
        ("ﬁbrilação", "fibrilacao"),
        ("Ｍｉｇｒａｉｎｅ", "migraine"),
        ("İSTANBUL", "istanbul"),
    ] {
        assert_eq!(fold(text), folded);
    }
    assert_eq!(
        folded_words("Parkinson's disease — 0.125 mg"),
        ["parkinson", "s", "disease", "0", "125", "mg"]
    );
}

/// Goal: queries find the intended patients in two languages. Method: rows of query and ids over
/// one small clinic.
#[tokio::test]
async fn queries_find_what_they_mean() {
    let bench = Bench::new();
    let mut records = seed(&[
        patient("D-1", "Psoriasis", "Scalp involved."),
        patient("D-2", "Atopic Dermatitis", "Flares in winter."),
        patient("D-3", "Melanoma", "Scalp lesion removed."),
        patient("D-4", "Migraine", "Visual aura."),
    ]);
    records["patients"][0]["medications"][0]["name"] = json!("Methotrexate");
    records["patients"][3]["medications"] = json!([]);
    records["synonyms"] = json!([
        {"words": ["psoriasis", "psoríase"]},
        {"words": ["atopic dermatitis", "eczema", "dermatite atópica"]},
        {"words": ["skin cancer", "câncer de pele"], "includes": ["melanoma"]},
    ]);
    let silo = bench.open(&records).await;
    for (query, expected) in [
        ("psoriasis", &["D-1"][..]),
        ("PSORIASIS", &["D-1"]),
        ("psoríase", &["D-1"]),
        ("pacientes com Psoriase", &["D-1"]),
        ("list all patients with psoriasis", &["D-1"]),
        ("How many people are diagnosed with psoriasis?", &["D-1"]),
        ("Cardiology patients taking methotrexate", &["D-1"]),
        ("Quais pacientes têm psoríase?", &["D-1"]),
        ("eczema", &["D-2"]),
        ("dermatite atópica", &["D-2"]),
        ("dermat", &["D-2"]),
        ("câncer de pele", &["D-3"]),
        ("scalp", &["D-1", "D-3"]),
        ("scalp psoriasis", &["D-1"]),
        ("psoriasis and winter", &[]),
        ("psoriasis or eczema", &["D-1", "D-2"]),
        ("psoríase ou melanoma", &["D-1", "D-3"]),
        ("methotrexate", &["D-1"]),
        ("amiodarone 200 mg", &["D-1", "D-2", "D-3"]),
        ("amiodarone 300 mg", &[]),
        ("migraines", &["D-4"]),
        ("acne", &[]),
        // A search for melanoma doesn't find every skin cancer: narrower terms work one way.
        ("melanoma", &["D-3"]),
        ("or psoriasis or", &["D-1"]),
    ] {
        assert_eq!(ids(&silo, query).await, expected, "{query}");
    }
}

/// Goal: identifying values aren't searched. Method: search for every identifying value of the one
/// patient.
#[tokio::test]
async fn identities_are_not_searched() {
    let bench = Bench::new();
    let silo = bench
        .open(&seed(&[patient("D-1", "Psoriasis", "Scalp involved.")]))
        .await;
    for query in [
        "Marta",
        "Vilanova",
        "529.982.247-25",
        "Moinho",
        "1970-02-03",
        "95550",
        "Marta or Prado",
        "CPF",
    ] {
        assert!(ids(&silo, query).await.is_empty(), "{query}");
    }
}

/// Goal: SQL and FTS syntax in a query is treated as text. Method: attempts, then check that all
/// data is still there.
#[tokio::test]
async fn syntax_is_text() {
    let bench = Bench::new();
    let silo = bench
        .open(&seed(&[
            patient("D-1", "Psoriasis", "None."),
            patient("D-2", "Eczema", "None."),
        ]))
        .await;
    for query in [
        "'; DROP TABLE patient; --",
        "\" UNION SELECT name, address FROM patient --",
        "x' OR '1'='1",
        "notes:zzz OR name:Marta",
        "{patient_id} : D",
        "psoriasis\" NEAR \"eczema",
        "zzz* ^psori (((",
        "psoriasis\0",
        "\"\"\"\"",
        "𝕡𝕤𝕠 💊 zzz",
    ] {
        match silo
            .query(QueryPatients {
                query: query.to_owned(),
            })
            .await
        {
            Ok(found) => assert!(found.matches.len() < 2, "{query}"),
            Err(failure) => assert_eq!(failure.kind, FailureKind::InvalidInput, "{query}"),
        }
    }
    for id in ["D-1' OR '1'='1", "D-1; DROP TABLE patient", "%", "D-_", "*"] {
        let message = super::super::messages::GetPatient {
            patient_id: id.to_owned(),
        };
        let failure = silo
            .get_patient(message, &super::treating())
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::NotFound, "{id}");
    }
    assert_eq!(silo.list_patients().await.unwrap().patients.len(), 2);
}

/// Goal: a query that can't be answered as meant is refused, not answered otherwise. Method: rows of such queries.
#[tokio::test]
async fn unanswerable_queries_are_refused() {
    let bench = Bench::new();
    let silo = bench.open(&seed(&[patient("D-1", "Psoriasis", "x")])).await;
    for query in [
        "",
        "   ",
        "?!",
        "all patients",
        "cardiology",
        "todos os pacientes",
        "or",
        "without psoriasis",
        "sem psoríase",
    ] {
        let failure = silo
            .query(QueryPatients {
                query: query.to_owned(),
            })
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidInput, "{query}");
    }
}

/// Goal: any query gives a valid expression or is rejected as input. Method: any text against one
/// clinic.
#[test]
fn any_query_is_answered_or_refused_as_input() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let bench = Bench::new();
    let silo = runtime.block_on(bench.open(&seed(&[patient("D-1", "Psoriasis", "None.")])));
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    });
    let outcome = runner.run(&any::<String>(), |query| {
        if let Err(failure) = runtime.block_on(silo.query(QueryPatients { query })) {
            prop_assert_eq!(failure.kind, FailureKind::InvalidInput);
        }
        Ok(())
    });
    outcome.unwrap();
}

proptest! {
    /// Goal: no text breaks out of its quotes. Method: any text; outside of quotes only our own syntax is left.
    #[test]
    fn expressions_hold_only_our_syntax(query in "\\PC{0,80}") {
        let phrase = (0, "high blood pressure".into(), true);
        if let Ok(expression) = fts_expression(&query, &Synonyms::new([phrase]), &["condition".into(), "notes".into()]) {
            let rest = expression.strip_prefix("{condition notes} : ").unwrap();
            for (i, piece) in rest.split('"').enumerate() {
                if i % 2 == 1 {
                    prop_assert!(piece.chars().all(|c| c.is_alphanumeric() || c == ' '), "{piece:?}");
                } else {
                    let left = piece.replace("AND", "").replace("OR", "");
                    prop_assert!(left.chars().all(|c| matches!(c, '(' | ')' | ' ' | '*')), "{piece:?}");
                }
            }
        }
    }
}
