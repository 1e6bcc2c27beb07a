//! Tests of the access to the HMCP agents by credentials.

use std::sync::Arc;
use std::time::Duration;

use callboard_guardrail::{GuardrailPolicy, Screen, ScreenResult};
use callboard_message::capabilities::CreateMessage;
use callboard_message::{
    Failure, FailureKind, Message, Principal, PrincipalKind, RawObject, SamplingRequest,
};
use callboard_runtime::testkit::run_with_real_time;
use callboard_runtime::{
    Agent, AgentRef, AuditValue, CallEvent, Context, Handlers, MemoryAuditStore, Store,
    SyncHandler, System,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::patients::{WriteRequest, parse_write_request, patients_of_write};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const DATA: &str = r#"clinical_data={"diagnosis": "Hypertension"}"#;
const WRITE: &str = "patient/hmcp:write";
const READ: &str = "patient/hmcp:read";

fn key(scopes: &[&str]) -> Principal {
    Principal {
        kind: PrincipalKind::ApiKey,
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        ..Principal::agent("nurse")
    }
}

fn emr(more: Value) -> EmrWritebackAgent {
    let mut config = json!({ "id": "emr" });
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    EmrWritebackAgent::new(&serde_json::from_value(config).unwrap()).unwrap()
}

fn patients() -> PatientDataAgent {
    let all = json!([{ "name": "John Smith", "id": "PT12345" }, { "name": "José da Silva", "id": "PT67890" }]);
    let config = json!({ "id": "patients", "patients": all });
    PatientDataAgent::new(&serde_json::from_value(config).unwrap()).unwrap()
}

fn write(patient_id: Option<&str>) -> WriteClinicalData {
    WriteClinicalData {
        clinical_data: RawObject::single("diagnosis", "Hypertension"),
        patient_id: patient_id.map(str::to_owned),
    }
}

fn find(name: Option<&str>) -> FindPatient {
    FindPatient {
        name: name.map(str::to_owned),
    }
}

fn turn(text: &str) -> CreateMessage {
    CreateMessage(SamplingRequest::prompt(text, 1_000).0)
}

/// Asks as a principal. A question of the agent fails the test: a refusal comes before it.
async fn ask<R, M: Message<Reply = Result<R, Failure>>>(
    agent: &AgentRef,
    principal: &Principal,
    message: M,
) -> Result<R, Failure> {
    let mut call = agent.call(message).principal(principal.clone()).start();
    while let Some(event) = call.next().await {
        assert!(!matches!(event, CallEvent::Question(_)), "a question");
    }
    call.reply().await.unwrap()
}

fn until_ended(test: impl AsyncFnOnce(&System, Arc<MemoryAuditStore>)) {
    run_with_real_time(async |system| {
        let audit = Arc::new(MemoryAuditStore::default());
        let store = Store {
            audit: audit.clone(),
            ..Store::in_memory()
        };
        system.set_store(store).unwrap();
        test(system, audit).await;
        system.shutdown(SECOND).await;
    });
}

/// Returns the audit entries so far.
async fn entries(system: &System, audit: &MemoryAuditStore) -> Vec<AuditEntry> {
    // Entries are stored in order.
    let probe = AuditEntry::new("probe");
    system.audit().record(probe).await.unwrap();
    let mut entries = audit.entries();
    entries.retain(|entry| entry.event != "probe");
    entries
}

/// Guardrail that must not be asked.
struct Unasked;

impl Agent for Unasked {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Screen>();
    }
}

impl SyncHandler<Screen> for Unasked {
    fn handle(&mut self, _: Screen, _: &mut Context) -> ScreenResult {
        panic!("a refused request was screened")
    }
}

/// Goal: a request without the scope is refused before anything else, by conversation and by tool, says
/// which scope it needs, and is in the audit. Method: credentials without it at both agents, whose
/// guardrails must not be asked; and with it.
/// Rows: H-37, X-16.
#[test]
fn scopes_are_demanded() {
    until_ended(async |system, audit| {
        let guard = GuardrailPolicy::new(system.spawn(Unasked));
        let refusing = system.spawn(emr(json!({})).with_guard(guard.clone()));
        let looking = system.spawn(patients().with_guard(guard));
        let text = format!("{DATA} patient_id=PT1");
        for scopes in [
            &[][..],
            &["hmcp:read"],
            &["HMCP:write"],
            &["hmcp:write2"],
            &["*"],
            &[READ, "patient:PT1"],
            &["patient.identity"],
        ] {
            let principal = key(scopes);
            let said = ask(&refusing, &principal, turn(&text)).await.unwrap_err();
            let tool = ask(&refusing, &principal, write(Some("PT1"))).await;
            for refused in [said, tool.unwrap_err()] {
                assert_eq!(refused.kind, FailureKind::Denied, "{scopes:?}");
                let needed = match scopes.contains(&"patient:PT1") {
                    true => WRITE,
                    false => "hmcp:write",
                };
                assert_eq!(refused.needed_scope(), Some(needed), "{scopes:?}");
                assert!(refused.message.contains(needed), "{refused}");
            }
        }
        let writer = key(&["hmcp:write"]);
        let found = ask(&looking, &writer, find(Some("John Smith"))).await;
        assert_eq!(found.unwrap_err().needed_scope(), Some("hmcp:read"));
        let refused = entries(system, &audit).await;
        assert_eq!(refused.len(), 15);
        for entry in refused {
            assert_eq!(
                entry.principal,
                Some((PrincipalKind::ApiKey, "nurse".into()))
            );
            assert_eq!(entry.outcome.as_deref(), Some("failed"));
            assert_eq!(entry.details["lacks"], AuditValue::from("scope"));
            assert_eq!(entry.details["failure"], AuditValue::from("denied"));
        }

        let agent = emr(json!({}));
        let (serving, found) = (system.spawn(agent.clone()), system.spawn(patients()));
        for scope in ["hmcp:write", "hmcp:*"] {
            assert!(ask(&serving, &key(&[scope]), turn(&text)).await.is_ok());
            let written = ask(&serving, &key(&[scope]), write(Some("PT2"))).await;
            assert!(written.unwrap().written);
        }
        assert_eq!(agent.handler().store().written_count(), 4);
        for scope in ["hmcp:read", "hmcp:*"] {
            let found = ask(&found, &key(&[scope]), find(Some("John Smith"))).await;
            assert_eq!(found.unwrap().patient_id.as_deref(), Some("PT12345"));
        }
    });
}

/// Goal: a credential for one patient writes that one's data only, whatever else the request names, and
/// is asked no question. Method: rows of requests by conversation and by tool, and what was written.
#[test]
fn writes_are_of_the_patient() {
    until_ended(async |system, audit| {
        let agent = emr(json!({}));
        let served = system.spawn(agent.clone());
        let own = key(&[WRITE, "patient:PT1"]);
        let mut written = 0;
        let turns = [
            (format!("{DATA} patient_id=PT1"), true),
            (format!("patient_id=PT1, {DATA} patient_id=PT1."), true),
            (format!("{DATA} patient_id=PT2"), false),
            (format!("{DATA} patient_id=PT11"), false),
            (format!("{DATA} patient_id=pt1"), false),
            (format!("{DATA} patient_id=ＰＴ１"), false),
            (format!("{DATA} patient_id=PT1\u{301}"), false),
            (format!("{DATA} patient_id=PT1 patient_id=PT2"), false),
            (format!("{DATA} patient_id=PT2 patient_id=PT1"), false),
            (format!("patient_id=PT2 {DATA} patient_id=PT1"), false),
            (format!("{DATA} patient_id=PT1patient_id=PT2"), false),
            (
                format!("{DATA} {DATA} patient_id=PT1 patient_id=PT2"),
                false,
            ),
            (DATA.to_owned(), false),
            ("clinical_data={} patient_id=PT2".to_owned(), false),
            ("good morning".to_owned(), false),
        ];
        for (text, is_own) in &turns {
            let said = ask(&served, &own, turn(text)).await;
            let refused = said.as_ref().err().map(|failure| failure.kind);
            let expected = (!is_own).then_some(FailureKind::Denied);
            assert_eq!(refused, expected, "{text}");
            written += u64::from(*is_own);
            assert_eq!(agent.handler().store().written_count(), written, "{text}");
        }
        for (id, is_own) in [
            (Some("PT1"), true),
            (Some("PT2"), false),
            (Some("pt1"), false),
            (Some(" PT1"), false),
            (Some("ＰＴ１"), false),
            (Some("PT1\u{200b}"), false),
            (Some(""), false),
            (None, false),
        ] {
            let tool = ask(&served, &own, write(id)).await;
            let refused = tool.as_ref().err().map(|failure| failure.kind);
            let expected = (!is_own).then_some(FailureKind::Denied);
            assert_eq!(refused, expected, "{id:?}");
            if let Err(refused) = tool {
                // Another credential wouldn't help by its scopes, and no id is told.
                assert_eq!(refused.needed_scope(), None);
                assert!(!refused.message.contains("PT"), "{refused}");
            }
            written += u64::from(is_own);
            assert_eq!(agent.handler().store().written_count(), written, "{id:?}");
        }
        // An identifier inside the data is data.
        let inside = r#"clinical_data={"note":" patient_id=PT2"} patient_id=PT1"#;
        assert!(ask(&served, &own, turn(inside)).await.is_ok());
        let records = agent.handler().store().memory_records();
        assert!(records.iter().all(|record| record.patient_id == "PT1"));
        let lacking = |entry: &&AuditEntry| {
            let lacks = entry.details.get("lacks");
            lacks == Some(&AuditValue::from("patient"))
        };
        let audited = entries(system, &audit).await;
        assert_eq!(audited.iter().filter(lacking).count(), 13 + 7);
        // Without a patient, or with several, the scope opens nothing.
        for scopes in [&[WRITE][..], &[WRITE, "patient:PT1", "patient:PT2"]] {
            let unbound = ask(&served, &key(scopes), write(Some("PT1"))).await;
            let refused = unbound.unwrap_err();
            assert!(refused.message.contains("must name one"), "{refused}");
        }
    });
}

/// Goal: a credential for one patient finds that one, and can't learn who else is known. Method: names in
/// other forms, and of others, known and unknown, by conversation and by tool.
#[test]
fn lookups_are_of_the_patient() {
    until_ended(async |system, _| {
        let agent = system.spawn(patients());
        let own = key(&[READ, "patient:PT67890"]);
        for name in ["José da Silva", "JOSE DA SILVA", "Jose\u{301} da  Silva"] {
            let found = ask(&agent, &own, find(Some(name))).await.unwrap();
            assert_eq!(found.patient_id.as_deref(), Some("PT67890"), "{name}");
            let text = format!("patient identifier for {name}");
            assert!(ask(&agent, &own, turn(&text)).await.is_ok(), "{name}");
        }
        let mut refusals = Vec::new();
        for name in ["John Smith", "Ann Other", "José da Silva Souza", "..."] {
            refusals.push(ask(&agent, &own, find(Some(name))).await.unwrap_err());
            let text = format!("patient identifier for {name}");
            refusals.push(ask(&agent, &own, turn(&text)).await.unwrap_err());
        }
        for other in ["John Smith", "Ann Other"] {
            let both = format!("patient identifier for {other} and José da Silva");
            refusals.push(ask(&agent, &own, turn(&both)).await.unwrap_err());
        }
        refusals.push(ask(&agent, &own, turn("good morning")).await.unwrap_err());
        for refused in &refusals {
            assert_eq!(refused, &refusals[0]);
            assert_eq!(refused.kind, FailureKind::Denied);
        }
        for name in [None, Some(""), Some(" ")] {
            let refused = ask(&agent, &own, find(name)).await.unwrap_err();
            assert!(
                refused.message.contains("must name that patient"),
                "{name:?}"
            );
        }
        // Of a malformed request nothing is told before its access.
        let empty = CreateMessage(RawObject::single("messages", json!([])));
        let refused = ask(&agent, &own, empty).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Denied);
    });
}

/// Goal: an agent of a tenant serves that one's credentials and the operator, and without a tenant nothing
/// changes. Method: credentials of each kind at both.
#[test]
fn tenants_are_served_alone() {
    until_ended(async |system, _| {
        let (of_acme, of_all) = (emr(json!({ "tenant": "acme" })), emr(json!({})));
        // As a restart, which clones the agent.
        let (of_acme, of_all) = (system.spawn(of_acme.clone()), system.spawn(of_all));
        for (principal, is_of, is_served) in [
            (key(&["hmcp:write", "tenant:acme"]), true, true),
            (key(&["hmcp:write", "tenant:other"]), false, true),
            (key(&["hmcp:write", "tenant:ACME"]), false, true),
            (key(&["hmcp:write"]), false, true),
            (key(&["tenant:acme"]), false, false),
            (Principal::anonymous(), false, true),
            (Principal::local_operator(), true, true),
            (Principal::system(), true, true),
        ] {
            let at = async |agent: &AgentRef| ask(agent, &principal, write(Some("PT1"))).await;
            assert_eq!(at(&of_acme).await.is_ok(), is_of, "{principal:?}");
            assert_eq!(at(&of_all).await.is_ok(), is_served, "{principal:?}");
        }
    });
}

fn words() -> impl Strategy<Value = String> {
    let words = [
        "clinical_data=",
        "{\"a\":1}",
        "{}",
        "{\"b\":\" patient_id=PT3\"}",
        "patient_id=",
        "PT1",
        "PT2",
        " ",
        "\n",
        ".",
        ",",
        "}",
        "\"",
        "é",
        "x",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..4)
        .prop_map(|words| words.concat())
}

proptest! {
    /// Goal: a request writes for no patient that it isn't taken to name. Method: requests with words of
    /// the grammar before, in between and behind.
    #[test]
    fn written_patients_are_named((before, between, behind) in (words(), words(), words())) {
        let text = format!("{before}clinical_data={{\"a\":1}}{between} patient_id=PT1 {behind}");
        if let WriteRequest::Write(_, id) = parse_write_request(&text) {
            match patients_of_write(&text) {
                NamedPatients::One(named) => prop_assert_eq!(named, id),
                named => prop_assert_eq!(named, NamedPatients::Unclear),
            }
        }
    }
}
