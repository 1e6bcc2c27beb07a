use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, FailureKind, Principal, PrincipalKind};
use callboard_runtime::{
    AgentRef, AuditEntry, AuditValue, CallContext, MemoryAuditStore, Store, System, testkit,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tracing::level_filters::LevelFilter;

use super::super::agent::{Clinic, PENDING_READS_MAX};
use super::super::config::ClinicConfig;
use super::super::messages::{CheckMedications, GetPatient, ListPatients, QueryPatients};
use super::{Bench, anyone, one_patient, treating};
use crate::recording::Recording;

/// Longer than any test here needs.
const DRAIN_MAX: Duration = Duration::from_secs(10);

fn with_clinic(config: ClinicConfig, test: impl AsyncFnOnce(&AgentRef)) {
    testkit::run_with_real_time(async |system: &System| {
        let clinic = Clinic::open(config).await.unwrap();
        let agent = system.spawn_with(move || clinic.clone());
        test(&agent).await;
        system.shutdown(DRAIN_MAX).await;
    });
}

/// Sends a message as a protocol adapter does: by name, with JSON, for a principal.
async fn ask(
    agent: &AgentRef,
    name: &str,
    arguments: Value,
    principal: Principal,
) -> Result<Value, Failure> {
    let payload = RawValue::from_string(arguments.to_string()).unwrap();
    let call = Arc::new(CallContext::new(Arc::new(principal)));
    let reply = agent.ask_named(name, payload, Some(call)).await?;
    Ok(serde_json::from_str(reply.get()).unwrap())
}

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// Goal: the four tools can be called by name, as documented. Method: call the cardiology example.
#[test]
fn tools_answer_by_name() {
    let bench = Bench::new();
    with_clinic(bench.example_config("cardiology"), async |agent| {
        let names: Vec<String> = agent.specs().into_iter().map(|s| s.name).collect();
        for name in ["list_patients", "get_patient", "check_medications", "query"] {
            assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
        }
        assert_eq!(names.len(), 4);

        let list = ask(agent, "list_patients", json!({}), anyone())
            .await
            .unwrap();
        assert_eq!(keys(&list), ["patients"]);
        for row in list["patients"].as_array().unwrap() {
            assert_eq!(keys(row), ["condition", "patient_id"]);
        }
        let file = ask(
            agent,
            "get_patient",
            json!({"patient_id": "CARD-001"}),
            anyone(),
        )
        .await
        .unwrap();
        assert_eq!(file["patient"]["patient_id"], "CARD-001");
        assert_eq!(file["patient"]["condition"], "Hypertension");
        let taken = ask(
            agent,
            "check_medications",
            json!({"patient_id": "CARD-001"}),
            anyone(),
        )
        .await
        .unwrap();
        assert_eq!(keys(&taken), ["medications", "patient_id"]);
        let found = ask(agent, "query", json!({"query": "amiodarona"}), anyone())
            .await
            .unwrap();
        assert_eq!(
            (&found["specialty"], &found["query"]),
            (&json!("cardiology"), &json!("amiodarona"))
        );
        let matches = found["matches"].as_array().unwrap();
        assert!(!matches.is_empty());
        assert!(
            matches
                .iter()
                .all(|row| keys(row) == ["condition", "patient_id"])
        );
    });
}

/// Goal: invalid calls fail with the right kind. Method: rows of bad calls.
#[test]
fn bad_asks_are_refused() {
    let bench = Bench::new();
    with_clinic(bench.config(&one_patient()), async |agent| {
        for (name, arguments, kind) in [
            ("dump_all", json!({}), FailureKind::NotFound),
            (
                "get_patient",
                json!({"patient_id": "CARD-999"}),
                FailureKind::NotFound,
            ),
            (
                "get_patient",
                json!({"patient_id": "CARD-001", "all": true}),
                FailureKind::InvalidInput,
            ),
            (
                "get_patient",
                json!({"patient_id": 1}),
                FailureKind::InvalidInput,
            ),
            ("get_patient", json!({}), FailureKind::InvalidInput),
            (
                "list_patients",
                json!({"limit": 10}),
                FailureKind::InvalidInput,
            ),
            ("query", json!({"query": ""}), FailureKind::InvalidInput),
        ] {
            let failure = ask(agent, name, arguments.clone(), treating())
                .await
                .unwrap_err();
            assert_eq!(failure.kind, kind, "{name} {arguments}: {failure}");
        }
    });
}

/// Goal: the principal of the call decides; a message without a call is anonymous. Method: the same
/// record requested three ways.
#[test]
fn the_calls_principal_decides() {
    let bench = Bench::new();
    with_clinic(bench.config(&one_patient()), async |agent| {
        let get = || json!({"patient_id": "CARD-001"});
        let treated = ask(agent, "get_patient", get(), treating()).await.unwrap();
        assert_eq!(treated["patient"]["name"], "Marta Vilanova Prado");
        let curious = ask(agent, "get_patient", get(), Principal::local_operator())
            .await
            .unwrap();
        assert_eq!(curious["patient"].get("name"), None);
        let plain = agent
            .ask(GetPatient {
                patient_id: "CARD-001".into(),
            })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(plain.patient.name, None);
    });
}

/// Goal: calls beyond the concurrency limit are all answered. Method: four times as many at once,
/// of every type.
#[test]
fn asks_over_the_limit_wait() {
    let bench = Bench::new();
    with_clinic(bench.config(&one_patient()), async |agent| {
        let asks = (0..PENDING_READS_MAX * 4).map(|_| async move {
            let patient_id = || "CARD-001".to_owned();
            assert!(agent.ask(ListPatients {}).await.unwrap().is_ok());
            assert!(
                agent
                    .ask(GetPatient {
                        patient_id: patient_id()
                    })
                    .await
                    .unwrap()
                    .is_ok()
            );
            assert!(
                agent
                    .ask(CheckMedications {
                        patient_id: patient_id()
                    })
                    .await
                    .unwrap()
                    .is_ok()
            );
            assert!(
                agent
                    .ask(QueryPatients {
                        query: "hypertension".into()
                    })
                    .await
                    .unwrap()
                    .is_ok()
            );
        });
        futures::future::join_all(asks).await;
    });
}

/// Goal: cancelled calls have no effect on later ones. Method: begin and drop many, then call.
#[test]
fn dropped_asks_do_no_harm() {
    let bench = Bench::new();
    with_clinic(bench.config(&one_patient()), async |agent| {
        for _ in 0..PENDING_READS_MAX * 4 {
            let mut asked = Box::pin(agent.ask(ListPatients {}).into_future());
            let _ = futures::poll!(&mut asked);
            drop(asked);
        }
        let list = agent
            .ask(ListPatients {})
            .within(DRAIN_MAX)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(list.patients.len(), 1);
    });
}

/// Goal: a failed read hides its cause from the sender, and no log holds patient text. Method: use
/// everything, then break a table under the agent; record all logging and search it.
#[test]
fn failed_reads_and_logs_tell_nothing_about_patients() {
    let recording = Recording::start(LevelFilter::TRACE);
    let bench = Bench::new();
    let config = bench.config(&one_patient());
    let database = config.database.clone();
    with_clinic(config, async |agent| {
        let get = || json!({"patient_id": "CARD-001"});
        ask(agent, "get_patient", get(), treating()).await.unwrap();
        ask(agent, "query", json!({"query": "Marta"}), treating())
            .await
            .unwrap();
        let mut other = SqliteConnectOptions::new()
            .filename(&database)
            .connect()
            .await
            .unwrap();
        sqlx::query("DROP TABLE medication")
            .execute(&mut other)
            .await
            .unwrap();
        let failure = ask(agent, "get_patient", get(), treating())
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert_eq!(
            failure.message,
            "the clinic's database can't be read: its operator finds the reason in the log"
        );
    });
    let log = recording.text();
    assert!(
        log.contains("the clinic's database can't be read"),
        "the operator is told: {log}"
    );
    for word in [
        "Marta",
        "Vilanova",
        "Moinho",
        "529.982",
        "Hypertension",
        "Digoxin",
        "Sleeps",
    ] {
        assert!(!log.contains(word), "{word} in {log}");
    }
}

fn bound(scopes: &[&str]) -> Principal {
    Principal {
        kind: PrincipalKind::ApiKey,
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        ..Principal::agent("app")
    }
}

/// Goal: a credential for one patient, or of another tenant, gets no data of others, and its refusals are
/// in the audit; neither ids nor contents are. Method: each tool as such credentials, as one for all data,
/// as a guest and as the operator; ids in other forms; the entries afterwards.
/// Rows: X-36.
#[test]
fn patients_and_tenants_bind() {
    let bench = Bench::new();
    let mut config = bench.example_config("cardiology");
    config.tenant = Some("acme".into());
    with_clinic(config, async |agent| {
        let audit = Arc::new(MemoryAuditStore::default());
        let store = Store {
            audit: audit.clone(),
            ..Store::in_memory()
        };
        agent.system().set_store(store).unwrap();
        let calls = [
            ("get_patient", json!({"patient_id": "CARD-001"}), true),
            ("check_medications", json!({"patient_id": "CARD-001"}), true),
            ("get_patient", json!({"patient_id": "CARD-002"}), false),
            (
                "check_medications",
                json!({"patient_id": "CARD-002"}),
                false,
            ),
            ("get_patient", json!({"patient_id": "card-001"}), false),
            ("get_patient", json!({"patient_id": "CARD-００１"}), false),
            ("get_patient", json!({"patient_id": "CARD-999"}), false),
            ("get_patient", json!({"patient_id": ""}), false),
            ("list_patients", json!({}), false),
            ("query", json!({"query": "CARD-001 hypertension"}), false),
        ];
        let own = bound(&["tenant:acme", "patient:CARD-001"]);
        for (name, arguments, is_own) in &calls {
            let told = ask(agent, name, arguments.clone(), own.clone()).await;
            let refused = told.err().map(|failure| failure.kind);
            let expected = (!is_own).then_some(FailureKind::Denied);
            assert_eq!(refused, expected, "{name} {arguments}");
        }
        let list = async |principal| ask(agent, "list_patients", json!({}), principal).await;
        for principal in [
            bound(&["tenant:acme"]),
            bound(&["tenant:acme", "patient:CARD-001", "hmcp:read"]),
            Principal::local_operator(),
        ] {
            assert!(list(principal.clone()).await.is_ok(), "{principal:?}");
        }
        for principal in [
            bound(&[]),
            bound(&["tenant:other", "hmcp:*"]),
            bound(&["tenant:ACME"]),
            bound(&["tenant:acme", "patient/hmcp:read"]),
            bound(&["tenant:acme", "patient:CARD-001", "patient:CARD-002"]),
            anyone(),
        ] {
            let refused = list(principal.clone()).await.unwrap_err();
            assert_eq!(refused.kind, FailureKind::Denied, "{principal:?}");
        }
        let entries = audit.entries();
        assert_eq!(entries.len(), 8 + 6);
        for entry in &entries {
            assert_eq!(
                (&*entry.event, entry.outcome.as_deref()),
                ("denied", Some("denied"))
            );
            let written = format!("{entry:?}");
            assert!(!written.contains("CARD-"), "{written}");
        }
        let lacks = |what: &str| {
            let with = |entry: &&AuditEntry| entry.details["lacks"] == AuditValue::from(what);
            entries.iter().filter(with).count()
        };
        assert_eq!((lacks("patient"), lacks("tenant")), (8 + 2, 4));
    });
}
