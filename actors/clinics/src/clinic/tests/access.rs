use callboard_message::{Failure, FailureKind, Principal};
use serde_json::{Value, json};

use super::super::agent::ClinicBackend;
use super::super::config::ClinicConfig;
use super::super::config::ClinicError;
use super::super::messages::{CheckMedications, GetPatient, QueryPatients};
use super::super::messages::{FieldClass, PatientField, PatientView};
use super::{Bench, anyone, one_patient, patient, seed, treating};
use callboard_message::IDENTITY_SCOPE;

const IDENTIFYING: [PatientField; 6] = [
    PatientField::Name,
    PatientField::BirthDate,
    PatientField::GovernmentIdScheme,
    PatientField::GovernmentId,
    PatientField::Address,
    PatientField::Phone,
];

/// Scope to claim the purpose that the clinics of these tests allow.
const TREATMENT: &str = "purpose:treatment";

fn get(id: &str) -> GetPatient {
    GetPatient {
        patient_id: id.to_owned(),
    }
}

async fn view(silo: &ClinicBackend, principal: &Principal) -> PatientView {
    silo.get_patient(get("CARD-001"), principal)
        .await
        .unwrap()
        .patient
}

fn scoped(scopes: &[&str], purpose: &str) -> Principal {
    let mut principal = Principal::agent("nurse").with_purpose(purpose);
    principal.scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    principal
}

/// Goal: an identity needs trust, and an allowed purpose that the credential may claim; a purpose that it
/// may not claim counts as none. Method: the matrix of principals and purposes.
/// Rows: X-36.
#[tokio::test]
async fn identity_needs_trust_and_purpose() {
    let bench = Bench::new();
    let silo = bench.open(&one_patient()).await;
    let rows = [
        (Principal::anonymous(), false),
        (Principal::anonymous().with_purpose("treatment"), false),
        (Principal::local_operator(), false),
        (Principal::local_operator().with_purpose("marketing"), false),
        (Principal::local_operator().with_purpose("Treatment"), false),
        (Principal::local_operator().with_purpose("treatment"), true),
        (Principal::agent("nurse").with_purpose("treatment"), false),
        (scoped(&["patient.list", TREATMENT], "treatment"), false),
        (scoped(&[TREATMENT], "treatment"), false),
        (scoped(&[IDENTITY_SCOPE], "treatment"), false),
        (scoped(&[IDENTITY_SCOPE, TREATMENT], "marketing"), false),
        (
            scoped(&[IDENTITY_SCOPE, "purpose:marketing"], "marketing"),
            false,
        ),
        (
            scoped(&[IDENTITY_SCOPE, "purpose:marketing"], "treatment"),
            false,
        ),
        (
            scoped(&[IDENTITY_SCOPE, "Purpose:treatment"], "treatment"),
            false,
        ),
        (
            scoped(&[IDENTITY_SCOPE, "purpose:Treatment"], "treatment"),
            false,
        ),
        (scoped(&[IDENTITY_SCOPE, "purpose:*"], "treatment"), false),
        (scoped(&[IDENTITY_SCOPE, "purpose:*"], "*"), false),
        (scoped(&[IDENTITY_SCOPE, TREATMENT], "ｔreatment"), false),
        (scoped(&[IDENTITY_SCOPE, TREATMENT], "treatment"), true),
        (
            scoped(
                &["patient:CARD-001", IDENTITY_SCOPE, TREATMENT],
                "treatment",
            ),
            true,
        ),
    ];
    for (principal, allowed) in rows {
        let view = view(&silo, &principal).await;
        assert_eq!(view.name.is_some(), allowed, "{principal:?}");
        let expected: &[PatientField] = if allowed { &[] } else { &IDENTIFYING };
        assert_eq!(view.redacted, expected, "{principal:?}");
        assert!(
            view.medications.is_some() && view.notes.is_some(),
            "{principal:?}"
        );
    }
}

/// Goal: an answer holds no withheld value. Method: search the JSON for every value.
/// Rows: C-32.
#[tokio::test]
async fn withheld_values_are_nowhere_in_the_answer() {
    let bench = Bench::new();
    let record = patient("CARD-001", "Hypertension", "Sleeps well.");
    let silo = bench.open(&seed(std::slice::from_ref(&record))).await;
    let redacted = serde_json::to_string(&view(&silo, &anyone()).await).unwrap();
    let whole = serde_json::to_string(&view(&silo, &treating()).await).unwrap();
    for field in IDENTIFYING {
        let value = record[field.to_string()].as_str().unwrap();
        assert!(!redacted.contains(value), "{field}");
        assert!(whole.contains(value), "{field}");
    }
}

/// Goal: free text doesn't undo the redaction, and the rest of it stays. Method: notes that quote a
/// name or number of the same patient, or the name of another one, also in disguise.
#[tokio::test]
async fn identities_are_cut_out_of_notes_and_not_searched() {
    let bench = Bench::new();
    for (notes, expect) in [
        ("Told MARTA about salt.", "Told [name] about salt."),
        ("Sra. Vilanova sleeps well.", "Sra. [name] sleeps well."),
        ("CPF 52998224725 on file.", "CPF [id] on file."),
        ("Call +55 (81) 95550 0001.", "Call [phone]."),
        ("Born 1970/02/03.", "Born [date of birth]."),
        (
            "Lives at Rua do Moinho 7, Recife, PE.",
            "Lives at [address].",
        ),
        ("M a r t a improves.", "[name] improves."),
        (
            "Shares a room with Otto Brandt.",
            "Shares a room with [name].",
        ),
    ] {
        let bench_of_row = Bench::new();
        let mut other = patient("CARD-002", "Angina", "");
        other["name"] = json!("Otto Brandt");
        let silo = bench_of_row
            .open(&seed(&[patient("CARD-001", "Hypertension", notes), other]))
            .await;
        let redacted = view(&silo, &anyone()).await;
        assert_eq!(redacted.notes.as_deref(), Some(expect), "{notes}");
        assert!(!redacted.redacted.contains(&PatientField::Notes), "{notes}");
        assert_eq!(view(&silo, &treating()).await.notes.as_deref(), Some(notes));
        let query = QueryPatients {
            query: notes.to_owned(),
        };
        assert!(
            silo.query(query).await.unwrap().matches.is_empty(),
            "{notes}"
        );
    }
    // A short word of a name doesn't count: "da" is in half of all Portuguese sentences.
    let mut innocent = patient("CARD-001", "Hypertension", "Dorme bem, sem falta de ar.");
    innocent["name"] = json!("Marta de Sá Bem");
    innocent["notes"] = json!("Falta de ar leve.");
    assert!(
        view(&bench.open(&seed(&[innocent])).await, &anyone())
            .await
            .notes
            .is_some()
    );
}

/// Goal: the topology decides the classes. Method: other classes for some fields, and look at every answer.
#[tokio::test]
async fn classes_come_from_the_topology() {
    let bench = Bench::new();
    let mut config = bench.config(&one_patient());
    config.classes = [
        (PatientField::BirthDate, FieldClass::Clinical),
        (PatientField::Medications, FieldClass::Identifying),
        (PatientField::Notes, FieldClass::Identifying),
    ]
    .into();
    let silo = ClinicBackend::open(config).await.unwrap();

    let redacted = view(&silo, &anyone()).await;
    assert!(
        redacted.birth_date.is_some() && redacted.medications.is_none() && redacted.notes.is_none()
    );
    let ask = || CheckMedications {
        patient_id: "CARD-001".into(),
    };
    let refused = silo
        .check_medications(ask(), &anyone())
        .await
        .map_err(|e: Failure| e.kind);
    assert_eq!(refused, Err(FailureKind::Denied));
    assert!(silo.check_medications(ask(), &treating()).await.is_ok());
    // An identifying field isn't searched for any principal.
    for query in ["amiodarone", "sleeps"] {
        assert!(
            silo.query(QueryPatients {
                query: query.into()
            })
            .await
            .unwrap()
            .matches
            .is_empty(),
            "{query}"
        );
    }
    assert_eq!(
        silo.query(QueryPatients {
            query: "hypertension".into()
        })
        .await
        .unwrap()
        .matches
        .len(),
        1
    );
}

/// Goal: a topology that classifies listed fields as identifying is rejected. Method: classify id
/// and condition so.
#[tokio::test]
async fn listed_fields_cannot_be_identifying() {
    let bench = Bench::new();
    for field in [PatientField::PatientId, PatientField::Condition] {
        let mut config = bench.config(&one_patient());
        config.classes.insert(field, FieldClass::Identifying);
        let error = ClinicBackend::open(config).await.err().unwrap();
        assert!(
            matches!(error, ClinicError::FieldIsListed { field: f } if f == field),
            "{error}"
        );
    }
}

/// Goal: medications that identify need a purpose that may be claimed, too. Method: such a class, and
/// credentials with and without the scope for it.
#[tokio::test]
async fn identifying_medications_need_a_claimable_purpose() {
    let bench = Bench::new();
    let mut config = bench.config(&one_patient());
    config.classes = [(PatientField::Medications, FieldClass::Identifying)].into();
    let silo = ClinicBackend::open(config).await.unwrap();
    for (scopes, is_told) in [
        (&[IDENTITY_SCOPE][..], false),
        (&[IDENTITY_SCOPE, TREATMENT], true),
    ] {
        let ask = CheckMedications {
            patient_id: "CARD-001".into(),
        };
        let principal = scoped(scopes, "treatment");
        let told = silo.check_medications(ask, &principal).await;
        assert_eq!(told.is_ok(), is_told, "{scopes:?}");
    }
}

/// Goal: purposes come from the topology. Method: allow another one only.
/// Rows: C-34.
#[tokio::test]
async fn purposes_come_from_the_topology() {
    let bench = Bench::new();
    let mut config = bench.config(&one_patient());
    config.purposes_allowed = vec!["audit".into()];
    let silo = ClinicBackend::open(config).await.unwrap();
    assert!(view(&silo, &treating()).await.name.is_none());
    assert!(
        view(&silo, &Principal::local_operator().with_purpose("audit"))
            .await
            .name
            .is_some()
    );
}

/// Goal: a misspelt field or class doesn't silently open one. Method: configurations that must not parse.
#[test]
fn unknown_fields_and_classes_are_refused() {
    let parses = |extra: Value| {
        let mut config = json!({"id": "a", "specialty": "b", "database": "c", "seed": "d"});
        config
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        serde_json::from_value::<ClinicConfig>(config)
    };
    assert_eq!(parses(json!({})).unwrap().purposes_allowed, ["treatment"]);
    assert!(parses(json!({"classes": {"name": "identifying"}})).is_ok());
    for bad in [
        json!({"classes": {"nmae": "identifying"}}),
        json!({"classes": {"name": "secret"}}),
        json!({"purpose_allowed": ["treatment"]}),
    ] {
        assert!(parses(bad.clone()).is_err(), "{bad}");
    }
}

/// Goal: patient text is never in Debug. Method: print every type that holds some.
#[tokio::test]
async fn debug_tells_nothing_about_patients() {
    let bench = Bench::new();
    let silo = bench
        .open(&seed(&[patient(
            "CARD-001",
            "Hypertension",
            "Sleeps well.",
        )]))
        .await;
    let file = silo
        .get_patient(get("CARD-001"), &treating())
        .await
        .unwrap();
    let medications = silo
        .check_medications(
            CheckMedications {
                patient_id: "CARD-001".into(),
            },
            &anyone(),
        )
        .await
        .unwrap();
    let query = QueryPatients {
        query: "Marta hypertension".into(),
    };
    let matches = silo
        .query(QueryPatients {
            query: "hypertension".into(),
        })
        .await
        .unwrap();
    let list = silo.list_patients().await.unwrap();
    let printed = format!("{file:?} {medications:?} {query:?} {matches:?} {list:?}").to_lowercase();
    for word in [
        "marta",
        "hypertension",
        "digoxin",
        "moinho",
        "sleeps",
        "529",
    ] {
        assert!(!printed.contains(word), "{word} in {printed}");
    }
}
